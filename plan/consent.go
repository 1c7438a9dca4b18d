package plan

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Consent allows a hazard. Its text, HAZARD=OBJECT or HAZARD, is that of --allow
// and of saved plans.
type Consent struct {
	Hazard topology.Hazard
	// Object names what the hazard is allowed for: a queue, an exchange or a policy.
	// It covers the bindings that begin or end there, and the policy of a queue.
	// Empty: every change.
	Object string
}

// Allow returns consent to hazards for every change.
func Allow(hazards ...topology.Hazard) []Consent {
	var out []Consent
	for _, h := range hazards {
		out = append(out, Consent{Hazard: h})
	}
	return out
}

// ParseConsent reads HAZARD=OBJECT or HAZARD. The hazard must be one of [topology.Hazards].
func ParseConsent(text string) (Consent, error) {
	hazard, object, named := strings.Cut(text, "=")
	c := Consent{topology.Hazard(hazard), object}
	switch {
	case !slices.Contains(topology.Hazards(), c.Hazard):
		return Consent{}, fmt.Errorf("%q is not a hazard", hazard)
	case named && object == "":
		return Consent{}, fmt.Errorf("%q names no object", text)
	}
	return c, nil
}

// String returns the consent as ParseConsent reads it.
func (c Consent) String() string {
	if c.Object == "" {
		return string(c.Hazard)
	}
	return string(c.Hazard) + "=" + c.Object
}

// MarshalText returns String.
func (c Consent) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what ParseConsent reads.
func (c *Consent) UnmarshalText(text []byte) (err error) {
	*c, err = ParseConsent(string(text))
	return err
}

// Flag returns the consent as a flag to paste into a shell.
func (c Consent) Flag() string {
	var b strings.Builder
	w := csv.NewWriter(&b) // the flag takes a list with commas
	_ = w.Write([]string{c.String()})
	w.Flush()
	return "--allow " + text.ShellQuote(strings.TrimSuffix(b.String(), "\n"))
}

// consents are what was allowed: by the user, by the names that the file lists under removed, and
// by those of the queues that have replace: true.
type consents struct {
	allow            []Consent
	removed, replace []string
}

func (p Plan) consents(allow []Consent) consents { return consents{allow, p.Removed, p.Replace} }

// refused returns the hazards of c that need consent and have none.
func (s consents) refused(c Change) []topology.Hazard {
	var out []topology.Hazard
	for _, h := range c.Hazards {
		if slices.Contains(topology.Hazards(), h) && !s.cover(c, h) {
			out = append(out, h)
		}
	}
	return out
}

// cover reports whether a hazard of c is allowed. A name under removed allows that
// routing ends with the deletion of the object, and nothing else: messages and
// consumers that are still there speak against it.
func (s consents) cover(c Change, h topology.Hazard) bool {
	objects := c.objects()
	if h == topology.ReplacesQueue && slices.Contains(s.replace, c.Name) {
		return true
	}
	return slices.ContainsFunc(s.allow, func(a Consent) bool {
		return a.Hazard == h && (a.Object == "" || slices.Contains(objects, a.Object))
	}) || h == topology.DropsRouting && c.Action == Delete && slices.ContainsFunc(s.removed, func(name string) bool {
		return slices.Contains(objects, name)
	})
}

// AllowedByFile reports whether the file allows a hazard of c: see [Plan.Removed]
// and [Plan.Replace].
func (p Plan) AllowedByFile(c Change, h topology.Hazard) bool { return p.consents(nil).cover(c, h) }

// objects returns the names by which a consent can name a change.
func (c Change) objects() []string {
	b, isBinding := c.Object().(topology.Binding)
	switch {
	case isBinding && c.Action == Create && b.Label.Role == topology.RoleDeadLetter:
		return []string{b.Label.Queue} // the work queue whose dead letters it leads
	case isBinding && addressed(b) != "" &&
		(c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleDeadLetter):
		return []string{addressed(b), b.Destination, b.Source} // the work queue whose failures it leads
	case isBinding:
		return []string{b.Destination, b.Source}
	case c.Kind == topology.KindPolicy && c.Label.Queue != "":
		return []string{c.Label.Queue, c.Name}
	default:
		return []string{c.Name}
	}
}

// narrow returns the consents that allow hazard h of changes, one object each, and no
// more of them than it takes: that for a queue covers its bindings.
func narrow(changes []Change, h topology.Hazard) []Consent {
	named := map[string]bool{}
	for _, c := range changes {
		if c.Kind == topology.KindQueue || c.Kind == topology.KindExchange {
			named[c.Name] = true
		}
	}
	for _, c := range changes {
		if objects := c.objects(); !slices.ContainsFunc(objects, func(name string) bool { return named[name] }) {
			named[objects[0]] = true
		}
	}
	var out []Consent
	for name := range named {
		out = append(out, Consent{h, name})
	}
	slices.SortFunc(out, func(a, b Consent) int { return strings.Compare(a.Object, b.Object) })
	return out
}

