package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// twoGone is the plan of a file from which the queues a and b were taken out, which
// are bound, and c, which holds a message.
func twoGone(removed ...string) plan.Plan {
	mark := args{"x-managed-by": "dlxctl/shop"}
	want := host(queue("keep", nil), exchange("e", "topic", mark))
	want.Removed = removed
	return plan.Make(want, topology.State{
		Version: "4.0.5",
		Have: host(exchange("e", "topic", mark), queue("keep", nil), queue("a", nil), queue("b", nil), queue("c", nil),
			binding("e", "a", "k", mark), binding("e", "b", "k", mark)).Topology,
		Usage: map[string]topology.Usage{"c": {Ready: 1}},
	}, plan.Options{})
}

// Consent to a hazard of one queue covers its bindings, and nothing of another queue.
// What the file lists as removed needs none for its routing, but for its messages.
func TestConsentNamesItsObject(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		removed []string
		allow   []string
		err     string // "" where all is allowed
		done    []string
	}{
		"none": {
			err: "loses-messages (1 change), drops-routing (4 changes); nothing was written. To consent: --allow loses-messages=c --allow drops-routing=a --allow drops-routing=b",
		},
		"of one queue": {
			allow: []string{"drops-routing=a"},
			err:   "loses-messages (1 change), drops-routing (2 changes); nothing was written. To consent: --allow loses-messages=c --allow drops-routing=b",
			done:  []string{"delete binding e -> a (k)", "delete queue a"},
		},
		"of all but one": {
			allow: []string{"drops-routing=a", "loses-messages=c"},
			err:   "drops-routing (2 changes); nothing was written. To consent: --allow drops-routing=b; or in the file: removed: [b]",
			done:  []string{"delete binding e -> a (k)", "delete queue a", "delete queue c"},
		},
		"of an exchange, which covers its bindings: they stay with their queues": {
			allow: []string{"drops-routing=e"},
			err:   "loses-messages (1 change), drops-routing (2 changes); nothing was written. To consent: --allow loses-messages=c --allow drops-routing=a --allow drops-routing=b",
		},
		"for every change": {
			allow: []string{"drops-routing", "loses-messages"},
			done: []string{
				"delete binding e -> a (k)", "delete binding e -> b (k)", "delete queue a", "delete queue b",
				"delete queue c",
			},
		},
		"in the file": {
			removed: []string{"a", "b", "c", "long-gone"},
			err:     "loses-messages (1 change); nothing was written. To consent: --allow loses-messages=c",
			done:    []string{"delete binding e -> a (k)", "delete binding e -> b (k)", "delete queue a", "delete queue b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := twoGone(tc.removed...)
			var allow []plan.Consent
			for _, text := range tc.allow {
				c, err := plan.ParseConsent(text)
				if err != nil {
					t.Fatal(err)
				}
				allow = append(allow, c)
			}
			got := ""
			if err := plan.Check(p, allow); err != nil {
				got = strings.TrimPrefix(err.Error(), "the plan has hazards that are not allowed: ")
			}
			if got != tc.err {
				t.Errorf("Check gives %q, not %q", got, tc.err)
			}
			if d := cmp.Diff(tc.done, bare(plan.Allowed(p, allow))); d != "" {
				t.Errorf("carried out (-want +got):\n%s", d)
			}
		})
	}
}

// A queue that is made again is not removed: the file cannot allow it that way. Nor
// can it allow that consumers are stopped.
func TestRemovedAllowsDeletionsOnly(t *testing.T) {
	t.Parallel()
	p := plan.Plan{Removed: []string{"q"}, Changes: []plan.Change{
		{Action: plan.Replace, Kind: topology.KindQueue, Name: "q", Hazards: []topology.Hazard{topology.DropsRouting}},
	}}
	if err := plan.Check(p, nil); err == nil {
		t.Error("a replacement is allowed")
	}
	p.Changes[0].Action = plan.Delete
	if err := plan.Check(p, nil); err != nil {
		t.Errorf("a deletion is not allowed: %v", err)
	}
	for _, h := range []topology.Hazard{topology.StopsConsumers, topology.LosesMessages} {
		p.Changes[0].Hazards = []topology.Hazard{h}
		if err := plan.Check(p, nil); err == nil {
			t.Errorf("%s is allowed", h)
		}
	}
}

