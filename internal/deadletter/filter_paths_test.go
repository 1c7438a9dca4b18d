package deadletter_test

import (
	"slices"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// A filter knows which of the fields that it names no message has: they may be misspelt.
func TestAbsentPaths(t *testing.T) {
	t.Parallel()
	var reader deadletter.Reader
	view := func(body string) deadletter.View {
		return reader.View(deadletter.Message{Delivery: amqp091.Delivery{
			ContentType: "application/json", Body: []byte(body), Headers: amqp091.Table{"x-tenant": "acme"},
		}})
	}
	seen := []deadletter.View{view(`{"customer":{"country":"AT"}}`), view(`{"customer":{"vat":null}}`), view("text")}
	for expression, want := range map[string][]string{
		`body.customer.country == "DE"`:                            nil,
		`body.customer.vat == nil && headers["x-tenant"] == "b"`:   nil,
		`body.customer.contry == "AT"`:                             {"body.customer.contry"},
		`body.custmer.contry == "AT" || body?.custmer.x == 1`:      {"body.custmer"},
		`headers["x-tenat"] == "acme" && body.items[0].sku == "A"`: {`headers["x-tenat"]`, "body.items"},
		`any(body.lines, .sku == "A") || cause == "rejected"`:      {"body.lines"},
	} {
		f, err := deadletter.NewFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		paths := f.Paths()
		for _, v := range seen {
			paths.See(v)
		}
		if got := paths.Absent(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

// What is in a hidden body is not known: no field of it is called absent.
func TestAbsentPathsOfHiddenBodies(t *testing.T) {
	t.Parallel()
	rules, err := redact.New(redact.Rules{HideBodies: true})
	if err != nil {
		t.Fatal(err)
	}
	reader := deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
	f, err := deadletter.NewFilter(`body.city == "Graz" && headers["x-tenat"] == "acme"`)
	if err != nil {
		t.Fatal(err)
	}
	paths := f.Paths()
	paths.See(reader.View(deadletter.Message{Delivery: amqp091.Delivery{
		ContentType: "application/json", Body: []byte(`{"city":"Wien"}`),
	}}))
	if got, want := paths.Absent(), []string{`headers["x-tenat"]`}; !slices.Equal(got, want) {
		t.Errorf("absent: %q, want %q", got, want)
	}
}
