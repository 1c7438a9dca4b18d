package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// look is how often a native flight looks whether its canaries are back.
const look = 20 * time.Millisecond

// failing is a way in which a consumer fails a message of a native backoff.
type failing struct {
	consumer string // what it calls
	answer   amqp.Answer
	counted  bool // the broker counts it as a retry
}

// failings returns the ways to fail. Consumers of a work queue with this backoff have the first one
// as a rule: its canary has all retries, the others have one.
func failings() []failing {
	return []failing{
		{"basic.reject, requeue=true", amqp.Requeue, true},
		{"basic.reject, requeue=false", amqp.Reject, false},
		{"basic.nack, requeue=true", amqp.Nack, false},
		{"a closed channel", amqp.Crash, true},
	}
}

// nativeFlight sends canaries through the retries of a native backoff, which RabbitMQ does. No work
// queue can be used for that: its consumers would get them. So a queue of verify has the settings
// that are in effect on a work queue, as arguments, and what it gives up goes by the exchange of
// failures to another queue of verify.
type nativeFlight struct {
	verifier *Verifier
	backoff  topology.Backoff
	// queue delays, and dead receives what queue gives up.
	queue, dead topology.Queue
	bindings    []topology.Binding
	// waits is how many retries are waited for. They come one after the other, and take longest.
	waits    int
	longest  time.Duration
	canaries []*nativeCanary
	rows     []int // of the retries, from the first one, in report.Tiers
	// sending is the canary that the broker has not confirmed. During an alarm it reads the canary
	// later, also after the connection was closed. Nil: it has confirmed all.
	sending *nativeCanary

	// report has what this flight found out; Run adds it to its own.
	report Report
	// mu guards the canaries and the report while the flight lasts: see deliver, died, landed, send.
	mu sync.Mutex
}

// nativeCanary is a message that the consumer of a nativeFlight fails.
type nativeCanary struct {
	id      string
	failing failing
	row     int // in report.Failures
	// came is how often it was delivered, and answered when the consumer failed it last.
	came     int
	answered time.Time
	giveUp   time.Time
	ended    bool
}

// natives returns a flight for each native backoff.
func (v *Verifier) natives(run string) []*nativeFlight {
	var out []*nativeFlight
	for i, b := range v.Topology.Native {
		out = append(out, v.newNativeFlight(b, run, i))
	}
	return out
}

// flyNatives sends the canaries of native backoffs, all at the same time, where they may be sent.
func (v *Verifier) flyNatives(ctx context.Context, state topology.State, all []*nativeFlight) error {
	ready := slices.DeleteFunc(slices.Clone(all), func(f *nativeFlight) bool { return !f.prepare(state) })
	if len(ready) == 0 {
		return nil
	}
	out, err := amqp.Dial(ctx, v.endpoint("sends"))
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := amqp.DialToConsume(ctx, v.endpoint("waits"))
	if err != nil {
		return err
	}
	defer in.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range ready {
		v.Log.InfoContext(ctx, "failing canaries in a queue of verify", "topology", v.Topology.Name,
			"backoff", f.backoff.Name, "canaries", len(f.canaries), "longest_wait", text.Duration(f.longest),
			"queue", f.queue.Name)
		group.Go(func() error { return f.fly(ctx, out, in) })
	}
	return group.Wait()
}

// newNativeFlight returns the flight of a backoff, the n-th of its run. Nothing is sent yet; the
// rows of its report say what is not waited for.
func (v *Verifier) newNativeFlight(b topology.Backoff, run string, n int) *nativeFlight {
	f := &nativeFlight{verifier: v, backoff: b}
	mark := topology.DeskMark(v.Topology.Name)
	own := func(suffix string, args topology.Arguments) topology.Queue {
		args[topology.ArgManagedBy] = mark
		name := topology.VerifyName(v.Topology.Name, fmt.Sprint(run, n, suffix))
		return topology.Queue{Name: name, Durable: true, Arguments: args}
	}
	// Killed, verify leaves its canaries to the first queue, which expires with them, before the
	// second one does.
	f.dead = own("d", topology.Arguments{
		topology.ArgQueueType: topology.Classic, topology.ArgExpires: (2 * expiryMargin).Milliseconds(),
	})
	f.queue = own("", topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgExpires: expiryMargin.Milliseconds(),
	})
	for _, q := range []topology.Queue{f.queue, f.dead} {
		f.bindings = append(f.bindings, topology.Binding{
			Source:      topology.NextExchangeName(topology.FailedExchangeName(v.Topology.Name)),
			Destination: q.Name, DestinationType: topology.ToQueue, Key: topology.AddressKey(q.Name),
			Arguments: topology.Arguments{topology.ArgManagedBy: mark},
		})
	}
	total := time.Duration(0)
	for i, tier := range b.Tiers {
		total += tier.Delay
		if total <= v.MaxWait {
			f.waits, f.longest = i+1, total
		}
		f.addRow(i, tier.Delay)
	}
	for _, way := range failings() {
		c := &nativeCanary{id: fmt.Sprintf("%s-%d-%s", run, n, way.answer), failing: way, row: len(f.report.Failures)}
		shown := Failure{Backoff: b.Name, Consumer: way.consumer, Expected: f.expected(way)}
		switch {
		case way.answer != amqp.Reject && f.waits == 0, way.answer == amqp.Requeue && f.waits < len(b.Tiers):
			shown.Result = NotWaitedFor
		}
		f.report.Failures = append(f.report.Failures, shown)
		if way.answer == amqp.Reject || f.waits > 0 {
			f.canaries = append(f.canaries, c)
		}
	}
	return f
}

