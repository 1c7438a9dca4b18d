package verify

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// canaryKey is the routing key that canaries have as if a publisher had chosen it.
	canaryKey = "dlxctl.verify"
	// canaryBody tells a person who finds a canary what it is.
	canaryBody = "a canary of 'dlxctl verify'; nothing needs it, and it can be deleted"
	// slack is how much earlier than its time a canary may come: clocks count milliseconds.
	slack = 5 * time.Millisecond
)

// canary is a message that goes through a tier and back.
type canary struct {
	id      string
	row     int // of the report
	backoff topology.Backoff
	tier    topology.Tier
	attempt int
	// processed reports that a processor takes it from the failed queue to its tier.
	processed bool

	exchange string
	message  amqp091.Publishing
	key      string
	// want are the headers with which it must come back.
	want map[string]any

	seq    uint64 // of its publish
	sent   time.Time
	due    time.Time // not before
	giveUp time.Time
	result Result // empty while it is under way
	// refused reports that the broker did not accept it, so it cannot come back.
	refused bool
}

// maker makes the canaries of a backoff.
type maker struct {
	topology topology.Compiled
	backoff  topology.Backoff
	home     string // the queue to which canaries come back
	work     string // a work queue of the backoff
	run      string
}

// make returns two canaries for each attempt, at the moment now: one as it enters the exchange of
// the tiers, and one as it enters the exchange for failed messages. Both claim to be messages of
// the work queue home that failed so many times. What the processor decides about the second is
// what the first one has from the beginning.
//
// None has an expiration. In the failed queue it would make a canary that no processor takes in
// time a dead letter of the work queue by whose address it came there, and where the file has
// afterExpiry, canaries would not wait in longer tiers.
func (m maker) make(now time.Time) (alone, processed []*canary) {
	rules := retry.NewRules(m.topology, m.backoff, 0).Including(func(string) bool { return true })
	reason := topology.ReasonRejected
	if len(m.backoff.RetryOn) > 0 {
		reason = m.backoff.RetryOn[0]
	}
	headers := map[string]any{}
	for i, tier := range m.backoff.Tiers {
		failed := maps.Clone(headers)
		failed[topology.CC] = []any{topology.AddressKey(m.work)} // leads to the failed queue, and the own address nowhere
		failed[topology.HeaderDeath] = m.deaths(i, reason, now)
		d := rules.Decide(retry.Message{
			Key: topology.AddressKey(m.home), Headers: failed,
			Table: func(t map[string]any) any { return amqp091.Table(t) },
		}, now)
		headers = d.Headers
		base := canary{backoff: m.backoff, tier: tier, attempt: i + 1, want: d.Headers}

		a := base
		a.id, a.exchange, a.key = fmt.Sprintf("%s-%s-%d", m.run, m.backoff.Name, i+1), d.Exchange, d.Key
		a.message = publishing(a.id, d.Headers)
		alone = append(alone, &a)

		p := base
		p.id, p.processed = a.id+"-processor", true
		p.exchange, p.key = topology.FailedExchangeName(m.topology.Name), topology.AddressKey(m.home)
		p.message = publishing(p.id, failed)
		processed = append(processed, &p)
	}
	return alone, processed
}

// deaths returns the x-death header of a message whose attempt of this index failed, as the
// broker writes it.
func (m maker) deaths(index int, reason topology.Reason, now time.Time) []any {
	exchange, keys := topology.ReturnExchangeName(m.topology.Name), []any{canaryKey}
	if index > 0 {
		keys = append(keys, topology.AddressKey(m.home))
	}
	list := []any{amqp091.Table{
		"queue": m.home, "reason": string(reason), "exchange": exchange, "routing-keys": keys,
		"count": int64(1), "time": now,
	}}
	if index > 0 {
		list = append(list, amqp091.Table{
			"queue": m.backoff.Tiers[index-1].Queue, "reason": string(topology.ReasonExpired),
			"exchange": m.backoff.RetryExchange, "routing-keys": keys, "count": int64(1), "time": now,
		})
	}
	return list
}

// publishing returns a canary as a message.
func publishing(id string, headers map[string]any) amqp091.Publishing {
	return amqp091.Publishing{
		MessageId: id, AppId: "dlxctl verify", ContentType: "text/plain", DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table(headers), Body: []byte(canaryBody),
	}
}

