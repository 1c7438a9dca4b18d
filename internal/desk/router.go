package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const addressPrefix = "@"

// router decides where the messages of a hold go. It belongs to the goroutine of the relay.
type router struct {
	ctx      context.Context //nolint:containedctx // the methods of a relay.Handler have none
	worker   *worker
	manifest *manifest
	kind     Kind
	known    *deadletter.Known
	user     string
	// bound are the work queues to which the return exchange routes.
	bound map[string]bool
	// drained are the queues that the run sends to and that consumers empty: no streams.
	drained         []string
	directExchanges map[string]string
	// direct: the run has no hold, and no exchange of its own.
	direct bool
	// present is the virtual host before the first message that is sent by the name of a queue; nil
	// before that. unreplaced are the queues that were not being replaced then.
	present    *topology.State
	unreplaced map[string]bool
	copies     deadletter.Copies
	// refusing are the queues of which deadLettersRefused has found out something, by refusingIn.
	refusing   map[string]bool
	refusingIn *topology.State
	// rules say what a dead letter of a pull looks like; nil before the first one.
	rules *retry.Rules
}

// newRouter returns the router of a run. ctx ends when the run must send no more.
func (w *worker) newRouter(ctx context.Context, m *manifest, state topology.State) *router {
	return &router{
		ctx: ctx, worker: w, manifest: m, kind: m.Action.Kind(), known: w.desk.known(), user: w.desk.Endpoint.AMQP.User,
		bound: returnable(w.desk.Topology.Name, state), drained: drainable(m.sendsTo(), state),
		directExchanges: map[string]string{}, unreplaced: map[string]bool{},
	}
}

// drainable returns the queues that lose their messages when these are read: streams keep them.
func drainable(queues []string, state topology.State) []string {
	return slices.DeleteFunc(slices.Clone(queues), func(name string) bool { return isStream(state, name) })
}

// returnable returns the queues to which the return exchange of a topology routes.
func returnable(name string, state topology.State) map[string]bool {
	out := map[string]bool{}
	for _, b := range state.Have.Bindings {
		if b.Source == topology.ReturnExchangeName(name) && b.DestinationType == topology.ToQueue &&
			b.Key == topology.AddressKey(b.Destination) {
			out[b.Destination] = true
		}
	}
	return out
}

// unbound returns a queue to which the return exchange has ceased to route. Its messages would go
// to the unroutable queue, and the broker would confirm them. Empty: it routes to all. While a
// queue is replaced under its name, its address leads to another one, whose messages come back.
func (r *router) unbound(state topology.State) string {
	if r.manifest.back || r.kind.goes != toWork || r.manifest.Target != (Target{}) {
		return ""
	}
	through := topology.ReturnExchangeName(r.worker.desk.Topology.Name)
	for _, queue := range r.manifest.sendsTo() {
		if r.bound[queue] && !slices.ContainsFunc(state.Have.Bindings, func(b topology.Binding) bool {
			return b.Source == through && b.Key == topology.AddressKey(queue)
		}) {
			return queue
		}
	}
	return ""
}

// route returns where a message of the hold goes.
func (r *router) route(d amqp091.Delivery) (relay.Move, error) {
	if r.manifest.back {
		return r.giveBack(d)
	}
	switch r.kind.goes {
	case toParked:
		return r.park(d), nil
	case toOrigin:
		return r.restore(d)
	case toDead:
		return r.pull(d)
	case toWork:
		d = r.before(d)
		was, err := deadletter.Original(d)
		if err != nil {
			return relay.Move{}, err
		}
		return r.replay(d, was, was)
	default:
		return relay.Move{}, fmt.Errorf("the action %q is unknown to this release", r.manifest.Action)
	}
}

