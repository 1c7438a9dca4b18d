package deadletter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// retryPrefix begins the headers of the processor.
const retryPrefix = topology.RetryPrefix

// Causes that neither RabbitMQ nor a consumer gives.
const (
	causeUnroutable = "unroutable"
	causeFailed     = "failed"
	causeSkipped    = "skipped"
)

// Read returns what the headers of a message tell, and the body of one that EasyNetQ wrote. queue
// is where the message lies. Read does not redact: a person sees the facts of a [View], and what
// acts on a message reads it with Read.
//
// The work queue is where a consumer failed: according to retry-queue, to the entries rejected
// and delivery_limit of x-death, and to the headers of frameworks. If they name several
// queues, Doubt says so and WorkQueue is empty. A message that no consumer failed on belongs
// to the one queue in which it expired or was dropped.
func Read(d amqp091.Delivery, queue string, known *Known) Facts {
	return read(d, fields(d.Headers), queue, known)
}

func read(d amqp091.Delivery, h fields, queue string, known *Known) Facts {
	r := reading{known: known, facts: Facts{Attempts: -1}, deathAttempts: -1}
	r.own(h, d.Exchange, queue)
	r.deathFacts(h)
	r.consumer(h, d, queue)
	marks := h // of the desk
	if e, ok := easyNetQError(d); ok {
		r.tell(e.told())
		marks = e.headers()
	}
	for _, f := range frameworks() {
		if t, ok := f.read(h); ok {
			t.framework = f.name
			r.tell(t)
		}
	}
	r.finish(d, h)
	r.facts.Run = marks.text(HeaderRun)
	if n, ok := number(marks[HeaderReplays]); ok && n > 0 { // NServiceBus makes a text of it
		r.facts.Replays = int(n)
	}
	if delay, waits := topology.WaitsFor(queue); waits { // elsewhere the header is a publisher's
		if due, ok := number(h[topology.HeaderDelayDue]); ok {
			r.facts.DueAt, r.facts.Exchange, r.facts.Doubt = time.UnixMilli(due).UTC(), delay, ""
		}
	}
	return r.facts
}

// RunOf returns the last run of the desk that sent a message. Empty: none did.
func RunOf(d amqp091.Delivery) string {
	if e, ok := easyNetQError(d); ok {
		return e.headers().text(HeaderRun)
	}
	return fields(d.Headers).text(HeaderRun)
}

// told is what one family of headers tells. What it does not tell is zero.
type told struct {
	framework string
	// queue is where a consumer failed, and by is the header that names it.
	queue, by string
	// doubt says why by names no queue.
	doubt string
	// sentTo reports that exchange and key are all that by names: the queue is one behind them.
	sentTo        bool
	exchange, key string
	addressed     bool
	cause         string
	problem       string
	problemType   string
	stack         string
	job           string
	// attempts counts failed deliveries; 0 is unknown.
	attempts int
	failed   time.Time
}

// reading collects facts. The first value of a field stays.
type reading struct {
	known *Known
	facts Facts
	// candidates are the queues in which a consumer failed, each with the header that says so.
	candidates [][2]string
	// expired are the queues in which the message died without a consumer.
	expired []string
	// published is the queue that a framework has named.
	published string
	doubt     string
	addressed bool
	told      bool
	lastDeath string
	// later are the deaths that are not those in queues of dlxctl. The processor removes them.
	later         []Hop
	deathAttempts int
	// after is set if the message died several times where it died last: it failed last at this time
	// or later. RabbitMQ tells the time of the first death in a queue alone.
	after time.Time
	hops  []Hop
	// past are the failures that the processor has noted.
	past []Hop
}

// candidate notes that a consumer failed in a queue.
func (r *reading) candidate(queue, by string) {
	if queue == "" || slices.ContainsFunc(r.candidates, func(c [2]string) bool { return c[0] == queue }) {
		return
	}
	r.candidates = append(r.candidates, [2]string{queue, by})
}

// times widens the time between the first and the last failure.
func (r *reading) times(first, last time.Time) {
	f := &r.facts
	if !first.IsZero() && (f.FirstFailed.IsZero() || first.Before(f.FirstFailed)) {
		f.FirstFailed = first.UTC()
	}
	if last.After(f.LastFailed) {
		f.LastFailed = last.UTC()
	}
}

// tell takes over what a family of headers tells, unless another one told it before.
func (r *reading) tell(t told) {
	f := &r.facts
	r.told = true
	if t.addressed && !r.addressed {
		r.addressed, f.Exchange, f.Key = true, t.exchange, t.key
	}
	queue := r.behind(&t)
	r.candidate(queue, t.by)
	if t.framework != "" && queue != "" {
		r.published = queue
	}
	r.times(t.failed, t.failed)
	for _, text := range []struct {
		at   *string
		told string
	}{
		{&r.doubt, t.doubt},
		{&f.Framework, t.framework},
		{&f.Cause, t.cause},
		{&f.Job, t.job},
	} {
		if *text.at == "" {
			*text.at = text.told
		}
	}
	if f.Error+f.ErrorType+f.Stack == "" { // they are of one error
		f.Error, f.ErrorType, f.Stack = t.problem, t.problemType, t.stack
	}
	if f.Attempts < 0 && t.attempts > 0 {
		f.Attempts = t.attempts
	}
}

