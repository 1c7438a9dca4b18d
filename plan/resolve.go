package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// resolved is a wanted and a found topology made comparable: what is equal for a
// broker is equal here, and nothing is found that does not concern this topology.
type resolved struct {
	want topology.Compiled
	have topology.Topology
	// wantIDs and haveIDs are the identities of the bindings of both, in their order, which is sorted.
	wantIDs, haveIDs []string

	// findings are the changes that no comparison can bring about, such as an external
	// exchange that is missing or a name that another topology owns, and the warnings.
	findings

	// rescheduled are the backoffs whose tiers change.
	rescheduled []Reschedule
	// unprocessed are the failed queues that no processor consumes.
	unprocessed []Unprocessed
	// reroutes are the changes of routes that are carried out step by step.
	reroutes []Change
	// withheld are the queues that replace a legacy queue which still exists and is not cut over: the
	// name of the legacy queue by the name of its successor.
	withheld map[string]string
	// withheldBindings are the bindings of the file that wait with them.
	withheldBindings []topology.Binding
	// policies are the results of comparing policies.
	policies matchedPolicies
	// queueArguments and exchangeArguments are those that were found, by name, before the
	// owner mark was replaced by the wanted one.
	queueArguments, exchangeArguments map[string]topology.Arguments
	// orphans are the objects of this topology that are no longer in the file.
	orphans *orphans
	// drift are bindings that no file declares and that end or begin at queues and
	// exchanges of this topology.
	drift []topology.Binding
	// guards are the policies that override harmful ones.
	guards *guards

	// bindings are all that were found, and usage says what a queue holds: what is at
	// risk in a deletion. routed are the queues that a declared exchange leads to.
	bindings  []topology.Binding
	usage     func(queue string) topology.Usage
	delays    func(topology.Queue) bool
	routed    map[string]bool
	generates func(exchange string) bool
	consulted consulted

	present func() *present // all that was found
	desk    desk
}

// findings are what a step of resolve refuses and warns of.
type findings struct {
	refused  []Change
	warnings []Warning
}

func (f *findings) warn(name, text string) {
	f.warnings = append(f.warnings, Warning{Name: name, Text: text})
}

func (f *findings) refuse(have, want topology.Object, reason string, fields ...Field) {
	f.refused = append(f.refused, Change{
		Action: Blocked, Kind: want.Kind(), Name: want.DisplayName(), Before: have, After: want, Fields: fields,
		Reason: reason, Label: want.Purpose(),
	})
}

// add appends the findings of another step.
func (f *findings) add(others ...findings) {
	for _, other := range others {
		f.refused = append(f.refused, other.refused...)
		f.warnings = append(f.warnings, other.warnings...)
	}
}

