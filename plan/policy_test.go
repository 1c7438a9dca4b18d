package plan_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

func policy(name, pattern string, priority int64, definition args) topology.Policy {
	return topology.Policy{Name: name, Pattern: pattern, ApplyTo: "queues", Priority: priority, Definition: definition}
}

// A policy of ours that is gone from the list and still in force is deleted once more.
func TestPolicyInForceAndGone(t *testing.T) {
	t.Parallel()
	const ours, theirs = "dlxctl.shop.queue.crm", "dlxctl.mail.queue.crm"
	for name, tc := range map[string]struct {
		inForce string
		listed  []topology.Policy
		want    string
	}{
		"gone":               {inForce: ours, want: `delete dlxctl.shop.queue.crm: somebody has deleted it, or was cut off doing so, and it is still in force on crm`},
		"there":              {inForce: ours, listed: []topology.Policy{policy(ours, "^crm$", 1000, args{"expires": int64(1)})}, want: `delete dlxctl.shop.queue.crm: no longer in the file; crm lives on, and drops what its consumers reject`},
		"another topology's": {inForce: theirs},
		"a switch's":         {inForce: "dlxctl.shop.switch.0123456789ab.forward"},
		"none":               {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := plan.State{Version: "4.3.6", InForce: map[string]string{}, Have: topology.Topology{
				Policies: tc.listed, Queues: []topology.Queue{{Name: "crm", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}}},
			}}
			if tc.inForce != "" {
				state.InForce["crm"] = tc.inForce
			}
			got := ""
			for _, c := range plan.Make(topology.Topology{Name: "shop"}, state, plan.Options{}).Changes {
				got += fmt.Sprintf("%s %s: %s", c.Action, c.Name, c.Reason)
			}
			if got != tc.want {
				t.Errorf("the plan is\n%s, not\n%s", got, tc.want)
			}
		})
	}
}

// crm is a queue that a service declares, and the policy that the file wants.
func crm(definition args) topology.Topology {
	label := topology.Label{Role: topology.RoleWork, Queue: "crm"}
	p := policy("dlxctl.shop.queue.crm", "^crm$", topology.PolicyPriority, definition)
	p.Label = label
	return topology.Topology{
		Name:     "shop",
		Queues:   []topology.Queue{{Name: "crm", Durable: true, External: true, Label: label}},
		Policies: []topology.Policy{p},
		Works:    []topology.Work{{Queue: "crm", Backoff: "a"}, {Queue: "other", Backoff: "a"}},
	}
}

