package desk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// argRun is the argument of a hold that describes its run, so that runs can be listed without
// consuming from their holds. The broker ignores it.
const argRun = "x-desk-run"

// parkedTime is how long parked messages stay.
const parkedTime = 30 * 24 * time.Hour

// described is the value of argRun.
type described struct {
	summary
	// Records is how many messages of the hold are the list.
	Records int
}

// keeper returns the arguments of a queue of the desk: no message leaves it by itself.
func (d *Desk) keeper() topology.Arguments {
	return topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited,
		topology.ArgOverflow: topology.RejectPublish, topology.ArgManagedBy: topology.DeskMark(d.Topology.Name),
	}
}

// mark returns the arguments of the bindings and exchanges of the desk. Without the mark,
// apply --prune would delete a binding, and a migration would copy it.
func (d *Desk) mark() topology.Arguments {
	return topology.Arguments{topology.ArgManagedBy: topology.DeskMark(d.Topology.Name)}
}

func (d *Desk) holdOf(m *manifest) (topology.Queue, error) {
	value, err := json.Marshal(described{m.summary, m.records()})
	if err != nil {
		return topology.Queue{}, err
	}
	return topology.Queue{
		Name: topology.HoldName(d.Topology.Name, m.Run), Durable: true,
		Arguments: d.keeper().With(argRun, string(value)),
	}, nil
}

func (d *Desk) parked() topology.Queue {
	return topology.Queue{
		Name: topology.ParkedName(d.Topology.Name), Durable: true,
		Arguments: d.keeper().With(topology.ArgMessageTTL, parkedTime.Milliseconds()),
	}
}

// takeExchangePrefix is how the names of the exchanges begin through which a run takes messages
// into its hold. Their type is fanout: they route by neither key nor CC, so a message keeps its key
// and reaches the hold alone. One exists as long as the run takes. Each process has its own, see
// awaitInFlight.
func takeExchangePrefix(topologyName, run string) string {
	return topology.HoldName(topologyName, run) + ".in."
}

// directExchange names the exchange through which a run sends messages to one queue alone, whatever
// their key and CC say. It exists until the run ends.
func directExchange(topologyName, run, queue string) string {
	return topology.HoldName(topologyName, run) + directInfix + queueHash(queue)
}

const directInfix = ".to."

// queueHash stands for a queue in the names of exchanges: it is shorter than most names.
func queueHash(queue string) string {
	lock := topology.DeskLockName("", queue)
	return lock[strings.LastIndexByte(lock, '.')+1:]
}

// openHold creates the hold of a run, and writes the manifest into it. Nothing is taken before
// the broker has confirmed all of it.
func (w *worker) openHold(ctx context.Context, m *manifest) error {
	hold, err := w.desk.holdOf(m)
	if err != nil {
		return err
	}
	if err := w.createHold(ctx, m, hold); err != nil {
		// Both have just been created, and no message was published to them: nothing can be lost.
		return unbegun{errors.Join(err, w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{}),
			w.conn.DeleteQueue(hold.Name, amqp.Conditions{}))}
	}
	if _, err := w.openParked(ctx, m); err != nil {
		return err
	}
	w.opened = time.Now()
	messages, err := m.messages()
	if err != nil {
		return err
	}
	return w.note(ctx, "", messages...)
}

// createHold creates the hold of a run and the exchange through which this process takes, unless
// the run must not begin. The exchange is first: a hold without one is that of a run that has taken
// all, also if this process dies between the two.
func (w *worker) createHold(ctx context.Context, m *manifest, hold topology.Queue) error {
	w.nameIntake()
	if err := w.declareFanout(ctx, w.takeExchange); err != nil {
		return err
	}
	if err := w.conn.DeclareQueue(hold); err != nil {
		return fmt.Errorf("create the hold %s: %w", hold.Name, err)
	}
	if err := w.bindFanout(w.takeExchange, hold.Name); err != nil {
		return err
	}
	filled := []topology.Queue{hold}
	if m.parks() {
		filled = append(filled, w.desk.parked())
	}
	// It has to be read again, although Execute has just done it: the desk of another topology has
	// locks of its own. Of two that begin at the same time, one finds the hold of the other.
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(w.desk.refusePolicies(state, filled...), w.refuseUnfinished(state, m.Queue))
}

// waitUntilDurable waits until the queues of the run survive a crash of their node.
func (w *worker) waitUntilDurable(ctx context.Context) error {
	if w.opened.IsZero() { // by another process
		return pause(ctx, amqp.SafeAge)
	}
	return pause(ctx, amqp.SafeAge-time.Since(w.opened))
}

