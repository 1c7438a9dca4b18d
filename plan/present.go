package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// present is all that the virtual host has, with what leads where. It is
// the state that a plan was made from.
type present struct {
	resolver *resolver
	objects  map[topology.Key]topology.Object // exchanges, queues and our policies
	from     map[string]sources               // bindings, by source
	policies *policy.Set                      // all of the virtual host
	// feeders names the queues that dead-letter to a queue by its name, by that queue.
	feeders func() map[string][]string
}

// sources are the bindings of one exchange. The lists by key are for direct
// exchanges: one exchange can have as many bindings as there are queues.
type sources struct {
	all   []topology.Binding
	byKey map[string][]topology.Binding
}

func newPresent(r *resolver) *present {
	p := &present{
		resolver: r, objects: map[topology.Key]topology.Object{}, from: map[string]sources{}, policies: policy.All(r.state),
	}
	for _, e := range r.state.Have.Exchanges {
		p.objects[topology.Key{Kind: topology.KindExchange, Name: e.Name}] = e
	}
	for _, q := range r.state.Have.Queues {
		p.objects[topology.Key{Kind: topology.KindQueue, Name: q.Name}] = q
	}
	for _, x := range r.state.Have.Policies {
		if owner, _ := topology.PolicyOwner(x.Name); owner == r.want.Name {
			p.objects[topology.Key{Kind: topology.KindPolicy, Name: x.Name}] = x
		}
	}
	for _, b := range r.state.Have.Bindings {
		p.from[b.Source] = p.from[b.Source].with(b)
	}
	p.feeders = sync.OnceValue(p.feed)
	return p
}

// feed computes feeders.
func (p *present) feed() map[string][]string {
	now, out := p.after(nil), map[string][]string{}
	for _, q := range p.resolver.state.Have.Queues {
		if to, dies := now.deadLetters(q, target{}); dies && to.exchange == "" && to.known {
			out[to.key] = append(out[to.key], text.Name(q.Name))
		}
	}
	return out
}

func (s sources) with(b topology.Binding) sources {
	if s.byKey == nil {
		s.byKey = map[string][]topology.Binding{}
	}
	s.all = append(s.all, b)
	s.byKey[b.Key] = append(s.byKey[b.Key], b)
	return s
}

// world is the virtual host as it is once some changes are carried out. Without any
// it is the present one.
type world struct {
	*present
	changed map[topology.Key]topology.Object // nil: gone
	unbound map[string]bool                  // identities
	made    map[string]sources
}

// after returns the world that changes make. What is blocked changes nothing.
func (p *present) after(changes []Change) world {
	w := world{p, map[topology.Key]topology.Object{}, map[string]bool{}, map[string]sources{}}
	for _, c := range changes {
		if c.Action == Blocked {
			continue
		}
		b, unbinds := c.Before.(topology.Binding)
		made, binds := c.After.(topology.Binding)
		switch {
		case c.Reroute != nil:
			w.reroute(*c.Reroute)
		case unbinds:
			w.unbound[b.Identity()] = true
		case binds:
			w.made[made.Source] = w.made[made.Source].with(made)
		default:
			w.changed[c.key()] = c.After
		}
	}
	return w
}

// reroute notes what a reroute ends in.
func (w world) reroute(o Reroute) {
	for _, b := range o.From {
		w.unbound[b.Identity()] = true
	}
	for _, b := range o.To {
		delete(w.unbound, b.Identity())
		w.made[b.Source] = w.made[b.Source].with(b)
	}
}

// find returns an object, nil if there is none.
func (w world) find(kind topology.Kind, name string) topology.Object {
	key := topology.Key{Kind: kind, Name: name}
	if object, changed := w.changed[key]; changed {
		return object
	}
	return w.objects[key]
}

// target is where a queue's dead letters are published to. A key that is not known
// is that of the message.
type target struct {
	exchange, key string
	known         bool
}

// deadLetters says where what dies in a queue goes: by its arguments, else by the
// policy in effect.
func (w world) deadLetters(q topology.Queue, from target) (target, bool) {
	to := target{key: from.key, known: from.known}
	if exchange, ok := q.Arguments[topology.ArgDeadLetterExchange].(string); ok {
		to.exchange = exchange
	} else if exchange, ok := w.policy(q)[topology.KeyDeadLetterExchange].(string); ok {
		to.exchange = exchange
	} else {
		return target{}, false
	}
	if key, ok := q.Arguments[topology.ArgDeadLetterRoutingKey].(string); ok {
		to.key, to.known = key, true
	} else if key, ok := w.policy(q)[topology.KeyDeadLetterRoutingKey].(string); ok {
		to.key, to.known = key, true
	}
	return to, true
}

