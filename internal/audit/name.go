package audit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// DisplayName returns the name of the object as people read it: a name, or "source -> destination
// (key)" for a binding.
func (f Finding) DisplayName() string {
	if f.Object.Kind != topology.KindBinding {
		return text.Name(f.Object.Name)
	}
	return bindingName(f.Object.Name)
}

// bindingName makes the name of a binding of its identity, in which source, type and name of the
// destination, and key are quoted; see [topology.Binding.Identity].
func bindingName(identity string) string {
	word := func() string {
		quoted, err := strconv.QuotedPrefix(identity)
		if err != nil {
			quoted, _, _ = strings.Cut(identity, " ")
		}
		identity = strings.TrimPrefix(identity[len(quoted):], " ")
		if s, err := strconv.Unquote(quoted); err == nil {
			return s
		}
		return quoted
	}
	b := topology.Binding{Source: word(), DestinationType: word(), Destination: word(), Key: word()}
	name := b.String()
	if identity != "" && identity != "{}" {
		name += " " + identity
	}
	return topology.Printable(name)
}

// Place returns "file:line", and after a comma that of an overlay. It is empty for a broker.
func (f Finding) Place() string {
	switch {
	case f.Position.File == "":
		return ""
	case f.Position.Line == 0:
		return f.Position.File
	default:
		return f.Position.String()
	}
}

// group is a consequence that several rules are about.
type group struct {
	title string
	rules []string
}

// resultGroups are the consequences, the worst first. A rule is in one of them.
func resultGroups() []group {
	return []group{
		{"Failed messages are lost", []string{
			"dead-letter-exchange-missing", "dead-letter-queue-missing", "dead-letter-unrouted", "dead-letter-partly-unrouted",
			"dead-letter-key-without-exchange", "expires-into-nothing", "overflows-into-nothing",
			"delivery-limit-into-nothing", "overflow-not-supported", "at-least-once-not-in-effect",
			"dead-letters-at-most-once", "no-dead-lettering",
			"consumer-acks-automatically",
		}},
		{"Dead letters are not kept", []string{
			"dead-letter-queue-expires", "dead-letter-queue-deleted", "dead-letter-queue-drops",
			"dead-letter-queue-delivery-limit", "dead-letter-queue-dead-letters", "policy-catches-dead-letter-queue",
			"dead-letter-queue-not-durable", "dead-letter-queue-refuses", "dead-letter-queue-shared",
			"dead-letters-growing", "oldest-dead-letter",
		}},
		{"RabbitMQ drops retries, or they never end", []string{
			"cycle-cut", "dead-letters-to-itself", "retries-forever", "retry-queue-starves",
			"retry-queue-returns-nothing", "waiting-queue-deleted",
		}},
		{"Published messages are lost or arrive elsewhere", []string{
			"alternate-exchange-missing", "alternate-exchange-unrouted", "no-alternate-exchange", "exchange-unbound",
			"queue-unbound", "binding-dangling",
			"wildcard-on-direct", "headers-binding-empty", "key-on-fanout", "not-durable", "no-consumers",
			"queue-without-leader", "delayed-plugin",
		}},
		{"Policies and arguments do not do what they say", []string{
			"policies-tie", "policy-shadowed", "policy-overruled-by-argument", "policy-matches-nothing",
			"policy-not-in-effect", "policy-passed-over", "argument-unknown", "delayed-retry-disregarded",
			"limit-minus-one-on-3x",
		}},
		{"RabbitMQ refuses or changes the definitions", []string{
			"mirroring-policy", "type-without-argument", "field-missing", "defined-twice", "argument-refused",
			"policy-refused", "topic-key-refused",
			"exchange-left-out",
		}},
		{"Another line of RabbitMQ changes or drops something", []string{
			"upgrade-transient-queue", "upgrade-delivery-limit", "upgrade-consumer-timeout", "upgrade-lazy-mode",
			"upgrade-storage-version", "upgrade-priorities",
		}},
		{"A migration or a run of the desk left something", []string{
			"migration-unfinished", "legacy-still-bound", "desk-run-unfinished", "desk-messages-parked",
		}},
	}
}

// otherGroup is the consequence of rules that are in no group.
const otherGroup = "Other"

// groupOf returns the index of a rule's consequence, and its title.
func groupOf(rule string) (int, string) {
	groups := resultGroups()
	i := slices.IndexFunc(groups, func(g group) bool { return slices.Contains(g.rules, rule) })
	if i < 0 {
		return len(groups), otherGroup
	}
	return i, groups[i].title
}
