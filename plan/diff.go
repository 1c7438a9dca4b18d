package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Make gives the plan that turns what was found into want: [Resolve], then
// [Diff].
func Make(want topology.Topology, state State, o Options) Plan {
	p := Diff(Resolve(want, state))
	if o.Prune {
		p.Changes, p.Drift = append(p.Changes, p.Drift...), nil
		order(p.Changes)
	}
	p.VHost, p.Version, p.Cluster = state.VHost, state.Version, state.Cluster
	return p
}

// Diff compares. It reads no clock and no network, and gives equal plans for
// equal arguments. Blocked changes come first, then the others in the order in
// which they are carried out: the safety net before the work queues, the
// business bindings last, so that a message always has somewhere to go.
func Diff(r Resolved) Plan {
	r.routed = r.routedQueues()
	p := Plan{
		Topology: r.Want.Name, VHost: r.Want.VHost, Fingerprint: fingerprint(r),
		Changes: slices.Clone(r.Refused), Warnings: r.Warnings, Loops: r.Want.Loops, Works: r.Want.Works,
	}
	exchanges := byName(r.Have.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, want := range r.Want.Exchanges {
		if have, ok := exchanges[want.Name]; !ok {
			p.Changes = append(p.Changes, created(topology.KindExchange, want.Name, want, want.Label, exchangeFields(want)))
		} else if fields := differing(exchangeFields(have), exchangeFields(want)); len(fields) > 0 {
			p.Changes = append(p.Changes, r.replacedExchange(have, want, fields))
		}
	}
	replaced := map[string]bool{}
	queues := byName(r.Have.Queues, func(q topology.Queue) string { return q.Name })
	for _, want := range r.Want.Queues {
		if have, ok := queues[want.Name]; !ok {
			c := created(topology.KindQueue, want.Name, want, want.Label, queueFields(want))
			c.Hazards = hops(want.Arguments)
			if legacy, waits := r.Withheld[want.Name]; waits {
				c.Action = Migrate
				c.Reason = fmt.Sprintf("made without its bindings from declared exchanges, as %s lives: dlxctl migrate %s", display(legacy), display(legacy))
			}
			p.Changes = append(p.Changes, c)
		} else if fields := differing(queueFields(have), queueFields(want)); len(fields) > 0 {
			c := r.replaced(have, want, fields)
			p.Changes = append(p.Changes, c)
			replaced[want.Name] = c.Action == Replace
		}
	}
	bindings := byName(r.Have.Bindings, topology.Binding.Identity)
	wanted := make(map[string]bool, len(r.Want.Bindings))
	for _, want := range r.Want.Bindings {
		id := want.Identity()
		wanted[id] = true
		if _, ok := bindings[id]; !ok {
			p.Changes = append(p.Changes, created(topology.KindBinding, want.String(), want, want.Label, fieldsOf(want.Arguments)))
		}
	}
	p.Changes = append(p.Changes, r.rebindings(replaced, wanted)...)
	p.Changes = append(p.Changes, r.policyChanges()...)
	p.Changes = append(p.Changes, r.deletions(wanted)...)
	for _, b := range r.Drift {
		c := r.unbinding(b)
		c.Reason = "nobody declared it"
		p.Drift = append(p.Drift, c)
	}
	p.Retiring = r.Retiring
	order(p.Changes)
	return p
}

// order puts changes into the order in which they are carried out. Blocked ones
// have no rank and come first.
func order(changes []Change) {
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Rank, b.Rank) })
}

func created(kind topology.Kind, name string, after any, label topology.Label, fields []Field) Change {
	c := Change{Action: Create, Kind: kind, Name: name, After: after, Label: label}
	c.Rank = rank(c)
	for _, f := range fields {
		if f.After != false && f.After != "" {
			c.Fields = append(c.Fields, Field{Name: f.Name, After: f.After})
		}
	}
	return c
}

func blocked(kind topology.Kind, name string, before, after any, label topology.Label, fields []Field) Change {
	reason := "RabbitMQ cannot change the arguments of an existing " + string(kind) + ": declaring it so is answered with 406 PRECONDITION_FAILED. Ways out: "
	if kind == topology.KindQueue {
		reason += "dead-lettering by policy (deadLetterBy: policy), which a live queue can be given; a new queue that takes its place (replaces: and dlxctl migrate); " +
			"or delete it by hand when it is empty and unused, and apply again"
	} else {
		reason += "write in the file what the exchange has, give it another name there, or delete it by hand when nothing needs it, and apply again"
	}
	return Change{Action: Blocked, Kind: kind, Name: name, Before: before, After: after, Fields: fields, Reason: reason, Label: label}
}

// hops names the hazards of a queue's own dead-lettering.
func hops(args topology.Arguments) []Hazard {
	_, deadLetters := args[topology.ArgDeadLetterExchange]
	if deadLetters && args[topology.ArgDeadLetterStrategy] != topology.AtLeastOnce {
		return []Hazard{AtMostOnce}
	}
	return nil
}

