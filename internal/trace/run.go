package trace

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// mostStops limits a journey. A backoff with the most attempts needs 4,000.
const mostStops = 10_000

// Run follows a message.
func Run(in Input) Report {
	t := newTracer(in)
	first := t.router.Publish(in.Exchange, in.Key, in.Headers)
	r := Report{Input: in, ExchangeType: t.exchangeTypes[in.Exchange], Ends: t.ends(first)}
	reached := map[string]bool{}
	for _, queue := range first.Queues {
		j := journey{tracer: t, first: queue}
		j.arrive(first, queue, stopFrom{index: -1, expiration: in.Expiration})
		for len(j.todo) > 0 {
			next := j.todo[0]
			j.todo = j.todo[1:]
			j.leave(next)
		}
		for _, s := range j.stops {
			reached[s.Queue] = true
		}
		r.Journeys = append(r.Journeys, Journey{Queue: queue, Path: first.Path(queue), Stops: j.stops})
	}
	r.Missed = t.missed(reached)
	return r
}

// tracer is an input with indexes of it.
type tracer struct {
	in            Input
	router        *route.Router
	queues        map[string]topology.Queue
	exchangeTypes map[string]string
	roles         map[string]topology.Role
	backoffs      map[string]backoff // by failed queue
	natives       map[string]bool    // the work queues to which a file gives a native backoff
	policies      *policy.Set
}

// backoff is what a processor decides by.
type backoff struct {
	file  topology.Compiled
	rules retry.Rules
}

func newTracer(in Input) *tracer {
	t := &tracer{
		in: in, router: route.New(in.State), queues: map[string]topology.Queue{},
		exchangeTypes: map[string]string{"": topology.Direct}, roles: map[string]topology.Role{},
		backoffs: map[string]backoff{}, natives: map[string]bool{}, policies: policy.All(in.State),
	}
	for _, q := range in.State.Have.Queues {
		t.queues[q.Name] = q
	}
	for _, e := range slices.Concat(topology.BuiltInExchanges(), in.State.Have.Exchanges) {
		t.exchangeTypes[e.Name] = e.Type
	}
	exists := func(queue string) bool { _, ok := t.queues[queue]; return ok }
	for _, c := range in.Files {
		for _, q := range c.Queues {
			t.roles[q.Name] = q.Label.Role
		}
		for _, w := range c.WorkQueues {
			if _, native := c.NativeBackoff(w.Backoff); native {
				t.natives[w.Name] = true
			}
		}
		for _, b := range c.Backoffs {
			t.backoffs[b.FailedQueue] = backoff{c, retry.NewRules(c, b, 0).Including(exists)}
		}
	}
	return t
}

// native returns the backoff that RabbitMQ follows in a queue to which a file gives a native one.
// It reports false for any other queue, and where RabbitMQ follows none: the file is not applied,
// or a policy of another team is in effect.
func (t *tracer) native(queue string) (topology.Backoff, bool) {
	if !t.natives[queue] {
		return topology.Backoff{}, false
	}
	q := t.queues[queue]
	if q.Type() == "" { // it is external in a file, and no other type can have a native backoff
		q.Arguments = q.Arguments.With(topology.ArgQueueType, topology.Quorum)
	}
	return t.policies.Native(q)
}

// ends returns the copies of a result that reach no queue.
func (t *tracer) ends(r route.Result) []End {
	var out []End
	for _, e := range r.Lost {
		why := e.String()
		if e.Cause == route.NoExchange {
			why += topology.Suggestion(e.Exchange, slices.Sorted(maps.Keys(t.exchangeTypes)))
		}
		out = append(out, End{Lost, why})
	}
	for _, e := range r.Stuck {
		out = append(out, End{Stuck, e.String()})
	}
	for _, u := range r.Unknown {
		why := u.Why
		if len(u.May) > 0 {
			why += fmt.Sprintf("; it may reach %s", text.FirstOf(text.Names(u.May), 10))
		}
		out = append(out, End{Unknown, why})
	}
	return out
}

// journey is the way of one copy while it is followed.
type journey struct {
	*tracer
	first  string // the queue that the message was published to
	stops  []Stop
	states []string   // by stop, see state; empty where it was not needed
	todo   []stopFrom // the stops that the message has to leave yet
}

// stopFrom is a stop with what is needed to go on.
type stopFrom struct {
	index   int
	message route.Message
	// expiration is the TTL of the message itself, which the first death removes.
	expiration *time.Duration
}