// directExchange returns the exchange that leads to one queue alone.
func (r *router) directExchange(queue string) (string, error) {
	if name, ok := r.directExchanges[queue]; ok {
		return name, nil
	}
	name := directExchange(r.worker.desk.Topology.Name, r.manifest.Run, queue)
	if err := r.worker.fanout(r.ctx, name, queue); err != nil {
		return "", err
	}
	if err := r.worker.refuseReplaced(r.ctx, name, queue); err != nil {
		return "", err
	}
	r.directExchanges[queue] = name
	return name, nil
}

// refuseReplaced refuses to send to a queue that is being replaced under its name, and unbinds it
// from the exchange of the run again: it is deleted meanwhile, with what comes to it.
//
// Nothing is lost: a replacement makes its hold, and then looks for such a binding until it deletes
// the queue; this looks for the hold after it is bound, before the first message. One of the two
// sees the other. The exchange stays until the run ends: others may look for it.
func (w *worker) refuseReplaced(ctx context.Context, exchange, queue string) error {
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	if err = replaced(state, queue); err == nil {
		return nil
	}
	return errors.Join(w.conn.Unbind(topology.Binding{
		Source: exchange, Destination: queue, DestinationType: topology.ToQueue, Arguments: w.desk.mark(),
	}), err)
}

// replaced returns an ErrRefused if a queue is being replaced under its name.
func replaced(state topology.State, queue string) error {
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool {
		owner, _ := topology.Owner(q.Arguments)
		name := survey.DeskOwner(owner)
		return topology.IsReplacementHold(name, q) && q.Name == topology.ReplacementHoldName(name, queue)
	})
	if i < 0 {
		return nil
	}
	return refusef("it is being replaced under its name, and what is sent to it now could be lost; finish that first with 'dlxctl migrate %s'",
		text.ShellQuote(queue))
}

// named returns a move to a queue that a person has named. A run with a hold may take hours: it
// sends through an exchange of its own, so that a replacement of the queue waits for its end. A
// direct one takes a moment, which a replacement waits before it deletes the queue.
func (r *router) named(queue string, p amqp091.Publishing) (relay.Move, error) {
	if r.direct {
		return r.byName(queue, p)
	}
	exchange, err := r.directExchange(queue)
	if err != nil {
		return relay.Move{}, fmt.Errorf("%s cannot be reached: %w", text.Name(queue), err)
	}
	return relay.Move{Exchange: exchange, Key: queue, Message: p}, nil
}

// byName returns a move to a queue through the default exchange. Nothing is sent to a queue that is
// being replaced when the run begins to: it is deleted meanwhile, with what comes to it. A
// replacement that begins later waits for the end of a run with a hold, as that is bound to the
// queue, unless the user lacks the right, or there is no such queue, or another connection owns it.
func (r *router) byName(queue string, p amqp091.Publishing) (relay.Move, error) {
	move := relay.Move{Key: queue, Message: p}
	if !r.direct && !r.unreplaced[queue] {
		switch _, err := r.directExchange(queue); {
		case err == nil:
			return move, nil
		case !errors.Is(err, broker.ErrForbidden) && !errors.Is(err, broker.ErrNotFound) && !errors.Is(err, broker.ErrInUse):
			return relay.Move{}, fmt.Errorf("%s cannot be reached: %w", text.Name(queue), err)
		}
	}
	if r.present == nil { // after the lock of the topology, if the run takes it
		state, err := r.worker.desk.inspect(r.ctx)
		if err != nil {
			return relay.Move{}, err
		}
		r.present = &state
	}
	if !r.unreplaced[queue] {
		if err := replaced(*r.present, queue); err != nil {
			return relay.Move{}, fmt.Errorf("%s cannot be reached: %w", text.Name(queue), err)
		}
		r.unreplaced[queue] = true
	}
	return move, nil
}

// before returns a message of the hold as it was in the dead-letter queue, also if it was taken
// from the queue of parked ones.
func (r *router) before(d amqp091.Delivery) amqp091.Delivery {
	return r.worker.desk.fromParked(fromHold(d), r.manifest.Queue)
}

