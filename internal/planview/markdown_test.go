package planview_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A comment on a pull request shows first what a reviewer must look at.
func TestWriteMarkdown(t *testing.T) {
	t.Parallel()
	old := queue("a|b`c", nil)
	drifted := topology.Binding{Source: "events", Destination: "q", DestinationType: topology.ToQueue, Key: "*"}
	p := plan.Plan{
		Topology: "shop", VHost: "/", Version: "4.0.5",
		Changes: []plan.Change{
			{
				Action: plan.Blocked, Kind: "queue", Name: "q", Before: old, After: old,
				Fields: []plan.Field{
					{Name: "x-message-ttl", Before: nil, After: int64(60000)},
					{Name: "x-queue-type", Before: "quorum", After: "classic"},
				}, Reason: "It cannot be.",
			},
			{
				Action: plan.Delete, Kind: "queue", Name: old.Name, Before: old, Hazards: []topology.Hazard{topology.LosesMessages},
				Stake: &topology.Usage{Ready: 3, Bytes: 7}, Reason: "gone", Label: old.Label,
			},
		},
		Drift: []plan.Change{{Action: plan.Delete, Kind: "binding", Name: drifted.String(), Before: drifted}},
		Warnings: []plan.Warning{
			{Name: "no-processor", Text: "one for a"},
			{Name: "overruled", Text: "the policy p (pattern .*) does it"},
			{Name: "no-processor", Text: "one for b"},
		},
		Unprocessed: []plan.Unprocessed{
			{Queue: "shop.a.failed", Asked: true}, {Queue: "shop.b.failed", Messages: 2, Asked: true},
		},
		WorkQueues: []topology.WorkQueue{{Name: "a|b`c", Owner: "crm"}},
	}
	var got bytes.Buffer
	if err := planview.WriteMarkdown(&got, p, "dlxctl process -f my_shop.yaml"); err != nil {
		t.Fatal(err)
	}
	want := "### dlxctl plan: topology `shop`, vhost `/`, RabbitMQ 4.0.5\n" + `
**1 to delete, 1 blocked**

:no_entry: **queue ` + "`q`" + ` is blocked**: It cannot be.
- x-message-ttl: ` + "`(none)` → `60000 (1m)`" + `
- x-queue-type: ` + "`quorum` → `classic`" + `

| | needs consent | at risk |
| --- | --- | --- |
| delete queue ` + "`` a\\|b`c `` of team `crm`" + ` | ` + "`loses-messages`" + ` | 3 ready, 0 unacknowledged, 7 bytes, 0 consumers |

**Drift**: no file declares these, and they touch the topology's objects; ` + "`--prune`" + ` deletes them.
- binding ` + "`events -> q (*)`" + `

- :warning: ` + "`overruled`" + `: the policy p (pattern .\*) does it
- :warning: ` + "`no-processor`" + `: no processor is consuming shop.a.failed, shop.b.failed (holds 2 messages); keep one running: ` + "`dlxctl process -f my_shop.yaml`" + `

<details><summary>Full plan</summary>

` + "```" + `
topology shop, vhost /, RabbitMQ 4.0.5

- queue a|b` + "`" + `c [loses-messages]
    holds 3 ready, 0 unacknowledged (7 bytes); 0 consumers
    gone
! queue q
    x-message-ttl  (none) -> 60000 (1m)
    x-queue-type   "quorum" -> "classic"
    It cannot be.

drift: no file declares these, and they touch the topology's objects; --prune deletes them
  binding events -> q (*)

warning overruled: the policy p (pattern .*) does it

1 to delete, 1 blocked
blocked: queue q
needs consent: --allow 'loses-messages=a|b` + "`" + `c'
warning no-processor: no processor is consuming shop.a.failed, shop.b.failed (holds 2 messages); keep one running: dlxctl process -f my_shop.yaml
` + "```" + `

</details>
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("markdown (-want +got):\n%s", d)
	}
}
