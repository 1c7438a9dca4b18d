package migrate

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// What the broker wrote travels on; what a publisher forged is kept under another
// name, as it would end dead-lettering on RabbitMQ 3.10.
func TestForgedDeathsAreNotCarriedOn(t *testing.T) {
	t.Parallel()
	death := func(count any) []any {
		return []any{amqp091.Table{
			"queue": "q", "reason": "rejected", "exchange": "e", "routing-keys": []any{"k"},
			"time": time.Now(), "count": count,
		}}
	}
	for name, tc := range map[string]struct {
		header any
		kept   bool
	}{
		"the broker's":      {death(int64(1)), true},
		"an empty list":     {[]any{}, false},
		"a text":            {"boo", false},
		"a list of texts":   {[]any{"a"}, false},
		"a count of text":   {death("1"), false},
		"a count as float":  {death(1.0), false},
		"without its queue": {[]any{amqp091.Table{"count": int64(1)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := (&mover{}).Move(amqp091.Delivery{Headers: amqp091.Table{"x-death": tc.header}}).Message.Headers
			_, kept := headers["x-death"]
			_, aside := headers["retry-x-death"]
			if kept != tc.kept || aside == tc.kept {
				t.Errorf("its headers are %v", headers)
			}
		})
	}
}
