package apply_test

import (
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A person takes long to answer, and a service binds a queue meanwhile that the plan deletes: the
// run is refused, as that binding would go with the queue.
func TestTheBrokerChangesWhileAPersonReadsThePlan(t *testing.T) {
	t.Parallel()
	const both = "version: 1\nname: shop\ndefaults: {backoff: none}\nqueues: [{name: goes}, {name: stays}]\n"
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	run := func(file string, confirm func() error) error {
		session, err := apply.Open(managementtest.Endpoint(t, target), load(t, file))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		r := apply.Runner{Session: session, Asks: true, Reporter: hooks{writes: func() {}, confirm: confirm}}
		return r.Run(t.Context())
	}
	if err := run(both, nil); err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(both, "{name: goes}, ", "", 1)
	err := run(without, func() error {
		brokertest.Bind(t, ch, "goes", "k", "amq.topic", nil)
		return nil
	})
	if err == nil || !strings.HasPrefix(err.Error(), "the broker has changed since the plan was shown: delete ") ||
		!strings.HasSuffix(err.Error(), " is not possible, or not needed, any more; nothing was written; run apply again") {
		t.Errorf("the run ends with %v", err)
	}
	target.Queue(t, "goes")
	brokertest.Unbind(t, ch, "goes", "k", "amq.topic", nil)
	brokertest.Eventually(t, "the queue to be seen without consumers and messages", func() bool {
		return run(without, nil) == nil
	})
}

// Two topologies take the same queue at the same moment: neither plan has seen the other. The one
// that ends last does not say that its topology is verified.
func TestTwoTopologiesTakeAQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	brokertest.Declare(t, target.Channel(t), "crm", amqp091.Table{"x-queue-type": "quorum"})
	run := func(name string, writes func()) error {
		file := "version: 1\nname: " + name + "\ndefaults: {backoff: none}\nqueues: [{name: crm, external: true, deadLetterBy: policy}]\n"
		session, err := apply.Open(managementtest.Endpoint(t, target), load(t, file))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		r := apply.Runner{Session: session, Reporter: hooks{writes: writes}}
		return r.Run(t.Context())
	}
	err := run("first", func() {
		if err := run("second", func() {}); err != nil {
			t.Error(err)
		}
	})
	var unfinished *apply.UnfinishedError
	if !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "changes written, and queue crm.dead is blocked now: the queue belongs to the topology \"second\"") {
		t.Errorf("the run ends with %v", err)
	}
}
