package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// What keeps a plan from being carried out.
var (
	// ErrBlocked is wrapped by the error of Check when something is blocked.
	ErrBlocked = errors.New("the plan is blocked")
	// ErrHazard is wrapped by the error of Check when a hazard is not allowed.
	ErrHazard = errors.New("the plan has hazards that are not allowed")
)

// Check refuses a plan in which anything is blocked, or has a hazard that
// nobody has allowed by name: all or nothing.
func Check(p Plan, allow []Hazard) error {
	n := p.Count(Blocked)
	for _, c := range p.Changes {
		if c.IsEndured() {
			n-- // its hazard is asked for below
		}
	}
	if n > 0 {
		return fmt.Errorf("%w by %s, shown above with the ways out; nothing was written", ErrBlocked, countOf(n, "change"))
	}
	refused := map[Hazard]int{}
	for _, c := range p.Changes {
		for _, h := range refusedHazards(c, allow) {
			refused[h]++
		}
	}
	if len(refused) == 0 {
		return nil
	}
	var parts, flags []string
	for _, h := range Hazards() {
		if n := refused[h]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", h, countOf(n, "change")))
			flags = append(flags, "--allow "+string(h))
		}
	}
	return fmt.Errorf("%w: %s; nothing was written. To consent: %s", ErrHazard, strings.Join(parts, ", "), strings.Join(flags, " "))
}

// refusedHazards gives the hazards of c that need consent and have none.
func refusedHazards(c Change, allow []Hazard) []Hazard {
	var out []Hazard
	for _, h := range c.Hazards {
		if slices.Contains(Hazards(), h) && !slices.Contains(allow, h) {
			out = append(out, h)
		}
	}
	return out
}

// Allowed gives the part of p that may be carried out: without what is blocked
// or has a hazard that is not allowed, and without what belongs to that. What
// stays keeps its bindings and its policy; a work queue its way back and its
// dead-letter queue; a failed queue all of the loop that its messages may still
// go through, the way back included; a tier the way back; an exchange stays as
// long as a binding of it does.
func Allowed(p Plan, allow []Hazard) Plan {
	h := held{objects: map[topology.Key]bool{}, queues: map[string]bool{}, backoffs: map[string]bool{}, bound: map[string]bool{}}
	stays := make([]bool, len(p.Changes))
	for more := true; more; {
		more = false
		for i, c := range p.Changes {
			if !stays[i] && (c.Action == Blocked || len(refusedHazards(c, allow)) > 0 || h.holds(c)) {
				stays[i], more = true, true
				h.hold(c)
			}
		}
	}
	out := p
	out.Changes = nil
	for i, c := range p.Changes {
		if !stays[i] {
			out.Changes = append(out.Changes, c)
		}
	}
	return out
}

// held is what stays as it is.
type held struct {
	objects  map[topology.Key]bool
	queues   map[string]bool // work queues
	backoffs map[string]bool // those of failed queues
	bound    map[string]bool // exchanges that keep a binding
	returns  bool            // what leads messages back
}

// hold notes that c is not carried out.
func (h *held) hold(c Change) {
	inLoop := c.Kind == topology.KindQueue && (c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleRetry)
	if c.Action == Delete && (inLoop || c.Label.Role == topology.RoleReturn) {
		h.returns = true
	}
	if b, ok := c.Before.(topology.Binding); ok {
		h.bound[b.Source] = true
		h.bound[b.Destination] = h.bound[b.Destination] || b.DestinationType == topology.ToExchange
		return
	}
	if c.LeadsBack() && c.Label.Role == topology.RoleReturn {
		return // of its bindings, those stay that lead back; one to a queue that goes goes first
	}
	h.objects[c.key()] = true
	switch {
	case c.Kind != topology.KindQueue:
	case c.Label.Role == topology.RoleWork:
		h.queues[c.Name] = true
	case c.Label.Role == topology.RoleFailed && c.Action == Delete:
		h.backoffs[c.Label.Backoff] = true
	}
}

// holds reports whether c belongs to what stays.
func (h *held) holds(c Change) bool {
	if h.keepsExposed(c) {
		return true
	}
	if c.Action == Delete && (h.queues[c.Label.Queue] || h.backoffs[c.Label.Backoff] || h.returns && c.LeadsBack()) {
		return true
	}
	object := c.After
	if object == nil {
		object = c.Before
	}
	switch o := object.(type) {
	case topology.Binding:
		return h.objects[topology.Key{Kind: topology.KindExchange, Name: o.Source}] ||
			h.objects[topology.Key{Kind: topology.Kind(o.DestinationType), Name: o.Destination}]
	case topology.Policy:
		return h.queues[c.Label.Queue]
	case topology.Exchange:
		return c.Action == Delete && h.bound[o.Name]
	default:
		return false
	}
}

// countOf gives "1 change" or "2 changes".
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
