package broker_test

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// Late is asked at any moment, so also between a return and its confirm. What
// was returned must never be told as taken over: its original would be
// acknowledged, and the message lost.
func TestLateTellsOfEachReturn(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	e, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := broker.Dial(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const window, messages = 100, 50_000
	p, err := conn.Publisher(window)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	inFlight, lost := 0, 0
	told := func(o broker.Outcome) {
		if inFlight--; o.Refused == "" {
			lost++
		}
	}
	late := map[uint64]bool{}
	for published := 0; published < messages || inFlight > 0; {
		for ; published < messages && inFlight < window; published++ {
			if _, err := p.Publish("", "nobody", amqp.Publishing{Body: []byte("b")}); err != nil {
				t.Fatal(err)
			}
			inFlight++
		}
		_, outcomes := p.Late()
		for _, o := range outcomes {
			late[o.Seq] = true
			told(o)
		}
		select {
		case c := <-p.Confirms():
			if o := p.Outcome(c); !late[o.Seq] {
				told(o)
			}
		default:
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d returned messages were told as taken over", lost, messages)
	}
}

// A nack that comes before the confirms of earlier messages is not overruled by
// the acknowledgement that names them all. It is what a full queue beside one
// that is slower makes of it: a nacked message that was told as taken over would
// be lost.
func TestOutcomeTellsOfEachNack(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"quorum", "classic"} {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			e, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := broker.Dial(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ch := target.Channel(t)
			for queue, args := range map[string]amqp.Table{
				"full": {"x-queue-type": full, "x-max-length": 1, "x-overflow": "reject-publish"},
				"open": {"x-queue-type": "quorum"},
			} {
				if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
					t.Fatal(err)
				}
			}
			const window, messages = 100, 10_000
			p, err := conn.Publisher(window)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			taken, goesTo := map[string]int{}, map[uint64]string{}
			for told := 0; told < messages; {
				for n := len(goesTo); n < messages && n-told < window; n++ {
					queue := []string{"full", "open"}[n%2]
					seq, err := p.Publish("", queue, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(n)})
					if err != nil {
						t.Fatal(err)
					}
					goesTo[seq] = queue
				}
				o := p.Outcome(<-p.Confirms())
				if told++; o.Refused == "" {
					taken[goesTo[o.Seq]]++
				}
			}
			for _, queue := range []string{"full", "open"} {
				holds := map[string]bool{}
				for {
					m, ok, err := ch.Get(queue, true)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					holds[m.MessageId] = true
				}
				if len(holds) != taken[queue] {
					t.Errorf("the %s queue holds %d messages, told as taken over were %d", queue, len(holds), taken[queue])
				}
			}
			if taken["open"] != messages/2 {
				t.Errorf("of %d messages for the open queue %d were told as refused", messages/2, messages/2-taken["open"])
			}
		})
	}
}
