package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// nativeVersion is a version to which native backoffs can be left.
const nativeVersion = "4.3.6"

// newer is a virtual host of such a version.
type newer struct{ *watched }

func (n newer) state() topology.State {
	s := n.fake.state()
	s.Version = nativeVersion
	return s
}

// nativeFile is a file with one queue q, whose backoff is a of the processor, n or m of RabbitMQ,
// or none.
func nativeFile(t loader, backoff, rest string) topology.Compiled {
	return loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s, 1m]}, n: {engine: native, tiers: [1s, 2s, 3s, 3s]}, m: {engine: native, tiers: [1s, 2s]}}\n"+
		"queues: [{name: q, backoff: "+backoff+", deadLetterBy: policy"+rest+"}]\n")
}

// The law of changing engines: wherever a change is stopped, and with whatever file the next run
// continues, what a queue dead-letters has one place, and it is the dead-letter queue at once only
// while RabbitMQ delays retries: a message never dies before it had those of either engine.
func TestEnginesChangeInASafeOrder(t *testing.T) {
	t.Parallel()
	for _, way := range [][2]string{{"a", "n"}, {"n", "a"}, {"n", "m"}} {
		for killed, more := 0, true; more; killed++ {
			for _, last := range way {
				n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
				run := func(backoff string, left int) plan.Plan {
					want := nativeFile(t, backoff, "")
					p := plan.Make(want, n.state(), plan.Options{})
					n.left = left
					_ = apply.ExecuteWithReroutes(t.Context(), n, want, p, 0, func(plan.Change) {}) // it may be killed
					return p
				}
				run(way[0], 1000)
				n.look = func(c plan.Change) {
					p, _ := n.objects["policy dlxctl.shop.queue.q"].(topology.Policy)
					delays := p.Definition["delayed-retry-type"] == "all"
					switch got := n.goes("shop.failed", "@q", 0); {
					case len(got) != 1:
						t.Fatalf("%v, killed after %d: after %s %s failures go to %q", way, killed, c.Action, c.Name, got)
					case got[0] == "q.dead" && !delays:
						t.Fatalf("%v, killed after %d: after %s %s failures die, and nothing delays them", way, killed, c.Action, c.Name)
					case !slices.Equal(n.goes("shop.return", "@q", 0), []string{"q"}):
						t.Fatalf("%v: after %s %s nothing returns from a tier", way, c.Action, c.Name)
					}
				}
				run(way[1], killed)
				more = n.left < 0 // else it was done before
				for range 3 {
					run(last, 1000)
				}
				if p := run(last, 1000); !p.Empty() {
					t.Fatalf("%v, killed after %d: left to do: %s", way, killed, text(t, p))
				}
			}
		}
	}
}

// loader is a test that loads files.
type loader interface {
	Helper()
	Fatal(args ...any)
}

