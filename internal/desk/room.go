package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// DropsMessages is the hazard of a run that sends messages into a queue which does not keep
	// them.
	DropsMessages = "drops-messages"
	// roomTime is the time between two looks at the policies and the room of the queues to which a
	// run sends, and roomTries how many of them may fail in succession.
	roomTime  = 2 * time.Second
	roomTries = 5
)

// DroppingError is the refusal of messages for queues that would not keep them. It wraps
// ErrRefused.
type DroppingError struct {
	// Queues are the queues, sorted.
	Queues []string
	why    []string
}

// Error says why, with the ways out.
func (d DroppingError) Error() string {
	allow := make([]string, len(d.Queues))
	for i, queue := range d.Queues {
		allow[i] = "--allow " + text.ShellQuote(DropsMessages+"="+queue)
	}
	return fmt.Sprintf("%s; change the policy or the arguments of the queue, or accept the loss with %s",
		strings.Join(d.why, "; "), strings.Join(allow, " "))
}

func (DroppingError) Unwrap() error { return ErrRefused }

// room is what the queues to which a run sends are asked for.
type room struct {
	state topology.State
	way   *route.Router
	// ready returns how many messages a queue has ready at this moment.
	ready func(queue string) (int, error)
	// had is the message-ttl of the queue from which a run took what it returns. The same deletes
	// nothing that would have stayed without the run.
	had map[string]int64
}

// roomOf returns what a state tells, which was read at this moment, and asks for the consumers of
// the queues for which these count.
func (w *worker) roomOf(ctx context.Context, state topology.State, queues []string) *room {
	state = w.desk.Management.AskConsumers(ctx, state, slices.DeleteFunc(slices.Clone(queues), func(queue string) bool {
		at := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
		return at < 0 || !policy.Effective(state, state.Have.Queues[at]).HasAny(topology.ArgExpires)
	}))
	return w.desk.roomIn(state, w.conn.MessagesReady)
}

// roomIn returns what the statistics of a state tell. ready may be nil.
func (d *Desk) roomIn(state topology.State, ready func(string) (int, error)) *room {
	return &room{state: state, way: route.New(state), ready: ready}
}

// refuse refuses queues that would not keep as many messages more as goes says, with so many bytes
// of bodies in all. Queues of allowed may drop them.
func (r *room) refuse(goes map[string]int, bytes int64, allowed []string) error {
	var out DroppingError
	for _, queue := range slices.Sorted(maps.Keys(goes)) {
		if goes[queue] <= 0 || slices.Contains(allowed, queue) {
			continue
		}
		why, err := r.drops(queue, goes[queue], bytes)
		if err != nil {
			return err
		}
		if why != "" {
			out.Queues, out.why = append(out.Queues, queue), append(out.why, why)
		}
	}
	if len(out.Queues) == 0 {
		return nil
	}
	return out
}

