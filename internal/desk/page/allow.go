package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Allowed is the actions that the page may do. Empty is read-only.
type Allowed []desk.Action

// Allowable returns the words of --allow.
func Allowable() []string {
	var words []string
	for _, kind := range desk.Kinds() {
		if kind.AllowedBy == kind.Action {
			words = append(words, string(kind.Action))
		}
	}
	return words
}

// ParseAllowed reads the words of --allow. park allows to restore what was parked, too.
func ParseAllowed(words []string) (Allowed, error) {
	var a Allowed
	for _, word := range words {
		if !slices.Contains(Allowable(), word) {
			return nil, fmt.Errorf("--allow %q is not an action of the page; write %s", word,
				strings.Join(Allowable(), ", "))
		}
		for _, kind := range desk.Kinds() {
			if string(kind.AllowedBy) == word {
				a = append(a, kind.Action)
			}
		}
	}
	slices.Sort(a)
	return slices.Compact(a), nil
}

// permits reports whether the page may do an action.
func (a Allowed) permits(action desk.Action) bool { return slices.Contains(a, action) }

// refusal says why an action is not done, and how to go on.
func (a Allowed) refusal(action desk.Action) string {
	word := action.Kind().AllowedBy
	if word == "" {
		return fmt.Sprintf("%q is not an action of the page; the page can %s", action, strings.Join(Allowable(), ", "))
	}
	return fmt.Sprintf("this page may not %s; start it with 'dlxctl desk serve --allow %s', or use the command line", action, word)
}
