package deadletter_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// easyNetQ returns an error as EasyNetQ 8 writes it.
func easyNetQ(message string, properties string) deadletter.Message {
	text, _ := json.Marshal(message)
	body := fmt.Sprintf(`{"RoutingKey":"order.placed","Exchange":"events","Queue":"billing",`+
		`"Exception":"Shop.NoAccount: no account of ann@example.com\n   at Shop.Handle()",`+
		`"Message":%s,"DateTime":"2026-11-22T09:00:01.5Z","BasicProperties":%s}`, text, properties)
	return deadletter.Message{Queue: "EasyNetQ_Default_Error_Queue", Delivery: amqp091.Delivery{
		Type: "EasyNetQ.SystemMessages.Error, EasyNetQ", DeliveryMode: 2, Body: []byte(body), RoutingKey: "order.placed",
		Headers: amqp091.Table{"carrier": "x"},
	}}
}

// What an error of EasyNetQ tells is in its body, and so is the message that failed.
func TestEasyNetQ(t *testing.T) {
	t.Parallel()
	std := base64.StdEncoding.EncodeToString
	properties := `{"ContentType":"application/json","DeliveryMode":2,"Priority":3,"CorrelationId":"c-1",` +
		`"ReplyTo":"r",` +
		`"Expiration":"1.02:03:04.5","MessageId":"m-1","Timestamp":1795338001,"Type":"Shop.Order, Shop",` +
		`"UserId":"ann",` +
		`"AppId":"shop","Headers":{"tenant":{"Type":14,"Value":"` + std([]byte("acme")) + `"},` +
		`"count":{"Type":6,"Value":2},"on":{"Type":2,"Value":true},"none":{"Type":1,"Value":null},` +
		`"text":{"Type":13,"Value":"abcd"},"big":{"Type":8,"Value":9007199254740993},"raw":{"Type":17,"Value":"AAE="},` +
		`"at":{"Type":12,"Value":1795338001},"list":{"Type":15,"Value":[{"Type":5,"Value":7}]},` +
		`"table":{"Type":16,"Value":{"a":{"Type":10,"Value":1.5}}},"desk-replays":{"Type":8,"Value":1}}}`
	want := amqp091.Delivery{
		ContentType: "application/json", DeliveryMode: 2, Priority: 3, CorrelationId: "c-1", ReplyTo: "r",
		Expiration: "93784500", MessageId: "m-1", Timestamp: time.Unix(1795338001, 0), Type: "Shop.Order, Shop",
		UserId: "ann", AppId: "shop", Exchange: "events", RoutingKey: "order.placed", Body: []byte(`{"n":1}`),
		Headers: amqp091.Table{
			"tenant": "acme", "count": int32(2), "on": true, "none": nil, "text": "abcd", "big": int64(9007199254740993),
			"raw": []byte{0, 1}, "at": time.Unix(1795338001, 0), "list": []any{int16(7)},
			"table": amqp091.Table{"a": 1.5}, "desk-replays": int64(1),
		},
	}
	m := easyNetQ(`{"n":1}`, properties)
	got, err := deadletter.Original(m.Delivery)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("the message, %v (-want +got):\n%s", err, d)
	}
	facts := deadletter.Read(m.Delivery, m.Queue, nil)
	failed := time.Date(2026, 11, 22, 9, 0, 1, 500_000_000, time.UTC)
	if d := cmp.Diff(deadletter.Facts{
		Framework: "EasyNetQ", Cause: "failed", ErrorType: "Shop.NoAccount", Error: "no account of ann@example.com",
		Stack: "Shop.NoAccount: no account of ann@example.com\n   at Shop.Handle()", Job: "Shop.Order", Attempts: -1,
		WorkQueue: "billing", ByFramework: true, Exchange: "events", Key: "order.placed", FirstFailed: failed,
		LastFailed: failed, Replays: 1,
	}, facts); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
	v := (&deadletter.Reader{}).View(m)
	if v.Body.Inside != "Message" || v.Body.Text != "{\n  \"n\": 1\n}" || v.Body.Envelope["Queue"] != "billing" {
		t.Errorf("the body is shown as %+v", v.Body)
	}
}