// drops says why a queue would not keep so many messages more. Empty: it keeps them, or
// dead-letters what it does not keep. A stream keeps each message for a time.
func (r *room) drops(queue string, more int, bytes int64) (string, error) {
	at := slices.IndexFunc(r.state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
	if at < 0 || r.state.Have.Queues[at].Type() == topology.Stream {
		return "", nil
	}
	q := r.state.Have.Queues[at]
	effective := policy.Effective(r.state, q)
	if expires, set := effective[topology.ArgExpires].(int64); set && !r.state.Usage[queue].MayBeConsumed() {
		return fmt.Sprintf("queue %s has no consumer, and the broker deletes it with all its messages %s after its last use (x-expires)",
			text.Name(queue), text.Millis(expires)), nil
	}
	if r.deadLetters(queue) {
		return "", nil
	}
	if ttl := ttlOf(effective); ttl > 0 && (r.had[queue] == 0 || ttl < r.had[queue]) {
		return fmt.Sprintf("queue %s deletes each message after %s (message-ttl), as its dead letters go to no queue",
			text.Name(queue), text.Millis(ttl)), nil
	}
	return r.full(q, effective, more, bytes)
}

// ttlOf returns the message-ttl of a queue in milliseconds, by the arguments that policy.Effective
// returns. Zero: it has none.
func ttlOf(effective topology.Arguments) int64 {
	ttl, set := effective[topology.ArgMessageTTL].(int64)
	if !set {
		return 0
	}
	return max(1, ttl)
}

// ttlIn is ttlOf for a queue of a virtual host.
func ttlIn(state topology.State, queue string) int64 {
	at := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
	if at < 0 {
		return 0
	}
	return ttlOf(policy.Effective(state, state.Have.Queues[at]))
}

// full says why a queue that drops its oldest messages has no room for so many more.
func (r *room) full(q topology.Queue, effective topology.Arguments, more int, bytes int64) (string, error) {
	most, mostBytes := policy.DropsHead(q, effective)
	if most <= 0 && mostBytes <= 0 {
		return "", nil
	}
	used, err := r.used(q.Name)
	if err != nil {
		return "", err
	}
	usage := r.state.Usage[q.Name]
	switch free := max(0, most-used); {
	case most > 0 && free < int64(more):
		return fmt.Sprintf("queue %s drops its oldest messages above %d (max-length, overflow drop-head), and has room for %d more, not for %d, by statistics of the broker up to 10 seconds old",
			text.Name(q.Name), most, free, more), nil
	case mostBytes > 0 && used > 0 && usage.Bytes == 0:
		return fmt.Sprintf("queue %s drops its oldest messages above %d bytes (max-length-bytes, overflow drop-head), and its size is not known: the statistics of the broker are up to 10 seconds old, do not tell it of messages without bodies, or are off (management_agent.disable_metrics_collector)",
			text.Name(q.Name), mostBytes), nil
	case mostBytes > 0 && mostBytes-usage.Bytes < bytes:
		return fmt.Sprintf("queue %s drops its oldest messages above %d bytes (max-length-bytes, overflow drop-head), and has room for %d more, not for %d",
			text.Name(q.Name), mostBytes, max(0, mostBytes-usage.Bytes), bytes), nil
	}
	return "", nil
}

// used is how many messages a queue has, those included that consumers hold, since these may come
// back.
func (r *room) used(queue string) (int64, error) {
	usage := r.state.Usage[queue]
	used := usage.Ready
	if r.ready != nil {
		ready, err := r.ready(queue)
		if err != nil {
			return 0, err
		}
		used = max(used, int64(ready))
	}
	return used + usage.Unacknowledged, nil
}

// deadLetters reports whether what a queue drops goes to another queue. Where the dead letters keep
// their own keys, it is enough that some key leads to one.
func (r *room) deadLetters(queue string) bool {
	to, ok := r.way.DeadLettering(queue)
	switch {
	case !ok:
		return false
	case to.HasKey:
		result := r.way.DeadLetter(queue, route.Message{Keys: []string{to.Key}}, route.Expired)
		return len(result.Queues)+len(result.Unknown)+len(result.Stuck) > 0
	case to.Exchange == "": // the key of a message is the name of the queue itself, or of none
		return false
	default:
		return slices.ContainsFunc(r.way.Reachable(to.Exchange), func(other string) bool { return other != queue })
	}
}

// overflows says which of the queues would dead-letter messages that do not fit.
func (r *room) overflows(goes map[string]int) (out []string) {
	for _, queue := range slices.Sorted(maps.Keys(goes)) {
		at := slices.IndexFunc(r.state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
		if at < 0 || !r.deadLetters(queue) {
			continue
		}
		q := r.state.Have.Queues[at]
		effective := policy.Effective(r.state, q)
		most, _ := policy.LengthLimits(effective)
		used, _ := r.used(queue) // without a question there is no error
		free := max(0, most-used)
		if most <= 0 || free >= int64(goes[queue]) {
			continue
		}
		room := fmt.Sprintf("above %d, and has room for %d more, not for %d", most, free, goes[queue])
		switch policy.OverflowOf(q, effective) {
		case policy.DropHead:
			out = append(out, fmt.Sprintf("queue %s dead-letters its oldest messages %s: what does not fit fails again",
				text.Name(queue), room))
		case policy.RejectPublishDLX:
			out = append(out, fmt.Sprintf("queue %s dead-letters what it refuses %s: the run stops at the first that does not fit; it, and what is on its way then, are dead letters too",
				text.Name(queue), room))
		}
	}
	return out
}

// refuseDropping refuses to send where messages would be dropped, see room.refuse. A run that parks
// is refused where a policy deletes parked messages. state was read at this moment.
func (w *worker) refuseDropping(
	ctx context.Context, state topology.State, m *manifest, goes map[string]int, bytes int64,
) error {
	r := w.roomOf(ctx, state, slices.Collect(maps.Keys(goes)))
	if m.back {
		r.had = map[string]int64{m.Queue: m.TTL}
	}
	if m.parks() || goes[topology.ParkedName(w.desk.Topology.Name)] > 0 {
		if err := w.desk.refusePolicies(r.state, w.desk.parked()); err != nil {
			return err
		}
		goes = maps.Clone(goes)
		delete(goes, topology.ParkedName(w.desk.Topology.Name)) // it has a TTL by design
	}
	return r.refuse(goes, bytes, slices.Concat(m.Allow, w.desk.Allow))
}

// refuseDroppingNow reads the virtual host for refuseDropping.
func (w *worker) refuseDroppingNow(ctx context.Context, m *manifest, goes map[string]int, bytes int64) error {
	state, err := w.roomNow(ctx, goes)
	if err != nil {
		return err
	}
	return w.refuseDropping(ctx, state, m, goes, bytes)
}

// roomNow reads what refuseDropping looks at. It reads the policies alone for a run that sends to
// no queue in which room counts: it parks, or deletes.
func (w *worker) roomNow(ctx context.Context, goes map[string]int) (topology.State, error) {
	if last := w.desk.last.Load(); len(goes) == 0 && last != nil {
		return w.desk.Management.ReadPolicies(ctx, *last)
	}
	return w.desk.inspect(ctx)
}

// refuseToSend stops the run if a queue to which it sends would drop what is left, or would not get
// it. begun: the run has sent some since it looked last. What was read a moment ago is not read
// again: that takes seconds where there are thousands of queues.
func (x *sender) refuseToSend(ctx context.Context, begun bool) (err error) {
	goes, bytes := x.rest()
	state := *x.worker.desk.last.Load()
	if time.Since(x.read) > roomTime {
		state, err = x.worker.roomNow(ctx, goes)
	}
	if err == nil {
		err = x.worker.refuseDropping(ctx, state, x.manifest, goes, bytes)
	}
	switch {
	case errors.Is(err, ErrRefused):
		return stopped(err.Error())
	case err != nil:
		return err
	}
	if queue := x.router.unbound(state); queue != "" {
		name, also := x.worker.desk.Topology.Name, ""
		if begun {
			also = ", maybe also those sent in the last seconds"
		}
		return stopped(fmt.Sprintf("queue %s is no longer bound to %s, and messages for it go to %s%s; run 'dlxctl apply', then %s",
			text.Name(queue), topology.ReturnExchangeName(name), topology.UnroutableName(name), also, x.again()))
	}
	return nil
}

// keepRoom stops the sending once refuseToSend does. It looks every few seconds: what was sent in
// between is not called back. end ends it.
func (x *sender) keepRoom(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for failed := 0; pause(ctx, roomTime) == nil; {
			why := x.refuseToSend(ctx, true)
			_, stops := errors.AsType[stopped](why)
			switch {
			case why == nil:
				failed = 0
			case stops:
				x.cancel(why)
			default:
				if failed++; failed == roomTries && ctx.Err() == nil {
					x.cancel(fmt.Errorf("read the policies and the room of the targets: %w", why))
				}
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// rest returns how many messages still go to each queue, and how many bytes of bodies are left.
func (x *sender) rest() (map[string]int, int64) {
	x.counting.Lock()
	defer x.counting.Unlock()
	return maps.Clone(x.goes), x.bytes
}

// arrived notes that a message has reached its target: the queues that it went to need room for one
// less.
func (x *sender) arrived(m relay.Move) {
	queue := x.router.queueOf(m)
	x.counting.Lock()
	defer x.counting.Unlock()
	x.bytes = max(0, x.bytes-int64(len(m.Message.Body)))
	for name, n := range x.goes {
		if name == queue || queue == "" {
			x.goes[name] = max(0, n-1)
		}
	}
}