// arrive adds the stop at a queue that gets the message.
func (j *journey) arrive(r route.Result, queue string, from stopFrom) {
	s := Stop{
		From: from.index, Queue: queue, Role: j.roles[queue], Path: r.Path(queue),
		Exchange: r.Message.Exchange, Headers: r.Message.Headers, Deaths: r.Message.Deaths,
	}
	if len(r.Message.Keys) > 0 {
		s.Key = r.Message.Keys[0]
	}
	if from.index >= 0 {
		s.At = j.stops[from.index].At + j.stops[from.index].Wait
	}
	j.stops, j.states = append(j.stops, s), append(j.states, "")
	j.todo = append(j.todo, stopFrom{len(j.stops) - 1, r.Message, from.expiration})
}

// leave decides what happens to the message at a stop, and adds the stops that follow.
func (j *journey) leave(at stopFrom) {
	s := &j.stops[at.index]
	b, isFailed := j.backoffs[s.Queue]
	switch {
	case len(j.stops) > mostStops:
		j.end(s, Kept, Unknown, fmt.Sprintf("the way has more than %d stops", mostStops))
	case isFailed:
		j.process(at, b)
	case j.isConsumed(s):
		j.deliver(at)
	default:
		j.wait(at)
	}
}

// isConsumed reports whether consumers take the message: from work queues, from queues for which
// the input has failures, from the first queue, and from those that have consumers on the broker.
func (j *journey) isConsumed(s *Stop) bool {
	_, named := j.in.QueueFailures[s.Queue]
	switch {
	case named || s.Role == topology.RoleWork:
		return true
	case s.Role != "":
		return false
	case j.in.Live:
		usage := j.in.State.Usage[s.Queue]
		_, expires := j.ttl(s.Queue, nil)
		return usage.Consumers > 0 || s.Queue == j.first && (usage.ConsumersUnknown || !expires)
	default:
		return s.Queue == j.first
	}
}

func (j *journey) end(s *Stop, event Event, kind EndKind, why string) {
	s.Event = event
	s.Ends = append(s.Ends, End{kind, why})
}

// ttl returns how long a message may stay in a queue: the smaller of the TTL of the queue and its
// own one.
func (j *journey) ttl(queue string, own *time.Duration) (time.Duration, bool) {
	effective := policy.Effective(j.in.State, j.queues[queue])
	ms, limited := effective[topology.ArgMessageTTL].(int64)
	ttl := time.Duration(ms) * time.Millisecond
	if own != nil && (!limited || *own < ttl) {
		return *own, true
	}
	return ttl, limited
}

// deliver lets consumers take the message.
func (j *journey) deliver(at stopFrom) {
	s := &j.stops[at.index]
	failures, own := j.in.QueueFailures[s.Queue]
	if !own {
		failures = j.in.Failures
	}
	s.Delivery = 1
	for i := range j.before(at.index) {
		if j.stops[i].Queue == s.Queue && j.stops[i].Event == Failed {
			s.Delivery++
		}
	}
	native, retries := j.native(s.Queue)
	switch {
	case failures != Always && s.Delivery > failures:
		j.end(s, Acknowledged, Done, "")
	case retries && j.in.Cause != Expired && j.in.Cause != Refused:
		j.requeue(at, native)
	case failures == Always && j.repeats(at.index):
		j.end(s, Failed, Endless, "it comes back the same again and again, and only a consumer can end that")
	case j.in.Cause == Expired:
		j.expire(at)
	case j.in.Cause == Crash:
		j.crash(at)
	default:
		j.die(at, Failed, route.Rejected)
	}
}

// before returns the indexes of the stops on the way to a stop, the last one first.
func (j *journey) before(index int) iter.Seq[int] {
	return func(yield func(int) bool) {
		i := j.stops[index].From
		for i >= 0 && yield(i) {
			i = j.stops[i].From
		}
	}
}

// repeats reports whether the message was in the queue before exactly like this.
func (j *journey) repeats(index int) bool {
	j.states[index] = j.stops[index].state()
	for i := range j.before(index) {
		if j.states[i] == j.states[index] {
			return true
		}
	}
	return false
}

// state describes all of a stop that decides about what follows: everything but the counts of the
// deaths.
func (s *Stop) state() string {
	headers := maps.Clone(s.Headers)
	delete(headers, topology.HeaderDeath)
	deaths := text.Each(s.Deaths, func(d route.Death) string { return fmt.Sprint(d.Queue, d.Reason) })
	return fmt.Sprintf("%q %q %q %v %v", s.Queue, s.Exchange, s.Key, headers, deaths)
}

