package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// errByName says that publishers may send to a queue by its name: however rarely they do, the
// broker drops what they send once the queue is deleted.
var errByName = errors.New("publishers may send to it by its name")

// The keys of the bindings that mark a move whose legacy queue, or whose successor, publishers
// address by name.
const (
	byNameKey          = "published-by-name"
	successorByNameKey = "successor-published-by-name"
)

// byNameMark returns such a binding. Its source is the end of the switch that migrate and abort
// keep until the move is finished or rolled back. It is a fanout: the binding changes no route,
// every later run finds it, and it goes with the exchange.
func (m Move) byNameMark(key string) topology.Binding {
	return topology.Binding{
		Source: m.successorEnd(), Destination: m.New, DestinationType: topology.ToQueue, Key: key,
		Arguments: m.ownerMark(),
	}
}

// byNameWatch notes on the broker that a publisher sends to a queue by its name. It belongs to one
// drain of the queue.
type byNameWatch struct {
	queue   string
	back    string           // the exchange by which a drain in the other direction fills the queue
	feeders []string         // the queues that dead-letter to the queue by its name
	byKey   []string         // those of them that do so by the keys of the messages, and may be for publishers
	through []string         // the queues whose dead letters come to the queue, and need no publisher for it
	mark    topology.Binding // what notes it
	bind    func(topology.Binding) error
	noted   bool        // the broker has the mark, of this drain or of an earlier one
	seen    atomic.Bool // a message of a publisher has come to this drain
}

func (m Move) watchLegacy(state topology.State) *byNameWatch {
	w := &byNameWatch{
		queue: m.Legacy, back: m.legacyEnd(), mark: m.byNameMark(byNameKey), noted: m.find(state).byName,
	}
	w.addFeeders(state)
	return w
}

// watchSuccessor returns the watch of an abort, which drains the successor. The legacy queue may
// have forwarded to it, though it no longer does: what a publisher sent there named another queue.
func (m Move) watchSuccessor(state topology.State) *byNameWatch {
	w := &byNameWatch{
		queue: m.New, back: m.successorEnd(), feeders: []string{m.Legacy}, through: []string{m.Legacy},
		mark: m.byNameMark(successorByNameKey), noted: m.find(state).successorByName,
	}
	w.addFeeders(state)
	return w
}

// addFeeders adds the queues from which messages come to the queue by its name.
func (w *byNameWatch) addFeeders(state topology.State) {
	for _, f := range feeders(state, w.queue) {
		switch {
		case f.Next != w.queue:
			w.through = append(w.through, f.Name)
		case f.AnyKey:
			w.byKey = append(w.byKey, f.Name)
			fallthrough
		default:
			w.feeders = append(w.feeders, f.Name)
		}
	}
}

// notes returns nil if a message may be moved. The first one of a publisher that uses the queue's
// name may be moved only once the broker has the mark: a run that is killed afterwards, or that was
// asked to stop after the drain, would leave nothing by which the next one knows of the publisher.
func (w *byNameWatch) notes(d amqp091.Delivery) error {
	if w.seen.Load() || !w.isByName(d) {
		return nil
	}
	if !w.noted {
		if err := w.bind(w.mark); err != nil {
			return fmt.Errorf("note that publishers send to %s by its name: %w", text.Name(w.queue), err)
		}
		w.noted = true
	}
	w.seen.Store(true)
	return nil
}

