package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlclark/regexp2"

	"github.com/dlxctl/dlxctl/topology"
)

// Resolved is a wanted and a found topology made comparable: what is equal for
// a broker is equal here, and nothing is found that does not concern us.
type Resolved struct {
	Want topology.Topology
	Have topology.Topology
	// Bases are, by the name of a wanted policy, the one that is in force on its
	// queue without ours, and that ours starts from.
	Bases map[string]topology.Policy
	// Withheld are the queues that take the place of a legacy queue that still
	// exists: the names of those, by the names of these.
	Withheld map[string]string
	// Refused are the changes that no comparison can bring about: an external
	// exchange that is missing, a name that another topology owns.
	Refused []Change
	// Reroutes are the changes of where the failures of work queues go.
	Reroutes []Change
	// Drift are bindings that nobody declared and that touch ours.
	Drift []topology.Binding
	// Retiring are the retired tiers that still hold messages.
	Retiring []string
	// Staying are queues that are not in the file and stay for a legacy queue of ours.
	Staying []topology.Queue
	// Bindings are all that were found, and Usage is what the queues hold: what
	// is at stake in a deletion.
	Bindings []topology.Binding
	Usage    map[string]Usage
	Warnings []Warning

	bared         map[string]bool               // the queues that a policy no longer wanted leaves without dead-lettering
	marks         map[string]topology.Arguments // of the queues that were found, before the mark was taken for wanted
	exchangeMarks map[string]topology.Arguments // the same of exchanges
	routed        map[string]bool               // see routedQueues; Diff works it out
	pending       map[string]bool               // the wanted policies that are stored and perhaps not in force
	present       func() *present               // all that was found

	protections []protection      // from harmful policies of others
	ghosts      []topology.Policy // protections that are not listed and still in effect
	harms       []string          // what policies do that nothing overrides, in words
	found       map[string]bool   // the queues that exist
}

// Resolve makes want and what was found comparable. It changes neither.
//
// What is found keeps only the objects that want names, and those that carry our
// mark: they are no longer in the file. What a service declared
// just as the file wants it counts as ours in all but the mark: the mark is
// never a difference. Arguments that the broker has and neither compares nor
// needs are left out. External exchanges are copied from found to wanted, so
// that they never differ.
func Resolve(want topology.Topology, state State) Resolved {
	r := resolver{want: want, state: state, works: byName(want.Works, func(w topology.Work) string { return w.Queue })}
	r.attach = byName(want.Policies, func(p topology.Policy) string { return p.Label.Queue })
	r.patterns = map[string]*regexp2.Regexp{}
	for _, p := range state.Have.Policies {
		if owner, _ := topology.PolicyOwner(p.Name); owner != want.Name {
			r.foreignPolicies = append(r.foreignPolicies, p)
		}
	}
	r.out.bared, r.out.pending, r.out.found = map[string]bool{}, map[string]bool{}, map[string]bool{}
	r.effects = newEffects()
	r.out.Want, r.out.Have = want, topology.Topology{Name: want.Name, VHost: want.VHost}
	r.out.Bindings, r.out.Usage = state.Have.Bindings, state.Usage
	r.out.Want.Exchanges, r.out.Want.Queues, r.out.Want.Bindings, r.out.Want.Policies = nil, nil, nil, nil
	r.legacy, r.rerouted, r.loops = map[string]bool{}, map[string]bool{}, map[string]bool{}
	r.reroutes()
	r.exchanges()
	r.replacements()
	r.queues()
	r.bindings()
	r.policies()
	r.countHeader()
	r.forget()
	r.drift()
	r.strangers()
	r.crashes()
	r.unprocessed()
	r.forgedDeaths()
	if state.Alarm != "" {
		r.warn("alarm", "the broker takes no messages at the moment: "+state.Alarm)
	}
	r.protections()
	r.overruled()
	r.out.Want.Sort()
	r.out.Have.Sort()
	r.out.present = sync.OnceValue(func() *present { return newPresent(r) })
	return r.out
}

type resolver struct {
	want  topology.Topology
	state State
	works map[string]topology.Work
	// attach are the wanted policies, by queue.
	attach map[string]topology.Policy
	// foreignPolicies are those that were found and that are not of this topology.
	foreignPolicies []topology.Policy
	patterns        map[string]*regexp2.Regexp // of policies
	wanted          map[string]bool            // the identities of the bindings of want
	legacy          map[string]bool            // the exchanges of an earlier release that are there; see legacyExchange
	rerouted        map[string]bool            // the keys of queues whose failures change their way; see reroutes
	loops           map[string]bool            // the backoffs whose failed queue is retired and stays; see retireFailed
	kept            map[topology.Key]bool      // what legacy queues of ours still need; see living
	effects         effects
	risky           bool // policies of others may harm generated queues
	out             Resolved
}

