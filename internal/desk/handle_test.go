package desk_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// eachType is headers of each type that the library can send.
func eachType() amqp091.Table {
	return amqp091.Table{
		"bool": true, "int8": int8(-1), "uint8": uint8(200), "int16": int16(-2), "uint16": uint16(60_000), "int32": int32(-3),
		"uint32": uint32(4_000_000_000), "int64": int64(2), "int64-large": int64(1) << 40, "float32": float32(0.1),
		"float64": 0.1,
		"string":  "2", "bytes": []byte{0, 255}, "time": time.Unix(1_700_000_000, 0), "void": nil,
		"decimal": amqp091.Decimal{Scale: 2, Value: -12345}, "CC": []any{"also"}, "desk-run": "r",
		"table": amqp091.Table{"list": []any{int8(1), "x", amqp091.Table{"n": int32(2)}}},
	}
}

// A message has the same handle in its queue, after its death, in a hold, and when it is given
// back. An archive of it has every type of its headers.
func TestAHandleSurvivesTheWayIntoAHoldAndBack(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ch := brokertest.VHost(t).Confirming(t)
			for _, q := range []string{"work", "dead", "hold"} {
				args := amqp091.Table{"x-queue-type": kind}
				if q == "work" {
					args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", "dead"
				}
				brokertest.Declare(t, ch, q, args)
			}
			m := amqp091.Publishing{
				MessageId: "m", Type: "t", Body: []byte{0, 255, 'x'}, Headers: deadletter.Aside(eachType()),
				Timestamp: time.Unix(9, 0),
			}
			brokertest.PublishConfirmed(t, ch, "", "work", m)
			want := deadletter.HandleOf(amqp091.Delivery{MessageId: "m", Type: "t", Body: m.Body, Headers: eachType()})
			at := taken(t, ch, "work", want)
			if err := at.Reject(false); err != nil {
				t.Fatal(err)
			}
			dead := brokertest.Take(t, ch, "dead")
			f := deadletter.Read(dead, "dead", nil)
			if f.WorkQueue != "work" || f.Cause != "rejected" || f.Attempts != 1 || f.LastFailed.IsZero() {
				t.Errorf("facts %+v", f)
			}
			inDead := deadletter.HandleOf(dead)
			moved := relay.Republish(dead, deadletter.Aside(dead.Headers))
			moved.Headers["desk-run"] = "another"
			brokertest.PublishConfirmed(t, ch, "", "hold", moved)
			held := taken(t, ch, "hold", inDead)
			brokertest.PublishConfirmed(t, ch, "", "dead", relay.Republish(held, held.Headers))
			back := taken(t, ch, "dead", inDead)
			if d := cmp.Diff(deadletter.Restore(dead.Headers)["x-death"], back.Headers["x-death"]); d != "" {
				t.Errorf("x-death (-in the dead-letter queue +given back):\n%s", d)
			}
			archiveKeeps(t, back)
		})
	}
}

// Of several deaths in a queue RabbitMQ tells the time of the first: when the message failed last
// is not known.
func TestTheLastOfSeveralDeathsHasNoTime(t *testing.T) {
	t.Parallel()
	ch := brokertest.VHost(t).Confirming(t)
	for q, args := range map[string]amqp091.Table{
		"work": {"x-dead-letter-routing-key": "wait"},
		"wait": {"x-dead-letter-routing-key": "work", "x-message-ttl": 1100},
	} {
		args["x-dead-letter-exchange"] = ""
		if _, err := ch.QueueDeclare(q, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	brokertest.PublishConfirmed(t, ch, "", "work", amqp091.Publishing{})
	begin := time.Now()
	for attempts := range 3 {
		d := brokertest.Take(t, ch, "work")
		f := deadletter.Read(d, "failed", nil) // a consumer that gives up publishes it there
		if f.Attempts > 0 && f.FirstFailed.Sub(begin).Abs() > time.Second {
			t.Errorf("after %d failures since %s the first was at %s", attempts, begin, f.FirstFailed)
		}
		if known := !f.LastFailed.IsZero(); known != (attempts == 1) {
			t.Errorf("after %d failures, the last was at %s: %v", attempts, f.LastFailed, d.Headers["x-death"])
		}
		if err := d.Reject(false); err != nil {
			t.Fatal(err)
		}
	}
}

// taken takes a message from a queue, and checks its handle.
func taken(t *testing.T, ch *amqp091.Channel, queue string, want deadletter.Handle) amqp091.Delivery {
	t.Helper()
	d := brokertest.Take(t, ch, queue)
	if got := deadletter.HandleOf(d); got != want {
		t.Errorf("in %s the handle is %s; want %s\n%v", queue, got, want, d.Headers)
	}
	for name, v := range eachType() {
		if name != "CC" && name != "desk-run" {
			if diff := cmp.Diff(v, d.Headers[name]); diff != "" {
				t.Errorf("in %s the header %s changed:\n%s", queue, name, diff)
			}
		}
	}
	return d
}

// archiveKeeps checks that an export has all of a message.
func archiveKeeps(t *testing.T, d amqp091.Delivery) {
	t.Helper()
	var out bytes.Buffer
	if err := deadletter.WriteArchived(&out, deadletter.Message{Delivery: d, Queue: "dead", Copy: 1}); err != nil {
		t.Fatal(err)
	}
	err := deadletter.ReadArchived(&out, func(a deadletter.Archived) error {
		if diff := cmp.Diff(d.Headers, a.Delivery.Headers); diff != "" || a.Changed {
			t.Errorf("changed %t, headers (-message +archive):\n%s", a.Changed, diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