// rank gives the place of a creation in the order. Bindings come after both
// their ends; nothing is bound to a work queue before its failures have
// somewhere to go.
func rank(c Change) int {
	binding, isBinding := c.After.(topology.Binding)
	switch role := c.Label.Role; {
	case role == topology.RoleUnroutable || role == topology.RoleDead:
		if isBinding {
			return 2
		}
		return 1
	case role == topology.RoleReturn && isBinding:
		return 6
	case role == topology.RoleReturn || role == topology.RoleFailed || role == topology.RoleRetry:
		if isBinding {
			return 4
		}
		return 3
	case c.Kind == topology.KindPolicy:
		return 7 // what it dead-letters finds its way back
	case !isBinding:
		return 5
	case binding.DestinationType == topology.ToQueue:
		return 8
	default:
		return 9 // between exchanges: what flows through finds its queues bound
	}
}

func exchangeFields(e topology.Exchange) []Field {
	return append([]Field{
		{Name: "type", After: e.Type},
		{Name: "durable", After: e.Durable},
		{Name: "auto-delete", After: e.AutoDelete},
		{Name: "internal", After: e.Internal},
	}, fieldsOf(e.Arguments)...)
}

func queueFields(q topology.Queue) []Field {
	return append([]Field{
		{Name: "durable", After: q.Durable}, {Name: "auto-delete", After: q.AutoDelete}, {Name: "exclusive", After: q.Exclusive},
	}, fieldsOf(q.Arguments)...)
}

func fieldsOf(args topology.Arguments) []Field {
	var fields []Field
	for _, name := range args.Names() {
		fields = append(fields, Field{Name: name, After: args[name]})
	}
	return fields
}

// differing gives the fields whose values differ, in the order of want, with
// those that only have holds behind.
func differing(have, want []Field) []Field {
	before := byName(have, func(f Field) string { return f.Name })
	var out []Field
	for _, w := range want {
		h := before[w.Name]
		delete(before, w.Name)
		if topology.FormatValue(h.After) != topology.FormatValue(w.After) {
			out = append(out, Field{Name: w.Name, Before: h.After, After: w.After})
		}
	}
	for _, h := range have {
		if _, left := before[h.Name]; left {
			out = append(out, Field{Name: h.Name, Before: h.After})
		}
	}
	return out
}

// fingerprint stands for the part of the state that the plan depends on. It
// does not depend on what queues hold.
func fingerprint(r Resolved) string {
	h := sha256.New() // writing to it cannot fail
	for _, e := range r.Have.Exchanges {
		fmt.Fprintf(h, "exchange %q %q %t %t %t %s\n", e.Name, e.Type, e.Durable, e.AutoDelete, e.Internal, e.Arguments)
	}
	for _, q := range r.Have.Queues {
		fmt.Fprintf(h, "queue %q %t %t %t %s\n", q.Name, q.Durable, q.AutoDelete, q.Exclusive, q.Arguments)
	}
	for _, x := range r.Have.Bindings {
		h.Write([]byte("binding " + x.Identity() + "\n"))
	}
	for _, p := range r.Have.Policies {
		fmt.Fprintf(h, "policy %q %q %q %d %s\n", p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition)
	}
	for _, p := range r.Want.Policies {
		fmt.Fprintf(h, "base %q %d %s\n", p.Name, p.Priority, p.Definition) // it starts from somebody's policy
	}
	for _, x := range r.Drift {
		fmt.Fprintf(h, "drift %s\n", x.Identity())
	}
	for _, x := range r.goesAlong() {
		fmt.Fprintf(h, "along %s\n", x.Identity())
	}
	for _, c := range r.Refused {
		fmt.Fprintf(h, "refused %s %q %s\n", c.Kind, c.Name, c.Reason)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// goesAlong gives the bindings, in order, that end or begin at a queue or exchange of
// ours which is no longer wanted as it is: they go with it when it is deleted or made again, whoever made them.
func (r Resolved) goesAlong() []topology.Binding {
	going := map[topology.Key]bool{}
	exchanges := byName(r.Want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, have := range r.Have.Exchanges {
		want, ok := exchanges[have.Name]
		going[topology.Key{Kind: topology.KindExchange, Name: have.Name}] = !ok || len(differing(exchangeFields(have), exchangeFields(want))) > 0
	}
	queues := byName(r.Want.Queues, func(q topology.Queue) string { return q.Name })
	for _, have := range r.Have.Queues {
		want, ok := queues[have.Name]
		going[topology.Key{Kind: topology.KindQueue, Name: have.Name}] = !ok || len(differing(queueFields(have), queueFields(want))) > 0
	}
	out := slices.DeleteFunc(slices.Clone(r.Bindings), func(b topology.Binding) bool {
		return !going[topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}] && !going[topology.Key{Kind: topology.KindExchange, Name: b.Source}]
	})
	slices.SortFunc(out, func(a, b topology.Binding) int { return cmp.Compare(a.Identity(), b.Identity()) })
	return out
}

// Major gives the first number of a broker's version, 0 if there is none.
func Major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}