// resolve makes want and what was found comparable. It changes neither.
//
// What is found keeps only the objects that want names, and those that carry the
// owner mark of this topology: they are no longer in the file. What a service declared
// just as the file wants it counts as an object of dlxctl in all but the mark: the
// mark is never a difference. Arguments that the broker has and neither compares nor
// needs are left out. External exchanges are copied from found to wanted, so
// that they never differ.
//
// This is the only place that orders the steps. Each step reads the file, the broker
// and the results that are passed to it, and changes none of them; only [resolver.usage] keeps a
// list of what was read.
func resolve(want topology.Compiled, state topology.State) resolved {
	r := newResolver(want, state)

	// Which routes change decides which bindings are left to the reroutes, and which legacy
	// queues wait decides which bindings wait with them. The routes are worked out next to the rest:
	// no step changes r.
	var routes rerouting
	var routed sync.WaitGroup
	routed.Go(func() { routes = r.rerouting() })
	waiting := r.replacements()

	// The objects of the file, each with what was found of it.
	exchanges := r.exchanges()
	queues := r.queues()
	routed.Wait()
	bindings := r.bindings(routes, waiting.withheld)
	policies := r.policies(queues.want)

	// The objects that are no longer in the file: what a living legacy queue or a tier
	// with messages still needs of them stays wanted.
	orphans := r.orphans(routes, bindings)
	// What policies of others do to the queues above.
	guards := r.guards(queues.want, orphans.stay.Queues)

	out := resolved{
		reroutes: routes.changes, rescheduled: r.rescheduled(), withheld: waiting.withheld, policies: policies,
		orphans: orphans, guards: guards, withheldBindings: bindings.withheld,
		drift:          r.drift(),
		queueArguments: queues.found, exchangeArguments: exchanges.found,
		bindings: r.state.Have.Bindings, usage: r.usage, delays: r.delays(), consulted: r.consulted, desk: r.desk,
		generates: r.generates,
	}
	out.want = want
	out.want.Exchanges, out.have.Exchanges = append(exchanges.want, orphans.stay.Exchanges...),
		append(exchanges.have, orphans.found.Exchanges...)
	out.want.Queues, out.have.Queues = append(queues.want, orphans.stay.Queues...), append(queues.have,
		orphans.found.Queues...)
	out.want.Bindings, out.have.Bindings = append(bindings.want, orphans.stay.Bindings...), append(bindings.have,
		orphans.found.Bindings...)
	out.want.Policies, out.have.Policies = append(policies.want, orphans.stay.Policies...), append(policies.have,
		orphans.found.Policies...)
	var sorted sync.WaitGroup
	sorted.Go(func() { out.wantIDs = out.want.Sort() })
	out.haveIDs = out.have.Sort()
	sorted.Wait()
	out.routed = out.routedQueues()

	// In the order in which plans print them.
	unprocessed, withoutProcessor := r.unprocessed()
	out.unprocessed = unprocessed
	out.add(exchanges.findings, waiting.findings, queues.findings, bindings.findings, policies.findings,
		r.countHeader(), orphans.findings, r.otherTeam(), r.unlisted(), r.crashes(), r.endless(), r.delayed(),
		withoutProcessor, r.outdated(), r.forgedDeaths(), r.alarm(), guards.findings, r.overridden(), r.harmedDesk())
	out.present = sync.OnceValue(func() *present { return newPresent(r) })
	return out
}

// resolver is what the steps of resolve read: the file, what was found, and indexes of
// both. No step changes it.
type resolver struct {
	want  topology.Compiled
	state topology.State
	works map[string]topology.WorkQueue
	// existing are the queues that were found, by name.
	existing map[string]topology.Queue
	// working are the queues that were found to be work queues; see [foundWork]. business are the
	// exchanges that are not generated; see [foundBusiness].
	working, business map[string]bool
	// desk is what the desk has on the broker. It is not part of state.
	desk desk
	// limits are those arguments of queues that exist which their wanted policies stand for, by
	// queue; see [limitsByPolicy].
	limits map[string]topology.Arguments
	// attach are the wanted policies, by queue.
	attach map[string]topology.Policy
	// foreign are the policies that this topology does not own.
	foreign *policy.Set
	// consulted are the queues whose statistics were read.
	consulted consulted
	// begun are the queues whose replacement under their names is not finished.
	begun map[string]bool
	// stray are the holds of queues that are being replaced and that the file no longer has.
	stray []topology.Queue
	// otherMoves are the exchanges by which other topologies move queues; see [otherMoves].
	otherMoves map[string]string
}

func newResolver(want topology.Compiled, state topology.State) *resolver {
	read := consulted{}
	desk := deskOf(want.Name, state)
	desk.consulted = read
	begun, stray := replacementsOf(want, state)
	state = withParked(want.Name, desk.without(state), begun)
	existing := byName(state.Have.Queues, func(q topology.Queue) string { return q.Name })
	want, limits := limitsByPolicy(want, existing)
	r := &resolver{
		want: want, state: state, limits: limits, desk: desk, foreign: policy.Foreign(state, want.Name), consulted: read,
		begun: begun,
		stray: stray, otherMoves: otherMoves(want.Name, state),
		works:    byName(want.WorkQueues, func(w topology.WorkQueue) string { return w.Name }),
		existing: existing,
		working:  foundWork(want.Name, state), business: foundBusiness(want, state),
		attach: byName(want.Policies, func(p topology.Policy) string { return p.Label.Queue }),
	}
	r.attachMatches()
	return r
}

// accepts reports whether the file settles a warning about an object.
func (r *resolver) accepts(warning, object string) bool {
	return topology.Accepts(r.want.Accepted, warning, []string{object})
}