// behind returns the queue that a family of headers names: by its name, or as the only queue
// behind an exchange and a key.
func (r *reading) behind(t *told) string {
	if t.queue != "" || !t.sentTo {
		return t.queue
	}
	if t.exchange == "" {
		return t.key // the default exchange: the key is the name of a queue
	}
	var queues []string
	if r.known != nil && r.known.Route != nil {
		queues = r.known.Route(t.exchange, t.key)
	}
	if len(queues) == 1 && !r.known.isGenerated(queues[0]) { // no consumer of the business fails there
		return queues[0]
	}
	t.doubt = fmt.Sprintf("%s names the exchange %q and the key %q, and no queue", t.by, t.exchange, t.key)
	if len(queues) > 1 {
		t.doubt = fmt.Sprintf("%s names the exchange %q and the key %q, which lead to %d queues: %s",
			t.by, t.exchange, t.key, len(queues), quoted(queues))
	}
	return ""
}

// finish decides what the families together tell.
func (r *reading) finish(d amqp091.Delivery, h fields) {
	f := &r.facts
	f.WorkQueue, f.Doubt = r.origin()
	f.ByFramework = f.WorkQueue != "" && f.WorkQueue == r.published
	if r.lastDeath != "" && f.Cause != causeUnroutable {
		f.Cause = r.lastDeath // RabbitMQ wrote it after the others: the processor removes x-death
	}
	if f.LastFailed.Equal(r.after) { // no framework tells a later time
		f.LastFailed = time.Time{}
	}
	if f.Attempts < 0 {
		// x-delivery-count is no help: in a dead-letter queue it counts who looked.
		f.Attempts = r.deathAttempts
		if b, native := r.known.native(f.WorkQueue); native {
			f.Native, f.Attempts, f.FirstFailed = true, -1, time.Time{}
			if n, ok := number(d.Headers[topology.HeaderDeliveryCount]); ok && f.Cause == string(topology.ReasonDeliveryLimit) {
				f.Attempts = int(min(n, int64(len(b.Tiers))+1))
			}
		}
	}
	if !r.told && !f.FromProcessor {
		at := r.cameBy(h, d.Exchange, d.RoutingKey)
		f.Exchange, f.Key = at.exchange, at.key
	}
	f.Hops = r.timeline()
}

// origin returns the queue in which the message failed, or why it is in doubt.
func (r *reading) origin() (queue, doubt string) {
	switch {
	case len(r.candidates) == 1:
		return r.candidates[0][0], ""
	case len(r.candidates) > 1:
		said := make([]string, len(r.candidates))
		for i, c := range r.candidates {
			said[i] = fmt.Sprintf("in %q according to %s", c[0], c[1])
		}
		return "", "it failed " + strings.Join(said, ", and ")
	case r.doubt != "":
		return "", r.doubt
	}
	slices.Sort(r.expired)
	queues := slices.Compact(r.expired)
	if len(queues) > 1 {
		if i := slices.IndexFunc(queues, r.known.isWork); i >= 0 && !slices.ContainsFunc(queues[i+1:], r.known.isWork) {
			return queues[i], ""
		}
		return "", "x-death names " + quoted(queues) + ", and no consumer failed in any of them"
	}
	if len(queues) == 1 {
		return queues[0], ""
	}
	return "", "no header names the queue in which it failed"
}

// timeline returns the way of the message, the oldest hop first. The processor removes
// x-death, so the hops before are those of its own headers: the history, or where that had to give
// way, the first and the last failure and the tiers between them.
func (r *reading) timeline() []Hop {
	f := r.facts
	if f.WorkQueue != "" && len(r.past) > 0 {
		hops := r.past
		if missing := hops[0].Attempt - 1; missing > 0 {
			hops = append([]Hop{{Queue: f.FirstQueue, Count: int64(missing), Time: f.FirstFailed}}, hops...)
		}
		for i := range hops {
			hops[i].Queue = cmp.Or(hops[i].Queue, f.WorkQueue)
		}
		hops[0].Exchange, hops[0].Keys = f.Exchange, keys(f)
		return append(hops, r.hops...)
	}
	if !f.FromProcessor || f.WorkQueue == "" || f.Attempts < 1 {
		return r.hops
	}
	tiers := r.known.tiers(f.WorkQueue)
	waited := f.Attempts - 1                                          // every failure but the last was followed by a tier
	if f.Attempts == 1 || waited > len(tiers) || f.FirstQueue != "" { // which tiers is not known
		hop := Hop{
			Queue: f.WorkQueue, Reason: f.Cause, Count: int64(f.Attempts), Time: f.FirstFailed, Exchange: f.Exchange,
			Keys: keys(f),
		}
		return append([]Hop{hop}, r.hops...)
	}
	begin := Hop{Queue: f.WorkQueue, Count: 1, Time: f.FirstFailed, Exchange: f.Exchange, Keys: keys(f)}
	hops := []Hop{begin}
	for i := range waited {
		if i > 0 {
			hops = append(hops, Hop{Queue: f.WorkQueue, Count: 1, Assumed: true})
		}
		hops = append(hops, Hop{Queue: tiers[i].Queue, Reason: string(topology.ReasonExpired), Count: 1, Assumed: true})
	}
	end := Hop{Queue: f.WorkQueue, Reason: f.Cause, Count: 1, Time: f.LastFailed}
	return append(append(hops, end), r.hops...)
}

func keys(f Facts) []string {
	if f.Key == "" {
		return nil
	}
	return []string{f.Key}
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ", ")
}

// timestamp reads a time in one of the forms in which frameworks write it. The zero time is
// one that cannot be read.
func timestamp(s string) time.Time {
	if s == "" { // as a rule: each framework is asked
		return time.Time{}
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05:000000 Z", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
