package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The beginnings of the keys of the bindings that note how many consumers the queue had, and which
// connections they had, of which mostNoted are noted. deletionKey notes that the deletion of the
// queue comes next.
const (
	consumersKey = "consumers="
	consumerKey  = "consumer="
	deletionKey  = consumersKey + "deletion"
	mostNoted    = 50
)

// noteConsumers notes on the broker how many consumers the queue has, and which connections consume
// it, for the comparison afterwards: as bindings of the hold to its end, which is a fanout, so that
// no route changes. If a service has declared a queue again that was deleted, those of the deleted
// one stay noted: they may not have come back.
func (r *Runner) noteConsumers(ctx context.Context, m Move, state topology.State, n int64) error {
	connections, err := r.Management.Subscribers(ctx, m.Legacy)
	if err != nil {
		return err
	}
	marks, deleted := m.consumerMarks(state), r.tallyOf(m).deleted
	if deleted {
		n = max(n, m.consumersBefore(state))
	}
	keys := []string{fmt.Sprint(consumersKey, n)}
	for _, name := range connections[:min(len(connections), mostNoted)] {
		if len(consumerKey+name) <= topology.MaxNameBytes {
			keys = append(keys, consumerKey+name)
		}
	}
	var changes []plan.Change
	for _, b := range marks {
		stays := deleted && (b.Key == deletionKey || strings.HasPrefix(b.Key, consumerKey))
		if !stays && !slices.Contains(keys, b.Key) {
			changes = append(changes, remove(b)) // the end has another binding to the hold
		}
	}
	for _, key := range keys {
		if !isMarked(marks, key) {
			changes = append(changes, create(m.consumerMark(key)))
		}
	}
	return r.execute(ctx, changes)
}

// consumerMark returns the binding with a key that notes something of the consumers of the queue.
func (m Move) consumerMark(key string) topology.Binding {
	return topology.Binding{
		Source: m.successorEnd(), Destination: m.New, DestinationType: topology.ToQueue, Key: key,
		Arguments: m.ownerMark(),
	}
}

func isMarked(marks []topology.Binding, key string) bool {
	return slices.ContainsFunc(marks, func(b topology.Binding) bool { return b.Key == key })
}

// consumerMarks returns the bindings that note the consumers of the queue.
func (m Move) consumerMarks(state topology.State) []topology.Binding {
	return slices.DeleteFunc(slices.Clone(state.Have.Bindings), func(b topology.Binding) bool {
		return b.Source != m.successorEnd() || b.Destination != m.New ||
			!strings.HasPrefix(b.Key, consumersKey) && !strings.HasPrefix(b.Key, consumerKey)
	})
}

// consumersBefore returns how many consumers the queue had before it was deleted.
func (m Move) consumersBefore(state topology.State) (n int64) {
	for _, b := range m.consumerMarks(state) {
		if count, noted := strings.CutPrefix(b.Key, consumersKey); noted {
			_, _ = fmt.Sscan(count, &n) // noteConsumers has written it; deletionKey has none
		}
	}
	return n
}

// consumersBack waits until the queue has as many consumers as before. It fails with ErrWaiting if
// that does not happen, unless the user consents.
func (r *Runner) consumersBack(ctx context.Context, m Move) error {
	said := false
	for began := time.Now(); ; {
		state, err := r.inspect(ctx)
		if err != nil {
			return err
		}
		before := m.consumersBefore(state)
		now, err := r.consumers(ctx, state, m.Legacy)
		if err != nil {
			return err
		}
		if now >= before || r.consents(topology.StopsConsumers, m.Legacy) {
			return nil
		}
		if time.Since(began) >= r.Wait {
			silent, err := r.silent(ctx, m, state)
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: %s is replaced and gets its messages, but it has %s, and had %d before: restart the services that did not subscribe again, then run the command again, or with %s%s",
				ErrWaiting, m.Legacy, text.Count(now, "consumer"), before,
				plan.Consent{Hazard: topology.StopsConsumers, Object: m.Legacy}.Flag(), silent)
		}
		if !said {
			said = true
			r.say("replace: %s has %s, and had %d before; waiting up to %s for the others", m.Legacy,
				text.Count(now, "consumer"), before, text.Duration(r.Wait))
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// missed adds to an error of a queue that is full how many consumers it has, and had before.
func (r *Runner) missed(ctx context.Context, m Move, full error) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return full
	}
	now, err := r.consumers(ctx, state, m.Legacy)
	if err != nil {
		return full
	}
	silent, err := r.silent(ctx, m, state)
	if err != nil {
		return full
	}
	return fmt.Errorf("%w; %s has %s, and had %d before%s", full, m.Legacy, text.Count(now, "consumer"),
		m.consumersBefore(state), silent)
}

// silent names the connections that consumed the queue before, are still open, and no longer
// consume it, each with the command that closes it. It is empty if none is known.
func (r *Runner) silent(ctx context.Context, m Move, state topology.State) (string, error) {
	now, err := r.Management.Subscribers(ctx, m.Legacy)
	if err != nil {
		return "", err
	}
	open, err := r.Management.Connections(ctx)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, b := range m.consumerMarks(state) {
		name, noted := strings.CutPrefix(b.Key, consumerKey)
		if client, stays := open[name]; noted && stays && !slices.Contains(now, name) {
			fmt.Fprintf(&out, "\n  still connected, and does not consume it: %s (%s); to close it: curl -u USER -X DELETE %s",
				name, text.Name(client.String()), text.ShellQuote(r.Management.ConnectionURL(name)))
		}
	}
	return out.String(), nil
}