// alarm warns of alarms in effect.
func (r *resolver) alarm() (f findings) {
	if r.state.Alarm != "" {
		f.warn(topology.WarnAlarm, "the broker accepts no messages at the moment: "+r.state.Alarm)
	}
	return f
}

// matchedExchanges are exchanges of the file, and what was found of them.
type matchedExchanges struct {
	findings

	want, have []topology.Exchange
	found      map[string]topology.Arguments // by name, as they are
}

// matchedQueues are queues of the file, and what was found of them.
type matchedQueues struct {
	findings

	want, have []topology.Queue
	found      map[string]topology.Arguments // by name, as they are
}

// matchedBindings are bindings of the file, and what was found of them. wanted are the
// identities of all bindings of the file, and ids those of all that were found, in their order.
type matchedBindings struct {
	findings

	want, have []topology.Binding
	wanted     map[string]bool
	ids        []string
	withheld   []topology.Binding // those of the file that wait for migrate
}

func (r *resolver) exchanges() matchedExchanges {
	found := byName(r.state.Have.Exchanges, func(e topology.Exchange) string { return e.Name })
	out := matchedExchanges{found: map[string]topology.Arguments{}}
	for _, want := range r.want.Exchanges {
		have, ok := found[want.Name]
		switch {
		case want.External && !ok:
			out.refuse(nil, want,
				"the exchange is external and does not exist; have its owner create it, or remove external: true so that dlxctl creates it")
			continue
		case want.External && want.Type != "" && want.Type != have.Type:
			out.refuse(have, want,
				fmt.Sprintf("the external exchange has the type %s; set that type in the file, or remove the key", have.Type),
				Field{"type", have.Type, want.Type})
			continue
		case want.External && have.Internal && r.delaysTo(want.Name):
			out.refuse(have, want,
				"the exchange is internal, and RabbitMQ refuses what a processor publishes to it for a delay (403); declare another exchange, bind this one to it, and name the other one in to, or have its owner declare it again without internal",
				Field{"internal", have.Internal, want.Internal})
			continue
		case want.External:
			want = have
		case ok && out.refuseForeign(r.want.Name, have, want, have.Arguments):
			continue
		case !ok && r.state.ExchangeTypes != nil && !slices.Contains(r.state.ExchangeTypes, want.Type):
			fix := "enable the plugin that provides it (rabbitmq-plugins enable ...) on every node"
			if near := topology.Nearest(want.Type, r.state.ExchangeTypes); near != "" {
				fix = fmt.Sprintf("did you mean %q? If not, %s", near, fix)
			}
			out.refuse(nil, want, fmt.Sprintf("the broker has no exchange type %q, only %s: %s",
				want.Type, strings.Join(r.state.ExchangeTypes, ", "), fix))
			continue
		case ok:
			out.found[have.Name] = have.Arguments
			have.Arguments = aligned(have.Arguments, want.Arguments, comparedExchangeArguments())
		}
		out.want = append(out.want, want)
		if ok {
			have.Label = want.Label
			out.have = append(out.have, have)
		}
	}
	return out
}

// delaysTo reports whether a delay of the file publishes to an exchange.
func (r *resolver) delaysTo(exchange string) bool {
	return slices.ContainsFunc(r.want.Delays, func(d topology.Delay) bool { return d.To == exchange })
}

