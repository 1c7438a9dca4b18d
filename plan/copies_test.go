package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A binding that goes while another queue gets one for the same messages copies them: bound first,
// they go to both queues until the previous binding is deleted. Nothing else has the hazard.
func TestMovedBindings(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	headers := func(match string, more args) args {
		return more.With("x-match", match).With("x-managed-by", "dlxctl/shop")
	}
	// Each binding is QUEUE KEY, or QUEUE with arguments.
	type b struct {
		queue, key string
		args       args
	}
	for name, tc := range map[string]struct {
		typ        string
		have, want []b
		foreign    []b
		copies     []string // the changes with the hazard
		options    plan.Options
	}{
		"a key": {
			typ: "direct", have: []b{{"a", "k", mark}},
			want: []b{{"z", "k", mark}}, copies: []string{"e -> a (k)"},
		},
		"another key":          {typ: "direct", have: []b{{"a", "k", mark}}, want: []b{{"z", "l", mark}}},
		"a key within a queue": {typ: "topic", have: []b{{"a", "k", mark}}, want: []b{{"a", "*", mark}}},
		"a fanout": {
			typ: "fanout", have: []b{{"a", "", mark}},
			want: []b{{"z", "", mark}}, copies: []string{"e -> a"},
		},
		"patterns that overlap": {
			typ: "topic", have: []b{{"a", "order.*", mark}},
			want: []b{{"z", "#.paid", mark}}, copies: []string{"e -> a (order.*)"},
		},
		"a key out of a pattern": {
			typ: "topic", have: []b{{"a", "order.#", mark}},
			want: []b{{"z", "order.a.b", mark}}, copies: []string{"e -> a (order.#)"},
		},
		"patterns without a common key": {
			typ: "topic", have: []b{{"a", "order.*", mark}, {"a", "*", mark}, {"a", "", mark}},
			want: []b{{"z", "order.*.*", mark}, {"z", "#.x.y.#", mark}},
		},
		"words that are signs": {
			typ: "topic", have: []b{{"a", "a..b", mark}},
			want: []b{{"z", "a.*.b", mark}}, copies: []string{"e -> a (a..b)"},
		},
		"the queue keeps another binding for them": {
			typ: "topic", have: []b{{"a", "order.*", mark}}, want: []b{{"a", "order.#", mark}, {"z", "order.paid", mark}},
		},
		"the queue keeps a part of them": {
			typ: "topic", have: []b{{"a", "order.*", mark}},
			want: []b{{"a", "order.new", mark}, {"z", "order.*", mark}}, copies: []string{"e -> a (order.*)"},
		},
		"the queue keeps all of them": {
			typ: "topic", have: []b{{"a", "order.#", mark}},
			want: []b{{"a", "order", mark}, {"a", "order.*.#", mark}, {"z", "order.#", mark}},
		},
		"the other queue has them already": {
			typ: "topic", have: []b{{"a", "k", mark}, {"z", "#", mark}}, want: []b{{"z", "#", mark}, {"z", "k", mark}},
		},
		"the other queue gets them by drift too": {
			typ: "direct", have: []b{{"a", "k", mark}}, foreign: []b{{"z", "k", nil}}, want: []b{{"z", "k", mark}},
		},
		"drift that is not deleted": {typ: "direct", foreign: []b{{"a", "k", nil}}, want: []b{{"z", "k", mark}}},
		"drift that is deleted": {
			typ: "direct", foreign: []b{{"a", "k", nil}}, want: []b{{"z", "k", mark}},
			options: plan.Options{Prune: true}, copies: []string{"e -> a (k)"},
		},
		"interrupted between the steps": {
			typ: "direct", have: []b{{"a", "k", mark}, {"z", "k", mark}},
			want: []b{{"z", "k", mark}},
		},
		"headers": {
			typ: "headers", have: []b{{"a", "", headers("all", args{"n": int64(1)})}},
			want: []b{{"z", "", headers("any", args{"n": int64(2), "m": true})}}, copies: []string{"e -> a (n=1)"},
		},
		"headers with different values": {
			typ: "headers", have: []b{{"a", "", headers("all", args{"n": int64(1)})}},
			want: []b{{"z", "", headers("all", args{"n": int64(2), "m": true})}},
		},
		"headers that the queue keeps": {
			typ: "headers", have: []b{{"a", "", headers("all", args{"n": int64(1)})}},
			want: []b{{"a", "", headers("any", args{"n": int64(1)})}, {"z", "", headers("all", args{"m": true})}},
		},
		"a plugin's exchange": {typ: "x-consistent-hash", have: []b{{"a", "1", mark}}, want: []b{{"z", "1", mark}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := func(lists ...[]b) topology.Compiled {
				objects := []topology.Object{exchange("e", tc.typ, mark), queue("a", nil), queue("z", nil)}
				for _, b := range slices.Concat(lists...) {
					objects = append(objects, binding("e", b.queue, b.key, b.args))
				}
				return host(objects...)
			}
			p := plan.Make(side(tc.want), topology.State{Have: side(tc.have, tc.foreign).Topology}, tc.options)
			var copies []string
			for _, c := range p.Changes {
				if slices.Contains(c.Hazards, topology.CopiesMessages) {
					copies = append(copies, c.Name)
					const reason = "; messages that also match the new bindings of z are copied between two steps: from the creation of those bindings until this deletion, they go to a and z"
					if !slices.Contains(c.Hazards, topology.DropsRouting) || !strings.HasSuffix(c.Reason, reason) {
						t.Errorf("%s has the hazards %v: %s", c.Name, c.Hazards, c.Reason)
					}
				}
			}
			if !slices.Equal(copies, tc.copies) {
				t.Errorf("%v copy messages, of %v", copies, summarize(p.Changes))
			}
		})
	}
}