// isByName reports whether a publisher has sent a message of the queue to the name of the queue.
// The default exchange routes by names only, whatever key the delivery shows: the name may have
// been in its header CC or BCC. Two kinds of messages come through it and have no publisher, or
// come another way and have one:
//
//   - A queue dead-letters to the name. The first entry of x-death is then that queue: the broker
//     writes the latest death first. The feeders are proved empty elsewhere. A client that
//     publishes a message with the x-death of such a feeder is a consumer that tries it again, and
//     the drain has waited for the consumers. But one that died nowhere else was sent there by a
//     publisher: by the name of the feeder, or with the name of the queue as its key where the
//     feeder goes by the keys. Of an exchange that routes to any other feeder, survey's Open tells.
//   - A drain in the other direction has moved the message, through the other end of the switch. It
//     has kept the routing key, and nothing tells whether an exchange had routed it by that key:
//     such a message counts too.
func (w *byNameWatch) isByName(d amqp091.Delivery) bool {
	if d.Exchange == w.back {
		return d.RoutingKey == w.queue
	}
	deaths := deathsOf(d.Headers)
	switch {
	case d.Exchange != "":
		return false
	case len(deaths) == 0 || !slices.Contains(w.feeders, deaths[0]):
		return true
	case !slices.Contains(w.byKey, deaths[0]) && d.Headers[topology.HeaderFirstDeath+"exchange"] != "":
		return false
	default:
		return !slices.ContainsFunc(deaths, func(queue string) bool {
			return queue == w.queue || slices.Contains(w.through, queue)
		})
	}
}

// deathsOf returns the queues in which a message was dead-lettered, the last one first.
func deathsOf(headers amqp091.Table) []string {
	list, _ := headers[topology.HeaderDeath].([]any)
	var out []string
	for _, entry := range list {
		death, _ := entry.(amqp091.Table)
		queue, _ := death["queue"].(string)
		out = append(out, queue)
	}
	return out
}

// byName is [Move.byName] with what the broker counts now.
func (r *Runner) byName(ctx context.Context, m Move, state topology.State, held int64) (why string, err error) {
	b, err := r.Management.PublishedByName(ctx, m.Legacy)
	if err != nil {
		return "", err
	}
	return m.byName(state, b, held), nil
}

// byName says why publishers are known to send to the legacy queue by its name. It returns "" if
// the broker shows no sign of one. held is how many messages wait in the queue.
func (m Move) byName(state topology.State, b management.DefaultExchangeUse, held int64) string {
	f := m.find(state)
	if f.byName {
		return "a drain has moved messages that were published to its name, at once or through a queue in which they waited, or that an abort had moved back and whose routing key is its name"
	}
	bound := slices.DeleteFunc(slices.Concat(f.onLegacy, f.onSwitch, f.onSuccessor), m.returns)
	switch {
	case b.Certain && b.Messages > 0:
		return messages(b.Messages) + " came to it by its name"
	case len(bound) == 0 && (held > 0 || b.Messages > 0):
		return "it has no binding, and it has had messages"
	default:
		return ""
	}
}

// publishersGone returns errByName, with the reason, if publishers send to the legacy queue by its
// name and the user has not consented to lose what they send from now on.
func (r *Runner) publishersGone(ctx context.Context, m Move) error {
	if r.allows(m.Legacy) {
		return nil
	}
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	why, err := r.byName(ctx, m, state, 0)
	if err != nil || why == "" {
		return err
	}
	return fmt.Errorf("%w: %s", errByName, why)
}

// successorUnused fails with ErrWaiting if publishers send to the successor by its name, and the
// user has not consented to lose what they send once an abort has deleted it.
func (r *Runner) successorUnused(ctx context.Context, m Move) error {
	if r.allows(m.New) {
		return nil
	}
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	b, err := r.Management.PublishedByName(ctx, m.New)
	if err != nil || !m.find(state).successorByName && (!b.Certain || b.Messages == 0) {
		return err
	}
	return fmt.Errorf("%w: messages go to %s again, and %s is kept: %w; change them, then run abort again with %s",
		ErrWaiting, m.Legacy, m.New, errByName, consentTo(m.New))
}

// allows reports whether the user consents to the deletion of a queue that publishers may address
// by its name.
func (r *Runner) allows(queue string) bool {
	return r.consents(topology.DropsRouting, queue)
}

// WaysOut says what a user can do about publishers that use the name of the legacy queue.
func (m Move) WaysOut() string {
	return fmt.Sprintf("change the publishers, then run migrate again with %s; or run it with --forward", consentTo(m.Legacy))
}

// consentTo returns the flag by which the user consents to the deletion of a queue.
func consentTo(queue string) string {
	return plan.Consent{Hazard: topology.DropsRouting, Object: queue}.Flag()
}
