package desk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// deskOf returns the desk of a virtual host.
func deskOf(tb testing.TB, target brokertest.Target) *desk.Desk {
	tb.Helper()
	e := managementtest.Endpoint(tb, target)
	m := managementtest.Client(tb, target)
	return &desk.Desk{Endpoint: e, Management: m, Reader: &deadletter.Reader{}}
}

// filledQueue declares a queue and fills it with n messages, whose ids count from 0.
func filledQueue(tb testing.TB, target brokertest.Target, name string, n int, args amqp091.Table) *amqp091.Channel {
	tb.Helper()
	ch := target.Confirming(tb)
	brokertest.Declare(tb, ch, name, args)
	brokertest.Fill(tb, ch, "", name, n, 100)
	brokertest.Eventually(tb, "the messages of "+name, func() bool { return readyIn(tb, ch, name) == n })
	return ch
}

func readyIn(tb testing.TB, ch *amqp091.Channel, queue string) int {
	tb.Helper()
	return brokertest.Ready(tb, ch, queue)
}

// lookAt looks at a queue and returns the message-ids in order.
func lookAt(tb testing.TB, d *desk.Desk, queue string, o desk.LookOptions) ([]string, desk.Looked) {
	tb.Helper()
	var ids []string
	l, err := d.Look(tb.Context(), queue, o, func(m deadletter.Message) error {
		if m.Position != len(ids) {
			tb.Errorf("message %s has position %d, want %d", m.Delivery.MessageId, m.Position, len(ids))
		}
		ids = append(ids, m.Delivery.MessageId)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	if len(ids) != l.Looked {
		tb.Errorf("looked at %d, and says %d", len(ids), l.Looked)
	}
	return ids, l
}

// consumedFrom removes n messages of a queue and returns them in order.
func consumedFrom(tb testing.TB, target brokertest.Target, queue string, n int) []amqp091.Delivery {
	tb.Helper()
	ch := target.Channel(tb)
	deliveries := brokertest.Consume(tb, ch, queue, 1000)
	late := time.After(time.Minute)
	var out []amqp091.Delivery
	for len(out) < n {
		select {
		case d := <-deliveries:
			out = append(out, d)
			if err := d.Ack(false); err != nil {
				tb.Fatal(err)
			}
		case <-late:
			tb.Fatalf("%s had %d messages, want %d", queue, len(out), n)
		}
	}
	return out
}

func idsOf(list []amqp091.Delivery) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.MessageId)
	}
	return out
}

// numbersFrom returns the numbers from one to another, as text.
func numbersFrom(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

func queueKinds() []string { return []string{"classic", "quorum"} }

// timesToLook is how many times the order is tested, and with how many messages. With
// DLXCTL_TEST_LOOKS it is that many times, with 10,000 messages.
func timesToLook() (times, messages int) {
	if n, err := strconv.Atoi(os.Getenv("DLXCTL_TEST_LOOKS")); err == nil {
		return n, 10_000
	}
	return 5, 2_000
}

// The order is exact after many looks, whole and partial, while messages arrive.
func TestLooksKeepTheOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			times, n := timesToLook()
			target := brokertest.VHost(t)
			const queue = "dead"
			args := amqp091.Table{"x-queue-type": kind}
			if kind == "quorum" {
				args["x-delivery-limit"] = int64(1<<31 - 1)
			}
			ch := filledQueue(t, target, queue, n, args)
			d := deskOf(t, target)
			for i := range times {
				o := desk.LookOptions{Messages: []int{0, 0, n / 3, 7}[i%4]}
				want := n + i
				if o.Messages > 0 {
					want = o.Messages
				}
				arrives := sync.OnceFunc(func() {
					brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{MessageId: strconv.Itoa(n + i)})
				})
				var seen []string
				l, err := d.Look(t.Context(), queue, o, func(m deadletter.Message) error {
					arrives()
					seen = append(seen, m.Delivery.MessageId)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if l.Messages != n+i || !slices.Equal(seen, numbersFrom(0, want)) {
					t.Fatalf("look %d: of %d messages %d were looked at, want %d in order", i, l.Messages, len(seen), want)
				}
				if (l.Missed == "") != (o.Messages == 0) {
					t.Errorf("look %d: missed %q", i, l.Missed)
				}
			}
			if got := idsOf(consumedFrom(t, target, queue, n+times)); !slices.Equal(got, numbersFrom(0, n+times)) {
				t.Error("the order has changed")
			}
		})
	}
}