// A new binding for what another client's binding leads to another queue of the file has a warning
// that the copies stay, of an external queue too. What the file gives the other queue, what does
// not come to it, and what the plan deletes has none.
func TestAKeyThatStaysBound(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	type b struct {
		queue, key string
		args       args
	}
	const one = "the binding e -> a (k), which another client made and the file does not have, stays: what it matches goes to a, and now to z too. If it is to move, remove that binding in that client and on the broker"
	foreign, moved := []b{{"a", "k", nil}}, []b{{"z", "k", mark}}
	header := args{"x-match": "all", "n": int64(1)}
	for name, tc := range map[string]struct {
		typ           string
		have, foreign []b
		want          []b
		owned         bool
		options       plan.Options
		warning       string
	}{
		"external queues":        {typ: "direct", foreign: foreign, want: moved, warning: one},
		"queues of dlxctl":       {typ: "topic", foreign: foreign, want: moved, owned: true, warning: one},
		"another key":            {typ: "direct", foreign: []b{{"a", "l", nil}}, want: moved},
		"a pattern for more":     {typ: "topic", foreign: []b{{"a", "#", nil}}, want: moved},
		"a type of a plugin":     {typ: "x-consistent-hash", foreign: []b{{"a", "1", nil}}, want: []b{{"z", "1", mark}}},
		"the file has both":      {typ: "direct", foreign: foreign, want: []b{{"a", "k", mark}, {"z", "k", mark}}},
		"the file has more":      {typ: "topic", foreign: foreign, want: []b{{"a", "#", mark}, {"z", "k", mark}}},
		"a queue of no file":     {typ: "direct", foreign: []b{{"other", "k", nil}}, want: moved},
		"it was bound before":    {typ: "direct", foreign: []b{{"a", "k", nil}, {"z", "k", nil}}, want: moved},
		"it was bound by dlxctl": {typ: "direct", have: []b{{"z", "k", mark}}, foreign: foreign, want: moved},
		"a binding of dlxctl":    {typ: "direct", have: []b{{"a", "k", mark}}, want: moved, owned: true},
		"drift that is deleted": {
			typ: "direct", foreign: foreign, want: moved, owned: true,
			options: plan.Options{Prune: true},
		},
		"a fanout, whatever the keys": {
			typ: "fanout", foreign: foreign, want: []b{{"z", "", mark}}, warning: one,
		},
		"the same headers": {
			typ: "headers", foreign: []b{{"a", "", header}}, want: []b{{"z", "", header.With("x-managed-by", "dlxctl/shop")}},
			warning: strings.Replace(one, "(k)", "(n=1)", 1),
		},
		"other headers": {
			typ: "headers", foreign: []b{{"a", "", header}},
			want: []b{{"z", "", mark.With("x-match", "all").With("n", int64(2))}},
		},
		"several": {
			typ: "direct", foreign: []b{{"a", "k", nil}, {"a", "l", nil}},
			want:    []b{{"z", "k", mark}, {"y", "l", mark}},
			warning: "the bindings e -> a (k), e -> a (l), which another client made and the file does not have, stay: what they match goes to a, and now to y, z too. If it is to move, remove those bindings in that client and on the broker",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := func(lists ...[]b) topology.Compiled {
				e := exchange("e", tc.typ, mark)
				e.External = !tc.owned
				objects := []topology.Object{e}
				for _, name := range []string{"a", "y", "z"} {
					q := queue(name, nil)
					q.External = !tc.owned
					objects = append(objects, q)
				}
				for _, b := range slices.Concat(lists...) {
					objects = append(objects, binding("e", b.queue, b.key, b.args))
				}
				return host(objects...)
			}
			p := plan.Make(side(tc.want), topology.State{Have: side(tc.have, tc.foreign).Topology}, tc.options)
			var warnings []string
			for _, w := range p.Warnings {
				if w.Name == topology.WarnStillBound {
					warnings = append(warnings, w.Text)
				}
			}
			if got := strings.Join(warnings, "\n"); got != tc.warning {
				t.Errorf("the warning is %q, of %v", got, summarize(p.Changes))
			}
		})
	}
}

