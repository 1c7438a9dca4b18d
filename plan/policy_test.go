package plan_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

func queuePolicy(name, pattern string, priority int64, definition args) topology.Policy {
	return topology.Policy{Name: name, Pattern: pattern, ApplyTo: "queues", Priority: priority, Definition: definition}
}

// A policy of the topology that is gone from the list and still in effect is deleted once more.
func TestPolicyInEffectAndGone(t *testing.T) {
	t.Parallel()
	const own, foreign = "dlxctl.shop.queue.crm", "dlxctl.mail.queue.crm"
	for name, tc := range map[string]struct {
		inEffect string
		listed   []topology.Policy
		want     string
	}{
		"gone": {
			inEffect: own,
			want:     `delete dlxctl.shop.queue.crm: it was deleted, or its deletion was interrupted, and it is still in effect on crm`,
		},
		"there": {
			inEffect: own,
			listed:   []topology.Policy{queuePolicy(own, "^crm$", 1000, args{"expires": int64(1)})},
			want:     `delete dlxctl.shop.queue.crm: no longer declared; crm stays, and then drops the messages that its consumers reject`,
		},
		"another topology's": {inEffect: foreign},
		"a switch's":         {inEffect: "dlxctl.shop.switch.0123456789ab.forward"},
		"none":               {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.3.6", QueuePolicies: map[string]string{}, Have: topology.Topology{
				Policies: tc.listed,
				Queues:   []topology.Queue{{Name: "crm", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}}},
			}}
			if tc.inEffect != "" {
				state.QueuePolicies["crm"] = tc.inEffect
			}
			got := ""
			for _, c := range plan.Make(topology.Compiled{Name: "shop"}, state, plan.Options{}).Changes {
				got += fmt.Sprintf("%s %s: %s", c.Action, c.Name, c.Reason)
			}
			if got != tc.want {
				t.Errorf("the plan is\n%s, not\n%s", got, tc.want)
			}
		})
	}
}

// crm is a queue that a service declares, and the policy that the file wants.
func crm(definition args) topology.Compiled {
	label := topology.Label{Role: topology.RoleWork, Queue: "crm"}
	p := queuePolicy("dlxctl.shop.queue.crm", "^crm$", topology.PolicyPriority, definition)
	p.Label = label
	return topology.Compiled{
		Name: "shop",
		Topology: topology.Topology{
			Queues:   []topology.Queue{{Name: "crm", Durable: true, External: true, Label: label}},
			Policies: []topology.Policy{p},
		},
		WorkQueues: []topology.WorkQueue{{Name: "crm", Backoff: "a"}, {Name: "other", Backoff: "a"}},
	}
}