// park returns a move to the queue of parked messages, with all that the message had. The original
// of an edit may lie there already. It stays parked from where it was: a restore moves it there.
func (r *router) park(d amqp091.Delivery) relay.Move {
	d = fromHold(d)
	parked, from := topology.ParkedName(r.worker.desk.Topology.Name), r.manifest.Queue
	if from == parked {
		if from = parkedFrom(d); from == "" { // another program has published it there
			return stayParked(d, parked)
		}
		d = r.worker.desk.fromParked(d, parked)
	}
	at := r.worker.desk.now().UTC().Format(topology.HeaderTime)
	return relay.Move{Key: parked, Message: r.manifest.toParked(d, from, r.kind.parkedAs, at)}
}

// stayParked returns a move of a message that lies in the queue of parked ones back to it. Parked
// messages keep CC and properties in headers.
func stayParked(d amqp091.Delivery, parked string) relay.Move {
	return relay.Move{Key: parked, Message: relay.Republish(d, deadletter.Unaddressed(d.Headers))}
}

// restore returns a move of a parked message to the queue from which it was parked.
func (r *router) restore(d amqp091.Delivery) (relay.Move, error) {
	d = fromHold(d)
	queue := parkedFrom(d)
	if queue == "" {
		return relay.Move{}, errors.New("a parked message does not name the queue from which it was parked; replay it with a target")
	}
	d = r.worker.desk.fromParked(d, r.manifest.Queue)
	return r.exactly(queue, d, d.RoutingKey)
}

// replay returns where a message goes to be worked on again, and as what. d is the dead letter, was
// the message that failed, and as that message, unless it was edited.
func (r *router) replay(d, was, as amqp091.Delivery) (relay.Move, error) {
	facts := withKey(deadletter.Read(d, r.manifest.Queue, r.known), r.manifest.NewKey, r.manifest.Target)
	if why := r.worker.desk.uncounted(facts, d.Headers); why != "" {
		return relay.Move{}, fmt.Errorf("a message cannot be sent: %s", why)
	}
	p := relay.Republish(as, r.headers(as, facts.Replays))
	p.Headers[deadletter.HeaderHandle] = r.handle(d)
	r.properties(was, &p)
	switch t := r.manifest.Target; {
	case t.Queue != "":
		return r.named(t.Queue, p)
	case t.Exchange == "" && t.Key != "":
		return r.named(t.Key, p)
	case t.Exchange != "":
		return r.asShown(relay.Move{Exchange: t.Exchange, Key: t.Key, Message: p})
	case t.Original:
		if facts.Exchange == "" && facts.Key == "" {
			return relay.Move{}, fmt.Errorf("a message does not tell where it was published; name a target")
		}
		to := r.worker.desk.original(facts)
		if facts.WorkQueue != "" && to.exchange == topology.ReturnExchangeName(r.worker.desk.Topology.Name) {
			return r.asShown(r.toWork(p, facts))
		}
		addressed(p.Headers, was.Headers)
		if to.exchange == "" {
			return r.byName(to.key, p)
		}
		return r.asShown(relay.Move{Exchange: to.exchange, Key: to.key, Message: p})
	case facts.WorkQueue == "":
		return relay.Move{}, fmt.Errorf("the origin of a message is in doubt: %s; name a target", facts.Doubt)
	case !slices.Contains(r.manifest.Watch, facts.WorkQueue):
		return relay.Move{}, r.elsewhere(facts.WorkQueue)
	case r.bound[facts.WorkQueue]:
		return r.toWork(p, facts), nil
	default:
		exchange, err := r.directExchange(facts.WorkQueue)
		if err != nil {
			return relay.Move{}, fmt.Errorf("%s cannot be reached: %w", text.Name(facts.WorkQueue), err)
		}
		return relay.Move{Exchange: exchange, Key: facts.Key, Message: p}, nil
	}
}

