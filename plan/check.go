package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// The reasons for which Check refuses a plan.
var (
	// ErrBlocked is wrapped by the error of Check when something is blocked.
	ErrBlocked = errors.New("the plan is blocked")
	// ErrHazard is wrapped by the error of Check when a hazard is not allowed.
	ErrHazard = errors.New("the plan has hazards that are not allowed")
)

// Check refuses a plan in which anything is blocked, or has a hazard that
// is not allowed by name: all or nothing.
func Check(p Plan, allow []Consent) error {
	if n := len(p.blocked(allow)); n > 0 {
		are := text.Choose(n, "is", "are")
		blocked := fmt.Sprintf("%s %s blocked", text.Count(n, "change"), are)
		return refusal{blocked + "; see the suggested fixes above; nothing was written", ErrBlocked}
	}
	if refused := p.refused(allow); refused != "" {
		return fmt.Errorf("%w: %s; nothing was written. %s", ErrHazard, refused, p.ways(allow))
	}
	return nil
}

// blocked returns the changes that no consent brings about, and the queues that are to be replaced
// under their names without consent: to consent is not all that it takes.
func (p Plan) blocked(allow []Consent) []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		return c.Action != Blocked || c.IsEndured() && !c.ReplacesQueue() || p.mayReplace(c, allow)
	})
}

// Skipped returns an error that lists the changes of p that were skipped. done describes the
// changes that were carried out. It returns nil if nothing was skipped.
func Skipped(p Plan, allow []Consent, done string) error {
	refused := Check(p, allow)
	if refused == nil || done == "" {
		return refused
	}
	var names []string
	for _, c := range p.blocked(allow) {
		names = append(names, fmt.Sprintf("%s %s", c.Kind, text.Name(c.Name)))
	}
	why := ErrHazard
	var parts []string
	if len(names) > 0 {
		why = ErrBlocked
		are := text.Choose(len(names), "is", "are")
		parts = append(parts, fmt.Sprintf("%s %s blocked (see above)", text.Some(names), are))
	}
	if hazards := p.refused(allow); hazards != "" {
		parts = append(parts, fmt.Sprintf("%s not allowed. %s", hazards, p.ways(allow)))
	}
	n := len(p.Changes) - len(Allowed(p, allow).Changes)
	skipped := text.Count(n, "change") + text.Choose(n, " was", " were")
	return refusal{fmt.Sprintf("%s; %s skipped: %s", done, skipped, strings.Join(parts, "; ")), why}
}

// refusal is an error in words for the user. It wraps [ErrBlocked] or [ErrHazard].
type refusal struct {
	text string
	why  error
}

func (e refusal) Error() string { return e.text }
func (e refusal) Unwrap() error { return e.why }

// refused counts what is not allowed: "drops-routing (2 changes)". Empty: nothing.
func (p Plan) refused(allow []Consent) string {
	refused := p.refusals(allow)
	var parts []string
	for _, h := range topology.Hazards() {
		if n := len(refused[h]); n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", h, text.Count(n, "change")))
		}
	}
	return strings.Join(parts, ", ")
}

// ways says how to allow what is not allowed, and what to do in place of that.
func (p Plan) ways(allow []Consent) string {
	out := "To consent: " + p.Needs(allow)
	if names := p.removals(allow); len(names) > 0 && !p.Destroy {
		out += fmt.Sprintf("; or in the file: removed: %s", flow(names))
	}
	for _, c := range p.refusals(allow)[topology.LosesMessages] {
		if remedy := remedy(c); remedy != "" {
			return strings.ToUpper(remedy[:1]) + remedy[1:] + ". " + out // it begins a sentence
		}
	}
	return out
}