// A look leaves x-delivery-count as it was where the broker can do that, and says what is left
// where it cannot.
func TestLooksAndDeliveryLimits(t *testing.T) {
	t.Parallel()
	const queue, n = "foreign", 50
	target := brokertest.VHost(t)
	filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(6)})
	d := deskOf(t, target)
	modern := target.AtLeast("4.3")
	looked := 0
	var refused error
	for range 12 {
		l, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(deadletter.Message) error { return nil })
		if errors.Is(err, desk.ErrRefused) {
			refused = err
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if left := fmt.Sprintf("%d return", 6-looked-1); !modern && !strings.Contains(l.Cost, left) {
			t.Errorf("look %d costs %q, want %q", looked, l.Cost, left)
		}
		looked++
	}
	if modern && refused != nil || !modern && (looked != 3 || refused == nil) {
		t.Errorf("refused after %d looks: %v", looked, refused)
	}
	rest := consumedFrom(t, target, queue, n)
	if got := idsOf(rest); !slices.Equal(got, numbersFrom(0, n)) {
		t.Errorf("the order has changed: %v", got)
	}
	if count := rest[n-1].Headers["x-delivery-count"]; modern && count != nil && count != int64(0) {
		t.Errorf("x-delivery-count is %v after looks", count)
	}
}

// A message that the broker would drop on its return is not lost, however often one looks.
func TestLooksNeverEndAMessage(t *testing.T) {
	t.Parallel()
	const queue, n = "foreign", 20
	target := brokertest.VHost(t)
	ch := filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2)})
	d := deskOf(t, target)
	for range 8 {
		_, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(deadletter.Message) error { return nil })
		if err != nil && !errors.Is(err, desk.ErrRefused) {
			t.Fatal(err)
		}
	}
	brokertest.Eventually(t, "all messages", func() bool { return readyIn(t, ch, queue) == n })
	got := idsOf(consumedFrom(t, target, queue, n))
	slices.Sort(got)
	want := numbersFrom(0, n)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the queue has %v", got)
	}
}

// A look refuses a queue that it would harm, and says why, before it consumes anything.
func TestLooksRefuseHarm(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	d := deskOf(t, target)
	rejects := amqp091.Table{"x-overflow": "reject-publish"}
	for name, tc := range map[string]struct {
		args     amqp091.Table
		policy   map[string]any
		operator map[string]any
		messages int
		text     string // empty: it does not refuse
		quorum   string // the same of a quorum queue, which limits returns
	}{
		"full-argument":    {args: amqp091.Table{"x-max-length": int64(10)}, text: "drops its oldest messages when it is full, and has room for 0 more of 10"},
		"full-policy":      {policy: map[string]any{"max-length": 15}, text: "look at no more than 5, or raise max-length"},
		"full-operator":    {operator: map[string]any{"max-length": 12}, text: "room for 2 more of 12"},
		"few":              {policy: map[string]any{"max-length": 15}, messages: 5},
		"roomy":            {args: amqp091.Table{"x-max-length": int64(100)}},
		"rejects":          {args: rejects, policy: map[string]any{"max-length": 10}, quorum: "keep out"},
		"rejects-roomy":    {args: amqp091.Table{"x-max-length": int64(20), "x-overflow": "reject-publish"}},
		"single":           {args: amqp091.Table{"x-single-active-consumer": true}, text: "single active consumer"},
		"with-ttl":         {args: amqp091.Table{"x-message-ttl": int64(3600000)}},
		"rejects-operator": {args: rejects, operator: map[string]any{"max-length": 10}, quorum: "keep out"},
	} {
		for _, kind := range queueKinds() {
			queue, args := kind+"-"+name, amqp091.Table{"x-queue-type": kind}
			if kind == "quorum" {
				tc.text, args["x-delivery-limit"] = cmp.Or(tc.quorum, tc.text), int64(20) // 3.10 has none by default
			}
			maps.Copy(args, tc.args)
			setPolicy(t, target, "policies", queue, tc.policy)
			setPolicy(t, target, "operator-policies", queue, tc.operator)
			ch := filledQueue(t, target, queue, 10, args)
			_, err := d.Look(t.Context(), queue, desk.LookOptions{Messages: tc.messages}, func(deadletter.Message) error {
				if tc.text != "" {
					t.Errorf("%s: a message was consumed", queue)
				}
				return nil
			})
			switch {
			case tc.text == "" && err != nil:
				t.Errorf("%s: %v", queue, err)
			case tc.text != "" && (!errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), tc.text)):
				t.Errorf("%s: error is %v, want %s", queue, err, tc.text)
			}
			if got := readyIn(t, ch, queue); got != 10 {
				t.Errorf("%s has %d messages", queue, got)
			}
		}
	}
}

