package amqp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// publisher returns a publisher on a connection of its own.
func publisher(t *testing.T, target brokertest.Target, window int) *amqp.Publisher {
	t.Helper()
	p, err := dial(t, target).Publisher(window)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Late may be called at any moment, so also between a return and its confirm. A returned message
// must never be reported as accepted: its original would be acknowledged, and the message lost.
func TestLateReportsEachReturn(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	const window, messages = 100, 50_000
	p := publisher(t, target, window)
	inFlight, lost := 0, 0
	told := func(o amqp.Outcome) {
		if inFlight--; o.Refused == "" {
			lost++
		}
	}
	for published := 0; published < messages || inFlight > 0; {
		for ; published < messages && inFlight < window; published++ {
			if _, err := p.Publish("", "no-such-queue", amqp091.Publishing{Body: []byte("b")}); err != nil {
				t.Fatal(err)
			}
			inFlight++
		}
		_, outcomes := p.Late()
		for _, o := range slices.Concat(outcomes, p.Outcomes()) {
			told(o)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d returned messages were told as taken over", lost, messages)
	}
}

// A nack that arrives before the confirms of earlier messages is not overridden by the
// acknowledgement that covers them all. A full queue next to a slower one causes this: a nacked
// message that is reported as accepted would be lost.
func TestOutcomesReportEachNack(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"quorum", "classic"} {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			ch := target.Channel(t)
			for queue, args := range map[string]amqp091.Table{
				"full": {"x-queue-type": full, "x-max-length": 1, "x-overflow": "reject-publish"},
				"open": {"x-queue-type": "quorum"},
			} {
				brokertest.Declare(t, ch, queue, args)
			}
			const window = 100
			messages := brokertest.Load(10_000)
			p := publisher(t, target, window)
			taken, goesTo := map[string]int{}, map[uint64]string{}
			for told := 0; told < messages; {
				for n := len(goesTo); n < messages && n-told < window; n++ {
					queue := []string{"full", "open"}[n%2]
					seq, err := p.Publish("", queue, amqp091.Publishing{DeliveryMode: amqp091.Persistent, MessageId: fmt.Sprint(n)})
					if err != nil {
						t.Fatal(err)
					}
					goesTo[seq] = queue
				}
				<-p.Settled()
				for _, o := range p.Outcomes() {
					if told++; o.Refused == "" {
						taken[goesTo[o.Seq]]++
					}
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

// A return whose headers differ from those that were sent, because the broker or the encoding
// changed them, may belong to any message that is equal except for its headers. None of those may
// be reported as accepted.
func TestOutcomesReportEachReturn(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	if err := errors.Join(
		ch.ExchangeDeclare("counts", "headers", true, false, false, false, nil),
		second(ch.QueueDeclare("one", true, false, false, false, nil)),
		ch.QueueBind("one", "", "counts", false, amqp091.Table{"n": 1}),
	); err != nil {
		t.Fatal(err)
	}
	const messages = 200
	p := publisher(t, target, messages)
	returned := map[uint64]bool{}
	for i := range messages {
		n := 1 + i%2
		// an int comes back as an int32
		seq, err := p.Publish("counts", "", amqp091.Publishing{Headers: amqp091.Table{"n": n}, Body: []byte("b")})
		if err != nil {
			t.Fatal(err)
		}
		returned[seq] = n == 2
	}
	for told := 0; told < messages; {
		<-p.Settled()
		for _, o := range p.Outcomes() {
			if told++; returned[o.Seq] && o.Refused == "" {
				t.Errorf("publishing %d was returned, and told as taken over", o.Seq)
			}
		}
	}
}

// Of two messages that differ in one property, the one that comes back counts as returned.
func TestOutcomesTellPropertiesApart(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	if err := errors.Join(
		ch.ExchangeDeclare("to", "fanout", true, false, false, false, nil),
		second(ch.QueueDeclare("one", true, false, false, false, nil)),
	); err != nil {
		t.Fatal(err)
	}
	p := publisher(t, target, 2)
	publish := func(m amqp091.Publishing) {
		t.Helper()
		if _, err := p.Publish("to", "", m); err != nil {
			t.Fatal(err)
		}
		<-p.Settled()
	}
	for name, m := range map[string]amqp091.Publishing{
		"content type": {ContentType: "a"}, "content encoding": {ContentEncoding: "a"}, "priority": {Priority: 1},
		"reply to": {ReplyTo: "a"}, "expiration": {Expiration: "60000"}, "type": {Type: "a"}, "app id": {AppId: "a"},
		"timestamp": {Timestamp: time.Unix(1_700_000_000, 5)},
	} {
		brokertest.Bind(t, ch, "one", "", "to", nil)
		publish(amqp091.Publishing{})
		brokertest.Unbind(t, ch, "one", "", "to", nil)
		publish(m)
		if all := p.Outcomes(); len(all) != 2 || all[0].Refused != "" || all[1].Refused == "" {
			t.Errorf("%s: the outcomes are %v", name, all)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A confirm that is missing for some seconds, while thousands of others arrive, delays nothing when
// it arrives at last, and none of the others is lost.
func TestALateConfirmDelaysNothing(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	ch := target.Channel(t)
	for queue, typ := range map[string]string{"stuck": "quorum", "open": "classic"} {
		brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": typ})
	}
	const window, messages = 10, 1000
	p := publisher(t, target, window)
	inFlight, told, settled := 0, map[uint64]int{}, 0
	settle := func(outcomes []amqp.Outcome) {
		for _, o := range outcomes {
			if o.Refused != "" {
				t.Errorf("publishing %d was refused: %s", o.Seq, o.Refused)
			}
			told[o.Seq]++
			inFlight--
			settled++
		}
	}
	publish := func(queue string) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			_, err := p.Publish("", queue, amqp091.Publishing{})
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a publish hangs")
		}
		inFlight++
	}
	publish("stuck") // the channel knows the leader from now on
	for settled < 1 {
		<-p.Settled()
		settle(p.Outcomes())
	}
	member := func(call string) {
		t.Helper()
		node.Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"stuck">>)),
			%s(element(1, amqqueue:get_pid(Q))), ok.`, target.VHost, call))
	}
	member("sys:suspend")
	publish("stuck")
	deadline := time.Now().Add(time.Minute)
	for published := 0; published < messages; {
		for ; published < messages && inFlight <= window; published++ {
			publish("open")
		}
		_, late := p.Late()
		settle(late)
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d were told", settled, messages)
		}
	}
	member("sys:resume")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 300 { // it arrives meanwhile, and no outcomes are read
		publish("open")
		<-tick.C
	}
	for want := len(told) + inFlight; len(told) < want; {
		select {
		case <-p.Settled():
			settle(p.Outcomes())
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d were told", len(told), want)
		}
	}
	for seq, n := range told {
		if n != 1 {
			t.Errorf("publishing %d was told %d times", seq, n)
		}
	}
}