// Allowed returns the part of p that may be carried out: without what is blocked or
// has a hazard that is not allowed, and without what belongs to such a change:
//   - An object that stays keeps its bindings and its policy.
//   - A work queue keeps its return path and its dead-letter queue.
//   - A failed queue keeps all that its messages may still pass through: the tiers, the
//     retry exchange and the return path.
//   - A tier keeps the return path.
//   - An exchange stays as long as one of its bindings does.
//   - A binding whose messages another queue gets in its place stays together with it: both
//     changes are carried out, or none.
//   - A queue that stays as it is keeps the route of its dead letters, wherever the
//     file would lead them.
//   - A queue is not created without the policy that gives it its dead-lettering, and its failures
//     stay where they go while its retries stay with RabbitMQ, or with the processor.
//   - Nothing is carried out while it is not certain that the objects on the broker
//     belong to this topology.
func Allowed(p Plan, allow []Consent) Plan {
	given := p.consents(allow)
	h := kept{
		top: p.Topology, objects: map[topology.Key]bool{}, queues: map[string]bool{},
		backoffs: map[string]bool{}, bound: map[string]bool{}, ways: map[string]bool{}, tiers: map[string]bool{},
		copies: map[string]bool{}, created: map[string]bool{}, policies: map[string]bool{}, engines: map[string]bool{},
	}
	stays := make([]bool, len(p.Changes))
	some := false
	hold := func(i int) { stays[i], some = true, true; h.keep(p.Changes[i]) }
	for more := true; more; {
		more = false
		for i, c := range p.Changes {
			if !stays[i] && (c.Action == Blocked || len(given.refused(c)) > 0 || h.requires(c)) {
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
	stillBound := func(queue string) bool { return h.tiers[queue] }
	out.Retiring = slices.DeleteFunc(slices.Clone(p.Retiring), stillBound)
	out.RetiringDead = slices.DeleteFunc(slices.Clone(p.RetiringDead), stillBound)
	return out
}

// kept is what stays as it is.
type kept struct {
	top      string
	objects  map[topology.Key]bool
	queues   map[string]bool // work queues
	backoffs map[string]bool // those of failed queues
	bound    map[string]bool // exchanges that keep a binding
	ways     map[string]bool // of bindings of generated exchanges that stay; see way
	tiers    map[string]bool // retired tiers and dead-letter queues that stay bound
	copies   map[string]bool // new bindings of a change that is not carried out
	created  map[string]bool // new bindings that are not made
	policies map[string]bool // queues whose policy is not made
	engines  map[string]bool // queues whose retries stay with RabbitMQ, or do not come to it
	returns  bool            // what leads messages back
	all      bool            // everything
}

// keep notes that c is not carried out.
func (h *kept) keep(c Change) {
	inLoop := c.Kind == topology.KindQueue && (c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleRetry)
	if c.Action == Delete && (inLoop || c.Label.Role == topology.RoleReturn) {
		h.returns = true
	}
	h.all = h.all || c.Kind == topology.KindTopology
	if c.Reroute != nil {
		for _, b := range c.Reroute.From { // messages still come there
			h.tiers[b.Destination] = h.tiers[b.Destination] || b.DestinationType == topology.ToQueue
		}
	}
	for _, b := range c.Copies {
		h.copies[b.Identity()] = true
	}
	if b, ok := c.After.(topology.Binding); ok && c.Before == nil {
		h.created[b.Identity()] = true
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
	if c.ReturnPath && c.Label.Role == topology.RoleReturn {
		return // of its bindings, those stay that lead back; one to a queue that goes goes first
	}
	if c.Action == Blocked && h.serves(c) {
		return
	}
	h.objects[c.key()] = true
	before, _ := c.Before.(topology.Policy)
	after, isPolicy := c.After.(topology.Policy)
	h.policies[c.Label.Queue] = h.policies[c.Label.Queue] || isPolicy && c.Before == nil
	h.engines[c.Label.Queue] = h.engines[c.Label.Queue] || delaysRetries(before) != delaysRetries(after)
	switch {
	case c.Kind != topology.KindQueue:
	case c.Label.Role == topology.RoleWork:
		h.queues[c.Name] = true
	case c.Label.Role == topology.RoleFailed && c.Action == Delete:
		h.backoffs[c.Label.Backoff] = true
	}
}

// serves reports whether a blocked queue is a generated one of this topology: whatever should
// be different about it, it takes the messages of queues that are new now, too.
func (h *kept) serves(c Change) bool {
	q, isQueue := c.Before.(topology.Queue)
	owner, _ := topology.Owner(q.Arguments)
	return isQueue && owner == h.top && c.Label.Role != topology.RoleWork
}

// requires reports whether c belongs to what stays.
func (h *kept) requires(c Change) bool {
	if h.all || h.keepsExposed(c) {
		return true
	}
	if c.Action == Delete && (h.queues[c.Label.Queue] || h.backoffs[c.Label.Backoff] || h.returns && c.ReturnPath) {
		return true
	}
	_, isQueue := c.After.(topology.Queue)
	if isQueue && c.Before == nil && c.Action != Blocked && h.policies[c.Name] {
		return true // it would be without dead-lettering
	}
	if o := c.Reroute; o != nil {
		return h.engines[o.Queue] || h.objects[topology.Key{Kind: topology.KindQueue, Name: o.Queue}] ||
			slices.ContainsFunc(o.To, func(b topology.Binding) bool {
				return h.objects[topology.Key{Kind: topology.KindExchange, Name: b.Source}] ||
					h.objects[topology.Key{Kind: topology.KindExchange, Name: topology.NextExchangeName(b.Source)}] ||
					h.objects[topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}]
			})
	}
	if slices.ContainsFunc(c.Copies, func(b topology.Binding) bool { return h.created[b.Identity()] }) {
		return true // its messages would have no queue
	}
	switch o := c.Object().(type) {
	case topology.Binding:
		// Next to the old one, each message would be doubled.
		return c.Action == Create && (h.ways[way(o)] || h.copies[o.Identity()]) ||
			h.objects[topology.Key{Kind: topology.KindExchange, Name: o.Source}] ||
			h.objects[topology.Key{Kind: topology.Kind(o.DestinationType), Name: o.Destination}]
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
