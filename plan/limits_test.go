package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The limits of a queue that exists change by the policy of its dead-lettering, where RabbitMQ then
// applies them. Else the change is blocked. What the queue has already is not a difference.
func TestLimitsOfALiveQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind   string // quorum by default
		have   string // arguments of the queue as it was created
		before string // arguments in the file before
		after  string
		other  args // the policy of another team
		comes  args // the same, since the file of before was applied
		held   int64
		stuck  int64 // what RabbitMQ is dead-lettering
		want   string
		says   string
	}{
		"as before":     {have: "x-max-length: 5", after: "x-max-length: 5"},
		"as before too": {have: "x-max-length: 5, x-overflow: drop-head", after: "x-max-length: 5, x-overflow: drop-head"},
		"lower":         {have: "x-max-length: 5", after: "x-max-length: 3", want: "update max-length"},
		"lower, and as it was created": {
			have: "x-max-length: 5", before: "x-max-length: 3", after: "x-max-length: 5", want: "update max-length",
		},
		"lower, and up to less": {
			have: "x-max-length: 5", before: "x-max-length: 3", after: "x-max-length: 4", want: "update max-length",
		},
		"new":  {after: "x-max-length: 3", want: "update max-length"},
		"up":   {before: "x-max-length: 3", after: "x-max-length: 9", want: "update max-length"},
		"away": {before: "x-max-length-bytes: 3", want: "update max-length-bytes"},
		"higher": {
			have: "x-max-length: 5", after: "x-max-length: 9", held: 1, want: "blocked x-max-length replaces-queue",
			says: "write arguments: {x-max-length: 5}; no policy can raise or remove it, as ",
		},
		"removed": {
			have: "x-max-length: 5", held: 1, want: "blocked x-max-length replaces-queue",
			says: "no policy can raise or remove it, as ",
		},
		"overflow of a quorum queue": {
			have: "x-overflow: drop-head", after: "x-overflow: reject-publish",
			want: "update dead-letter-strategy overflow",
		},
		"overflow of a classic queue": {
			kind: "classic", have: "x-overflow: drop-head", after: "x-overflow: reject-publish", held: 1,
			want: "blocked x-overflow replaces-queue",
		},
		"new overflow of a classic queue": {
			kind: "classic", after: "x-max-length: 3, x-overflow: reject-publish", want: "update max-length overflow",
		},
		"above the limit, which refuses": {
			after: "x-max-length: 3, x-overflow: reject-publish", held: 9, want: "update max-length",
		},
		"above the limit of a classic queue, which refuses from now on": {
			kind: "classic", after: "x-max-length: 3, x-overflow: reject-publish", held: 9,
			want: "update max-length overflow loses-messages",
		},
		"lower, in a classic queue that refuses": {
			kind: "classic", before: "x-max-length: 5, x-overflow: reject-publish",
			after: "x-max-length: 3, x-overflow: reject-publish", held: 5, want: "update max-length",
		},
		"above the limit, which drops": {
			have: "x-overflow: drop-head", after: "x-max-length: 3, x-overflow: drop-head", held: 9,
			want: "update max-length loses-messages",
			says: "w holds 9 messages, and the oldest leave it at once, down to 3 messages: they count as failed, and are dead-lettered without a confirmation",
		},
		"up, and above the limit": {
			kind: "classic", before: "x-max-length: 3", after: "x-max-length: 5", held: 9, want: "update max-length",
		},
		"bytes": {
			kind: "classic", after: "x-max-length-bytes: 3", held: 1, want: "update max-length-bytes loses-messages",
		},
		"below a limit of another team": {
			after: "x-max-length: 3", other: args{"max-length": int64(7)}, want: "update max-length",
		},
		"another team limits a queue that holds more": {
			comes: args{"max-length": int64(5)}, held: 9,
			want: "update max-length dead-letter-strategy overflow loses-messages",
			says: "w holds 9 messages, and the oldest leave",
		},
		"another team lowers its limit": {
			kind: "classic", other: args{"max-length": int64(7)}, comes: args{"max-length": int64(5)}, held: 6,
			want: "update max-length loses-messages",
		},
		"another team limits a queue that holds less": {
			kind: "classic", comes: args{"max-length": int64(5)}, held: 5, want: "update max-length",
		},
		"another team limits a queue that is dead-lettering": {
			comes: args{"max-length": int64(9)}, stuck: 3,
			want: "update max-length dead-letter-strategy overflow loses-messages",
			says: "RabbitMQ deletes what it is dead-lettering at that moment: up to 3 messages of w",
		},
		"another overflow, while nothing dies": {
			after: "x-overflow: drop-head", held: 3, want: "update overflow dead-letter-strategy",
			says: "RabbitMQ deletes what it is dead-lettering at that moment",
		},
		"lower, while messages die": {
			before: "x-max-length: 9, x-overflow: reject-publish", stuck: 3,
			after: "x-max-length: 5, x-overflow: reject-publish", want: "update max-length",
		},
		"above a limit of another team": {after: "x-max-length: 9", other: args{"max-length": int64(7)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := tc.kind
			if kind == "" {
				kind = topology.Quorum
			}
			file := func(arguments string) topology.Compiled {
				return loaded(t, fmt.Sprintf("version: 1\nname: shop\nqueues: [{name: w, backoff: none, type: %s, deadLetterBy: policy, arguments: {%s}}]\n", kind, arguments))
			}
			made := file(tc.have)
			state := topology.State{Version: "4.3.6", VHost: "/", Have: made.Topology, Usage: map[string]topology.Usage{}}
			if tc.other != nil {
				state.Have.Policies = append(state.Have.Policies, queuePolicy("other", "^w$", 1, tc.other))
			}
			before := tc.before
			if before == "" {
				before = tc.have
			}
			for _, c := range plan.Make(file(before), state, plan.Options{}).Changes {
				p, ok := c.After.(topology.Policy)
				if !ok || c.Action != plan.Update {
					t.Fatalf("the plan before has %s %s: %s", c.Action, c.Name, c.Reason)
				}
				for i := range state.Have.Policies {
					if state.Have.Policies[i].Name == p.Name {
						state.Have.Policies[i] = p
					}
				}
			}
			if tc.comes != nil {
				others := func(p topology.Policy) bool { return p.Name == "other" }
				state.Have.Policies = append(slices.DeleteFunc(state.Have.Policies, others),
					queuePolicy("other", "^w$", 1, tc.comes))
			}
			state.Usage["w"] = topology.Usage{Ready: tc.held, Unacknowledged: tc.stuck, Other: tc.stuck}
			var got []string
			for _, c := range plan.Make(file(tc.after), state, plan.Options{}).Changes {
				got = append(got, string(c.Action))
				for _, f := range c.Fields {
					got = append(got, f.Name)
				}
				for _, h := range c.Hazards {
					got = append(got, string(h))
				}
				if why := c.Reason + c.Fixes["x-max-length"]; !strings.Contains(why, tc.says) {
					t.Errorf("the reason is %s", why)
				}
			}
			if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
				t.Errorf("the plan (-want +got):\n%s", d)
			}
		})
	}
}