// A plan shows what becomes of retries, and asks once for each queue whose consumers must know.
func TestANativeBackoffIsAskedForOnce(t *testing.T) {
	t.Parallel()
	n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
	var shown []string
	for _, backoff := range []string{"n", "m", "a", "n", "none", "n"} {
		want := nativeFile(t, backoff, "")
		p := plan.Make(want, n.state(), plan.Options{})
		needs := p.Needs(nil)
		if err := plan.Check(p, nil); (err != nil) != (needs != "") {
			t.Fatal(err)
		}
		shown = append(shown, fmt.Sprintf("%s: %s", backoff, needs))
		if err := apply.ExecuteWithReroutes(t.Context(), n, want, p, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"n: --allow uncounted-nack=q", "m: ", "a: ", "n: --allow uncounted-nack=q", "none: ", "n: --allow uncounted-nack=q",
	}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Without consent nothing changes for the queue: a new one is not created without its
// dead-lettering, and the failures of one that exists go where they went.
func TestANativeBackoffWithoutConsent(t *testing.T) {
	t.Parallel()
	n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
	allowed := plan.Allowed(plan.Make(nativeFile(t, "n", ""), n.state(), plan.Options{}), nil)
	for _, c := range allowed.Changes {
		if c.Kind == topology.KindPolicy || c.Name == "q" || strings.HasSuffix(c.Name, "-> q (@q)") {
			t.Errorf("%s %s %s", c.Action, c.Kind, c.Name)
		}
	}
	before := nativeFile(t, "a", "")
	p := plan.Make(before, n.state(), plan.Options{})
	if err := apply.ExecuteWithReroutes(t.Context(), n, before, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	for _, c := range plan.Allowed(plan.Make(nativeFile(t, "n", ""), n.state(), plan.Options{}), nil).Changes {
		t.Errorf("%s %s %s", c.Action, c.Kind, c.Name)
	}
}

// A queue that was created with a native backoff has no dead-letter arguments: for a backoff of the
// processor it needs deadLetterBy: policy. Until the file says so, nothing changes for it while it
// holds messages, such as those that RabbitMQ delays.
func TestBackFromANativeBackoff(t *testing.T) {
	t.Parallel()
	n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
	byArguments := func(backoff string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, n: {engine: native, tiers: [1s]}}\n"+
			"queues: [{name: q, backoff: "+backoff+"}]\n")
	}
	want := byArguments("n")
	p := plan.Make(want, n.state(), plan.Options{})
	if err := apply.ExecuteWithReroutes(t.Context(), n, want, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	state := n.state()
	state.Usage["q"] = topology.Usage{Unacknowledged: 1, Other: 1} // it is delayed
	p = plan.Make(byArguments("a"), state, plan.Options{})
	if shown := text(t, p); p.Count(plan.Blocked) != 1 || !strings.Contains(shown, "deadLetterBy: policy") {
		t.Errorf("the plan:\n%s", shown)
	}
	for _, c := range plan.Allowed(p, nil).Changes {
		if c.Reroute != nil || c.Kind == topology.KindPolicy {
			t.Errorf("%s %s", c.Action, c.Name)
		}
	}
}

// The deletion of a queue says whether RabbitMQ may delay messages there, although the policy that
// says so is deleted before the queue.
func TestTheDeletionOfAQueueThatDelays(t *testing.T) {
	t.Parallel()
	for _, backoff := range []string{"n", "a"} {
		n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
		want := nativeFile(t, backoff, "")
		p := plan.Make(want, n.state(), plan.Options{})
		if err := apply.ExecuteWithReroutes(t.Context(), n, want, p, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
		deleted := map[string]bool{} // by name: it delays
		p = plan.Make(topology.Compiled{Name: "shop"}, n.state(), plan.Options{Destroy: true})
		for _, c := range p.Changes {
			if c.Action == plan.Delete && c.Kind == topology.KindQueue {
				deleted[c.Name] = c.Delays
			}
		}
		if delays, gone := deleted["q"]; !gone || delays != (backoff == "n") || deleted["q.dead"] {
			t.Errorf("with the backoff %s, the plan deletes %v", backoff, deleted)
		}
	}
}

// Where RabbitMQ would not retry as the file says, the policy is refused by name.
func TestWhereNoNativeBackoffCanBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version, rest   string
		arguments       topology.Arguments
		other, operator args
		flags           []string
		want            string
	}{
		"as it should be": {arguments: topology.Arguments{"x-queue-type": "quorum", "x-delivery-limit": int64(4)}},
		"an older version": {
			version: "4.3.0", arguments: topology.Arguments{"x-queue-type": "quorum"},
			want: "the backoff n of the queue q has engine: native, which is for RabbitMQ 4.3.1 and later, and this broker is 4.3.0; write engine: processor",
		},
		"an older node in the cluster": {
			arguments: topology.Arguments{"x-queue-type": "quorum"}, flags: []string{"x", "rabbitmq_4.3.0"},
			want: "and the feature flag rabbitmq_4.3.0 is not enabled: nodes of an older version may be in the cluster; rabbitmqctl enable_feature_flag rabbitmq_4.3.0",
		},
		"a classic queue": {
			arguments: topology.Arguments{"x-queue-type": "classic"},
			want:      "the backoff n of the queue q has engine: native, and the queue is of type classic: only quorum queues delay retries",
		},
		"a delivery limit in the arguments": {
			arguments: topology.Arguments{"x-queue-type": "quorum", "x-delivery-limit": int64(3)},
			want:      "has engine: native and 4 retries, and its argument x-delivery-limit limits it to 3: of two limits the smaller one applies",
		},
		"a delivery limit of an operator": {
			arguments: topology.Arguments{"x-queue-type": "quorum"}, operator: args{"delivery-limit": int64(2)},
			want: "and the operator policy op limits it to 2",
		},
		"a delivery limit of another team": {
			arguments: topology.Arguments{"x-queue-type": "quorum"}, other: args{"delivery-limit": int64(2)},
		},
		"no delivery limit in the arguments": {
			arguments: topology.Arguments{"x-queue-type": "quorum", "x-delivery-limit": int64(-1)},
		},
		"a short TTL": {
			arguments: topology.Arguments{"x-queue-type": "quorum", "x-message-ttl": int64(9000)},
			want:      "has engine: native and delays of 9s together, and messages of the queue expire 9s after their publish (message-ttl)",
		},
		"a short TTL of another team": {
			arguments: topology.Arguments{"x-queue-type": "quorum"}, other: args{"message-ttl": int64(2500)},
			want: "messages of the queue expire 2.5s after",
		},
		"a long TTL": {arguments: topology.Arguments{"x-queue-type": "quorum", "x-message-ttl": int64(9001)}},
		"a delayed retry of its own": {
			arguments: topology.Arguments{
				"x-queue-type": "quorum", "x-delayed-retry-type": "failed", "x-delayed-retry-min": int64(1),
			},
			want: "and the queue was declared with x-delayed-retry-min",
		},
		"a dead-letter exchange of its own": {
			arguments: topology.Arguments{"x-queue-type": "quorum", "x-dead-letter-exchange": "e"},
			want:      "the queue q was declared with x-dead-letter-exchange, and an argument overrides every policy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := tc.version
			if version == "" {
				version = nativeVersion
			}
			state := topology.State{Version: version, VHost: "/", DisabledFlags: tc.flags}
			state.Have.Queues = []topology.Queue{{Name: "q", Durable: true, Arguments: tc.arguments}}
			if tc.other != nil {
				state.Have.Policies = []topology.Policy{queuePolicy("other", "^q$", 1, tc.other)}
			}
			if tc.operator != nil {
				state.OperatorPolicies = []topology.Policy{queuePolicy("op", "^q$", 1, tc.operator)}
			}
			p := plan.Make(nativeFile(t, "n", ", external: true"), state, plan.Options{})
			got := ""
			for _, c := range p.Changes {
				if c.Action == plan.Blocked {
					got = c.Reason
				}
			}
			if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// What a plan says of a change of the engine: in the order in which it is carried out.
func TestAChangeOfTheEngineIsShown(t *testing.T) {
	t.Parallel()
	n := newer{&watched{fake: &fake{objects: map[string]topology.Object{}}, left: 1000, look: func(plan.Change) {}}}
	for _, tc := range []struct {
		backoff string
		want    []string
	}{
		{"a", nil},
		{"n", []string{
			"~ policy dlxctl.shop.queue.q [uncounted-nack]",
			"    consumers must requeue what fails with basic.reject: what they requeue with basic.nack is delayed, but never counted, what they reject without requeue is a dead letter at once, and what they hold when a channel closes loses a retry",
			"~ queue q: backoff a -> n",
			"    before  3 deliveries, at 0s, +1s, +1m; dead after 1m1s at the earliest",
			"    after   5 deliveries, at 0s, +1s, +2s, +3s ×2; dead after 9s at the earliest; RabbitMQ delays and counts what consumers requeue (basic.reject)",
			"    messages that wait in a tier return to the queue, and RabbitMQ counts their attempts anew",
			"  q: 5 deliveries, at 0s, +1s, +2s, +3s ×2; dead after 9s at the earliest; RabbitMQ delays and counts what consumers requeue (basic.reject)",
			"  backoff n: an outage of 9s or more makes dead letters",
		}},
		{"m", []string{"    delayed-retry-max  3000 -> 2000", "    delivery-limit     4 -> 2"}},
		{"a", []string{
			"~ queue q: backoff engine: native -> a",
			"    messages that RabbitMQ delays return to the queue when they are due, and the processor counts their attempts anew",
			"~ policy dlxctl.shop.queue.q", `    delayed-retry-type  "all" -> (none)`,
		}},
	} {
		want := nativeFile(t, tc.backoff, "")
		shown := text(t, plan.Make(want, n.state(), plan.Options{}))
		rest := shown
		for _, line := range tc.want {
			_, after, found := strings.Cut(rest, line+"\n")
			if !found {
				t.Fatalf("%q is missing, or at another place:\n%s", line, shown)
			}
			rest = after
		}
		for range 3 {
			if err := apply.ExecuteWithReroutes(t.Context(), n, want, plan.Make(want, n.state(), plan.Options{}), 0,
				func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
