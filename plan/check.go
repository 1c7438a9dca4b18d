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
func Check(p Plan, allow []Consent) error {
	if n := len(p.blocked()); n > 0 {
		return fmt.Errorf("%w by %s, shown above with the ways out; nothing was written", ErrBlocked, countOf(n, "change"))
	}
	if refused := p.refused(allow); refused != "" {
		return fmt.Errorf("%w: %s; nothing was written. %s", ErrHazard, refused, p.ways(allow))
	}
	return nil
}

// blocked gives the changes that no consent brings about.
func (p Plan) blocked() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return c.Action != Blocked || c.IsEndured() })
}

// Skipped says what of p was not carried out, after done changes of the rest were.
// It is nil where nothing was skipped.
func Skipped(p Plan, allow []Consent, done string) error {
	refused := Check(p, allow)
	if refused == nil || done == "" {
		return refused
	}
	var names []string
	for _, c := range p.blocked() {
		names = append(names, fmt.Sprintf("%s %s", c.Kind, display(c.Name)))
	}
	why := ErrHazard
	var parts []string
	if len(names) > 0 {
		why = ErrBlocked
		parts = append(parts, fmt.Sprintf("%s %s blocked (see above)", some(names), isAre(len(names))))
	}
	if hazards := p.refused(allow); hazards != "" {
		parts = append(parts, fmt.Sprintf("%s not allowed. %s", hazards, p.ways(allow)))
	}
	return skippedError{fmt.Sprintf("%s; %s skipped: %s", done, count(len(p.Changes)-len(Allowed(p, allow).Changes)), strings.Join(parts, "; ")), why}
}

// skippedError says what was done, and what was not. It wraps what kept the rest.
type skippedError struct {
	text string
	why  error
}

func (e skippedError) Error() string { return e.text }
func (e skippedError) Unwrap() error { return e.why }

// count gives "1 change was" or "2 changes were".
func count(n int) string {
	if n == 1 {
		return "1 change was"
	}
	return fmt.Sprintf("%d changes were", n)
}

// refused counts what is not allowed: "drops-routing (2 changes)". Empty: nothing.
func (p Plan) refused(allow []Consent) string {
	refused := p.refusals(allow)
	var parts []string
	for _, h := range Hazards() {
		if n := len(refused[h]); n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", h, countOf(n, "change")))
		}
	}
	return strings.Join(parts, ", ")
}

// ways says how to allow what is not allowed, and what to do in place of that.
func (p Plan) ways(allow []Consent) string {
	text := "To consent: " + p.Needs(allow)
	if names := p.removals(allow); len(names) > 0 {
		text += fmt.Sprintf("; or in the file: removed: %s", flow(names))
	}
	for _, c := range p.refusals(allow)[LosesMessages] {
		if remedy := remedy(c); remedy != "" {
			return remedy + ". " + text
		}
	}
	return text
}

// Allowed gives the part of p that may be carried out: without what is blocked
// or has a hazard that is not allowed, and without what belongs to that. What
// stays keeps its bindings and its policy; a work queue its way back and its
// dead-letter queue; a failed queue all of the loop that its messages may still
// go through, the way back included; a tier the way back; an exchange stays as
// long as a binding of it does. A queue that stays as it is keeps what its dead
// letters come through, wherever the file would lead them. Nothing is carried out
// while it is not certain that the objects on the broker are of this topology.
func Allowed(p Plan, allow []Consent) Plan {
	given := p.consents(allow)
	h := held{top: p.Topology, objects: map[topology.Key]bool{}, queues: map[string]bool{}, backoffs: map[string]bool{}, bound: map[string]bool{}, ways: map[string]bool{}, tiers: map[string]bool{}}
	stays := make([]bool, len(p.Changes))
	some := false
	hold := func(i int) { stays[i], some = true, true; h.hold(p.Changes[i]) }
	for more := true; more; {
		more = false
		for i, c := range p.Changes {
			if !stays[i] && (c.Action == Blocked || len(given.refused(c)) > 0 || h.holds(c)) {
				more = true
				hold(i)
			}
		}
		if more || !some || p.present == nil {
			continue
		}
		for _, i := range p.present().needed(p.Changes, stays) {
			more = true
			hold(i)
		}
	}
	out := p
	out.Changes = nil
	for i, c := range p.Changes {
		if !stays[i] {
			out.Changes = append(out.Changes, c)
		}
	}
	out.Retiring = slices.DeleteFunc(slices.Clone(p.Retiring), func(tier string) bool { return h.tiers[tier] })
	return out
}

