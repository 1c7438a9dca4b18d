package planview_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// created is the change that creates a work queue.
func created(name string) plan.Change {
	q := queue(name, nil)
	return plan.Change{Action: plan.Create, Kind: "queue", Name: name, After: q, Label: q.Label}
}

// bindingTo is the change that binds the dead-letter queue of a work queue.
func bindingTo(dead, work string) plan.Change {
	b := topology.Binding{Source: "shop.dlx", Destination: dead, DestinationType: topology.ToQueue, Key: work}
	return plan.Change{
		Action: plan.Create, Kind: "binding", Name: b.String(), After: b,
		Label: topology.Label{Role: topology.RoleDeadLetter, Queue: work},
	}
}

// waiting is a change of a retry queue of a backoff.
func waiting(action plan.Action, backoff string) plan.Change {
	q := queue(backoff+".queue", nil)
	return plan.Change{
		Action: action, Kind: "queue", Name: q.Name, Before: q, After: q,
		Label: topology.Label{Role: topology.RoleRetry, Backoff: backoff},
	}
}

// A plan as a person reads it.
func TestWriteText(t *testing.T) {
	t.Parallel()
	headers := topology.Binding{
		Source: "docs", Destination: "q", DestinationType: topology.ToQueue,
		Arguments: args{"format": "pdf", "x-match": "all"},
	}
	loops := []topology.Backoff{{Name: "b", Tiers: []topology.Tier{{Delay: 10 * time.Second}, {Delay: time.Minute}}}}
	policy := topology.Policy{
		Name: "shop.inbox", Definition: args{"dead-letter-exchange": "shop.b.dlx", "delivery-limit": int64(0)},
		Label: topology.Label{Role: topology.RoleWork, Queue: "inbox"},
	}
	limited := queue("limited", args{"x-delivery-limit": int64(5)})
	unlimited := queue("unlimited", args{"x-delivery-limit": topology.Unlimited})
	for name, tc := range map[string]struct {
		plan plan.Plan
		want string
	}{
		"drift only": {
			plan.Plan{
				Topology: "shop", VHost: "/",
				Drift: []plan.Change{{Action: plan.Delete, Kind: "binding", Name: headers.String(), Before: headers}},
			},
			`topology shop, vhost /

drift: no file declares these, and they touch the topology's objects; --prune deletes them
  binding docs -> q (format="pdf")

no changes, and drift in 1 place
`,
		},
		"keep, without a change": {
			plan.Plan{Topology: "shop", VHost: "/", Unchanged: 9, Keeps: []topology.Keep{
				{Queue: "billing.dead", Age: 30 * 24 * time.Hour},
				{Queue: "crm.dead", Age: 30 * 24 * time.Hour},
				{Queue: "mail.dead", Age: time.Hour},
			}},
			`keep: dead letters in mail.dead are old after 1h; only 'dlxctl desk park --past-keep' moves them
keep: dead letters in billing.dead, crm.dead are old after 30d; only 'dlxctl desk park --past-keep' moves them

no changes: the broker has what the file declares
`,
		},
		"bindings that wait for a cutover": {
			plan.Plan{Topology: "shop", VHost: "/", Unchanged: 9, Withheld: make([]topology.Binding, 2)},
			"no changes, and 2 bindings wait for dlxctl migrate\n",
		},
		"one of each": {
			plan.Plan{Topology: "shop", VHost: "/", Changes: []plan.Change{
				{
					Action: plan.Create, Kind: "binding", Name: headers.String(), After: headers,
					Label: topology.Label{Role: topology.RoleBusiness},
				},
				{
					Action: plan.Delete, Kind: "queue", Name: `a"b`, Before: queue("a", nil),
					Hazards: []topology.Hazard{topology.StopsConsumers}, Stake: &topology.Usage{Ready: 1, Consumers: 1, Bytes: 1},
				},
			}},
			`topology shop, vhost /

+ binding of q <- docs: format="pdf"
- queue "a\"b" [stops-consumers]
    holds 1 ready, 0 unacknowledged (1 byte); 1 consumer

1 to create, 1 to delete
needs consent: --allow '"stops-consumers=a""b"'
`,
		},
		"dead-lettering of two queues of three": {
			plan.Plan{Topology: "shop", VHost: "/", Changes: []plan.Change{
				created("a"), bindingTo("a.dead", "a"), created("b"), created("c"), bindingTo("c.dead", "c"),
			}},
			`topology shop, vhost /

+ queue a (quorum)
+ queue b (quorum)
+ queue c (quorum)
+ dead-lettering of a, c: 2 bindings

5 to create
`,
		},
		"dead-lettering of both queues": {
			plan.Plan{Topology: "shop", VHost: "/", Changes: []plan.Change{
				created("a"), bindingTo("a.dead", "a"), created("c"), bindingTo("c.dead", "c"),
			}},
			`topology shop, vhost /

+ queue a (quorum)
+ queue c (quorum)
+ dead-lettering of these 2 queues: 2 bindings

4 to create
`,
		},
		"the outage of each backoff that changes": {
			plan.Plan{
				Topology: "shop", VHost: "/", Backoffs: []topology.Backoff{
					loops[0],
					{Name: "direct"},
					{Name: "keyed", Tiers: loops[0].Tiers, Outage: &topology.Outage{Until: time.Hour}},
					{Name: "same", Tiers: loops[0].Tiers},
				},
				Changes: []plan.Change{
					waiting(plan.Create, "direct"), waiting(plan.Create, "keyed"), waiting(plan.Delete, "b"),
					waiting(plan.Delete, "gone"), waiting(plan.Blocked, "same"),
				},
			},
			`topology shop, vhost /

+ backoff direct: 1 queue
+ backoff keyed: 1 queue
! queue same.queue
- retired objects of backoff b: 1 queue
- backoff gone: 1 queue

  backoff b: an outage of 1m10s or more makes dead letters
  backoff direct: any outage makes dead letters
  backoff keyed: an outage of 1h10s or more makes dead letters (outage: until 1h)

2 to create, 2 to delete, 1 blocked
blocked: queue same.queue
`,
		},
		"the schedule of each queue": {
			plan.Plan{
				Topology: "shop", VHost: "/", Backoffs: loops,
				WorkQueues: []topology.WorkQueue{
					{Name: "q", Backoff: "b"},
					{Name: "limited", Backoff: "b"},
					{Name: "inbox", Backoff: "b"},
					{Name: "unlimited", Backoff: "b"},
					{Name: "audit", Backoff: "none"},
					{Name: "old", Backoff: "b"},
				},
				Changes: []plan.Change{
					{Action: plan.Create, Kind: "queue", Name: "q", After: queue("q", nil), Label: queue("q", nil).Label},
					{Action: plan.Create, Kind: "queue", Name: "limited", After: limited, Label: limited.Label},
					{Action: plan.Create, Kind: "queue", Name: "unlimited", After: unlimited, Label: unlimited.Label},
					{Action: plan.Create, Kind: "queue", Name: "audit", After: queue("audit", nil), Label: queue("audit", nil).Label},
					{Action: plan.Create, Kind: "policy", Name: policy.Name, After: policy, Label: policy.Label},
				},
			},
			`topology shop, vhost /

+ queue q (quorum)
+ queue limited (quorum)
+ dead-lettering of inbox: 1 policy
+ queue unlimited (quorum)
+ queue audit (quorum)

  q, unlimited: 3 deliveries, at 0s, +10s, +1m; dead after 1m10s at the earliest
  limited: 3 deliveries, at 0s, +10s, +1m; dead after 1m10s at the earliest; each up to 6 times, if consumers crash (deliveryLimit 5)
  inbox: 3 deliveries, at 0s, +10s, +1m; dead after 1m10s at the earliest; each up to 1 time, if consumers crash (deliveryLimit 0)
  audit: 1 delivery; dead at once
  no backoff: any outage makes dead letters; the processor counts no failures

5 to create
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := planview.WriteText(&got, tc.plan, planview.TextOptions{}); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got.String()); d != "" {
				t.Errorf("text (-want +got):\n%s", d)
			}
		})
	}
}