// addRow adds the row of a retry. Retries with the same delay share one, but for those that are not
// waited for.
func (f *nativeFlight) addRow(index int, delay time.Duration) {
	last := len(f.report.Tiers) - 1
	if last < 0 || f.report.Tiers[last].Delay != delay || index == f.waits {
		f.report.Tiers = append(f.report.Tiers, Tier{Backoff: f.backoff.Name, Delay: delay})
		last++
	}
	f.rows = append(f.rows, last)
	tier := &f.report.Tiers[last]
	tier.Attempts = append(tier.Attempts, index+1)
	if index >= f.waits {
		note(&tier.Result, NotWaitedFor)
	}
}

// expected says what is to become of a message that a consumer fails in this way.
func (f *nativeFlight) expected(way failing) string {
	first := text.Duration(f.backoff.Tiers[0].Delay)
	switch {
	case way.answer == amqp.Requeue:
		return "a dead letter after " + text.Count(len(f.backoff.Tiers), "retry")
	case way.answer == amqp.Reject:
		return "a dead letter at once"
	case way.counted:
		return "a retry after " + first + ", counted"
	default:
		return "a retry after " + first + ", not counted"
	}
}

// prepare compares the broker with the file, and gives the queue of the canaries the settings of a
// work queue. It reports whether canaries may be sent: not where they could end up elsewhere.
func (f *nativeFlight) prepare(state topology.State) bool {
	if state.Alarm != "" || !f.settings(state) || !f.leadsHome(state) {
		for i := range f.report.Tiers {
			f.report.Tiers[i].Result = NotSent
		}
		for i := range f.report.Failures {
			f.report.Failures[i].Result = NotSent
		}
		return false
	}
	return true
}

// settings adds a problem for each work queue of the backoff of which RabbitMQ does not do the
// retries as the file says, and takes over the settings of the first work queue that exists. It
// reports false if there is none, or if its failures go elsewhere.
func (f *nativeFlight) settings(state topology.State) (usable bool) {
	t := f.verifier.Topology
	if v := state.Version; v != "" && !state.DelaysRetries() {
		f.problem("settings", "", "engine: native is for RabbitMQ %s and later, and this broker is %s; run 'dlxctl plan'", topology.FirstNative, v)
		return false
	}
	policies := policy.All(state)
	taken := false
	for _, w := range t.WorkQueues {
		if w.Backoff != f.backoff.Name {
			continue
		}
		i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == w.Name })
		if i < 0 {
			f.problem("missing-object", w.Name, "the queue %s does not exist; run 'dlxctl apply'", text.Name(w.Name))
			continue
		}
		have := policies.Effective(state.Have.Queues[i])
		wanted := slices.IndexFunc(t.Policies, func(p topology.Policy) bool {
			return p.Name == topology.PolicyName(t.Name, w.Name)
		})
		want := policy.Arguments(t.Policies[wanted].Definition)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if have[name] != want[name] {
				f.problem("settings", w.Name, "%s has %s, and not %v; run 'dlxctl plan'", text.Name(w.Name), setting(name, have),
					topology.FormatValue(want[name]))
				break
			}
		}
		if ttl, limited := have[topology.ArgMessageTTL].(int64); limited && ttl <= f.backoff.Wait().Milliseconds() {
			f.problem("settings", w.Name, "messages of %s expire after %s (message-ttl), and their retries take %s; run 'dlxctl plan'",
				text.Name(w.Name), text.Millis(ttl), text.Duration(f.backoff.Wait()))
		}
		if taken || have[topology.ArgDeadLetterExchange] != want[topology.ArgDeadLetterExchange] {
			continue
		}
		taken = true
		for name := range want {
			if have[name] != nil {
				f.queue.Arguments[name] = have[name]
			}
		}
		f.queue.Arguments[topology.ArgDeadLetterRoutingKey] = topology.AddressKey(f.dead.Name)
		if f.disturbed(policies, w.Name, have) {
			return false
		}
	}
	return taken
}