// held is what stays as it is.
type held struct {
	top      string
	objects  map[topology.Key]bool
	queues   map[string]bool // work queues
	backoffs map[string]bool // those of failed queues
	bound    map[string]bool // exchanges that keep a binding
	ways     map[string]bool // of bindings of generated exchanges that stay; see way
	tiers    map[string]bool // retired tiers that stay bound
	returns  bool            // what leads messages back
	all      bool            // everything
}

// hold notes that c is not carried out.
func (h *held) hold(c Change) {
	inLoop := c.Kind == topology.KindQueue && (c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleRetry)
	if c.Action == Delete && (inLoop || c.Label.Role == topology.RoleReturn) {
		h.returns = true
	}
	h.all = h.all || c.Kind == topology.KindTopology
	if _, reroute := c.After.(Reroute); reroute && len(c.Fields) > 0 && c.Kind == topology.KindQueue {
		backoff, _ := c.Fields[0].Before.(string)
		h.tiers[topology.FailedName(h.top, backoff)] = true // its failures go on to come there
	}
	if b, ok := c.Before.(topology.Binding); ok {
		h.bound[b.Source] = true
		if c.Label.Role != topology.RoleBusiness {
			h.ways[way(b)] = true
			h.tiers[b.Destination] = h.tiers[b.Destination] || b.DestinationType == topology.ToQueue
		}
		h.bound[b.Destination] = h.bound[b.Destination] || b.DestinationType == topology.ToExchange
		return
	}
	if c.LeadsBack() && c.Label.Role == topology.RoleReturn {
		return // of its bindings, those stay that lead back; one to a queue that goes goes first
	}
	if c.Action == Blocked && h.serves(c) {
		return
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

// serves reports whether a blocked queue is a generated one of ours: whatever should
// be different about it, it takes the messages of queues that are new now, too.
func (h *held) serves(c Change) bool {
	q, isQueue := c.Before.(topology.Queue)
	owner, _ := topology.Owner(q.Arguments)
	return isQueue && owner == h.top && c.Label.Role != topology.RoleWork
}

// holds reports whether c belongs to what stays.
func (h *held) holds(c Change) bool {
	if h.all || h.keepsExposed(c) {
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
		return c.Action == Create && h.ways[way(o)] || // beside the old one, each message would be doubled
			h.objects[topology.Key{Kind: topology.KindExchange, Name: o.Source}] ||
			h.objects[topology.Key{Kind: topology.Kind(o.DestinationType), Name: o.Destination}]
	case Reroute:
		return o.Queue != "" && (h.objects[topology.Key{Kind: topology.KindQueue, Name: o.Queue}] ||
			h.objects[topology.Key{Kind: topology.Kind(o.To.DestinationType), Name: o.To.Destination}])
	case topology.Policy:
		return h.queues[c.Label.Queue]
	case topology.Exchange:
		return c.Action == Delete && h.bound[o.Name]
	default:
		return false
	}
}

// way says which messages a binding of a generated exchange takes: each goes to one
// queue, so that another binding for them takes the place of it.
func way(b topology.Binding) string {
	b.Destination, b.DestinationType = "", ""
	b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
	return b.Identity()
}

// countOf gives "1 change" or "2 changes".
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
