package audit

import (
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

// Group is the consequence that a rule is about, as reports have it for a title.
type Group string

const (
	groupLost      Group = "Failed messages are lost"
	groupNotKept   Group = "Dead letters are not kept"
	groupRetries   Group = "RabbitMQ drops retries, or they never end"
	groupPublished Group = "Published messages are lost or arrive elsewhere"
	groupNoEffect  Group = "Policies and arguments do not do what they say"
	groupRefused   Group = "RabbitMQ refuses or changes the definitions"
	groupUpgrade   Group = "Another line of RabbitMQ changes or drops something"
	groupLeftovers Group = "A migration or a run of the desk left something"
)

// groups returns all groups, the worst first.
func groups() []Group {
	return []Group{
		groupLost, groupNotKept, groupRetries, groupPublished, groupNoEffect, groupRefused, groupUpgrade, groupLeftovers,
	}
}