func (r *resolver) queues() matchedQueues {
	out := matchedQueues{found: map[string]topology.Arguments{}}
	for _, hold := range r.stray {
		out.refuse(hold, hold, strayReason)
	}
	for _, want := range r.want.Queues {
		have, ok := r.existing[want.Name]
		out.found[want.Name] = have.Arguments
		if slices.Contains(r.state.Down, want.Name) {
			out.refuse(nil, want, "the node of the queue is down: the queue exists, and the broker does not list it; start the node")
			continue
		}
		if r.unfinished(want.Name) {
			out.refused = append(out.refused, unfinishedChange(have, want, ok, r.differs(want)))
			continue
		}
		if want.External {
			_, managed := r.works[want.Name]
			out.external(want, have, ok, managed, r.movedByOther(want.Name))
			continue
		}
		if ok && out.refuseForeign(r.want.Name, have, want, have.Arguments) {
			continue
		}
		if p, owner := r.matchOfOther(want); owner != "" && !ok {
			out.refuse(nil, want, fmt.Sprintf("the policy %s of the topology %q is for all queues that its pattern matches, also for this one; exclude the queue from that match first, or give it another name",
				text.Name(p.Name), owner))
			continue
		}
		if flag := r.lacksFlag(want); flag != "" && !ok {
			out.refuse(nil, want,
				fmt.Sprintf("the feature flag %s is not enabled, and the queue needs it: rabbitmqctl enable_feature_flag %s", flag,
					flag))
			continue
		}
		if why := r.untimed(want); why != "" {
			out.refuse(nil, want, why)
			continue
		}
		var before topology.Object
		if ok {
			have.Arguments = r.attached(have, aligned(have.Arguments, want.Arguments, arguments.Compared()))
			have.Label = want.Label
			if want.Label.Role == topology.RoleFailed && have.Arguments.Equal(undeadLettered(want.Arguments)) {
				want.Arguments = have.Arguments
			}
			before = have
		}
		if reason := r.refusedByBroker(want, before); reason != "" {
			out.refuse(before, want, reason)
			continue
		}
		out.want = append(out.want, want)
		if ok {
			out.have = append(out.have, have)
		}
	}
	return out
}

// undeadLettered returns the arguments of a failed queue without those for what expires in it. One
// that exists without them stays: to replace it, all of its processors would have to stop.
func undeadLettered(args topology.Arguments) topology.Arguments {
	return args.Without(topology.ArgDeadLetterExchange, topology.ArgDeadLetterStrategy, topology.ArgOverflow)
}

// bindings accepts a foreign binding that is just as the file wants it as
// the wanted one: the broker would deliver no second copy through another, and a
// service that binds again and again does no harm.
func (r *resolver) bindings(routes rerouting, withheld map[string]string) matchedBindings {
	n := len(r.want.Bindings)
	out := matchedBindings{
		want: make([]topology.Binding, 0, n), have: make([]topology.Binding, 0, n), wanted: make(map[string]bool, n),
		ids: topology.Identities(r.state.Have.Bindings),
	}
	found := make(map[string]*topology.Binding, len(r.state.Have.Bindings))
	for i, id := range out.ids {
		found[id] = &r.state.Have.Bindings[i]
	}
	wanted := topology.Identities(r.want.Bindings)
	for i, want := range r.want.Bindings {
		id := wanted[i]
		out.wanted[id] = true
		same, ok := found[id]
		if !ok {
			unmarked := want
			unmarked.Arguments = want.Arguments.Without(topology.ArgManagedBy)
			if same, ok = found[unmarked.Identity()]; ok {
				want.Arguments = same.Arguments
			}
		}
		switch {
		case ok:
			have := *same
			have.Label = want.Label
			out.have = append(out.have, have)
		case want.DestinationType == topology.ToQueue && r.movedByOther(want.Destination) != "":
			out.refuse(nil, want, "with this binding, messages would come to two queues: "+r.movedByOther(want.Destination))
			continue
		case withholds(withheld, want):
			out.withheld = append(out.withheld, want)
			continue
		case routes.governs(want), r.returnsToLegacy(want), want.DestinationType == topology.ToQueue &&
			r.unfinished(want.Destination) && want.Label.Role != topology.RoleBusiness:
			continue
		}
		out.want = append(out.want, want)
	}
	return out
}