// setPolicy creates a policy for one queue.
func setPolicy(t *testing.T, target brokertest.Target, kind, queue string, definition map[string]any) {
	t.Helper()
	if definition != nil {
		target.Call(t, "PUT", kind+"/"+target.VHost+"/"+queue,
			map[string]any{"pattern": "^" + queue + "$", "definition": definition, "apply-to": "queues", "priority": 1})
	}
}

// A limit in bytes counts too. The broker tells the size of a queue only some seconds later, and
// after the number of its messages: until then the look is refused. So it is if the messages have
// no body, as nothing tells that apart.
func TestLooksRefuseALimitInBytes(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	look := func(queue string) error {
		ignore := func(deadletter.Message) error { return nil }
		_, err := deskOf(t, target).Look(t.Context(), queue, desk.LookOptions{}, ignore)
		return err
	}
	known := func(queue string) {
		t.Helper()
		err := look(queue)
		if err != nil && (!errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "not known yet")) {
			t.Errorf("error is %v", err)
		}
		brokertest.Eventually(t, "the size of "+queue, func() bool { return look(queue) == nil })
	}
	ch := target.Confirming(t)
	args := amqp091.Table{"x-max-length-bytes": int64(100_000)}
	brokertest.Declare(t, ch, "pings", args)
	brokertest.PublishConfirmed(t, ch, "", "pings", make([]amqp091.Publishing, 3)...)
	for _, kind := range queueKinds() {
		filledQueue(t, target, kind, 10, amqp091.Table{"x-queue-type": kind, "x-max-length-bytes": int64(100_000)})
		setPolicy(t, target, "policies", kind, map[string]any{"max-length-bytes": 90_000})
		known(kind)
		size, _ := target.Queue(t, kind)["message_bytes"].(float64)
		setPolicy(t, target, "policies", kind, map[string]any{"max-length-bytes": int(1.5 * size)})
		if err := look(kind); !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "bytes more of") {
			t.Errorf("error is %v", err)
		}
	}
	if err := look("pings"); !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "if its messages have no bodies") {
		t.Errorf("error is %v", err)
	}
}

func TestLooksRefuseWhatTheyCannotReach(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	d := deskOf(t, target)
	other := target.Channel(t)
	if _, err := other.QueueDeclare("mine", false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	for queue, text := range map[string]string{
		"nowhere": "queue nowhere does not exist",
		"mine":    "belongs to another connection alone",
	} {
		_, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(deadletter.Message) error { return nil })
		if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error is %v", queue, err)
		}
	}
}

// In a queue with consumers a look needs consent. What they take is told, and nothing is lost.
func TestLooksBesideConsumers(t *testing.T) {
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const queue, n = "busy", 400
			target := brokertest.VHost(t)
			ch := filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": kind})
			d := deskOf(t, target)
			other := target.Channel(t)
			deliveries := brokertest.Consume(t, other, queue, 10)
			first := <-deliveries // the other consumer is there
			if _, err := d.Look(t.Context(), queue, desk.LookOptions{}, nil); !errors.Is(err, desk.ErrRefused) ||
				!strings.Contains(err.Error(), "--beside-consumers") {
				t.Errorf("error is %v", err)
			}
			got, l := lookAt(t, d, queue, desk.LookOptions{BesideConsumers: true})
			if len(got) != n-10 || l.Missed != "" {
				t.Errorf("looked at %d of %d: %s", len(got), l.Messages, l.Missed)
			}
			_ = first
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			brokertest.Eventually(t, "all messages", func() bool { return readyIn(t, ch, queue) == n })
		})
	}
}

// A consumer that attaches during a look takes what is left, and receives the rest afterwards.
func TestAConsumerAttachesDuringALook(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const queue, n = "dead", 1000
			target := brokertest.VHost(t)
			filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": kind})
			var rest []amqp091.Delivery
			var wg sync.WaitGroup
			if _, err := deskOf(t, target).Look(t.Context(), queue, desk.LookOptions{}, func(m deadletter.Message) error {
				if m.Position == 0 {
					wg.Go(func() { rest = consumedFrom(t, target, queue, n) })
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			got := idsOf(rest) // it may have taken some from the middle, while the look took others
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(numbersFrom(0, n))); !slices.Equal(got, want) {
				t.Errorf("the consumer received %d messages", len(got))
			}
		})
	}
}