// mostFlags is how many flags a message shows for one hazard.
const mostFlags = 20

// flags returns the flags that allow hazard h of changes: one for each object, or where those are
// too many to show, one for every change.
func flags(changes []Change, h topology.Hazard) string {
	list := narrow(changes, h)
	if len(list) > mostFlags {
		list = Allow(h)
	}
	return strings.Join(text.Each(list, Consent.Flag), " ")
}

// refusals returns the changes of p with a hazard that is not allowed, by hazard.
func (p Plan) refusals(allow []Consent) map[topology.Hazard][]Change {
	s := p.consents(allow)
	out := map[topology.Hazard][]Change{}
	for _, c := range p.Changes {
		if c.ReplacesQueue() {
			continue // it is blocked
		}
		for _, h := range s.refused(c) {
			out[h] = append(out[h], c)
		}
	}
	return out
}

// Needs returns the flags that allow what is not allowed yet. Empty: nothing is missing.
func (p Plan) Needs(allow []Consent) string {
	refused := p.refusals(allow)
	var out []string
	for _, h := range topology.Hazards() {
		if len(refused[h]) > 0 {
			out = append(out, flags(refused[h], h))
		}
	}
	return strings.Join(out, " ")
}

// removals returns the names that, listed under removed in the file, allow what p may
// not do yet. Nil where that is not enough, or not needed.
func (p Plan) removals(allow []Consent) []string {
	refused := p.refusals(allow)
	if len(refused) != 1 || slices.ContainsFunc(refused[topology.DropsRouting],
		func(c Change) bool { return c.Action != Delete }) {
		return nil
	}
	var names []string
	for _, c := range narrow(refused[topology.DropsRouting], topology.DropsRouting) {
		going := func(d Change) bool {
			return d.Action == Delete && d.Name == c.Object && (d.Kind == topology.KindQueue || d.Kind == topology.KindExchange)
		}
		if !slices.ContainsFunc(p.Changes, going) {
			return nil // it stays, and loses a binding
		}
		names = append(names, c.Object)
	}
	return names
}

// ofReplacements are hazards that a replacement under the same name may turn out to have:
// publishers send to the name of the queue, or consumers do not come back.
func ofReplacements() []topology.Hazard {
	return []topology.Hazard{topology.DropsRouting, topology.StopsConsumers, topology.UncountedNack}
}

// concerned returns those of changes that have the hazard of a consent, or may turn out to have it,
// and that it covers.
func (c Consent) concerned(changes []Change) []Change {
	var out []Change
	for _, d := range changes {
		concerns := slices.Contains(d.Hazards, c.Hazard) ||
			d.ReplacesQueue() && slices.Contains(ofReplacements(), c.Hazard)
		if concerns && (c.Object == "" || slices.Contains(d.objects(), c.Object)) {
			out = append(out, d)
		}
	}
	return out
}

// Narrowed returns allow with a consent for each object of p that it concerns, in place of one for
// every change: what was said of p allows nothing that only a later plan has.
func (p Plan) Narrowed(allow []Consent) []Consent {
	var out []Consent
	for _, a := range allow {
		if a.Object != "" {
			out = append(out, a)
		} else {
			out = append(out, narrow(a.concerned(p.Changes), a.Hazard)...)
		}
	}
	return out
}

// Notes says what a person should know of the consents that were given for p: which
// allow more than one object, and which allow nothing.
func (p Plan) Notes(allow []Consent) []string {
	var out []string
	for _, a := range allow {
		concerned := a.concerned(append(slices.Clone(p.Changes), p.Drift...))
		switch {
		case a.Object == "" && len(concerned) == 0:
			out = append(out, fmt.Sprintf("%s allows this hazard for every change; to allow it for one object: %s=NAME",
				a.Flag(), a.Flag()))
		case a.Object == "" && len(narrow(concerned, a.Hazard)) > mostFlags:
			out = append(out, fmt.Sprintf("%s allows this hazard for every change (%d objects); to allow it for one object: %s=NAME",
				a.Flag(), len(narrow(concerned, a.Hazard)), a.Flag()))
		case a.Object == "":
			out = append(out, fmt.Sprintf("%s allows this hazard for every change; to allow it for these objects only: %s",
				a.Flag(), flags(concerned, a.Hazard)))
		case len(concerned) == 0:
			out = append(out, fmt.Sprintf("%s allows nothing: no change of %s has this hazard", a.Flag(), text.Name(a.Object)))
		}
	}
	return out
}

// flow returns names as a list of a YAML file.
func flow(names []string) string {
	out := text.Each(names, flowName)
	return "[" + strings.Join(out, ", ") + "]"
}

// flowName returns a name as a value of a YAML file.
func flowName(name string) string {
	plain := func(r rune) bool {
		return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("._-", r) || r >= '0' && r <= '9'
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) || strings.Trim(name, "0123456789._-") == "" {
		return strconv.Quote(name)
	}
	return name
}