// disturbed reports whether a policy of another team changes what becomes of canaries in the queue
// of verify, and does not change that of messages in the work queue, which has these settings. Such
// a policy matches both names, and the policy of dlxctl overrides it on the work queue alone.
func (f *nativeFlight) disturbed(policies *policy.Set, work string, settings topology.Arguments) bool {
	effective := policies.Effective(f.queue)
	for _, p := range policies.InEffect(f.queue) {
		for _, key := range slices.Sorted(maps.Keys(p.Definition)) {
			name := "x-" + key
			value := effective[name]
			if key == topology.KeyDelayedRetryType { // the type of a policy counts before that of an argument
				value = p.Definition[key]
			}
			switch key {
			case topology.KeyDelayedRetryType, topology.KeyDelayedRetryMin, topology.KeyDelayedRetryMax,
				topology.KeyDeliveryLimit, "message-ttl", "max-length", "max-length-bytes":
				if value == settings[name] {
					continue
				}
			default:
				continue
			}
			f.problem("harmful-policy", "", "%s (pattern %s) sets %s on the queues of verify, and not on %s: no canary was sent; write a pattern that does not match %s",
				p, text.Name(p.Pattern), key, text.Name(work), topology.VerifyName(f.verifier.Topology.Name, "*"))
			return true
		}
	}
	return false
}

// setting returns a setting of a queue for people.
func setting(name string, have topology.Arguments) string {
	if have[name] == nil {
		return "no " + topology.PolicyKey(name)
	}
	return fmt.Sprintf("%s %v", topology.PolicyKey(name), topology.FormatValue(have[name]))
}

// leadsHome reports whether a canary goes to its queue, from there to the queue for dead letters,
// and nowhere else. If not, it adds a problem.
func (f *nativeFlight) leadsHome(state topology.State) bool {
	state.Have.Queues = append(slices.Clone(state.Have.Queues), f.queue, f.dead)
	state.Have.Bindings = append(slices.Clone(state.Have.Bindings), f.bindings...)
	router := route.New(state)
	enter := router.Publish(topology.FailedExchangeName(f.verifier.Topology.Name), topology.AddressKey(f.queue.Name), nil)
	if !f.only(enter, f.queue.Name, "a failed message") {
		return false
	}
	return f.only(router.DeadLetter(f.queue.Name, enter.Message, route.Rejected), f.dead.Name, "a dead letter")
}

// only reports whether a canary reaches a queue of this flight and no other. If not, it adds a
// problem.
func (f *nativeFlight) only(r route.Result, queue, what string) bool {
	others := unknown(r)
	for _, name := range r.Queues {
		if name != queue {
			others = append(others, text.Name(name))
		}
	}
	switch {
	case !slices.Contains(r.Queues, queue):
		f.problem("route", "", "%s of verify does not reach the queue of verify%s; no canary was sent; run 'dlxctl plan'", what, why(r))
	case len(others) > 0:
		f.problem("copies", "", "%s also goes to %s, so no canary was sent; run 'dlxctl plan', which shows bindings that the file does not have",
			what, text.FirstOf(others, mostNamed))
	default:
		return true
	}
	return false
}

// fly makes the two queues, sends the canaries, fails them and waits for them, and removes the
// queues. out sends, and in does the rest: see flight.
func (f *nativeFlight) fly(ctx context.Context, out, in *amqp.Conn) error {
	for _, q := range []topology.Queue{f.dead, f.queue} {
		if err := in.DeclareQueue(q); err != nil {
			return err
		}
	}
	for _, b := range f.bindings {
		if err := in.Bind(b); err != nil {
			return err
		}
	}
	flying, land := context.WithCancel(ctx)
	defer land()
	group, flying := errgroup.WithContext(flying)
	serve := func(queue string, handle func(amqp091.Delivery) amqp.Answer) {
		group.Go(func() error {
			if err := in.Serve(flying, queue, handle); err != nil {
				return fmt.Errorf("the queue %s of verify: %w; what is left of it goes away within %s", text.Name(queue), err,
					text.Took(2*expiryMargin))
			}
			return nil
		})
	}
	serve(f.queue.Name, f.deliver)
	serve(f.dead.Name, f.died)
	group.Go(func() error { return f.send(flying, out) })
	group.Go(func() error {
		defer land()
		f.wait(flying)
		return nil
	})
	err := group.Wait()
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if err != nil {
		return err
	}
	return f.remove(in)
}