// Two looks at once: the second sees what the first does not hold, and both give everything back.
func TestTwoLooksAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const queue, n = "dead", 1000
			target := brokertest.VHost(t)
			filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": kind})
			d, second := deskOf(t, target), deskOf(t, target)
			if _, err := d.Look(t.Context(), queue, desk.LookOptions{Messages: 400}, func(m deadletter.Message) error {
				if m.Position != 399 {
					return nil
				}
				got, l := lookAt(t, second, queue, desk.LookOptions{BesideConsumers: true})
				if !slices.Equal(got, numbersFrom(400, n)) || l.Messages != 600 {
					t.Errorf("the second look saw %d of %d messages", len(got), l.Messages)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			got := idsOf(consumedFrom(t, target, queue, n))
			// The first block came back last: on a quorum queue it is behind the second.
			want := numbersFrom(0, n)
			if kind == "quorum" {
				want = append(numbersFrom(400, n), numbersFrom(0, 400)...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the queue has %v... and %v", kind, got[:3], got[600:603])
			}
		})
	}
}

// A look that takes too long ends by itself, and says so.
func TestLooksEndInTime(t *testing.T) {
	t.Parallel()
	const queue, n = "dead", 100
	target := brokertest.VHost(t)
	ch := filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "quorum"})
	o := desk.LookOptions{Hold: 300 * time.Millisecond}
	l, err := deskOf(t, target).Look(t.Context(), queue, o, func(m deadletter.Message) error {
		if m.Position == 50 {
			brokertest.Eventually(t, "the messages to be back", func() bool { return readyIn(t, ch, queue) == n })
		}
		return nil
	})
	if err != nil || l.Looked >= n || !strings.Contains(l.Missed, "ended after 300ms") {
		t.Errorf("looked at %d: missed %q, error %v", l.Looked, l.Missed, err)
	}
}

// A look goes on as long as messages come, and ends when it stands still.
func TestLooksEndWhenTheyStandStill(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const queue, n = "dead", 10
	target := brokertest.VHost(t)
	ch := filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "classic"})
	for at, wait := range map[string]time.Duration{"each": 300 * time.Millisecond, "one": 1500 * time.Millisecond} {
		timer := time.NewTimer(0)
		d := deskOf(t, target).Pausing(time.Second)
		l, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(m deadletter.Message) error {
			if at == "each" || m.Position == 4 {
				timer.Reset(wait)
				<-timer.C
			}
			return nil
		})
		stands := at == "one"
		if err != nil || stands != strings.Contains(l.Missed, "stood still for 1s") || stands != (l.Looked < n) {
			t.Errorf("waiting at %s: looked at %d, missed %q, error %v", at, l.Looked, l.Missed, err)
		}
	}
	brokertest.Eventually(t, "the messages to be back", func() bool { return readyIn(t, ch, queue) == n })
}

// A cut connection gives everything back, in order.
func TestACutConnectionGivesBack(t *testing.T) {
	t.Parallel()
	for _, kind := range queueKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const queue, n = "dead", 2000
			target := brokertest.VHost(t)
			filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": kind, "x-overflow": "reject-publish"})
			through, proxy := brokertest.NewProxy(t, target)
			l, err := deskOf(t, through).Look(t.Context(), queue, desk.LookOptions{}, func(m deadletter.Message) error {
				if m.Position == n/2 {
					proxy.Cut()
				}
				return nil
			})
			if err == nil && l.Looked < n {
				t.Errorf("looked at %d of %d without an error", l.Looked, n)
			}
			if got := idsOf(consumedFrom(t, target, queue, n)); !slices.Equal(got, numbersFrom(0, n)) {
				t.Error("the order has changed")
			}
		})
	}
}