// What our policy says depends on what is in force without it, and on the queue.
func TestPolicyStartsFromWhatIsInForce(t *testing.T) {
	t.Parallel()
	ours := args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm"}
	const (
		letters = `"dead-letter-exchange":"f","dead-letter-routing-key":"@crm"`
		safely  = `,"dead-letter-strategy":"at-least-once"`
	)
	for name, tc := range map[string]struct {
		queue    args
		policies []topology.Policy
		inForce  map[string]string
		wanted   args
		want     string // priority and definition, or the reason of the refusal
		warning  string
	}{
		"quorum":                 {want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"classic":                {queue: args{"x-queue-type": "classic"}, want: `1000 {` + letters + `}`},
		"quorum that drops":      {queue: args{"x-overflow": "drop-head"}, want: `1000 {` + letters + `}`},
		"quorum with a length":   {queue: args{"x-max-length": int64(3)}, want: `1000 {` + letters + `}`},
		"their ttl stays":        {policies: []topology.Policy{policy("p", ".*", 1, args{"message-ttl": int64(9)})}, want: `1000 {` + letters + safely + `,"message-ttl":9,"overflow":"reject-publish"}`},
		"their length drops":     {policies: []topology.Policy{policy("p", ".*", 1, args{"max-length": int64(9)})}, want: `1000 {` + letters + `,"max-length":9}`},
		"their length refuses":   {policies: []topology.Policy{policy("p", ".*", 1, args{"max-length": int64(9), "overflow": "reject-publish"})}, want: `1000 {` + letters + safely + `,"max-length":9,"overflow":"reject-publish"}`, warning: "starves-tier: the policy p limits the length of crm, which shares its backoff: while it is full it holds up the retries of the others; give it a backoff of its own"},
		"their dead-lettering":   {policies: []topology.Policy{policy("p", ".*", 1, args{"dead-letter-exchange": "theirs", "overflow": "drop-head"})}, want: `1000 {` + letters + `,"overflow":"drop-head"}`},
		"the strongest":          {policies: []topology.Policy{policy("weak", ".*", 1, args{"expires": int64(1)}), policy("strong", "^(?!amq\\.)", 2, args{"expires": int64(2)})}, want: `1000 {` + letters + safely + `,"expires":2,"overflow":"reject-publish"}`},
		"the broker's word":      {policies: []topology.Policy{policy("a", ".*", 1, args{"expires": int64(1)}), policy("b", ".*", 1, args{"expires": int64(2)})}, inForce: map[string]string{"crm": "b"}, want: `1000 {` + letters + safely + `,"expires":2,"overflow":"reject-publish"}`},
		"higher than theirs":     {policies: []topology.Policy{policy("p", "crm", 4000, nil)}, want: `4002 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"not for this type":      {policies: []topology.Policy{policy("p", ".*", 4000, args{"queue-mode": "lazy"})}, want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"not for this name":      {policies: []topology.Policy{policy("p", "^cr$", 4000, args{"expires": int64(1)})}, want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"for exchanges":          {policies: []topology.Policy{{Name: "p", Pattern: ".*", ApplyTo: "exchanges", Priority: 4000}}, want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"no pattern at all":      {policies: []topology.Policy{policy("p", "(", 4000, nil)}, want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"of another topology":    {policies: []topology.Policy{policy("dlxctl.mail.queue.crm", "^crm$", 1000, nil)}, want: `the policy dlxctl.mail.queue.crm of the topology "mail" gives the queue crm its dead-lettering, and the topology "shop" wants to: take the queue out of one of the files`},
		"an argument beats it":   {queue: args{"x-dead-letter-exchange": "theirs"}, want: "the queue crm was declared with x-dead-letter-exchange, and an argument beats every policy: let a new queue take its place (replaces: and dlxctl migrate), or have the service declare it without"},
		"an argument says so":    {queue: args{"x-dead-letter-exchange": "f"}, want: `1000 {` + letters + safely + `,"overflow":"reject-publish"}`},
		"a limit for classic":    {queue: args{"x-queue-type": "classic"}, wanted: args{"delivery-limit": int64(5)}, want: "the queue crm is of type classic and has a deliveryLimit: only quorum queues count deliveries; take it out"},
		"a stream":               {queue: args{"x-queue-type": "stream"}, want: "the external queue is a stream, and streams dead-letter nothing: take it out of the file"},
		"ours is not in force":   {policies: []topology.Policy{policy("dlxctl.shop.queue.crm", "^crm$", 1000, args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"})}, inForce: map[string]string{}, want: `1002 {"dead-letter-exchange":"f","dead-letter-routing-key":"@crm","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`},
		"ours is half written":   {policies: []topology.Policy{policy("dlxctl.shop.queue.crm", "^crm$", 1001, args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"})}, inForce: map[string]string{"crm": "dlxctl.shop.queue.crm"}, want: `1002 {"dead-letter-exchange":"f","dead-letter-routing-key":"@crm","dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`},
		"ours is in force":       {policies: []topology.Policy{policy("dlxctl.shop.queue.crm", "^crm$", 1000, args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"})}, inForce: map[string]string{"crm": "dlxctl.shop.queue.crm"}, want: "nothing"},
		"a broker without names": {policies: []topology.Policy{policy("dlxctl.shop.queue.crm", "^crm$", 1000, args{"dead-letter-exchange": "f", "dead-letter-routing-key": "@crm", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"})}, want: "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition := args{}
			maps.Copy(definition, ours)
			maps.Copy(definition, tc.wanted)
			have := topology.Topology{Policies: tc.policies, Queues: []topology.Queue{{Name: "crm", Durable: true, Arguments: with(tc.queue).Without("x-managed-by")}}}
			p := plan.Make(crm(definition), plan.State{Version: "4.3.6", Have: have, InForce: tc.inForce}, plan.Options{})
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