// parks reports whether the run puts messages into the queue of parked ones.
func (m *manifest) parks() bool {
	return !m.back && m.Action.Kind().parkedAs != "" && !m.deletes()
}

// deletes reports whether the run deletes messages, as a person has asked for.
func (m *manifest) deletes() bool { return !m.back && m.Action.Kind().deletes(m.Forever) }

// refusePolicies refuses queues of the desk whose messages a policy of another team would delete,
// drop or move.
func (d *Desk) refusePolicies(state topology.State, queues ...topology.Queue) error {
	for _, q := range queues {
		if harm := plan.DeskHarm(d.Topology.Name, state, q); harm != "" {
			return refusef("%s", harm)
		}
	}
	return nil
}

// refuseHarm refuses to put more messages into queues of a run whose messages a policy would
// delete, drop or move that was set since the run began: into the parked ones, and into the hold if
// it takes.
func (w *worker) refuseHarm(state topology.State, m *manifest, takes bool) error {
	var filled []topology.Queue
	if takes {
		hold, err := w.desk.holdOf(m)
		if err != nil {
			return err
		}
		filled = append(filled, hold)
	}
	if m.parks() {
		filled = append(filled, w.desk.parked())
	}
	return w.desk.refusePolicies(state, filled...)
}

// refuseUnfinished refuses a queue from which another run has not taken all, or to which one has
// not given back all: what a process was moving when it died is in the hold and in the queue too
// until that run is continued, and would be taken twice. This process has the lock of the queue: no
// other takes or begins to give back.
func (w *worker) refuseUnfinished(state topology.State, queue string) error {
	for _, name := range deskNames(state) {
		if err := w.refuseUnfinishedOf(name, state, queue); err != nil {
			return err
		}
	}
	return nil
}

