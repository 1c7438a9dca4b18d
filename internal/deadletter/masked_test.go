package deadletter_test

import (
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// A value that a rule names in the body cannot be found in the headers or in the error either,
// not even by a look at the heads of messages.
func TestMaskedBodyValuesAreNotInTheError(t *testing.T) {
	t.Parallel()
	rules, err := redact.New(redact.Rules{Paths: []string{"body.customer.name"}})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
	m := deadletter.Message{Queue: "billing.dead", Delivery: amqp091.Delivery{
		Body:    []byte(`{"customer":{"name":"Ann Example"}}`),
		Headers: amqp091.Table{"x-exception-message": "no account of Ann Example", "copy": []any{"Ann Example"}},
	}}
	for name, v := range map[string]deadletter.View{"view": r.View(m), "head": r.Head(m)} {
		if shown := fmt.Sprintf("%+v", v); strings.Contains(shown, "Ann Example") || !strings.Contains(shown, "no account of [masked]") {
			t.Errorf("the %s is %s", name, shown)
		}
	}
}