// What is wide or useless about consents is said, with what to write in its place.
func TestNotes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"drops-routing":         "--allow drops-routing allows this hazard for every change; to allow it for these objects only: --allow drops-routing=a --allow drops-routing=b",
		"stops-consumers":       "--allow stops-consumers allows this hazard for every change; to allow it for one object: --allow stops-consumers=NAME",
		"drops-routing=a":       "",
		"drops-routing=nothing": "--allow drops-routing=nothing allows nothing: no change of nothing has this hazard",
		"loses-messages=a":      "--allow loses-messages=a allows nothing: no change of a has this hazard",
	} {
		c, err := plan.ParseConsent(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(twoGone().Notes([]plan.Consent{c}), "\n"); got != want {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
	for _, text := range []string{"", "=a", "at-most-once", "drops-routing=", "Drops-routing=a", "everything=a"} {
		if _, err := plan.ParseConsent(text); err == nil {
			t.Errorf("%q is taken for a consent", text)
		}
	}
}

// Of many objects a message names none: it allows the hazard for every change and says so, and can
// be pasted too.
func TestConsentToManyObjects(t *testing.T) {
	t.Parallel()
	var p plan.Plan
	for i := range 251 {
		p.Changes = append(p.Changes, plan.Change{
			Action: plan.Delete, Kind: topology.KindQueue, Name: fmt.Sprintf("q%d", i),
			Hazards: []topology.Hazard{topology.DropsRouting},
		})
	}
	if got, want := p.Needs(nil), "--allow drops-routing"; got != want {
		t.Errorf("needs %q, not %q", got, want)
	}
	want := []string{"--allow drops-routing allows this hazard for every change (251 objects); to allow it for one object: --allow drops-routing=NAME"}
	if d := cmp.Diff(want, p.Notes(plan.Allow(topology.DropsRouting))); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

// The flags of a message can be pasted into a shell, whatever a queue is called.
func TestConsentsArePasted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.b-c_1": "--allow loses-messages=a.b-c_1",
		"a b":     "--allow 'loses-messages=a b'",
		"a,b":     `--allow '"loses-messages=a,b"'`,
		"it's":    `--allow 'loses-messages=it'\''s'`,
		"a$HOME":  "--allow 'loses-messages=a$HOME'",
	} {
		p := plan.Plan{Changes: []plan.Change{{
			Action: plan.Delete, Kind: topology.KindQueue, Name: name,
			Hazards: []topology.Hazard{topology.LosesMessages},
		}}}
		if got := p.Needs(nil); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}

// A saved plan keeps its consents, and one that has only the hazard is read too.
func TestSavedConsents(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]plan.Consent{
		`["drops-routing"]`: {{Hazard: topology.DropsRouting}},
		`["drops-routing=a","loses-messages=b=c, d"]`: {
			{Hazard: topology.DropsRouting, Object: "a"},
			{Hazard: topology.LosesMessages, Object: "b=c, d"},
		},
		`null`: nil,
	} {
		var o plan.Options
		if err := json.Unmarshal([]byte(`{"Prune":false,"Allow":`+text+`,"SkipBlocked":false}`), &o); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, o.Allow); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
		data, err := json.Marshal(o.Allow)
		if err != nil || string(data) != text {
			t.Errorf("%s is written as %s, %v", text, data, err)
		}
	}
	if err := json.Unmarshal([]byte(`["anything"]`), new([]plan.Consent)); err == nil {
		t.Error("a hazard that does not exist is read")
	}
}
