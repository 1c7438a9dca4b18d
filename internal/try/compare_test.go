package try

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

const compared = `
backoff: {b: {tiers: [10s, 1m]}}
exchanges: [{name: events}]
queues:
  - {name: billing, backoff: b, deliveryLimit: 2, bindings: [{exchange: events, key: order.placed}]}
  - {name: audit, type: classic, backoff: none, bindings: [{exchange: events, key: "order.#"}]}
`

// asPredicted returns a comparison in which all came as predicted, some milliseconds after its
// time.
func asPredicted(m *message) comparison {
	c := comparison{message: m, published: time.Unix(0, 0), came: map[string][]seen{}, patience: time.Minute}
	for _, j := range m.predicted.Journeys {
		at := c.published
		for _, s := range steps(j) {
			at = at.Add(s.wait() + 7*time.Millisecond)
			headers := amqp091.Table{}
			maps.Copy(headers, s.Headers)
			c.came[s.Queue] = append(c.came[s.Queue], seen{
				at: at, answered: at, exchange: s.Exchange, key: s.Key, headers: headers, answer: m.answer(s.Queue, 1),
			})
		}
	}
	return c
}

// only returns the message of a name for billing.
func only(t *testing.T, name string) *message {
	t.Helper()
	tr := prepared(t, compared, 60)
	for _, m := range tr.messages("4.3.6") {
		if m.name == name && m.queue == "billing" {
			return m
		}
	}
	t.Fatalf("there is no message %q", name)
	return nil
}

func TestWhatCameAsPredictedDoesNotDiffer(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]int{succeeds: 1, failsTwice: 3, crashes: 2, poison: 4} {
		got := asPredicted(only(t, name)).compare()
		if len(got.Differences) > 0 || len(got.Stops) != stops || strings.Join(got.Copies, " ") != "audit" {
			t.Errorf("%s: %d stops, want %d; copies %q, differences %q", name, len(got.Stops), stops, got.Copies,
				got.Differences)
		}
	}
}

// Whatever differs from what is predicted is found, and named.
func TestWhatDiffersIsFound(t *testing.T) {
	t.Parallel()
	last := func(c comparison, queue string) *seen { return &c.came[queue][len(c.came[queue])-1] }
	for want, change := range map[string]func(c *comparison){
		"delivery 3 in billing did not come within 1m": func(c *comparison) {
			c.came["billing"] = c.came["billing"][:2]
		},
		"the message in billing.dead did not come": func(c *comparison) {
			delete(c.came, "billing.dead")
		},
		"delivery 1 in audit did not come": func(c *comparison) {
			delete(c.came, "audit")
		},
		"billing got it once more than predicted": func(c *comparison) {
			c.came["billing"] = append(c.came["billing"], *last(*c, "billing"))
		},
		"audit.dead got it once more than predicted": func(c *comparison) {
			c.came["audit.dead"] = c.came["audit"]
		},
		"shop.unroutable got it once more than predicted": func(c *comparison) {
			c.came["shop.unroutable"] = c.came["audit"]
		},
		"delivery 2 in billing came 100ms after the delivery before, predicted 167ms at the earliest": func(c *comparison) {
			c.came["billing"][1].at = c.came["billing"][0].answered.Add(100 * time.Millisecond)
		},
		"delivery 1 in billing has the exchange elsewhere, predicted events": func(c *comparison) {
			c.came["billing"][0].exchange = "elsewhere"
		},
		"the message in billing.dead has the key other, predicted order.placed": func(c *comparison) {
			last(*c, "billing.dead").key = "other"
		},
		"delivery 2 in billing has the header count=2, predicted 1": func(c *comparison) {
			c.came["billing"][1].headers["count"] = int64(2)
		},
		"delivery 2 in billing has no header retry-queue, predicted billing": func(c *comparison) {
			delete(c.came["billing"][1].headers, "retry-queue")
		},
		"delivery 2 in billing has the header extra=[1], predicted none": func(c *comparison) {
			c.came["billing"][1].headers["extra"] = []any{1}
		},
		"delivery 2 in billing has the header x-death=[], predicted [{count=1": func(c *comparison) {
			c.came["billing"][1].headers["x-death"] = []any{}
		},
		"the publish failed: 312 NO_ROUTE: exchange \"events\" has no queue": func(c *comparison) {
			c.refused = `312 NO_ROUTE: exchange "events" has no queue`
		},
		"delivery 1 in billing has the header a=1, predicted none; has the header b": func(c *comparison) {
			maps.Copy(c.came["billing"][0].headers, map[string]any{"a": 1, "b": 2})
		},
	} {
		c := asPredicted(only(t, poison))
		change(&c)
		got := c.compare()
		if all := strings.Join(got.Differences, "\n"); len(got.Differences) != 1 || !strings.HasPrefix(all, want) {
			t.Errorf("want one difference %q, got:\n%s", want, all)
		}
	}
}

// A busy machine makes messages late. That is shown, and is not a difference. A header with a time
// or a count of deliveries may have any value.
func TestLatenessAndTimesDoNotDiffer(t *testing.T) {
	t.Parallel()
	c := asPredicted(only(t, failsTwice))
	for i := range c.came["billing"] {
		c.came["billing"][i].headers["x-delivery-count"] = int64(5)
		if _, ok := c.came["billing"][i].headers["retry-first-failed-at"]; ok {
			c.came["billing"][i].headers["retry-first-failed-at"] = "any time"
		}
	}
	c.came["billing"][2].at = c.came["billing"][2].at.Add(time.Minute)
	got := c.compare()
	if len(got.Differences) > 0 || got.Stops[1].Late || !got.Stops[2].Late {
		t.Errorf("want only the third delivery to be late: %q, %+v", got.Differences, got.Stops)
	}
}

// Consumers do with each delivery what is predicted of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		succeeds: "acknowledge acknowledge", failsTwice: "reject reject acknowledge acknowledge",
		crashes: "crash crash crash acknowledge", poison: "reject reject reject reject",
	} {
		m := only(t, name)
		var got []string
		for n := range strings.Count(want, " ") + 1 {
			got = append(got, string(m.answer("billing", n+1)))
		}
		if strings.Join(got, " ") != want || m.answer("audit", 1) != amqp.Acknowledge {
			t.Errorf("%s: consumers %q, want %q, and acknowledge copies", name, got, want)
		}
	}
}

// A difference is in the text, in the count and in the JSON, and makes the report differ.
func TestAReportThatDiffers(t *testing.T) {
	t.Parallel()
	c := asPredicted(only(t, poison))
	r := Report{Topology: "shop", Broker: Broker{"4.3.6"}, Speed: 60, Queues: []Queue{{
		Name: "billing", Exchange: "events", Key: "order.placed", Messages: []Message{c.compare()},
	}}}
	if r.count(); !r.AsPredicted {
		t.Fatalf("the report differs: %+v", r)
	}
	delete(c.came, "billing.dead")
	r.Queues[0].Messages[0] = c.compare()
	r.count()
	var text, json bytes.Buffer
	if err := WriteText(&text, r, false, 0); err != nil {
		t.Fatal(err)
	}
	if err := jsondoc.Write(&json, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"billing.dead with count=-1                 -      did not come  -",
		"  DIFFERS  poison: the message in billing.dead did not come within 1m", "NOT as predicted: 1 of 1 message in 1 queue, 0s",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{`"asPredicted": false`, `"measured": null`, `"differing": 1`} {
		if !strings.Contains(json.String(), want) {
			t.Errorf("the JSON lacks %s:\n%s", want, json.String())
		}
	}
	if r.AsPredicted {
		t.Error("the report does not differ")
	}
}