// policy returns the definition of the policy in effect on a queue: that of the topology,
// which overrides the others, or a foreign one.
func (w world) policy(q topology.Queue) topology.Arguments {
	if p, ok := w.find(topology.KindPolicy, topology.PolicyName(w.resolver.want.Name, q.Name)).(topology.Policy); ok {
		return p.Definition
	}
	if p, ok := w.policies.For(q); ok && topology.IsMatchPolicyName(w.resolver.want.Name, p.Name) {
		if p, ok := w.find(topology.KindPolicy, p.Name).(topology.Policy); ok && w.policies.Matches(p, q) {
			return p.Definition
		}
	}
	p, _ := w.resolver.foreign.For(q)
	return p.Definition
}

// alternate returns the alternate exchange of an exchange, by its arguments or by the
// policy in effect.
func (w world) alternate(e topology.Exchange) (string, bool) {
	name, _, ok := w.policies.Alternate(e)
	return name, ok
}

// route is what a message can come through on its way to queues.
type route struct {
	queues    map[string]bool
	exchanges map[string]bool
	bindings  map[string]topology.Binding // by identity
}

// follow adds to a route all that a target can reach. With spare, what an alternate
// exchange leads to counts where nothing else takes the message.
func (w world) follow(to target, spare bool, r route) {
	if to.exchange == "" { // the default exchange, where every queue is bound by its name
		if w.find(topology.KindQueue, to.key) != nil && to.known {
			r.queues[to.key] = true
		}
		return
	}
	e, exists := w.find(topology.KindExchange, to.exchange).(topology.Exchange)
	if !exists || r.exchanges[to.exchange] {
		return
	}
	r.exchanges[to.exchange] = true
	before := len(r.queues)
	for _, b := range w.bindings(e, to) {
		r.bindings[b.Identity()] = b
		if b.DestinationType == topology.ToExchange {
			w.follow(target{b.Destination, to.key, to.known}, spare, r)
		} else if w.find(topology.KindQueue, b.Destination) != nil {
			r.queues[b.Destination] = true
		}
	}
	if name, ok := w.alternate(e); ok && spare && len(r.queues) == before {
		w.follow(target{name, to.key, to.known}, spare, r)
	}
}

// bindings returns those of an exchange that a target can match.
func (w world) bindings(e topology.Exchange, to target) []topology.Binding {
	var out []topology.Binding
	for _, s := range []sources{w.from[e.Name], w.made[e.Name]} {
		list := s.all
		if e.Type == topology.Direct && to.known {
			list = s.byKey[to.key]
		}
		for _, b := range list {
			if len(w.unbound) == 0 || !w.unbound[b.Identity()] {
				out = append(out, b)
			}
		}
	}
	return out
}

func newRoute() route {
	return route{queues: map[string]bool{}, exchanges: map[string]bool{}, bindings: map[string]topology.Binding{}}
}

// reach returns the route of a target.
func (w world) reach(to target, spare bool) route {
	r := newRoute()
	w.follow(to, spare, r)
	return r
}

// has reports whether the object that c takes away is on the route.
func (r route) has(c Change) bool {
	switch o := c.Before.(type) {
	case topology.Exchange:
		return r.exchanges[o.Name]
	case topology.Queue:
		return r.queues[o.Name]
	case topology.Binding:
		_, ok := r.bindings[o.Identity()]
		return ok
	default:
		return false
	}
}

// endangered adds to the deletions that take the way of the dead letters of a queue that stays,
// foreign ones included: the hazard loses-messages where these then have nowhere to go, as the
// exchange is gone that the queue dead-letters to, or the last queue behind that; and drops-routing
// where they only have the unroutable queue. Without a route such a queue would fill it.
func endangered(p *Plan) {
	deletes := func(c Change) bool { return c.Action == Delete && c.Kind != topology.KindPolicy }
	if !slices.ContainsFunc(p.Changes, deletes) {
		return
	}
	then := p.present().after(p.Changes)
	ways := waysOfDeadLetters(p.present().after(nil), then)
	for i := range p.Changes {
		c := &p.Changes[i]
		if !deletes(*c) {
			continue
		}
		if queues := ways.of(*c, topology.LosesMessages); len(queues) > 0 {
			c.endanger(topology.LosesMessages, then.undelivered(queues))
		}
		if names := sortedNames(ways.of(*c, topology.DropsRouting)); len(names) > 0 && c.Kind == topology.KindBinding {
			c.endanger(topology.DropsRouting, fmt.Sprintf("what dies in %s goes to %s, as %s to this topology",
				text.Some(names), text.Name(topology.UnroutableName(p.Topology)),
				text.Choose(len(names), "the queue still dead-letters", "the queues still dead-letter")))
		}
	}
}

