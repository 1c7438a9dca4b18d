package spec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// accept settles warnings by name, for one object or for all. Lists of several files join.
func TestAccept(t *testing.T) {
	t.Parallel()
	const base = "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, b: {tiers: [1s]}}\nqueues: [{name: q, backoff: none}]\n"
	for name, tc := range map[string]struct {
		text     string
		warnings int
		accepted []topology.Acceptance
		problem  string
	}{
		"nothing": {"", 2, nil, ""},
		"one object": {
			"accept: [unused-backoff=a]\n", 1, []topology.Acceptance{{Warning: "unused-backoff", Object: "a"}}, "",
		},
		"all": {"accept: [unused-backoff]\n", 0, []topology.Acceptance{{Warning: "unused-backoff"}}, ""},
		"no warning": {
			"accept: [unused-backof]\n", 0, nil,
			`f:5:10: accept lists "unused-backof", which is not a warning that can be accepted; did you mean "unused-backoff"?`,
		},
		"an alarm": {
			"accept: [alarm]\n", 0, nil,
			`f:5:10: accept lists "alarm", which is not a warning that can be accepted; write default-delivery-limit, forged-x-death, ignored-key, missing-rights, no-queues, odd-exchange-type, renamed, unknown-argument, unused-backoff, ends-delay, limited-dead-letters, no-processor, overruled or starves-tier`,
		},
		"without the object that it needs": {
			"accept: [overruled]\n", 0, nil,
			`f:5:10: accept lists "overruled" without an object; name what the warning is about: overruled=NAME`,
		},
		"a number": {
			"accept: [7]\n", 0, nil, `f:5:10: an entry of accept is the number 7, not text; put it in quotes: "7"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top, warnings, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(base + tc.text)}},
				func(string) (string, bool) { return "", false })
			if tc.problem != "" {
				if err == nil || err.Error() != tc.problem {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || len(warnings) != tc.warnings {
				t.Errorf("%d warnings, error %v", len(warnings), err)
			}
			if d := cmp.Diff(tc.accepted, top.Accepted); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Places say where the files declare queues, exchanges and bindings, and never count as a
// difference.
func TestPlaces(t *testing.T) {
	t.Parallel()
	one := spec.Source{Name: "one.yaml", Data: []byte("version: 1\nname: shop\nbackoff:\n  a: {tiers: [1s]}\nexchanges:\n  - {name: e}\n")}
	two := spec.Source{Name: "two.yaml", Data: []byte("version: 1\nqueues:\n  - name: q\n    backoff: a\n    bindings:\n" +
		"      - {exchange: e, keys: [a, b]}\n      - {exchange: e, key: c}\n")}
	top, _, err := spec.Load([]spec.Source{one, two}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"backoff a": top.Backoffs[0].Place.String()}
	for _, b := range top.Bindings {
		if b.Label.Role == topology.RoleBusiness {
			got[b.String()] = top.Places[b.ID()].String()
		}
	}
	got["e"] = top.Places[topology.Key{Kind: topology.KindExchange, Name: "e"}].String()
	got["q"] = top.Places[topology.Key{Kind: topology.KindQueue, Name: "q"}].String()
	want := map[string]string{
		"backoff a": "one.yaml:4", "e": "one.yaml:6", "q": "two.yaml:3",
		"e -> q (a)": "two.yaml:6", "e -> q (b)": "two.yaml:6", "e -> q (c)": "two.yaml:7",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(top.Places) != 5 {
		t.Errorf("%d places: %v", len(top.Places), top.Places)
	}
}