// asShown returns a move through bindings of others. It refuses one that leads to a queue which no
// person has confirmed: a binding may have come since. keepRoom reads the bindings every few
// seconds.
func (r *router) asShown(m relay.Move) (relay.Move, error) {
	queues, _ := r.reached(m)
	for _, queue := range queues {
		if !slices.Contains(r.manifest.Watch, queue) {
			return relay.Move{}, r.elsewhere(queue)
		}
	}
	return m, nil
}

// elsewhere says why a message is not sent: it would reach a queue, and a person has confirmed
// others. Bindings have changed since.
func (r *router) elsewhere(queue string) error {
	again := "give the messages back with 'dlxctl desk run return " + r.manifest.Run + "', and replay them again"
	if r.direct {
		again = "choose the rest again"
	}
	return fmt.Errorf("a message leads to %s now, and the run was begun to send to %s; %s",
		text.Name(queue), text.List(text.Names(r.manifest.Watch)), again)
}

// handle names a message among those that the run has sent, with the number of its copy. It is made
// of the fingerprint, and not the handle of lists: a consumer may log it, and it must not depend on
// what the person who resumes the run may see.
func (r *router) handle(d amqp091.Delivery) string {
	of := deadletter.Handle(r.manifest.of(d).String())
	return deadletter.NameOf(of, r.copies.Next(of))
}

// toWork returns a move to the work queue alone: CC leads there, and the key is that of the
// publisher. A key that looks like an address could lead to another queue too. Headers keep where
// the publisher sent it: should it fail again, the processor believes them, as with a retry.
func (r *router) toWork(p amqp091.Publishing, facts deadletter.Facts) relay.Move {
	own := topology.AddressKey(facts.WorkQueue)
	through := topology.ReturnExchangeName(r.worker.desk.Topology.Name)
	move := relay.Move{Exchange: through, Key: own, Message: p}
	known := facts.Exchange != "" || facts.Key != ""
	if known && facts.Exchange != through {
		p.Headers[topology.HeaderExchange], p.Headers[topology.HeaderRoutingKey] = facts.Exchange, facts.Key
	}
	if known && len(facts.Key) <= topology.MaxNameBytes && !strings.HasPrefix(facts.Key, addressPrefix) {
		move.Key = facts.Key
		p.Headers[topology.CC] = []any{own}
	}
	return move
}

// queueOf returns the queue to which a move leads, and to no other. Empty is unknown.
func (r *router) queueOf(m relay.Move) string {
	switch {
	case m.Exchange == "" && (m.Message.Headers[topology.CC] != nil || m.Message.Headers[topology.BCC] != nil):
		return ""
	case m.Exchange == "":
		return m.Key
	case m.Exchange == topology.ReturnExchangeName(r.worker.desk.Topology.Name):
		address := m.Key
		if list, ok := m.Message.Headers[topology.CC].([]any); ok && len(list) == 1 {
			address, _ = list[0].(string)
		}
		if queue, ok := strings.CutPrefix(address, addressPrefix); ok {
			return queue
		}
	}
	for queue, exchange := range r.directExchanges {
		if exchange == m.Exchange {
			return queue
		}
	}
	return ""
}

// reached returns the queues that a move reaches, by the bindings that were read last. sure: it
// reaches no others.
func (r *router) reached(m relay.Move) (queues []string, sure bool) {
	if queue := r.queueOf(m); queue != "" {
		return []string{queue}, true
	}
	routes := r.worker.desk.root().routes.Load()
	if routes == nil {
		return nil, false
	}
	result := (*routes)().router.Publish(m.Exchange, m.Key, m.Message.Headers)
	return result.Queues, len(result.Unknown) == 0
}

// partial reports whether a queue may have a message that the broker nacks, see relay.Move.
func (r *router) partial(m relay.Move) bool {
	queues, sure := r.reached(m)
	return !sure || len(queues) != 1 || r.deadLettersRefused(queues[0])
}