// expire lets the message expire in a queue whose consumers do not take it.
func (j *journey) expire(at stopFrom) {
	s := &j.stops[at.index]
	ttl, limited := j.ttl(s.Queue, at.expiration)
	if !limited {
		s.Delivery = 0
		j.end(s, Kept, Stays, "neither the message nor the queue has a TTL")
		return
	}
	s.Wait = ttl
	j.die(at, Failed, route.Expired)
}

// requeue lets a consumer requeue the message, or die over it, in a queue whose retries are left to
// RabbitMQ: it delivers the message again after a delay, up to the number of retries.
func (j *journey) requeue(at stopFrom, b topology.Backoff) {
	s := &j.stops[at.index]
	retry := s.Delivery
	if j.in.Cause == Nacked {
		retry = 1
	}
	if retry > len(b.Tiers) {
		j.die(at, Failed, route.DeliveryLimit)
		return
	}
	s.Event, s.Wait = Failed, b.Tiers[retry-1].Delay
	again := *s
	again.From, again.At, again.Path = at.index, s.At+s.Wait, nil
	again.Event, again.Wait = "", 0
	j.stops, j.states = append(j.stops, again), append(j.states, "")
	j.todo = append(j.todo, stopFrom{len(j.stops) - 1, at.message, at.expiration})
}

// crash lets consumers die over the message, until its queue gives up.
func (j *journey) crash(at stopFrom) {
	s := &j.stops[at.index]
	q := j.queues[s.Queue]
	limit, limited := policy.DeliveryLimit(j.in.State, q, policy.Effective(j.in.State, q))
	if !limited || limit >= topology.Unlimited {
		j.end(s, Failed, Endless, "the queue has no delivery limit, and the broker delivers the message again at once")
		return
	}
	s.Returned = int(limit)
	j.die(at, Failed, route.DeliveryLimit)
}

// wait lets the message wait in a queue that nothing consumes.
func (j *journey) wait(at stopFrom) {
	s := &j.stops[at.index]
	ttl, limited := j.ttl(s.Queue, at.expiration)
	delayed, isDelayed := j.delayed(s.Queue)
	deletion, isDeleted := j.deletion(s)
	switch {
	case isDelayed:
		j.end(s, Kept, Unknown, delayed)
	case limited:
		s.Wait = ttl
		j.die(at, Waited, route.Expired)
	case isDeleted:
		j.end(s, Kept, deletion.Kind, deletion.Why)
	case s.Role == topology.RoleDeadLetter, s.Role == topology.RoleParked:
		j.end(s, Kept, DeadLetter, "")
	case s.Role == topology.RoleUnroutable:
		j.end(s, Kept, Unroutable, "")
	case s.Role == topology.RoleFailed, j.isForeignFailed(s.Queue):
		j.end(s, Kept, Unknown, "the processor decides by a topology file that was not given; name it with -f")
	default:
		j.end(s, Kept, Stays, "")
	}
}

// deletion says how a message ends in a queue for dead letters that RabbitMQ deletes with what it
// holds. It reports false for any other queue. A consumer keeps a queue from that, or its end
// brings it about.
func (j *journey) deletion(s *Stop) (End, bool) {
	if s.Role != topology.RoleDeadLetter && s.Role != topology.RoleUnroutable {
		return End{}, false
	}
	q := j.queues[s.Queue]
	for _, l := range policy.Losses(q, policy.Effective(j.in.State, q)) {
		if !l.Deletes() {
			continue
		}
		kind := Lost
		if l.Argument == policy.AutoDelete || j.in.State.Usage[s.Queue].MayBeConsumed() {
			kind = Unknown
		}
		return End{kind, "the queue " + l.String()}, true
	}
	return End{}, false
}

// delayed says what becomes of a message in a queue of a delay that the processor reads. It reports
// false for any other queue.
func (j *journey) delayed(queue string) (why string, is bool) {
	owner, _ := topology.Owner(j.queues[queue].Arguments)
	label, is := topology.DelayOf(owner, queue)
	for _, c := range j.in.Files {
		if d, ok := c.Delay(label.Delay); ok && c.Name == owner {
			return fmt.Sprintf("the processor publishes it to the exchange %s when it is due; trace that exchange", d.To),
				is && label.Role == topology.RoleFailed
		}
	}
	return "the processor publishes it to another exchange when it is due; the topology file says to which",
		is && label.Role == topology.RoleFailed
}

// isForeignFailed reports whether a queue is the failed queue of a topology whose file was not
// given.
func (j *journey) isForeignFailed(queue string) bool {
	owner, ok := topology.Owner(j.queues[queue].Arguments)
	if !ok {
		return false
	}
	_, isFailed := topology.FailedBackoff(owner, queue)
	return isFailed
}

