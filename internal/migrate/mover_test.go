package migrate

import (
	"slices"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
)

// Of the messages that may be doubled, those with a message-id are named. Many publishers set none.
func TestDoubledMessagesAreNamed(t *testing.T) {
	t.Parallel()
	none := slices.Repeat([]string{""}, 12)
	for name, tc := range map[string]struct {
		ids  []string
		list string
	}{
		"one":          {[]string{"m-1"}, ": m-1"},
		"none has one": {none, ""},
		"two have one": {slices.Concat(none, []string{"m-1", "m-2"}), ": m-1, m-2 and 12 more"},
		"more than ten": {
			[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"},
			": 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := mover{step: func() {}}
			for _, id := range tc.ids {
				h.Moved(amqp091.Delivery{MessageId: id, Redelivered: true}, relay.Move{})
			}
			h.Moved(amqp091.Delivery{MessageId: "first"}, relay.Move{})
			if got := listIDs(h.ids, h.again); got != tc.list {
				t.Errorf("%q", got)
			}
		})
	}
}