// deskNames names the topologies of which a desk has a hold, sorted.
func deskNames(state topology.State) []string {
	names := map[string]bool{}
	for _, q := range state.Have.Queues {
		if _, isHold := q.Arguments[argRun]; isHold {
			owner, _ := topology.Owner(q.Arguments)
			names[survey.DeskOwner(owner)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// refuseUnfinishedOf is refuseUnfinished for the runs of a topology.
func (w *worker) refuseUnfinishedOf(name string, state topology.State, queue string) error {
	for _, r := range RunsOf(name, state, time.Time{}) {
		if r.Queue != queue || r.ID == w.run {
			continue
		}
		back := stepExchange(name, r.ID, recordReturning)
		of := ""
		if name != w.desk.Topology.Name {
			of = " --name " + text.ShellQuote(name)
		}
		switch {
		case slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == back }):
			return refusef("the run %s has begun to give messages back to %s, and some may be in its hold too; end it first with 'dlxctl desk run return %s%s'",
				r.ID, text.Name(queue), r.ID, of)
		case hasIntake(state, name, r.ID):
			return refusef("the run %s has not taken all of its messages from %s, and some may be in its hold too; continue it first with 'dlxctl desk run resume %s%s', or end it with 'dlxctl desk run return %s%s'",
				r.ID, text.Name(queue), r.ID, of, r.ID, of)
		}
	}
	return nil
}

// openIntake creates the exchange through which this process takes.
func (w *worker) openIntake(ctx context.Context) error {
	w.nameIntake()
	return w.fanout(ctx, w.takeExchange, topology.HoldName(w.desk.Topology.Name, w.run))
}

// nameIntake names the exchange through which this process takes.
func (w *worker) nameIntake() {
	w.takeExchange = takeExchangePrefix(w.desk.Topology.Name, w.run) + strings.ToLower(rand.Text()[:6])
}

const (
	// inFlightTime is how long the number of messages in a hold must not change once nothing is
	// routed to it any more.
	inFlightTime = 500 * time.Millisecond
	// inFlightPause is the pause between two questions for it.
	inFlightPause = 50 * time.Millisecond
)

// awaitInFlight makes sure that nothing that a dead process has published still comes into the
// hold: the broker handles what it has received from a connection also after that has ended. A hold
// that grew after it was counted would get those messages twice. So the exchanges of earlier
// processes go, and what they have routed is waited for. A new one exists before they go, also if
// the run goes back: a run that has none has taken all, and lets others take from its queue.
func (w *worker) awaitInFlight(ctx context.Context) error {
	name := w.desk.Topology.Name
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	var earlier []string
	for _, e := range state.Have.Exchanges {
		if strings.HasPrefix(e.Name, takeExchangePrefix(name, w.run)) {
			earlier = append(earlier, e.Name)
		}
	}
	if len(earlier) > 0 {
		if err := ignore(w.openIntake(ctx), broker.ErrNotFound); err != nil {
			return err
		}
	}
	for _, exchange := range earlier {
		if err := w.conn.DeleteExchange(exchange, amqp.Conditions{}); err != nil {
			return err
		}
	}
	last, since := -1, time.Now()
	for len(earlier) > 0 && time.Since(since) < inFlightTime {
		ready, err := w.conn.MessagesReady(topology.HoldName(name, w.run))
		if errors.Is(err, broker.ErrNotFound) { // there is no hold: nothing was routed
			return w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{})
		}
		if err != nil {
			return err
		}
		if ready != last {
			last, since = ready, time.Now()
		}
		if err := pause(ctx, inFlightPause); err != nil {
			return err
		}
	}
	return nil
}

// fanout creates an exchange that routes to one queue alone.
func (w *worker) fanout(ctx context.Context, exchange, queue string) error {
	if err := w.declareFanout(ctx, exchange); err != nil {
		return err
	}
	return w.bindFanout(exchange, queue)
}

// declareFanout creates the exchange of fanout. It is its own alternate exchange, which overrides
// one that a policy names: a message comes back when the queue is gone, and goes nowhere else
// (3.10.8, 4.0.5 and 4.3.6, measured).
func (w *worker) declareFanout(ctx context.Context, exchange string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	err := w.conn.DeclareExchange(topology.Exchange{
		Name: exchange, Type: topology.Fanout, Durable: true,
		Arguments: w.desk.mark().With(topology.ArgAlternateExchange, exchange),
	})
	if err != nil {
		return fmt.Errorf("create the exchange %s: %w", exchange, err)
	}
	return nil
}

// bindFanout makes an exchange route to a queue.
func (w *worker) bindFanout(exchange, queue string) error {
	err := w.conn.Bind(topology.Binding{
		Source: exchange, Destination: queue, DestinationType: topology.ToQueue, Arguments: w.desk.mark(),
	})
	if err != nil {
		return fmt.Errorf("bind the queue %s to %s: %w", text.Name(queue), exchange, err)
	}
	return nil
}

// note writes messages into the hold, and waits for their confirms. through is an exchange that
// routes to the hold: the default one, or that through which this process takes.
func (w *worker) note(ctx context.Context, through string, messages ...amqp091.Publishing) error {
	hold := topology.HoldName(w.desk.Topology.Name, w.run)
	conn, err := amqp.Dial(ctx, w.desk.endpoint("writes "+w.run))
	if err != nil {
		return err
	}
	defer conn.Close()
	out, err := newOutlet(conn, len(messages))
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := out.publish(ctx, through, hold, m); err != nil {
			return fmt.Errorf("write to the hold %s: %w", hold, err)
		}
	}
	return nil
}

// stepExchange names the exchange that says that a run has come to a step, of which kind is the
// record.
func stepExchange(topologyName, run, kind string) string {
	return topology.HoldName(topologyName, run) + ".is." + kind
}

// noteStep notes that the run has come to a step: in the hold, and by an exchange, as a message-ttl
// of another team can delete the record in the hold, and no policy deletes an exchange. A process
// that did not know the step would take messages again that were sent, or count those that were
// returned as no doubles. The exchange is last: a run that is killed before it has done nothing of
// the step yet. It tells the step alone if a length limit makes the hold refuse the record.
func (w *worker) noteStep(ctx context.Context, kind string) error {
	if err := w.note(ctx, "", record(w.run, kind, 0, 0, nil)); ignore(err, errReturned) != nil {
		return err
	}
	return w.markStep(ctx, kind)
}

// markStep creates the exchange of a step.
func (w *worker) markStep(ctx context.Context, kind string) error {
	name := w.desk.Topology.Name
	return w.fanout(ctx, stepExchange(name, w.run, kind), topology.HoldName(name, w.run))
}

// hasStep reports whether a run had come to a step when this process last read the virtual host.
func (d *Desk) hasStep(run, kind string) bool {
	state, name := d.last.Load(), stepExchange(d.Topology.Name, run, kind)
	return state != nil &&
		slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == name })
}

// contents is what a hold has.
type contents struct {
	reading
	// messages counts the dead letters, by fingerprint and in all.
	prints   map[fingerprint]uint32
	messages int
	bytes    int64 // of their bodies
	// queues counts them by the queue that they were taken from, work by the one in which they failed,
	// and origins by the one from which they were parked.
	queues, work, origins map[string]int
	gone                  bool // there is no such hold
}

