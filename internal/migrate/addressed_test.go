package migrate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Messages of other protocols may have headers by which those of AMQP 0-9-1 are
// addressed. The broker refuses them when they are published, unless they are
// lists: such a message would hold up a drain forever.
func TestMoveOfAHeaderThatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	h := mover{to: "x"}
	got := h.Move(amqp091.Delivery{Headers: amqp091.Table{
		"CC": "a", "BCC": int64(1), "x-delivery-count": int64(2),
		"b": "c",
	}})
	if d := cmp.Diff(amqp091.Table{"retry-cc": "a", "retry-bcc": int64(1), "b": "c"}, got.Message.Headers); d != "" {
		t.Errorf("headers (-want +got):\n%s", d)
	}
	list := amqp091.Table{"CC": []any{"a"}}
	if d := cmp.Diff(list, h.Move(amqp091.Delivery{Headers: list}).Message.Headers); d != "" {
		t.Errorf("a list (-want +got):\n%s", d)
	}
}

// A broker that sets no limit to frames takes any headers: nothing is left out. One
// that sets a limit gets what fits.
func TestMoveLeavesOutOnlyWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for frame, fits := range map[int]bool{0: true, 131_000: true, 20: false} {
		h := mover{to: "x", frame: frame}
		got := h.Move(amqp091.Delivery{Headers: amqp091.Table{"a": "b", "x-death": []any{amqp091.Table{
			"queue": "old", "reason": "rejected", "exchange": "e", "routing-keys": []any{"k"}, "count": int64(1),
			"time": time.Unix(1, 0),
		}}}})
		if _, kept := got.Message.Headers["x-death"]; kept != fits || h.shortened > 0 == fits ||
			got.Message.Headers["a"] != "b" {
			t.Errorf("with a frame of %d it kept x-death: %t, shortened %d, headers %v", frame, kept, h.shortened,
				got.Message.Headers)
		}
	}
}
