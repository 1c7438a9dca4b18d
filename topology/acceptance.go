package topology

import (
	"slices"
	"strings"
)

// Acceptance settles a warning: a topology file lists it under accept, as WARNING=OBJECT or as
// WARNING.
type Acceptance struct {
	// Warning is the fixed name of the warning, one of [AcceptableWarnings].
	Warning string `json:"warning"`
	// Object names the queue, exchange, policy or backoff that the warning is about. Empty:
	// any.
	Object string `json:"object"`
}

// ParseAcceptance splits WARNING=OBJECT or WARNING. It does not check the name.
func ParseAcceptance(text string) Acceptance {
	warning, object, _ := strings.Cut(text, "=")
	return Acceptance{warning, object}
}

// String returns the acceptance as ParseAcceptance reads it.
func (a Acceptance) String() string {
	if a.Object == "" {
		return a.Warning
	}
	return a.Warning + "=" + a.Object
}

// Accepts reports whether list settles a warning about objects: by its name alone, or for each
// of the objects.
func Accepts(list []Acceptance, warning string, objects []string) bool {
	has := func(object string) bool { return slices.Contains(list, Acceptance{warning, object}) }
	return has("") ||
		len(objects) > 0 && !slices.ContainsFunc(objects, func(object string) bool { return !has(object) })
}

// AcceptableWarnings returns the names of the warnings that a file can settle. The others end by
// themselves, or tell that messages are lost.
func AcceptableWarnings() []string {
	return append(acceptableAlone(), WarnEndsDelay, WarnLimitedDeadLetters, WarnNoProcessor, WarnOverruled,
		WarnStarvesTier)
}

// NeedsObject reports whether an acceptance of the warning must name an object: a new policy of
// another team, or a new backoff, must not be accepted before a reviewer has seen it.
func NeedsObject(warning string) bool { return !slices.Contains(acceptableAlone(), warning) }

func acceptableAlone() []string {
	return []string{
		WarnDefaultDeliveryLimit, WarnForgedDeath, WarnIgnoredKey, WarnMissingRights, WarnNoQueues,
		WarnOddExchangeType, WarnRenamed, WarnUnknownArgument, WarnUnusedBackoff,
	}
}