func (r *resolver) exchanges() {
	found := byName(r.state.Have.Exchanges, func(e topology.Exchange) string { return e.Name })
	r.out.exchangeMarks = map[string]topology.Arguments{}
	for _, want := range r.want.Exchanges {
		have, ok := found[want.Name]
		key := topology.Key{Kind: topology.KindExchange, Name: want.Name}
		switch {
		case want.External && !ok:
			r.refuse(key, nil, want, want.Label, "the exchange is external and does not exist: its owner must create it, or take external: true away so that dlxctl does")
			continue
		case want.External && want.Type != "" && want.Type != have.Type:
			r.refuse(key, have, want, want.Label, fmt.Sprintf("the external exchange is of type %s: write that type, or leave it out", have.Type),
				Field{"type", have.Type, want.Type})
			continue
		case want.External:
			want = have
		case ok && r.foreign(key, have, want, have.Arguments, want.Label):
			continue
		case !ok && r.state.ExchangeTypes != nil && !slices.Contains(r.state.ExchangeTypes, want.Type):
			fix := "enable the plugin that brings it (rabbitmq-plugins enable ...) on every node"
			if near := topology.Nearest(want.Type, r.state.ExchangeTypes); near != "" {
				fix = fmt.Sprintf("did you mean %q? If not, %s", near, fix)
			}
			r.refuse(key, nil, want, want.Label, fmt.Sprintf("the broker knows no exchange type %q, only %s: %s",
				want.Type, strings.Join(r.state.ExchangeTypes, ", "), fix))
			continue
		case ok:
			r.out.exchangeMarks[have.Name] = have.Arguments
			have.Arguments = aligned(have.Arguments, want.Arguments, comparedExchangeArguments())
		}
		r.out.Want.Exchanges = append(r.out.Want.Exchanges, want)
		if ok {
			have.Label = want.Label
			r.out.Have.Exchanges = append(r.out.Have.Exchanges, have)
		}
	}
}

func (r *resolver) queues() {
	found := byName(r.state.Have.Queues, func(q topology.Queue) string { return q.Name })
	r.out.marks = map[string]topology.Arguments{}
	for _, want := range r.want.Queues {
		have, ok := found[want.Name]
		r.out.marks[want.Name] = have.Arguments
		if want.External {
			r.external(want, have, ok)
			continue
		}
		if ok && r.foreign(topology.Key{Kind: topology.KindQueue, Name: want.Name}, have, want, have.Arguments, want.Label) {
			continue
		}
		if flag := r.lacksFlag(want); flag != "" && !ok {
			r.refuse(topology.Key{Kind: topology.KindQueue, Name: want.Name}, nil, want, want.Label,
				fmt.Sprintf("the feature flag %s is not enabled, and the queue needs it: rabbitmqctl enable_feature_flag %s", flag, flag))
			continue
		}
		r.out.Want.Queues = append(r.out.Want.Queues, want)
		if ok {
			have.Arguments = r.attached(have, aligned(have.Arguments, want.Arguments, comparedQueueArguments()))
			if r.namesFailedExchange(have.Arguments, want.Arguments, have.Name) {
				have.Arguments[topology.ArgDeadLetterExchange] = want.Arguments[topology.ArgDeadLetterExchange]
			}
			have.Label = want.Label
			r.out.Have.Queues = append(r.out.Have.Queues, have)
		}
	}
}

// bindings takes a binding that somebody else made just as the file wants it as
// the wanted one: the broker would deliver no second copy through ours, and a
// service that binds again and again does no harm.
func (r *resolver) bindings() {
	found := byName(r.state.Have.Bindings, topology.Binding.Identity)
	r.wanted = make(map[string]bool, len(r.want.Bindings))
	for _, want := range r.want.Bindings {
		id := want.Identity()
		r.wanted[id] = true
		have, ok := found[id]
		if !ok {
			unmarked := want
			unmarked.Arguments = want.Arguments.Without(topology.ArgManagedBy)
			if have, ok = found[unmarked.Identity()]; ok {
				have.Label = want.Label
				want = have
			}
		}
		if ok {
			have.Label = want.Label
			r.out.Have.Bindings = append(r.out.Have.Bindings, have)
		} else if r.withholds(want) || r.governed(want) {
			continue
		}
		r.out.Want.Bindings = append(r.out.Want.Bindings, want)
	}
}

// lacksFlag gives the feature flag that a queue needs and that is not enabled.
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

// external takes a queue that a service declares as it is.
func (r *resolver) external(want, have topology.Queue, exists bool) {
	key := topology.Key{Kind: topology.KindQueue, Name: want.Name}
	switch {
	case !exists:
		r.refuse(key, nil, want, want.Label, "the queue is external and does not exist: the service that declares it must have done so, or take external: true away so that dlxctl does")
		return
	case want.Type() != "" && want.Type() != have.Type():
		r.refuse(key, have, want, want.Label, fmt.Sprintf("the external queue is of type %s: write that type, or leave it out", have.Type()), Field{"type", have.Type(), want.Type()})
		return
	case have.Type() == topology.Stream:
		r.refuse(key, have, want, want.Label, "the external queue is a stream, and streams dead-letter nothing: take it out of the file")
		return
	}
	have.Label, have.External = want.Label, true
	r.out.Want.Queues = append(r.out.Want.Queues, have)
	r.out.Have.Queues = append(r.out.Have.Queues, have)
}