// What a wanted policy holds depends on what is in effect without it, and on the queue.
func TestPolicyStartsFromWhatIsInEffect(t *testing.T) {
	t.Parallel()
	own := args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm"}
	const (
		deadLettering = `"dead-letter-exchange":"f","dead-letter-routing-key":"@crm"`
		safely        = `,"dead-letter-strategy":"at-least-once"`
	)
	for name, tc := range map[string]struct {
		queue    args
		policies []topology.Policy
		inEffect map[string]string
		wanted   args
		want     string // priority and definition, or the reason of the refusal
		warning  string
	}{
		"quorum":               {want: `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`},
		"classic":              {queue: args{"x-queue-type": "classic"}, want: `1000 {` + deadLettering + `}`},
		"quorum that drops":    {queue: args{"x-overflow": "drop-head"}, want: `1000 {` + deadLettering + `}`},
		"quorum with a length": {queue: args{"x-max-length": int64(3)}, want: `1000 {` + deadLettering + `}`},
		"their ttl stays": {
			policies: []topology.Policy{queuePolicy("p", ".*", 1, args{"message-ttl": int64(9)})},
			want:     `1000 {` + deadLettering + safely + `,"message-ttl":9,"overflow":"reject-publish"}`,
		},
		"their length drops": {
			policies: []topology.Policy{queuePolicy("p", ".*", 1, args{"max-length": int64(9)})},
			want:     `1000 {` + deadLettering + `,"max-length":9}`,
		},
		"their length refuses": {
			policies: []topology.Policy{queuePolicy("p", ".*", 1,
				args{"max-length": int64(9), "overflow": "reject-publish"})},
			want:    `1000 {` + deadLettering + safely + `,"max-length":9,"overflow":"reject-publish"}`,
			warning: "starves-tier: the policy p limits the length of crm, whose retries share a backoff with others: while it is full, it holds them up; give its retries a backoff of their own",
		},
		"their dead-lettering": {
			policies: []topology.Policy{queuePolicy("p", ".*", 1,
				args{"dead-letter-exchange": "foreign", "overflow": "drop-head"})},
			want: `1000 {` + deadLettering + `,"overflow":"drop-head"}`,
		},
		"the strongest": {
			policies: []topology.Policy{
				queuePolicy("weak", ".*", 1, args{"expires": int64(1)}),
				queuePolicy("strong", "^(?!amq\\.)", 2, args{"expires": int64(2)}),
			},
			want: `1000 {` + deadLettering + safely + `,"expires":2,"overflow":"reject-publish"}`,
		},
		"the broker's word": {
			policies: []topology.Policy{
				queuePolicy("a", ".*", 1, args{"expires": int64(1)}),
				queuePolicy("b", ".*", 1, args{"expires": int64(2)}),
			}, inEffect: map[string]string{"crm": "b"},
			want: `1000 {` + deadLettering + safely + `,"expires":2,"overflow":"reject-publish"}`,
		},
		"a higher priority": {
			policies: []topology.Policy{queuePolicy("p", "crm", 4000, nil)},
			want:     `4002 {` + deadLettering + safely + `,"overflow":"reject-publish"}`,
		},
		"not for this type": {
			policies: []topology.Policy{queuePolicy("p", ".*", 4000, args{"queue-mode": "lazy"})},
			want:     `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`,
		},
		"not for classic queues": {
			queue: args{"x-queue-type": "classic"},
			policies: []topology.Policy{queuePolicy("p", ".*", 1,
				args{"initial-cluster-size": int64(3), "max-length": int64(9)})},
			inEffect: map[string]string{},
			want:     `1000 {` + deadLettering + `}`,
		},
		"copied from one that is not for classic queues": {
			queue: args{"x-queue-type": "classic"},
			policies: []topology.Policy{queuePolicy("dlxctl.shop.queue.crm", "^crm$", 1000, args{
				"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "max-in-memory-length": int64(9),
			})},
			inEffect: map[string]string{},
			want:     `1000 {` + deadLettering + `}`,
		},
		"stored before an upgrade": { // 4.3 refuses a copy of these keys
			queue: args{"x-queue-type": "classic"},
			policies: []topology.Policy{queuePolicy("p", ".*", 1,
				args{"queue-master-locator": "min-masters", "ha-mode": "all", "max-length": int64(9)})},
			want: `1000 {` + deadLettering + `,"max-length":9}`,
		},
		"not for this name": {
			policies: []topology.Policy{queuePolicy("p", "^cr$", 4000, args{"expires": int64(1)})},
			want:     `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`,
		},
		"for exchanges": {policies: []topology.Policy{{
			Name: "p", Pattern: ".*", ApplyTo: "exchanges",
			Priority: 4000,
		}}, want: `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`},
		"no pattern at all": {
			policies: []topology.Policy{queuePolicy("p", "(", 4000, nil)},
			want:     `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`,
		},
		"of another topology": {
			policies: []topology.Policy{queuePolicy("dlxctl.mail.queue.crm", "^crm$", 1000, nil)},
			want:     `the policy dlxctl.mail.queue.crm of the topology "mail" gives the queue crm its dead-lettering, and the topology "shop" declares the queue too; remove the queue from one of the files`,
		},
		"an argument beats it": {
			queue: args{"x-dead-letter-exchange": "foreign"},
			want:  "the queue crm was declared with x-dead-letter-exchange, and an argument overrides every policy; replace it with a new queue (replaces: and dlxctl migrate), or have the service declare it without that argument",
		},
		"an argument says so": {
			queue: args{"x-dead-letter-exchange": "f"},
			want:  `1000 {` + deadLettering + safely + `,"overflow":"reject-publish"}`,
		},
		"a limit for classic": {
			queue: args{"x-queue-type": "classic"}, wanted: args{"delivery-limit": int64(5)},
			want: "the queue crm is of type classic and a deliveryLimit, and only quorum queues count deliveries; remove deliveryLimit",
		},
		"a stream": {
			queue: args{"x-queue-type": "stream"},
			want:  "the external queue is a stream, and streams do not dead-letter; write deadLetterBy: unmanaged, or remove it from the file",
		},
		"stored, not in effect": {
			policies: []topology.Policy{queuePolicy("dlxctl.shop.queue.crm", "^crm$", 1000,
				args{
					"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once",
					"overflow": "reject-publish",
				})}, inEffect: map[string]string{},
			want: `1002 {"dead-letter-exchange":"f","dead-letter-routing-key":"@crm","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`,
		},
		"half written": {
			policies: []topology.Policy{queuePolicy("dlxctl.shop.queue.crm", "^crm$", 1001,
				args{
					"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once",
					"overflow": "reject-publish",
				})}, inEffect: map[string]string{"crm": "dlxctl.shop.queue.crm"},
			want: `1002 {"dead-letter-exchange":"f","dead-letter-routing-key":"@crm","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`,
		},
		"in effect": {policies: []topology.Policy{queuePolicy("dlxctl.shop.queue.crm", "^crm$", 1000,
			args{
				"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once",
				"overflow": "reject-publish",
			})}, inEffect: map[string]string{"crm": "dlxctl.shop.queue.crm"}, want: "nothing"},
		"a broker without names": {policies: []topology.Policy{queuePolicy("dlxctl.shop.queue.crm", "^crm$", 1000,
			args{
				"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once",
				"overflow": "reject-publish",
			})}, want: "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition := args{}
			maps.Copy(definition, own)
			maps.Copy(definition, tc.wanted)
			have := topology.Compiled{Topology: topology.Topology{
				Policies: tc.policies,
				Queues:   []topology.Queue{{Name: "crm", Durable: true, Arguments: with(tc.queue).Without("x-managed-by")}},
			}}
			p := plan.Make(crm(definition), topology.State{Version: "4.3.6", Have: have.Topology, QueuePolicies: tc.inEffect},
				plan.Options{})
			got := "nothing"
			for _, c := range p.Changes {
				got = c.Reason
				if after, ok := c.After.(topology.Policy); ok && c.Action != plan.Blocked {
					got = fmt.Sprintf("%d %s", after.Priority, after.Definition)
				}
			}
			if got != tc.want {
				t.Errorf("the policy is\n%s, not\n%s", got, tc.want)
			}
			warning := ""
			for _, w := range p.Warnings {
				warning += w.Name + ": " + w.Text
			}
			if d := cmp.Diff(tc.warning, warning); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}