// die lets the message die at a stop, and follows it.
func (j *journey) die(at stopFrom, event Event, reason route.Reason) {
	s := &j.stops[at.index]
	s.Event, s.Reason = event, reason
	to, ok := j.router.DeadLettering(s.Queue)
	s.AtMostOnce = ok && !to.AtLeastOnce
	result := j.router.DeadLetter(s.Queue, at.message, reason)
	if at.expiration != nil && ok {
		result.Message = withExpiration(result.Message, *at.expiration)
	}
	j.follow(at.index, result)
}

// follow adds the stops and ends of a result.
func (j *journey) follow(index int, r route.Result) {
	j.stops[index].Ends = append(j.stops[index].Ends, j.ends(r)...)
	for _, queue := range r.Queues {
		j.arrive(r, queue, stopFrom{index: index})
	}
}

// withExpiration notes the TTL of a message in its newest death, as the broker does when it
// removes the property.
func withExpiration(m route.Message, own time.Duration) route.Message {
	deaths, _ := m.Headers[topology.HeaderDeath].([]any)
	if len(deaths) == 0 {
		return m
	}
	newest, _ := deaths[0].(map[string]any)
	newest = maps.Clone(newest)
	newest["original-expiration"] = fmt.Sprint(own.Milliseconds())
	m.Headers = maps.Clone(m.Headers)
	m.Headers[topology.HeaderDeath] = append([]any{newest}, deaths[1:]...)
	return m
}

// process lets the processor decide about a message in a failed queue.
func (j *journey) process(at stopFrom, b backoff) {
	s := &j.stops[at.index]
	s.Event = Counted
	m := retry.Message{Exchange: s.Exchange, Key: s.Key, Headers: s.Headers}
	now := publishTime().Add(s.At)
	decided := b.rules.Decide(m, now)
	if decided.Outcome == retry.Dropped {
		s.Count = "nothing"
		j.end(s, Counted, Lost, "its time is over, and the file has afterExpiry: drop")
		return
	}
	result := j.router.Publish(decided.Exchange, decided.Key, decided.Headers)
	if len(result.Queues)+len(result.Unknown) == 0 { // it is mandatory: the broker returns it
		why := fmt.Sprintf("the broker returned it: %s", result.Lost[0])
		decided = b.rules.ToUnroutable(m, decided, why, now)
		result = j.router.Publish(decided.Exchange, decided.Key, decided.Headers)
	}
	if len(result.Queues)+len(result.Unknown) == 0 { // the processor does not acknowledge it
		s.Count = "nothing"
		j.end(s, Counted, Stuck, fmt.Sprintf("%s, and the processor tries again without end", result.Lost[0]))
		return
	}
	s.Count = fmt.Sprintf("%s=%v", b.file.CountHeader, decided.Headers[b.file.CountHeader])
	out := b.rules.Knowing(0, func(string) (retry.State, time.Time) { return retry.InOutage, time.Time{} }).Decide(m, now)
	if decided.Outcome == retry.DeadLettered && out.Outcome == retry.Retried {
		s.InOutage = out.Tier.Queue
	}
	if decided.Outcome == retry.Unroutable {
		s.Count = "retry-error=" + topology.FormatValue(decided.Error)
	}
	j.follow(at.index, result)
}

// publishTime is the time of the publish, by which headers with times are shown.
func publishTime() time.Time { return time.Unix(0, 0).UTC() }

// missed returns the queues that the message does not reach, of those that the files have as work
// queues, and of those that some other message to the same exchange could reach.
func (t *tracer) missed(reached map[string]bool) []Missed {
	candidates := map[string]bool{}
	for _, c := range t.in.Files {
		for _, w := range c.WorkQueues {
			if _, exists := t.queues[w.Name]; exists {
				candidates[w.Name] = true
			}
		}
	}
	if t.in.Exchange != "" {
		for _, queue := range t.router.Reachable(t.in.Exchange) {
			candidates[queue] = true
		}
	}
	bindings := map[string][]string{} // of the exchange, by queue
	for _, b := range t.in.State.Have.Bindings {
		if b.Source == t.in.Exchange && b.DestinationType == topology.ToQueue {
			bindings[b.Destination] = append(bindings[b.Destination], b.String())
		}
	}
	var out []Missed
	for _, queue := range slices.Sorted(maps.Keys(candidates)) {
		if !reached[queue] {
			out = append(out, Missed{queue, bindings[queue]})
		}
	}
	return out
}