// deadLettersRefused is policy.DeadLettersRefused by what was read last.
func (r *router) deadLettersRefused(queue string) bool {
	state := r.worker.desk.last.Load()
	if state != r.refusingIn {
		r.refusing, r.refusingIn = map[string]bool{}, state
	}
	if _, known := r.refusing[queue]; !known {
		r.refusing[queue] = policy.DeadLettersRefused(*state, queue)
	}
	return r.refusing[queue]
}

// headers returns the headers of a message that is sent to work: without those of its death. What
// the processor and frameworks wrote about the failure goes too, as the count starts again, unless
// the run keeps the history.
func (r *router) headers(d amqp091.Delivery, replays int) amqp091.Table {
	h := maps.Clone(d.Headers)
	if h == nil {
		h = amqp091.Table{}
	}
	if deadletter.SaysFailure(d.Headers) {
		h = retry.Undo(d.Headers, r.worker.desk.Topology.CountHeader).Headers
		for _, name := range topology.RetryHeaders() {
			if v, ok := d.Headers[name]; ok && (r.manifest.KeepHistory || name == topology.HeaderUserID) {
				h[name] = v
			}
		}
	}
	if !r.manifest.KeepHistory {
		h, _ = deadletter.Retried(h)
		delete(h, topology.HeaderExchange) // of an earlier replay
		delete(h, topology.HeaderRoutingKey)
	}
	maps.DeleteFunc(h, func(name string, _ any) bool {
		return topology.IsDeathHeader(name) || topology.IsDeliveryCount(name) || name == topology.CC || name == topology.BCC
	})
	if _, waits := topology.WaitsFor(r.manifest.Queue); waits { // it need not wait longer
		for _, name := range topology.DelayHeaders() {
			delete(h, name)
		}
	}
	h[deadletter.HeaderReplays] = int64(replays) + 1
	h[deadletter.HeaderRun] = r.manifest.Run
	return h
}

// properties sets the properties that a copy does not have by itself.
func (r *router) properties(d amqp091.Delivery, p *amqp091.Publishing) {
	user := d.UserId
	if kept, ok := p.Headers[topology.HeaderUserID].(string); ok && user == "" {
		user = kept
	}
	switch user {
	case "":
	case r.user:
		p.UserId = user
		delete(p.Headers, topology.HeaderUserID)
	default:
		p.Headers[topology.HeaderUserID] = user
	}
	if r.manifest.KeepTTL {
		p.Expiration = r.expiration(d)
	}
}

// expiration returns the expiration that the publisher had set. Empty is none.
func (r *router) expiration(d amqp091.Delivery) string {
	if d.Expiration != "" {
		return d.Expiration
	}
	if _, waits := topology.WaitsFor(r.manifest.Queue); waits { // elsewhere the header is a publisher's
		if kept, ok := d.Headers[topology.HeaderDelayExpiration].(string); ok && isNumber(kept) {
			return kept
		}
	}
	if kept, ok := d.Headers[topology.HeaderExpiration].(string); ok && isNumber(kept) {
		return kept
	}
	deaths, _ := d.Headers[topology.HeaderDeath].([]any)
	for _, v := range deaths {
		death, _ := v.(amqp091.Table)
		if kept, ok := death["original-expiration"].(string); ok && isNumber(kept) {
			return kept
		}
	}
	return ""
}

// isNumber reports whether the broker accepts a text as an expiration.
func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// addressed restores what else the publisher addressed a message to.
func addressed(h, had amqp091.Table) {
	p := retry.Undo(had, "")
	for name, keys := range map[string][]any{topology.CC: p.CC, topology.BCC: p.BCC} {
		if keys != nil {
			h[name] = keys
		}
	}
}

// known returns what is known about the virtual host.
func (d *Desk) known() *deadletter.Known {
	if d.Reader != nil && d.Reader.Known != nil {
		return d.Reader.Known
	}
	known := deadletter.Knows(d.Topology)
	known.Route = d.Route
	return known
}