// A policy that goes leaves its queue to one of another team, or to its arguments.
func TestAPolicyThatGoesLosesMessages(t *testing.T) {
	t.Parallel()
	const ends = "no longer declared; RabbitMQ deletes what it is dead-lettering at that moment"
	for name, tc := range map[string]struct {
		other         args
		ready, dying  int64
		hazards, says string
	}{
		"another team's dead-letters it at most once": {
			other: args{"dead-letter-exchange": "e"}, says: ends,
		},
		"while messages die": {
			other: args{"dead-letter-exchange": "e"}, dying: 3, hazards: "loses-messages",
			says: ends + ": up to 3 messages of w",
		},
		"another team's is as safe": {
			other: args{
				"dead-letter-exchange": "e", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish",
			}, dying: 3,
			says: "no longer declared",
		},
		"another team's limit comes into effect": {
			other: args{"dead-letter-exchange": "e", "max-length": int64(5)}, ready: 9, hazards: "loses-messages",
			says: "no longer declared; w holds 9 messages, and the oldest leave it at once, down to 5 messages: " +
				"they count as failed, and are dead-lettered without a confirmation; " +
				"RabbitMQ deletes what it is dead-lettering at that moment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := loaded(t, shopFile("a: {tiers: [1s]}", "{name: w, backoff: a, deadLetterBy: policy}")).Topology
			for i, q := range have.Queues {
				if q.Name == "w" { // its service declares it now
					have.Queues[i].Arguments = q.Arguments.Without(topology.ArgManagedBy)
				}
			}
			have.Policies = append(slices.Clone(have.Policies), queuePolicy("other", "^w$", 1, tc.other))
			state := topology.State{Version: "4.3.6", VHost: "/", Have: have, Usage: map[string]topology.Usage{
				"w": {Ready: tc.ready, Unacknowledged: tc.dying, Other: tc.dying},
			}}
			got := ""
			for _, c := range plan.Make(loaded(t, shopFile("a: {tiers: [1s]}", "{name: v, backoff: a}")), state,
				plan.Options{}).Changes {
				if c.Name == "dlxctl.shop.queue.w" {
					got = fmt.Sprintf("%s %v %s", c.Action, c.Hazards, c.Reason)
				}
			}
			if want := "delete [" + tc.hazards + "] " + tc.says; got != want {
				t.Errorf("the plan has\n%s\nand not\n%s", got, want)
			}
		})
	}
}
