package desk_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// spentQueue returns a dead-letter queue of others with a message for each count, which is what its
// x-delivery-count is on 4.3: the last rejection counts too, and the count comes along.
func spentQueue(t *testing.T, target brokertest.Target, args amqp091.Table, returned ...int) *amqp091.Channel {
	t.Helper()
	ch := target.Confirming(t)
	args["x-queue-type"] = "quorum"
	work := amqp091.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int64(100),
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq",
	}
	for name, args := range map[string]amqp091.Table{"dlq": args, "work": work} {
		brokertest.Declare(t, ch, name, args)
	}
	for i, n := range returned {
		spend(t, ch, fmt.Sprint(i), n)
		brokertest.Eventually(t, "the dead letter", func() bool { return readyIn(t, ch, "dlq") == i+1 })
	}
	return ch
}

// spend publishes a message and rejects it n times: then it is a dead letter.
func spend(t *testing.T, ch *amqp091.Channel, id string, n int) {
	t.Helper()
	brokertest.PublishConfirmed(t, ch, "", "work", amqp091.Publishing{MessageId: id, Body: []byte("x")})
	for range n - 1 {
		if err := taking(t, ch, "work").Reject(true); err != nil {
			t.Fatal(err)
		}
	}
	if err := taking(t, ch, "work").Reject(false); err != nil {
		t.Fatal(err)
	}
}

// The error of a look that cannot save a message does not tell its message-id, which may be masked.
func TestALookThatCannotSaveAMessageMasksItsID(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.3") {
		t.Skip("before 4.3 each queue counts for itself")
	}
	ch := spentQueue(t, target, amqp091.Table{
		"x-delivery-limit": int64(3), "x-max-length": int64(4), "x-overflow": "reject-publish",
	}, 1, 1, 1)
	spend(t, ch, "ann@example.com", 5)
	brokertest.Eventually(t, "the dead letter", func() bool { return readyIn(t, ch, "dlq") == 4 })
	rules, err := redact.New(redact.Rules{Types: []string{"email"}})
	if err != nil {
		t.Fatal(err)
	}
	d := deskOf(t, target)
	d.Reader = &deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
	_, err = d.Look(t.Context(), "dlq", desk.LookOptions{}, func(m deadletter.Message) error {
		for full := false; m.Position == 1 && !full; { // what the look holds makes room
			sent, err := ch.PublishWithDeferredConfirm("", "dlq", false, false, amqp091.Publishing{})
			if err != nil {
				return err
			}
			full = !sent.Wait()
		}
		return nil
	})
	if err == nil || strings.Contains(err.Error(), "ann@") {
		t.Errorf("the look ended with: %v", err)
	}
}

// taking takes one message of a queue, and does not acknowledge it.
func taking(t *testing.T, ch *amqp091.Channel, queue string) amqp091.Delivery {
	t.Helper()
	var d amqp091.Delivery
	brokertest.Eventually(t, "a message of "+queue, func() (ok bool) {
		var err error
		if d, ok, err = ch.Get(queue, false); err != nil {
			t.Fatal(err)
		}
		return ok
	})
	return d
}

// A look does not drop a message that has brought its returns along from another queue, wherever it
// is in the queue, and however the look ends.
func TestLooksKeepMessagesThatBringTheirCount(t *testing.T) {
	t.Parallel()
	if !brokertest.VHost(t).AtLeast("4.3") {
		t.Skip("before 4.3 each queue counts for itself")
	}
	limit := amqp091.Table{"x-delivery-limit": int64(3)}
	for name, tc := range map[string]struct {
		args    amqp091.Table
		policy  map[string]any
		counts  []int
		enough  int // end the look after so many
		refused string
		missed  string
		looked  int
		moved   bool
	}{
		"below the limit": {args: limit, counts: []int{1, 2, 2}, looked: 3},
		"the first at the limit": {
			args: limit, counts: []int{3, 1, 1}, looked: 1, refused: "no policy raises the limit of an argument",
		},
		"the first above the limit": {
			args: limit, counts: []int{4, 1, 1}, looked: 1, refused: "was returned 4 times before", moved: true,
		},
		"above a policy": {
			policy: map[string]any{"delivery-limit": 3}, counts: []int{4, 1}, looked: 1,
			refused: "raise delivery-limit in its policy dlq", moved: true,
		},
		"above the default": {counts: []int{21, 1}, looked: 1, refused: "delivery limit 20", moved: true},
		"one deep at the limit": {
			args: limit, counts: []int{1, 1, 1, 3, 1}, looked: 5,
		},
		"two deep above the limit": {
			args: limit, counts: []int{1, 1, 1, 5, 1, 5}, looked: 6, moved: true,
		},
		"above the limit, behind what is enough": {
			args: limit, counts: []int{1, 1, 1, 1, 5, 5, 1}, enough: 4, looked: 4, missed: "had enough", moved: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			args := amqp091.Table{}
			maps.Copy(args, tc.args)
			if tc.policy != nil {
				setPolicy(t, target, "policies", "dlq", tc.policy)
			}
			ch := spentQueue(t, target, args, tc.counts...)
			l, err := deskOf(t, target).Look(t.Context(), "dlq", desk.LookOptions{}, func(m deadletter.Message) error {
				if m.Position+1 == tc.enough {
					return desk.ErrEnough
				}
				return nil
			})
			switch {
			case tc.refused == "" && err != nil, tc.refused != "" && !errors.Is(err, desk.ErrRefused):
				t.Errorf("the look ended with %v", err)
			case tc.refused != "" && !strings.Contains(err.Error(), tc.refused):
				t.Errorf("the look is refused with %v", err)
			}
			if l.Looked != tc.looked || !strings.Contains(l.Missed, tc.missed) ||
				strings.Contains(l.Cost, "to the tail") != tc.moved {
				t.Errorf("looked at %d, missed %q, cost %q", l.Looked, l.Missed, l.Cost)
			}
			brokertest.Eventually(t, "all messages", func() bool { return readyIn(t, ch, "dlq") == len(tc.counts) })
			got := idsOf(consumedFrom(t, target, "dlq", len(tc.counts)))
			if !tc.moved && !slices.Equal(got, numbersFrom(0, len(tc.counts))) {
				t.Errorf("the order has changed: %v", got)
			}
			slices.Sort(got)
			if !slices.Equal(got, numbersFrom(0, len(tc.counts))) {
				t.Errorf("the queue has %v", got)
			}
		})
	}
}