// lacksFlag returns the feature flag that a queue needs and that is not enabled.
// They are optional up to 3.12. Source: the broker's documentation of quorum
// queues and of at-least-once dead-lettering.
func (r *resolver) lacksFlag(q topology.Queue) string {
	needs := map[string]bool{
		"quorum_queue": q.Type() == topology.Quorum,
		"stream_queue": q.Arguments[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce,
	}
	for _, flag := range []string{"quorum_queue", "stream_queue"} {
		if needs[flag] && slices.Contains(r.state.DisabledFlags, flag) {
			return flag
		}
	}
	return ""
}

// external takes a queue that a service declares as it is. managed says that dlxctl gives it
// its dead-lettering, and moved that another topology moves it, see [resolver.movedByOther].
func (out *matchedQueues) external(want, have topology.Queue, exists, managed bool, moved string) {
	switch {
	case !exists && moved != "":
		out.refuse(nil, want, "the queue is external and does not exist: "+moved)
		return
	case !exists:
		out.refuse(nil, want,
			"the queue is external and does not exist; start the service that declares it, or remove external: true so that dlxctl creates it")
		return
	case want.Type() != "" && want.Type() != have.Type():
		out.refuse(have, want,
			fmt.Sprintf("the external queue has the type %s; set that type in the file, or remove the key",
				have.Type()), Field{"type", have.Type(), want.Type()})
		return
	case managed && have.Type() == topology.Stream:
		out.refuse(have, want, "the external queue is a stream, and streams do not dead-letter; write deadLetterBy: unmanaged, or remove it from the file")
		return
	}
	have.Label, have.External = want.Label, true
	out.want = append(out.want, have)
	out.have = append(out.have, have)
}

// withholds reports whether a binding must wait: with it, every message would
// reach the new queue and the legacy queue.
func withholds(withheld map[string]string, b topology.Binding) bool {
	_, waits := withheld[b.Destination]
	return waits && b.DestinationType == topology.ToQueue && b.Label.Role == topology.RoleBusiness
}

// refuseForeign refuses an object that another topology owns.
func (f *findings) refuseForeign(topologyName string, have, want topology.Object, args topology.Arguments) bool {
	owner, ok := topology.Owner(args)
	if !ok || owner == topologyName {
		return false
	}
	ways := fmt.Sprintf("keep it in the file of %q alone, or give it another name in that of %q", owner, topologyName)
	if want.Kind() == topology.KindExchange {
		ways = fmt.Sprintf("write external: true in the file of %q, or give it another name there", topologyName)
	}
	f.refuse(have, want,
		fmt.Sprintf("the %s belongs to the topology %q, and the topology %q declares it too; its owner mark is an argument, which RabbitMQ cannot change: %s",
			want.Kind(), owner, topologyName, ways))
	return true
}

// countHeader refuses to change the header that counts while processors read the
// failed queue: they would go on to write the old one, which no binding matches
// any more, and every message would be a dead letter.
func (r *resolver) countHeader() (f findings) {
	for _, l := range r.want.Backoffs {
		old := r.countsBy(l)
		if old == "" {
			continue
		}
		if u := r.usage(l.FailedQueue); u.MayBeConsumed() {
			f.refused = append(f.refused, Change{
				Action: Blocked, Kind: topology.KindExchange, Name: l.RetryExchange,
				Label:  topology.Label{Role: topology.RoleRetry, Backoff: l.Name},
				Fields: []Field{{"countHeader", old, r.want.CountHeader}},
				Reason: fmt.Sprintf("the count header cannot change while the failed queue %s has %s; stop the processors, run apply, and start them with the new file", l.FailedQueue, u.ConsumersText()),
			})
		}
	}
	return f
}

// countsBy returns the header by which the bindings that were found pick the tier, if it
// is not the wanted one.
func (r *resolver) countsBy(l topology.Backoff) string {
	for _, b := range r.state.Have.Bindings {
		if b.Source != l.RetryExchange || !r.owns(b.Arguments) {
			continue
		}
		if names := b.Arguments.WithoutX().Names(); len(names) == 1 && names[0] != r.want.CountHeader {
			return names[0]
		}
	}
	return ""
}

func comparedExchangeArguments() []string { return []string{topology.ArgAlternateExchange} }

// aligned returns have without the arguments that are not a difference: the mark,
// which takes the wanted value, and what want leaves open and no broker compares: what a service
// set in addition to the file is its own affair.
func aligned(have, want topology.Arguments, compared []string) topology.Arguments {
	out := maps.Clone(have)
	if out == nil {
		out = topology.Arguments{}
	}
	maps.DeleteFunc(out, func(name string, _ any) bool {
		_, wanted := want[name]
		return !wanted && !slices.Contains(compared, name)
	})
	delete(out, topology.ArgManagedBy)
	if mark, ok := want[topology.ArgManagedBy]; ok {
		out[topology.ArgManagedBy] = mark
	}
	return out
}

// namesOf returns the names of list as a set.
func namesOf[T any](list []T, name func(T) string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, v := range list {
		m[name(v)] = true
	}
	return m
}

// byName returns list as a map.
func byName[T any](list []T, name func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, v := range list {
		m[name(v)] = v
	}
	return m
}