// readHold reads what the hold of a run has, and gives all of it back. The records of the steps
// include those that only an exchange tells, see noteStep.
func (d *Desk) readHold(ctx context.Context, run string) (*contents, error) {
	hold := topology.HoldName(d.Topology.Name, run)
	conn, err := amqp.DialToConsume(ctx, d.endpoint("reads "+run))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := &contents{
		prints: map[fingerprint]uint32{}, queues: map[string]int{}, work: map[string]int{}, origins: map[string]int{},
	}
	ready, _, err := conn.Settled(ctx, hold, amqp.Alone)
	if errors.Is(err, broker.ErrNotFound) {
		c.gone = true
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	known, found := d.known(), map[digests]uint32{} // the key may be behind the messages
	h := conn.Holder(hold, amqp.HolderOptions{Messages: ready})
	err = h.Take(ctx, func(m amqp.Held) error {
		if isRecord(run, m.Delivery) {
			return c.add(m.Delivery)
		}
		c.messages++
		c.bytes += int64(len(m.Body))
		was := fromHold(m.Delivery)
		found[digestsOf(was)]++
		from, _ := m.Headers[headerQueue].(string)
		c.queues[from]++
		c.origins[parkedFrom(was)]++
		c.work[deadletter.Read(d.fromParked(was, from), from, known).WorkQueue]++
		return nil
	})
	for of, n := range found {
		c.prints[c.manifest.ofDigests(of)] += n
	}
	for _, step := range []string{recordSending, recordSent, recordReturning} {
		if d.hasStep(run, step) && c.records != nil {
			c.records[step]++
		}
	}
	return c, errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}

// closeHold deletes the hold of a run, and its exchanges. The hold has nothing but records, n of
// them.
//
// Nothing can be lost: the records are acknowledged only if nothing else is in the hold, and the
// hold is deleted only once it is proven to be empty, which takes into account that the broker's
// counts are up to 5 seconds old. A process that dies in between leaves an empty hold, which the
// next one deletes.
func (w *worker) closeHold(ctx context.Context) error {
	hold := topology.HoldName(w.desk.Topology.Name, w.run)
	queue := topology.Queue{Name: hold, Durable: true, Arguments: w.desk.keeper()}
	for tries := 1; ; tries++ {
		if err := w.dropRecords(ctx, hold); err != nil {
			return err
		}
		err := w.desk.Management.ProveEmpty(ctx, []topology.Queue{queue})
		if err == nil {
			break
		}
		// What a connection had that has just ended comes back a moment later.
		if tries == closeTries || !errors.Is(err, broker.ErrRefused) {
			return err
		}
	}
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	for _, e := range state.Have.Exchanges {
		if strings.HasPrefix(e.Name, hold+".") {
			if err := w.conn.DeleteExchange(e.Name, amqp.Conditions{}); err != nil {
				return err
			}
		}
	}
	if err := w.dropWitnesses(state); err != nil {
		return err
	}
	return w.conn.DeleteQueue(hold, amqp.Conditions{}) // proven to be empty, see above
}

// closeTries is how often an end is tried, each 5 seconds.
const closeTries = 3

// dropRecords acknowledges the records in a hold that has nothing else, also those that the
// connections of the run had and that come back a moment after these have ended.
func (w *worker) dropRecords(ctx context.Context, hold string) error {
	conn, err := amqp.DialToConsume(ctx, w.desk.endpoint("ends "+w.run))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		ready, _, err := conn.Settled(ctx, hold, amqp.Alone)
		if err != nil || ready == 0 {
			return err
		}
		if err := w.dropReady(ctx, conn, hold, ready); err != nil {
			return err
		}
	}
}

// dropReady acknowledges the ready records in a hold that has nothing else.
func (w *worker) dropReady(ctx context.Context, conn *amqp.Conn, hold string, ready int) error {
	h := conn.Holder(hold, amqp.HolderOptions{Messages: ready})
	var records []amqp.Held
	err := h.Take(ctx, func(m amqp.Held) error {
		if !isRecord(w.run, m.Delivery) {
			return fmt.Errorf("the hold %s still has messages; run 'dlxctl desk run resume %s'", hold, w.run)
		}
		m.Body = nil
		records = append(records, m)
		return nil
	})
	for _, m := range records {
		if err != nil {
			break
		}
		// Nothing is lost: it is a record of the run, whose messages have all left the hold.
		err = h.Ack(m)
	}
	return errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}