// start notes when a canary is sent, and until when it is waited for.
func (c *canary) start(now time.Time, patience time.Duration) {
	c.sent = now
	c.due = now.Add(c.tier.Delay)
	c.giveUp = c.due.Add(patience)
	if c.processed {
		c.giveUp = c.giveUp.Add(patience) // it may wait in the failed queue first
	}
}

// judge says what is wrong with a canary that came back at a moment. Names are those of problems.
func (c *canary) judge(d amqp091.Delivery, at time.Time, late time.Duration) (Result, Problem) {
	problem := func(kind, format string, args ...any) Problem {
		return Problem{Name: kind, Backoff: c.backoff.Name, Queue: c.tier.Queue, Text: fmt.Sprintf(format, args...)}
	}
	who := fmt.Sprintf("the canary of attempt %d", c.attempt)
	if c.processed {
		who += ", which a processor put into its tier,"
	}
	from, waited := amqp.LastDeath(d.Headers), at.Sub(c.sent)
	delay := text.Duration(c.tier.Delay)
	switch {
	case from == "": // it came by the exchange of dead letters, or no tier took its count
		return Astray, problem("dead-letter",
			"%s became a dead letter and did not wait in %s: the processor uses another version of the topology file, or the plane changed; restart the processors that read another file",
			who, c.tier.Queue)
	case from != c.tier.Queue:
		return Astray, problem("other-tier", "%s waited in %s and not in %s: the processor uses another version of the topology file, or the plane changed; restart the processors that read another file",
			who, from, c.tier.Queue)
	case waited < c.tier.Delay-slack:
		return Early, problem("early", "%s came back from %s after %s, and not after %s; run 'dlxctl plan' to find what shortens the delay",
			who, c.tier.Queue, text.Duration(waited.Round(10*time.Millisecond)), delay)
	}
	if wrong := c.compare(d); wrong != "" {
		return Headers, problem("headers", "%s came back from %s with %s; check that all processors and the topology file are of one version",
			who, c.tier.Queue, wrong)
	}
	if waited > c.tier.Delay+late {
		return Late, problem("late", "%s came back from %s after %s, and not after %s: other messages held it up, or the broker is busy; run 'dlxctl status'",
			who, c.tier.Queue, text.Duration(waited.Round(10*time.Millisecond)), delay)
	}
	return OK, Problem{}
}

// compare returns the first difference between a canary that came back and what a service relies
// on. It is empty if there is none.
func (c *canary) compare(d amqp091.Delivery) string {
	switch {
	case d.RoutingKey != canaryKey:
		return fmt.Sprintf("the routing key %q in place of %q", d.RoutingKey, canaryKey)
	case string(d.Body) != canaryBody || d.AppId != c.message.AppId || d.ContentType != c.message.ContentType:
		return "another body or other properties"
	}
	for _, name := range slices.Sorted(maps.Keys(c.want)) {
		got, want := d.Headers[name], c.want[name]
		if c.processed && (name == topology.HeaderLastFailedAt || name == topology.HeaderFirstFailedAt && c.attempt == 1) {
			// The processor reads its own clock.
			if s, _ := got.(string); !isTime(s) {
				return fmt.Sprintf("the header %s %v, which is not a time", name, got)
			}
			continue
		}
		if c.processed && name == topology.HeaderHistory {
			got, want = withoutTimes(got), withoutTimes(want)
		}
		if !equal(got, want) {
			return fmt.Sprintf("the header %s %v in place of %v", name, got, want)
		}
	}
	return ""
}

// withoutTimes returns a history without its times, which a processor reads from its own clock.
func withoutTimes(history any) any {
	list, _ := history.([]any)
	return text.Each(list, func(v any) any {
		entry, _ := v.(amqp091.Table)
		entry = maps.Clone(entry)
		delete(entry, topology.HistoryAt)
		return entry
	})
}

// isTime reports whether a header has a time as docs/headers.md describes it.
func isTime(s string) bool {
	at, err := time.Parse(time.RFC3339, s)
	return err == nil && at.Location() == time.UTC
}

// equal compares the values of a header. The broker may change the width of an integer.
func equal(got, want any) bool {
	a, isInteger := topology.Integer(got)
	b, wantsInteger := topology.Integer(want)
	if isInteger && wantsInteger {
		return a == b
	}
	return reflect.DeepEqual(got, want)
}