// replacements notes which queues wait for their legacy queue to be moved.
func (r *resolver) replacements() {
	r.out.Withheld = map[string]string{}
	found := byName(r.state.Have.Queues, func(q topology.Queue) string { return q.Name })
	for _, w := range r.want.Works {
		if _, alive := found[w.Replaces]; w.Replaces == "" || !alive || r.forwards(w.Replaces) {
			continue
		}
		r.out.Withheld[w.Queue] = w.Replaces
		if _, made := found[w.Queue]; made {
			r.warn("migration-pending", fmt.Sprintf("%s gets its bindings when %s is moved: dlxctl migrate %s", display(w.Queue), display(w.Replaces), display(w.Replaces)))
		}
	}
}

// withholds reports whether a binding must wait: with it, every message would
// reach the new queue and the legacy queue.
func (r *resolver) withholds(b topology.Binding) bool {
	_, waits := r.out.Withheld[b.Destination]
	return waits && b.DestinationType == topology.ToQueue && b.Label.Role == topology.RoleBusiness
}

func (r *resolver) warn(name, text string) {
	r.out.Warnings = append(r.out.Warnings, Warning{Name: name, Text: text})
}

// foreign refuses an object that another topology owns.
func (r *resolver) foreign(key topology.Key, have, want any, args topology.Arguments, label topology.Label) bool {
	owner, ok := topology.Owner(args)
	if !ok || owner == r.want.Name {
		return false
	}
	r.refuse(key, have, want, label, fmt.Sprintf("the %s belongs to the topology %q, and the topology %q wants it too: take it out of one of the files, or give it another name there", key.Kind, owner, r.want.Name))
	return true
}

func (r *resolver) refuse(key topology.Key, before, after any, label topology.Label, reason string, fields ...Field) {
	r.out.Refused = append(r.out.Refused, Change{
		Action: Blocked, Kind: key.Kind, Name: key.Name, Before: before, After: after, Fields: fields, Reason: reason, Label: label,
	})
}

// countHeader refuses to change the header that counts while processors read the
// failed queue: they would go on to write the old one, which no binding matches
// any more, and every message would be a dead letter.
func (r *resolver) countHeader() {
	for _, l := range r.want.Loops {
		u := r.state.Usage[l.Failed]
		if !u.mayBeConsumed() {
			continue
		}
		if old := r.countsBy(l); old != "" {
			r.refuse(topology.Key{Kind: topology.KindExchange, Name: l.Exchange}, nil, nil, topology.Label{Role: topology.RoleRetry, Backoff: l.Backoff},
				fmt.Sprintf("the count header changes while the failed queue %s has %s: stop the processors, apply, and start them with the new file", l.Failed, u.ConsumersText()),
				Field{"countHeader", old, r.want.CountHeader})
		}
	}
}

// countsBy gives the header by which the bindings that were found pick the tier, if it
// is not the wanted one.
func (r *resolver) countsBy(l topology.Loop) string {
	for _, b := range r.state.Have.Bindings {
		if b.Source != l.Exchange || !r.ours(b.Arguments) {
			continue
		}
		if names := b.Arguments.WithoutX().Names(); len(names) == 1 && names[0] != r.want.CountHeader {
			return names[0]
		}
	}
	return ""
}

// crashes warns which delivery limit holds for new quorum work queues that say
// none: before 4.0 a message that crashes its consumer comes back for ever.
func (r *resolver) crashes() {
	found := byName(r.state.Have.Queues, func(q topology.Queue) string { return q.Name })
	var names []string
	for _, q := range r.want.Queues {
		_, exists := found[q.Name]
		_, limited := r.effective(q)[topology.ArgDeliveryLimit]
		if q.Label.Role == topology.RoleWork && q.Type() == topology.Quorum && !exists && !limited {
			names = append(names, display(q.Name))
		}
	}
	if len(names) == 0 {
		return
	}
	text := "the broker's default delivery limit holds: a message that crashes its consumer 20 times counts as failed"
	if Major(r.state.Version) < 4 {
		text = "this broker has no default delivery limit: a message that crashes its consumer is delivered again for ever; set deliveryLimit"
	}
	r.out.Warnings = append(r.out.Warnings, Warning{Name: "default-delivery-limit", Text: some(names) + ": " + text})
}

// comparedQueueArguments are the arguments that a broker compares when a queue
// is declared again; of those it does not compare, what a service set beside
// what the file says is its own affair.
func comparedQueueArguments() []string {
	return []string{
		topology.ArgQueueType, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgMessageTTL,
		topology.ArgMaxLength, topology.ArgMaxLengthBytes, topology.ArgOverflow, "x-max-priority", "x-single-active-consumer",
		"x-expires", topology.ArgDeliveryLimit, topology.ArgDeadLetterStrategy,
	}
}

func comparedExchangeArguments() []string { return []string{topology.ArgAlternateExchange} }

// aligned gives have without the arguments that are no difference: the mark,
// which takes the wanted value, and what want leaves open and no broker compares.
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

// byName gives list as a map.
func byName[T any](list []T, name func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, v := range list {
		m[name(v)] = v
	}
	return m
}
