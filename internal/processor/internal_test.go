package processor_test

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
)

// A plan refuses a delay that publishes to an internal exchange of another team. If the exchange
// gets internal later, what is due waits, and is published once it is not: the processor says why,
// once for each queue, and nothing is doubled.
func TestADelayToAnInternalExchange(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	declare := func(internal bool) {
		t.Helper()
		if err := ch.ExchangeDelete("bus", false, false); err != nil {
			t.Fatal(err)
		}
		if err := ch.ExchangeDeclare("bus", "topic", true, false, internal, false, nil); err != nil {
			t.Fatal(err)
		}
		brokertest.Declare(t, ch, "work", nil)
		brokertest.Bind(t, ch, "work", "#", "bus", nil)
	}
	declare(false)
	const file = "version: 1\nname: shop\nexchanges: [{name: bus, external: true}]\n" +
		"delays: [{name: shop.later, to: bus}]\n"
	s := newStageOn(t, target, spec.Source{Name: "topology.yaml", Data: []byte(file)},
		func(string) (string, bool) { return "", false })
	declare(true)
	p := s.plans(t)
	const refused = "the exchange is internal, and RabbitMQ refuses what a processor publishes to it for a delay (403); declare another exchange, bind this one to it, and name the other one in to, or have its owner declare it again without internal"
	if got := blockedBy(t, p); got != refused || plan.Check(p, nil) == nil {
		t.Errorf("the plan is blocked by %q", got)
	}
	worker := s.processor(t)
	log := listen(t, worker)
	run(t, worker)
	// Each of the two queues of the delay has one message for the exchange.
	for i, delay := range []int32{0, 1000} {
		s.publish(t, "shop.later", "k", amqp091.Publishing{
			MessageId: fmt.Sprint(i), Headers: amqp091.Table{"x-delay": delay}, DeliveryMode: amqp091.Persistent,
		})
	}
	const said = "exchange is internal, and no client may publish to it"
	brokertest.Eventually(t, "the processor to say it for each queue", func() bool { return len(log.with(said)) == 2 })
	const n = 40
	for i := 2; i < n; i++ {
		s.publish(t, "shop.later", "k", amqp091.Publishing{
			MessageId: fmt.Sprint(i), Headers: amqp091.Table{"x-delay": int32(500 * (i % 6))}, DeliveryMode: amqp091.Persistent,
		})
	}
	for _, queue := range []string{"shop.delay.level.2s.shop.later", "shop.delay.level.1s.shop.later"} {
		s.untilNothingIn(t, queue)
	}
	if lines := log.with(said); len(lines) != 2 {
		t.Errorf("it says so %d times", len(lines))
	}
	if lines := log.with("lacks write permission"); len(lines) > 0 {
		t.Errorf("it says %s", lines)
	}
	declare(false)
	seen := map[string]int{}
	brokertest.Eventually(t, "all messages in work", func() bool {
		for {
			m, ok, err := s.eyes.Get("work", true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return len(seen) == n
			}
			seen[m.MessageId]++
		}
	})
	for id, copies := range seen {
		if copies != 1 {
			t.Errorf("message %s came %d times", id, copies)
		}
	}
	s.allEmpty(t)
}
