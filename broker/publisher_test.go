package broker_test

import (
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