// send publishes the canaries, each once the one before is confirmed.
func (f *nativeFlight) send(ctx context.Context, out *amqp.Conn) error {
	publisher, err := out.Publisher(1) // ends with its connection
	if err != nil {
		return err
	}
	f.mu.Lock()
	for _, c := range f.canaries { // before the first one is sent: after an alarm it is never confirmed
		c.giveUp = time.Now().Add(f.verifier.Patience)
	}
	f.mu.Unlock()
	exchange := topology.FailedExchangeName(f.verifier.Topology.Name)
	for _, c := range f.canaries {
		f.sending = c
		refused, err := publisher.PublishOne(ctx, exchange, topology.AddressKey(f.queue.Name), publishing(c.id, nil))
		switch {
		case ctx.Err() != nil: // all are given up, or verify was interrupted
			return nil //nolint:nilerr // Run looks at ctx
		case err != nil:
			return fmt.Errorf("send a canary to %s: %w", text.Name(f.queue.Name), err)
		}
		f.sending = nil
		if refused != "" {
			f.mu.Lock()
			if !c.ended {
				f.end(c, Missing, 0, "refused", "the broker does not accept a canary for the backoff %s: %s; run 'dlxctl plan' and 'dlxctl status'",
					text.Name(f.backoff.Name), refused)
			}
			f.mu.Unlock()
		}
	}
	return nil
}

// deliver judges a canary that was delivered, and says how its consumer fails it.
func (f *nativeFlight) deliver(d amqp091.Delivery) amqp.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.canary(d)
	if c == nil || c.came > 0 && !f.judge(c, d, time.Since(c.answered)) {
		// Nothing is lost: only canaries have the address of this queue, whose name was drawn at random.
		return amqp.Acknowledge
	}
	c.came++
	c.answered = time.Now()
	c.giveUp = c.answered.Add(f.verifier.Patience)
	if c.failing.answer != amqp.Reject && c.came <= len(f.backoff.Tiers) {
		c.giveUp = c.giveUp.Add(f.delay(c))
	}
	return c.failing.answer
}

// canary returns the canary that a delivery is. Nil: none that is still under way.
func (f *nativeFlight) canary(d amqp091.Delivery) *nativeCanary {
	i := slices.IndexFunc(f.canaries, func(c *nativeCanary) bool { return c.id == d.MessageId && !c.ended })
	if i < 0 {
		return nil
	}
	return f.canaries[i]
}

// who names a canary.
func (f *nativeFlight) who(c *nativeCanary) string {
	return fmt.Sprintf("a canary of the backoff %s (%s)", text.Name(f.backoff.Name), c.failing.consumer)
}

// delay returns for how long RabbitMQ is to withhold a canary that has failed c.came times.
func (f *nativeFlight) delay(c *nativeCanary) time.Duration {
	if c.failing.answer == amqp.Requeue {
		return f.backoff.Tiers[c.came-1].Delay
	}
	return f.backoff.Tiers[0].Delay
}

// judge notes a retry of a canary. It reports whether the consumer fails the canary again.
func (f *nativeFlight) judge(c *nativeCanary, d amqp091.Delivery, waited time.Duration) bool {
	if c.failing.answer == amqp.Requeue && c.came > len(f.backoff.Tiers) || c.failing.answer == amqp.Reject {
		f.end(c, Astray, waited, "more-retries", "%s came back, and is to be %s: the delivery limit is not that of the file; run 'dlxctl plan'",
			f.who(c), f.expected(c.failing))
		return false
	}
	delay := f.delay(c)
	count, _ := topology.Integer(d.Headers[topology.HeaderDeliveryCount])
	want := int64(0)
	if c.failing.counted {
		want = int64(c.came)
	}
	result := OK
	problem := func(r Result, name, format string, args ...any) {
		result = r
		f.problem(name, "", format+"; run 'dlxctl plan'", args...)
	}
	took := text.Duration(waited.Round(10 * time.Millisecond))
	switch {
	case waited < delay-slack:
		problem(Early, "early", "%s came back after %s, and not after %s: RabbitMQ does not delay it as the file says",
			f.who(c), took, text.Duration(delay))
	case count != want:
		problem(Headers, "headers", "%s came back with the header %s %d in place of %d",
			f.who(c), topology.HeaderDeliveryCount, count, want)
	case waited > delay+f.verifier.Late:
		problem(Late, "late", "%s came back after %s, and not after %s: the broker is busy",
			f.who(c), took, text.Duration(delay))
	}
	if c.failing.answer != amqp.Requeue {
		f.end(c, result, waited, "", "")
		return false
	}
	worst(&f.report.Tiers[f.rows[c.came-1]].Result, &f.report.Tiers[f.rows[c.came-1]].Waited, result, waited)
	if c.came == f.waits && f.waits < len(f.backoff.Tiers) { // the next retry is not waited for
		f.end(c, NotWaitedFor, 0, "", "")
		return false
	}
	return true
}

