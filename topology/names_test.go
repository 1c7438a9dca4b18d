package topology_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

// Every generated name leads back to what it was made for.
func TestGeneratedNamesHaveAnInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`)
		top, backoff, queue := word.Draw(t, "topology"), word.Draw(t, "backoff"), word.Draw(t, "queue")
		for name, want := range map[string]topology.Label{
			topology.UnroutableName(top):                                        {Role: topology.RoleUnroutable},
			topology.DeadLetterName(top):                                        {Role: topology.RoleDeadLetter},
			topology.ReturnExchangeName(top):                                    {Role: topology.RoleReturn},
			topology.FailedExchangeName(top):                                    {Role: topology.RoleFailed},
			topology.NextExchangeName(topology.FailedExchangeName(top)):         {Role: topology.RoleFailed},
			topology.NextExchangeName(topology.DeadLetterName(top)):             {Role: topology.RoleDeadLetter},
			topology.NextExchangeName(topology.RetryExchangeName(top, backoff)): {Role: topology.RoleRetry, Backoff: backoff},
			topology.FailedQueueName(top, backoff):                              {Role: topology.RoleFailed, Backoff: backoff},
			topology.RetryExchangeName(top, backoff):                            {Role: topology.RoleRetry, Backoff: backoff},
			topology.RetryQueueName(top, backoff, time.Minute):                  {Role: topology.RoleRetry, Backoff: backoff},
			topology.DeadLetterQueueName(top + "-" + queue + ".in"): {
				Role:  topology.RoleDeadLetter,
				Queue: top + "-" + queue + ".in",
			},
		} {
			exchange, isExchange := topology.ExchangeLabelOf(top, name)
			queue, isQueue := topology.QueueLabelOf(top, name)
			if isExchange && exchange != want || isQueue && queue != want || !isExchange && !isQueue {
				t.Fatalf("%s is for %+v, not for the exchange %+v or the queue %+v", name, want, exchange, queue)
			}
		}
		for _, name := range []string{
			queue, topology.LockName(top), topology.SwitchExchangeName(top, queue),
			"other-" + queue + ".failed", top + ".dlx", top + ".a.b.dlx", top + ".a.b.failed",
		} {
			exchange, isExchange := topology.ExchangeLabelOf(top, name)
			queue, isQueue := topology.QueueLabelOf(top, name)
			if isExchange || isQueue {
				t.Fatalf("%s is taken for the exchange %+v or the queue %+v", name, exchange, queue)
			}
		}
		if got, generated := topology.ExchangeLabelOf(top, topology.DeadLetterQueueName(queue+".x")); generated {
			t.Fatalf("an exchange that is named like a dead-letter queue is taken for %+v", got)
		}
	})
}

// A hold is told from the locks of the desk and from what other topologies have.
func TestOnlyHoldsAreNamedLikeOne(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]string{
		topology.HoldName("shop", "20261122-101530-1a2b"):       "20261122-101530-1a2b",
		topology.DeskWorkerName("shop", "20261122-101530-1a2b"): "",
		topology.DeskLockName("shop", "billing.dead"):           "",
		topology.HoldName("other", "x"):                         "",
		topology.ParkedName("shop"):                             "",
		topology.LogName("shop"):                                "",
		"shop.desk.":                                            "",
		topology.FailedQueueName("shop", "desk"):                "",
		topology.RetryQueueName("shop", "desk", time.Minute):    "",
	} {
		got, ok := topology.HoldRun("shop", name)
		if ok != (run != "") || ok && got != run || ok != topology.IsHoldName("shop", name) {
			t.Errorf("HoldRun(%q) = %q, %t; want %q", name, got, ok, run)
		}
	}
}

// A plan takes no queue of the desk for one of the topology.
func TestTheDeskHasAMarkOfItsOwn(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{topology.ArgManagedBy: topology.DeskMark("shop")}
	if owner, marked := topology.Owner(mark); !marked || owner == "shop" {
		t.Errorf("the owner of a queue of the desk is %q, %t", owner, marked)
	}
}