// An error of the visitor, or the end of the context, ends the look and gives everything back.
func TestLooksEndWithTheirVisitor(t *testing.T) {
	t.Parallel()
	const queue, n = "dead", 500
	target := brokertest.VHost(t)
	filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "quorum"})
	d := deskOf(t, target)
	wrong := errors.New("wrong")
	ctx, cancel := context.WithCancel(t.Context())
	for name, tc := range map[string]struct {
		visit func() error
		want  error
	}{
		"error":   {func() error { return wrong }, wrong},
		"enough":  {func() error { return desk.ErrEnough }, nil},
		"context": {func() error { cancel(); return nil }, context.Canceled},
	} {
		within := t.Context()
		if name == "context" {
			within = ctx
		}
		l, err := d.Look(within, queue, desk.LookOptions{}, func(m deadletter.Message) error {
			if m.Position == 10 {
				return tc.visit()
			}
			return nil
		})
		if !errors.Is(err, tc.want) || l.Missed == "" {
			t.Errorf("%s: error %v, missed %q", name, err, l.Missed)
		}
	}
	if got := idsOf(consumedFrom(t, target, queue, n)); !slices.Equal(got, numbersFrom(0, n)) {
		t.Error("the order has changed")
	}
}

// A stream is read and stays as it is.
func TestLooksAtAStream(t *testing.T) {
	t.Parallel()
	const queue, n = "stream", 1200
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": "stream"})
	brokertest.Fill(t, ch, "", queue, n, 10)
	brokertest.Eventually(t, "the messages of the stream", func() bool { return readyIn(t, ch, queue) == n })
	for _, o := range []desk.LookOptions{{Messages: 5}, {}} {
		got, l := lookAt(t, deskOf(t, target), queue, o)
		want := n
		if o.Messages > 0 {
			want = o.Messages
		}
		if !slices.Equal(got, numbersFrom(0, want)) || !strings.Contains(l.Cost, "nothing") {
			t.Errorf("looked at %d of %d, cost %q", len(got), l.Messages, l.Cost)
		}
	}
}

// A classic queue is looked at up to its limits, and what is missed is said.
func TestLooksHoldOnlySoMuch(t *testing.T) {
	t.Parallel()
	const queue, n = "dead", 3000
	target := brokertest.VHost(t)
	filledQueue(t, target, queue, n, amqp091.Table{"x-queue-type": "classic"})
	d := deskOf(t, target)
	for text, o := range map[string]desk.LookOptions{
		"holds at most": {HoldMessages: 100},
		"--hold-limit":  {HoldBytes: 1000 * 100},
	} {
		got, l := lookAt(t, d, queue, o)
		if !slices.Equal(got, numbersFrom(0, len(got))) || len(got) >= n || !strings.Contains(l.Missed, text) {
			t.Errorf("looked at %d, missed %q", len(got), l.Missed)
		}
	}
}

// A look passes over messages at the head of the queue, and gives them back with the others. Copies
// keep their numbers.
func TestLooksPassOver(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	for _, kind := range []string{"quorum", "classic"} {
		ch := filledQueue(t, target, kind, 10, amqp091.Table{"x-queue-type": kind})
		twice := amqp091.Publishing{MessageId: "copy"}
		brokertest.PublishConfirmed(t, ch, "", kind, twice, twice)
		d := deskOf(t, target)
		for _, row := range []struct {
			limit, skip int
			want        []string
			missed      bool
		}{
			{0, 8, []string{"8", "9", "copy", "copy"}, false},
			{2, 3, []string{"3", "4"}, true},
			{0, 100, nil, false},
		} {
			var ids []string
			var copied int
			r := desk.Request{Queue: kind, Limit: row.limit, Look: desk.LookOptions{Skip: row.skip}}
			p, err := d.Pick(t.Context(), r,
				func(m deadletter.Message, _ deadletter.View) error {
					ids, copied = append(ids, m.Delivery.MessageId), m.Copy
					return nil
				})
			if err != nil || !slices.Equal(ids, row.want) || (p.Looked.Missed != "") != row.missed {
				t.Errorf("%s, %d behind %d: %v, missed %q, %v; want %v",
					kind, row.limit, row.skip, ids, p.Looked.Missed, err, row.want)
			}
			var said strings.Builder
			if err := desk.WritePicked(&said, p); err != nil || !strings.Contains(said.String(), "passed over the first") {
				t.Errorf("it says %q, %v", &said, err)
			}
			if len(ids) == 4 && copied != 2 {
				t.Errorf("the second of two equal messages is copy %d", copied)
			}
		}
		if ids, _ := lookAt(t, d, kind, desk.LookOptions{}); len(ids) != 12 || ids[0] != "0" || ids[9] != "9" {
			t.Errorf("%s has %v afterwards", kind, ids)
		}
	}
}