// died judges a canary that has become a dead letter. The queue for dead letters needs it no more.
func (f *nativeFlight) died(d amqp091.Delivery) amqp.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.canary(d)
	if c == nil {
		return amqp.Acknowledge // as in deliver
	}
	waited := time.Since(c.answered)
	switch {
	case c.failing.answer == amqp.Requeue && c.came <= len(f.backoff.Tiers):
		f.end(c, Astray, waited, "dead-letter", "%s became a dead letter after %d of %s; run 'dlxctl plan'",
			f.who(c), c.came-1, text.Count(len(f.backoff.Tiers), "retry"))
	case c.failing.answer != amqp.Requeue && c.failing.answer != amqp.Reject:
		f.end(c, Astray, waited, "dead-letter", "%s became a dead letter, and not a retry; run 'dlxctl plan'",
			f.who(c))
	case waited > f.verifier.Late:
		f.end(c, Late, waited, "late", "%s became a dead letter %s after its last failure: the broker is busy; run 'dlxctl status'",
			f.who(c), text.Duration(waited.Round(10*time.Millisecond)))
	default:
		f.end(c, OK, waited, "", "")
	}
	return amqp.Acknowledge // as in deliver
}

// wait waits until all canaries have ended, and ends those whose time is over.
func (f *nativeFlight) wait(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if f.landed(time.Now()) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// landed gives up the canaries whose time is over, and reports whether all have ended.
func (f *nativeFlight) landed(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := true
	for _, c := range f.canaries {
		switch {
		case c.ended:
		case !c.giveUp.IsZero() && now.After(c.giveUp): // zero: send has not begun
			f.end(c, Missing, 0, "missing", "%s was delivered %s and is not %s; run 'dlxctl status' and 'dlxctl plan'",
				f.who(c), text.Count(c.came, "time"), f.expected(c.failing))
		default:
			all = false
		}
	}
	return all
}

// end notes what became of a canary. Without a name there is no problem.
func (f *nativeFlight) end(c *nativeCanary, r Result, waited time.Duration, name, format string, args ...any) {
	c.ended = true
	shown := &f.report.Failures[c.row]
	worst(&shown.Result, &shown.Waited, r, waited)
	if c.failing.answer == amqp.Requeue && c.came <= f.waits && r.worse(OK) { // no more retries of it come
		for _, row := range slices.Compact(slices.Clone(f.rows[max(c.came, 1)-1 : f.waits])) {
			worst(&f.report.Tiers[row].Result, &f.report.Tiers[row].Waited, r, waited)
		}
	}
	if name != "" {
		f.problem(name, "", format, args...)
	}
}

// problem adds a problem of the backoff.
func (f *nativeFlight) problem(name, queue, format string, args ...any) {
	f.report.add(Problem{Name: name, Backoff: f.backoff.Name, Queue: queue, Text: fmt.Sprintf(format, args...)})
}

// remove deletes both queues. Nothing is lost: they have nothing but canaries, and one that comes
// later has no use any more.
func (f *nativeFlight) remove(in *amqp.Conn) error {
	if f.sending != nil && f.sending.came == 0 { // without its queue, the canary would go to the unroutable queue
		f.report.Left = fmt.Sprintf(
			"the broker may still take a canary: the queue %s receives it, and the broker deletes the queues of verify after %s",
			text.Name(f.queue.Name), text.Took(2*expiryMargin))
		return nil
	}
	var failed []error
	for _, q := range []topology.Queue{f.queue, f.dead} { // the second one is there for what the first one gives up
		if err := in.DeleteQueue(q.Name, amqp.Conditions{}); err != nil {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		f.report.Left = fmt.Sprintf("queues of verify are left, and the broker deletes them after %s: %v", text.Took(2*expiryMargin), err)
	}
	return nil
}
