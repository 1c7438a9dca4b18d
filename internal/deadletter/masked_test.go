package deadletter_test

import (
	"encoding/json"
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
		if shown := fmt.Sprintf("%+v", v); strings.Contains(shown, "Ann Example") || !strings.Contains(
			shown, "no account of [masked]",
		) {
			t.Errorf("the %s is %s", name, shown)
		}
	}
}

// What a consumer says is masked as all texts are: a header that a rule names, kinds of values, and
// values that a rule names in the body.
func TestWhatAConsumerSaysIsMasked(t *testing.T) {
	t.Parallel()
	const name, mail, secret = "Ann Example", "ann@example.org", "Zx81secret"
	rules, err := redact.New(redact.Rules{
		Paths: []string{"body.name", "headers.retry-error-stack"}, Types: []string{"email"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Known: deadletter.Knows(shop()), Redactor: func(string) *redact.Redactor { return rules }}
	m := message(`{"name":"`+name+`"}`, processed(2, "retry-error", "no account of "+name, "retry-error-type", "Of "+mail,
		"retry-error-stack", secret, "retry-history", []any{amqp091.Table{
			"attempt": int64(1), "reason": "rejected", "annotated-type": "Of " + mail,
		}}))
	v := r.View(m)
	if v.Error != "no account of [masked]" || v.ErrorType != "Of [masked]" || v.Stack != "[masked]" {
		t.Errorf("the view has the error %q, type %q and stack %q", v.Error, v.ErrorType, v.Stack)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for where, out := range map[string]string{
		"JSON": string(raw), "show": shown(t, v, 0), "groups": fmt.Sprintf("%+v", grouped(t, "error", v)),
	} {
		for _, hidden := range []string{name, mail, secret} {
			if strings.Contains(out, hidden) {
				t.Errorf("%s has a masked value:\n%s", where, out)
			}
		}
	}
}

// What a consumer said is cut. No half of a value that rules mask is shown at the cut, whatever the
// place: neither of a kind, nor of a value that a rule names in the body.
func TestNoHalfOfAMaskedValueIsShownAtACut(t *testing.T) {
	t.Parallel()
	const name, mail, iban = "Anna Maria Example of Long Street 1", "ann.maria@example.org", "DE89 3704 0044 0532 0130 00"
	rules, err := redact.New(redact.Rules{Paths: []string{"body.name"}, Types: []string{"email", "iban"}})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Known: deadletter.Knows(shop()), Redactor: func(string) *redact.Redactor { return rules }}
	for header, limits := range map[string][]int{
		"retry-error": {1000, 1024}, "retry-error-type": {100}, "retry-error-stack": {8000, 8192},
	} {
		for _, secret := range []string{name, mail, iban} {
			for _, limit := range limits {
				for kept := 3; kept < len(secret); kept++ {
					said := strings.Repeat("text ", limit)[:limit-kept-1] + " " + secret
					said = said[:limit]
					if header == "retry-error-stack" && limit == 8000 { // Python keeps the end
						said = (secret + " " + strings.Repeat("text ", limit))[len(secret)-kept:][:limit]
					}
					v := r.View(message(`{"name":"`+name+`"}`, processed(2, header, said)))
					raw, err := json.Marshal(v)
					if err != nil {
						t.Fatal(err)
					}
					half := secret[:kept]
					if !strings.Contains(said, half) {
						half = secret[len(secret)-kept:]
					}
					if strings.Contains(string(raw), " "+half) || strings.Contains(string(raw), half+" ") || !v.Masked ||
						header != "retry-error-type" && !strings.Contains(string(raw), "text text") {
						t.Fatalf("%s with %d bytes of %q at %d shows\n%s", header, kept, secret, limit, raw)
					}
				}
			}
		}
	}
}

// What is masked cannot be found: by no filter, no group, and in no output. The headers from
// which facts are read are masked too, and a publisher who names another work queue in a header
// does not escape the rules of the queue in which the message lies.
func TestAMaskedValueCannotBeFound(t *testing.T) {
	t.Parallel()
	const secret, mail = "Zx81secret", "ann@example.org"
	rules, err := redact.New(redact.Rules{
		Paths: []string{
			"body.customer.name", "headers.retry-routing-key", "headers.x-exception-message", "headers.token",
			"headers.desk-run",
			"headers.MT-Fault-ExceptionType", "headers.MT-Fault-MessageType",
		},
		Types: []string{"email"},
	})
	if err != nil {
		t.Fatal(err)
	}
	none, err := redact.New(redact.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Known: deadletter.Knows(shop()), Redactor: func(queue string) *redact.Redactor {
		if queue == "billing" {
			return rules
		}
		return none
	}}
	m := message(`{"customer":{"name":"`+secret+`","mail":"`+mail+`"},"list":["`+mail+`"]}`, processed(2,
		"retry-queue", "audit", "retry-routing-key", secret, "x-exception-message", "bad "+secret, "token", []byte(secret),
		"MT-Reason", "fault", "MT-Fault-ExceptionType", secret, "MT-Fault-MessageType", secret, "MT-Fault-Message",
		"of "+mail,
		"desk-run", secret, "desk-replays", int64(1), "CC", []any{mail}, "nested", amqp091.Table{"a": []any{mail}},
		"x-death", []any{died("audit", "rejected", 1, 3, "shop.return", mail)}))
	d := &m.Delivery
	d.Type, d.AppId, d.ReplyTo, d.CorrelationId, d.MessageId, d.UserId = "", mail, mail, mail, mail, mail
	v := r.View(m)
	if v.WorkQueue != "audit" || v.Cause != "rejected" || v.Attempts != 2 {
		t.Errorf("facts %+v", v.Facts)
	}
	outputs := map[string]string{"show": shown(t, v, 0), "head": shown(t, r.Head(m), 0), "value": fmt.Sprintf("%+v", v)}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	outputs["JSON"] = string(raw)
	for _, by := range []string{
		"cause", "error", "queue", "key", "exchange", "type", "header:token", "header:nested", "header:CC", "body.customer",
		`body["list"]`,
	} {
		outputs["groups by "+by] = fmt.Sprintf("%+v", grouped(t, by, v))
	}
	for where, out := range outputs {
		if strings.Contains(out, secret) || strings.Contains(out, mail) {
			t.Errorf("%s has a masked value:\n%s", where, out)
		}
	}
	for _, expression := range []string{
		`body.customer.name == "Zx81secret"`, `any(keys(body.customer), body.customer[#] contains "Zx")`,
		`text contains "Zx81"`,
		`key startsWith "Zx"`, `error contains "Zx81"`, `headers.token matches "Z."`, `run == "Zx81secret"`,
		`type contains "Zx"`,
		`errorType contains "Zx"`, `id contains "ann@"`, `headers.CC contains "ann@example.org"`,
		`"ann@example.org" in body.list`,
		`any(keys(headers), string(headers[#]) contains "Zx81" or string(headers[#]) contains "ann@")`,
		`text contains "ann@"`,
	} {
		f, err := deadletter.NewFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := f.Matches(v); found || err != nil {
			t.Errorf("%s = %t, %v", expression, found, err)
		}
	}
}

// No filter chooses a message because a value of it is masked or hidden: where it asks for one, the
// message is left out, whatever the operator. What is shown is read as before.
func TestAFilterKnowsNothingOfWhatIsMasked(t *testing.T) {
	t.Parallel()
	view := func(rules redact.Rules) deadletter.View {
		r, err := redact.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		reader := deadletter.Reader{Redactor: func(string) *redact.Redactor { return r }}
		return reader.View(message(`{"mail":"ann@example.com","flag":true,"n":1,"tags":["anna-maria","b"],`+
			`"items":[{"sku":"A","card":"4711000011112222"}],"note":"to ann@example.com"}`, processed(1, "token", "t-0815-1")))
	}
	part := view(redact.Rules{Paths: []string{
		"body.mail", "body.flag", "body.tags", "body.items[*].card", "headers.token",
	}})
	hidden := view(redact.Rules{HideBodies: true})
	const yes, no, left = "chosen", "not chosen", "left out"
	for _, tc := range []struct {
		view        deadletter.View
		where, want string
	}{
		{part, `body.mail == "ann@example.com"`, left},
		{part, `body.mail != "bob@example.com"`, left},
		{part, `"bob@example.com" != body.mail`, left},
		{part, `not (body.mail contains "bob")`, left},
		{part, `not (body.mail in ["bob"])`, left},
		{part, `body.mail == headers.token`, left},
		{part, `body.mail matches "."`, left},
		{part, `len(body.mail) > 3`, left},
		{part, `body.flag`, left},
		{part, `not body.flag`, left},
		{part, `not ("x" in body.tags)`, left},
		{part, `not (body.tags contains "x")`, left},
		{part, `body.items != []`, left},
		{part, `none(body.items, .card == "1")`, left},
		{part, `not (body.mail.domain == "x")`, left},
		{part, `not copy`, left},
		{part, `not (size > 100)`, left},
		{part, `body.n == 2 and body.mail != "x"`, no},
		{part, `body.n == 1 or body.mail == "x"`, yes},
		{part, `body.mail != nil and body.nope == nil`, yes},
		{part, `body.mail == "[masked]" and not (body.mail != "[masked]")`, yes},
		{part, `body.note == "to [masked]" and body.note contains "to"`, yes},
		{part, `not (body.note contains "ann@")`, left},
		{part, `not (body.note matches "ann")`, left},
		{part, `not (upper(body.note) contains "ANN@")`, left},
		{part, `not (body.note in ["to ann@example.com"])`, left},
		{part, `body.note != "to ann@example.com"`, left},
		{part, `not (text contains "4711000011112222")`, left},
		{part, `body.note < "z"`, left},
		{part, `body.note contains "bob"`, no},
		{part, `body.note contains "bob" or body.n == 1`, yes},
		{part, `body.n == 1 and none(body.items, body.note startsWith "x")`, left},
		{part, `not (body.note matches "to .masked.")`, no},
		{part, `all(body.items, .sku == "A") and len(body.items) == 1`, yes},
		{part, `"mail" in body and not ("nope" in body)`, yes},
		{hidden, `not (body.n == 2)`, left},
		{hidden, `body.n == nil`, left},
		{hidden, `all(body.items, .sku startsWith "T")`, left},
		{hidden, `none(body.items, .sku == "B")`, left},
		{hidden, `not (text contains "x")`, left},
		{hidden, `headers.token == "t-0815-1" or body.n == 1`, yes},
	} {
		f, err := deadletter.NewFilter(tc.where)
		if err != nil {
			t.Fatal(err)
		}
		got := no
		switch matched, masked, err := f.Match(tc.view); {
		case err != nil:
			t.Error(err)
		case masked:
			got = left
		case matched:
			got = yes
		}
		if got != tc.want {
			t.Errorf("%s: %s; want %s", tc.where, got, tc.want)
		}
	}
}

// Messages whose value is masked or hidden are one group, which is not that of those without one.
func TestGroupsOfMaskedValues(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]redact.Rules{
		"masked": {Paths: []string{"body.customer.email"}}, "hidden": {HideBodies: true},
	} {
		redactor, err := redact.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		r := deadletter.Reader{Redactor: func(string) *redact.Redactor { return redactor }}
		m := message(`{"customer": {"email": "ann@example.org"}}`, amqp091.Table{})
		if got := grouped(t, "body.customer.email", r.View(m))[0].Value; got != redact.Mask {
			t.Errorf("%s: the group is %q", name, got)
		}
	}
}