// undelivered says what becomes of what dies in queues once it reaches no queue.
func (w world) undelivered(queues []topology.Queue) string {
	losing := slices.DeleteFunc(slices.Clone(queues), w.keepsDead)
	keeping := slices.DeleteFunc(slices.Clone(queues), func(q topology.Queue) bool { return !w.keepsDead(q) })
	var ends []string
	if len(losing) > 0 {
		ends = append(ends, "what dies in "+text.Some(sortedNames(losing))+" is lost")
	}
	if len(keeping) > 0 {
		ends = append(ends, "what dies in "+text.Some(sortedNames(keeping))+
			" stays there, invisible to consumers, and counts against its length")
	}
	return strings.Join(ends, ", and ")
}

// keepsDead reports whether a queue keeps what dies in it for as long as that reaches no queue. The
// broker counts it among the messages of the queue, not as ready, and against x-max-length (3.10.8,
// 4.0.5 and 4.3.6, measured).
func (w world) keepsDead(q topology.Queue) bool {
	return atLeastOnce(w.policies.WithPolicies(q, w.policy(q)))
}

// sortedNames returns the names of queues for a sentence, sorted.
func sortedNames(queues []topology.Queue) []string {
	names := text.Each(queues, func(q topology.Queue) string { return text.Name(q.Name) })
	slices.Sort(names)
	return names
}

// endanger adds a hazard to a deletion.
func (c *Change) endanger(h topology.Hazard, without string) {
	c.Reason += "; without it, " + without
	if !slices.Contains(c.Hazards, h) {
		c.Hazards = append([]topology.Hazard{h}, c.Hazards...)
	}
}

// wayOut is what dead letters come through today and not once a plan is carried out.
type wayOut struct {
	route
	hazard topology.Hazard  // empty: they still have somewhere to go
	queues []topology.Queue // which dead-letter there
}

// waysOut are the ways of dead letters, by where queues dead-letter to.
type waysOut map[target]*wayOut

// waysOfDeadLetters returns the ways of the queues that stay.
func waysOfDeadLetters(now, then world) waysOut {
	out := waysOut{}
	for _, q := range now.resolver.state.Have.Queues {
		stays, ok := then.find(topology.KindQueue, q.Name).(topology.Queue)
		if !ok {
			continue
		}
		to, ok := then.deadLetters(stays, target{})
		if !ok {
			continue
		}
		if out[to] == nil {
			out[to] = wayTo(to, now, then)
		}
		// What leaves a retry queue for a queue that is gone is to go to the unroutable queue.
		work := now.resolver.queueLabel(q.Name, topology.RoleWork).Role == topology.RoleWork
		if w := out[to]; work || w.hazard == topology.LosesMessages {
			w.queues = append(w.queues, stays)
		}
	}
	return out
}

// wayTo returns the way of what is dead-lettered to a target.
func wayTo(to target, now, then world) *wayOut {
	unroutable := map[string]bool{topology.UnroutableName(now.resolver.want.Name): true}
	out := &wayOut{}
	left := then.reach(to, true).queues
	if len(left) > 0 && !maps.Equal(left, unroutable) {
		return out
	}
	out.route = now.reach(to, true)
	switch {
	case len(out.route.queues) == 0: // as today
	case len(left) == 0:
		out.hazard = topology.LosesMessages
	case !maps.Equal(out.route.queues, unroutable):
		out.hazard = topology.DropsRouting
	}
	return out
}

// of returns the queues whose dead letters come through what c takes away, and have this hazard.
func (w waysOut) of(c Change, h topology.Hazard) []topology.Queue {
	var out []topology.Queue
	for _, way := range w {
		if way.hazard == h && way.has(c) {
			out = append(out, way.queues...)
		}
	}
	return out
}