// Both halves of a move are carried out, or none: consent to the end of the routing is no consent
// to copies, and without the deletion they would not end.
func TestMovedBindingsStayTogether(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	objects := []topology.Object{exchange("e", "direct", mark), queue("a", nil), queue("z", nil)}
	have := host(append(objects, binding("e", "a", "k", mark), binding("e", "a", "l", mark))...)
	want := host(append(objects, binding("e", "z", "k", mark), binding("e", "z", "m", mark))...)
	p := plan.Make(want, topology.State{Have: have.Topology}, plan.Options{})
	for _, tc := range []struct {
		allow []topology.Hazard
		want  []string
	}{
		{nil, []string{"create binding e -> z (m)"}},
		{[]topology.Hazard{topology.DropsRouting}, []string{
			"create binding e -> z (m)", "delete binding e -> a (l) drops-routing",
		}},
		{[]topology.Hazard{topology.DropsRouting, topology.CopiesMessages}, []string{
			"create binding e -> z (k)", "create binding e -> z (m)",
			"delete binding e -> a (k) drops-routing copies-messages", "delete binding e -> a (l) drops-routing",
		}},
	} {
		if got := summarize(plan.Allowed(p, plan.Allow(tc.allow...)).Changes); !slices.Equal(got, tc.want) {
			t.Errorf("with %v, %v are carried out", tc.allow, got)
		}
	}
	i := slices.IndexFunc(p.Changes, func(c plan.Change) bool { return c.Name == "e -> z (k)" })
	p.Changes[i].Action = plan.Blocked
	if got := summarize(plan.Allowed(p, plan.Allow(topology.Hazards()...)).Changes); slices.Contains(got,
		"delete binding e -> a (k) drops-routing copies-messages") {
		t.Errorf("without the new binding, %v are carried out", got)
	}
}

// The bindings that go are deleted right behind the new ones, before the waits of a reroute.
func TestMovedBindingsComeBeforeReroutes(t *testing.T) {
	t.Parallel()
	if plan.PhaseBindExchanges >= plan.PhaseUnbind || plan.PhaseUnbind >= plan.PhaseReroute {
		t.Error("what is moved is copied while a reroute waits")
	}
}