// The body is a text, or base64 if EasyNetQ is configured so. Bytes that EasyNetQ has read as text
// are lost, and such a message is refused. Other messages are themselves.
func TestTheBodyInAnErrorOfEasyNetQ(t *testing.T) {
	t.Parallel()
	protobuf := "\n\x05A-111\xff"
	for name, tc := range map[string]struct{ message, properties, want, err string }{
		"JSON":                {`{"n":1}`, `{}`, `{"n":1}`, ""},
		"a number":            {`1234`, `{}`, `1234`, ""},
		"text":                {"not base64", `{}`, "not base64", ""},
		"base64":              {base64.StdEncoding.EncodeToString([]byte(protobuf)), `{}`, protobuf, ""},
		"damaged":             {"\n\x05A-111\uFFFD", `{}`, "", "Base64ErrorMessageSerializer"},
		"a type of header":    {`{}`, `{"Headers":{"a":{"Type":11,"Value":1.5}}}`, "", "cannot restore the type 11"},
		"older headers":       {`{}`, `{"Headers":{"a":"YWNtZQ==","n":1,"x":null,"l":["YWNtZQ=="],"b":true,"f":1.5}}`, `{}`, ""},
		"headers of Newton":   {`{}`, `{"Headers":{"a":{"$type":"System.Byte[], x","$value":"YWNtZQ=="}}}`, `{}`, ""},
		"an expiration in ms": {`{}`, `{"Expiration":"10000"}`, `{}`, ""},
		"no expiration":       {`{}`, `{"Expiration":"soon"}`, "", "Expiration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := easyNetQ(tc.message, tc.properties)
			got, err := deadletter.Original(m.Delivery)
			switch {
			case tc.err != "" && (!errors.Is(err, deadletter.ErrDamaged) || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			case tc.err == "" && (err != nil || string(got.Body) != tc.want):
				t.Errorf("%q, %v, want %q", got.Body, err, tc.want)
			case tc.err == "" && strings.Contains(tc.properties, `"a"`) && got.Headers["a"] != "acme":
				t.Errorf("headers %v", got.Headers)
			}
			m.Delivery.Type = "EasyNetQ.SystemMessages.ErrorReport"
			if same, err := deadletter.Original(m.Delivery); err != nil || string(same.Body) != string(m.Delivery.Body) {
				t.Errorf("a message of another type became %s, %v", same.Body, err)
			}
		})
	}
}

// What is masked is nowhere in an error of EasyNetQ: neither in the message, nor in the envelope,
// nor in what the envelope tells. A rule may name a value from the envelope, or from the message.
func TestAnErrorOfEasyNetQIsMasked(t *testing.T) {
	t.Parallel()
	const mail = "ann@example.com"
	header := base64.StdEncoding.EncodeToString([]byte("for " + mail))
	properties := `{"CorrelationId":"` + mail + `","Headers":{"who":{"Type":14,"Value":"` + header + `"}}}`
	for _, message := range []string{`{"customer":{"email":"` + mail + `"},"n":1}`, "of " + mail, "\x00" + mail} {
		for name, rules := range map[string]redact.Rules{
			"kind":                  {Types: []string{"email"}},
			"path in the message":   {Paths: []string{"body.customer.email"}},
			"path of the envelope":  {Paths: []string{"body.Message.customer.email"}},
			"message":               {Paths: []string{"body.Message", "body.Exception"}},
			"bodies":                {HideBodies: true},
			"exception and message": {Paths: []string{"body.Exception", "body.customer"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rules, err := redact.New(rules)
				if err != nil {
					t.Fatal(err)
				}
				r := deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
				m := easyNetQ(message, properties)
				v, head := r.View(m), r.Head(m)
				all := fmt.Sprintf("%+v %+v", v, head) + shown(t, v, 0)
				if strings.Contains(all, mail) || strings.Contains(all, header) {
					t.Errorf("a masked value is shown:\n%s", all)
				}
				if v.WorkQueue != "billing" || v.Cause != "failed" {
					t.Errorf("facts %+v", v.Facts)
				}
			})
		}
	}
}
