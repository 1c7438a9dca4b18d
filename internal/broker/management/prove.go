package management

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// ProveEmpty proves that queues hold no message, ready, unacknowledged or on its way to a
// dead-letter exchange. It fails with ErrRefused if a queue holds a message or the broker does not
// report its count, and with ErrForbidden if the user may not ask. A queue that is gone holds none.
//
// The counts are read more than 5 seconds after the call, as they can be that old. A quorum queue
// is also asked itself: its count is 0 too when its leader does not answer. That needs the
// permission to read the queue, and requeues a message that it finds.
func (m *Client) ProveEmpty(ctx context.Context, queues []topology.Queue) error {
	fresh := m.Fresh()
	for _, q := range queues {
		if q.Type() != topology.Classic {
			if _, err := fresh.prove(ctx, q, amqp.Conditions{Empty: true}, topology.IsTimerName(q.Name)); err != nil {
				return fmt.Errorf("the queue %s: %w", q.Name, err)
			}
			continue
		}
		if _, err := fresh.proveCounts(ctx, q, amqp.Conditions{Empty: true}); err != nil {
			return fmt.Errorf("the queue %s: %w", q.Name, err)
		}
	}
	return nil
}

// ReadRights returns the rights that ProveEmpty needs.
func ReadRights(queues []topology.Queue) []plan.Right {
	var out []plan.Right
	for _, q := range queues {
		if q.Type() != topology.Classic {
			out = append(out, plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: q.Name})
		}
	}
	return out
}

// prove proves that a quorum queue or stream is empty and unused, as far as it must be. The counts
// are read when they cannot be older than the start of the deletions: bindings are deleted before
// queues, so nothing has been routed to the queue since. Then the queue is asked itself, as its
// counts are 0 too when its leader is silent: basic.get goes through the leader's log. Before and
// after that it is asked for its consumers, which the statistics show up to 10 seconds late, and
// not at all if the broker keeps none. delays says that the queue may hold messages that it delays.
func (m *Client) prove(ctx context.Context, q topology.Queue, only amqp.Conditions, delays bool) (
	gone bool, err error,
) {
	asks := only.Unused && q.Type() != topology.Stream // a stream does not report its consumers
	if asks {
		if gone, err := m.proveUnused(ctx, q); gone || err != nil {
			return gone, err // fail early: the counts take their time
		}
	}
	if gone, err := m.proveCounts(ctx, q, only); gone || err != nil {
		return gone, err
	}
	if only.Empty {
		if gone, err := m.proveEmpty(ctx, q); gone || err != nil {
			return gone, err
		}
	}
	if only.Empty && !delays {
		if delays, err = m.mayDelay(ctx, q); err != nil {
			return false, err
		}
	}
	if only.Empty && delays {
		// What a queue delays is not ready, so only its counts show it. Those of above are 0 too if the
		// leader was silent; the ones that follow are younger than its answer to basic.get.
		switch again, ok, err := m.Fresh().counted(ctx, q, only); {
		case err != nil:
			return false, err
		case !ok:
			return true, nil
		case again.unknown || again.Ready+again.Unacknowledged > 0:
			return false, broker.Errorf(broker.ErrRefused, "the queue may hold messages that it delays (%s)", again.NotReady())
		}
	}
	if asks {
		return m.proveUnused(ctx, q)
	}
	return false, nil
}

// proveCounts proves by the counts that a queue is empty and unused, as far as it must be. The
// queue is gone if the broker does not list it. That a broker keeps no statistics is
// ignored of a quorum queue that must be empty: prove asks the queue itself, before and after an
// answer that only its leader gives. Without that answer, a 0 may be that of a leader that is gone.
func (m *Client) proveCounts(ctx context.Context, q topology.Queue, only amqp.Conditions) (gone bool, err error) {
	now, ok, err := m.counted(ctx, q, only)
	if err != nil {
		return false, err
	}
	switch held := now.Ready + now.Unacknowledged; {
	case !ok:
		return true, nil
	case only.Empty && now.unknown:
		return false, broker.Errorf(broker.ErrRefused,
			"the broker does not report how many messages the queue holds; check that the node of its leader is up")
	case only.Empty && held > 0:
		return false, broker.Errorf(broker.ErrRefused, "the queue holds %d messages (%d ready, %s)", held,
			now.Ready, now.NotReady())
	case only.Unused && now.ConsumersUnknown && only.Empty && q.Type() == topology.Quorum &&
		errors.Is(m.requireStatistics(ctx), ErrNoStatistics):
	case only.Unused && now.ConsumersUnknown:
		return false, broker.Errorf(broker.ErrRefused,
			"the broker's statistics do not report whether the queue has consumers; check that statistics are enabled and that the node of its leader is up")
	case only.Unused && now.Consumers > 0:
		return false, broker.Errorf(broker.ErrRefused, "the queue has %s", text.Count(now.Consumers, "consumer"))
	}
	return false, nil
}

// mayDelay reports whether RabbitMQ may delay messages in a queue now, by its arguments and its
// policy.
func (m *Client) mayDelay(ctx context.Context, q topology.Queue) (bool, error) {
	const key = topology.KeyDelayedRetryType
	var now struct {
		Policy any `json:"effective_policy_definition"` // an empty list where there is none
	}
	path := "queues/" + url.PathEscape(m.vhost) + "/" + url.PathEscape(q.Name)
	err := m.get(ctx, &now, path+"?columns=name,effective_policy_definition")
	if err != nil && !isGone(err) {
		return false, err
	}
	set, _ := now.Policy.(map[string]any)
	return set[key] != nil || q.Arguments["x-"+key] != nil, nil
}

// proveEmpty proves that nothing is ready in a queue. A message that it finds returns to its place.
func (m *Client) proveEmpty(ctx context.Context, q topology.Queue) (gone bool, err error) {
	if single, _ := q.Arguments[topology.ArgSingleActiveConsumer].(bool); single && q.Type() == topology.Quorum {
		return m.proveEmptyToConsumer(ctx, q)
	}
	var found []struct{}
	err = m.post(ctx, &found, map[string]any{"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 1},
		"queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(q.Name)+"/get")
	switch {
	case errors.Is(err, broker.ErrNotFound):
		return true, nil
	case err == nil && len(found) > 0:
		err = broker.Errorf(broker.ErrRefused, "the queue holds a message")
	}
	return false, err
}

// proveEmptyToConsumer does so for a queue on which the broker refuses basic.get.
func (m *Client) proveEmptyToConsumer(ctx context.Context, q topology.Queue) (gone bool, err error) {
	conn, err := m.Connection(ctx)
	if err != nil {
		return false, broker.Errorf(broker.ErrUnreachable,
			"a queue with a single active consumer can be proved empty only over AMQP: %s", broker.OneLine(err.Error()))
	}
	empty, err := conn.EmptyToConsumer(q.Name)
	switch {
	case errors.Is(err, broker.ErrNotFound):
		return true, nil
	case err == nil && !empty:
		err = broker.Errorf(broker.ErrRefused, "the queue holds a message")
	}
	return false, err
}

// counted returns the counts of a queue, and whether the queue exists. If it must be unused,
// counted waits as long as statistics can be old while the queue is too new to report its
// consumers, or still shows consumers that are gone by now; for a stream, whose consumers only the
// statistics report, it always waits.
func (m *Client) counted(ctx context.Context, q topology.Queue, only amqp.Conditions) (now counts, ok bool, err error) {
	for {
		usage, err := m.census.usage(ctx, m.usage)
		if err != nil {
			return counts{}, false, err
		}
		now, ok = usage[q.Name]
		settled := !now.ConsumersUnknown && now.Consumers == 0 && q.Type() != topology.Stream
		if !ok || !only.Unused || settled || m.census.age() >= StatisticsLag {
			return now, ok, nil
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return counts{}, false, err
		}
	}
}

// proveUnused proves that a quorum queue has no consumer at this moment. The queue is asked
// repeatedly for a while: on a busy node its leader may be slow.
func (m *Client) proveUnused(ctx context.Context, q topology.Queue) (gone bool, err error) {
	conn, err := m.Connection(ctx)
	if err != nil {
		return false, broker.Errorf(broker.ErrUnreachable,
			"the current consumers of the queue can be counted only over AMQP: %s", broker.OneLine(err.Error()))
	}
	for end := time.Now().Add(slowTime); ; {
		n, err := conn.ConsumersOf(q.Name)
		switch {
		case errors.Is(err, broker.ErrNotFound):
			return true, nil
		case errors.Is(err, broker.ErrRefused) && time.Now().Before(end) && ctx.Err() == nil:
			continue // the answer took 200 ms: this is not a hot loop
		case errors.Is(err, broker.ErrForbidden):
			return false, broker.Errorf(broker.ErrForbidden, "the number of consumers of the queue is unknown: %s",
				broker.OneLine(err.Error()))
		case err != nil:
			return false, err
		case n > 0:
			return false, broker.Errorf(broker.ErrRefused, "the queue has %s", text.Count(n, "consumer"))
		}
		return false, nil
	}
}

// proveWhole fails with ErrUnreachable if [Client.Undeletable] says why the queue must stay.
func (m *Client) proveWhole(ctx context.Context, q topology.Queue) (gone bool, err error) {
	why, gone, err := m.Undeletable(ctx, q)
	if why != "" {
		err = broker.Errorf(broker.ErrUnreachable, "%s", why)
	}
	return gone, err
}

// Undeletable says why a quorum queue must not be deleted while the node of a member is down; empty
// if it may be. That member is not deleted. Once its node is up, it takes part in a later queue of
// the same name with the log of the deleted one (3.10.8, 4.0.5, and 4.3.6 without the feature flag
// track_qq_members_uids, which an upgrade does not enable; not with it). Consumers on that node
// then get messages again that were acknowledged, and their acknowledgements delete messages that
// no consumer got. The broker may report a node that has just stopped as up.
func (m *Client) Undeletable(ctx context.Context, q topology.Queue) (why string, gone bool, err error) {
	if q.Type() != topology.Quorum {
		return "", false, nil
	}
	var now livingQueue
	err = m.get(ctx, &now, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(q.Name))
	if isGone(err) {
		return "", true, nil
	}
	if err != nil {
		return "", false, err
	}
	down := slices.DeleteFunc(now.Members, func(node string) bool { return slices.Contains(now.Online, node) })
	if len(down) == 0 {
		return "", false, nil
	}
	var flags []flagState
	err = ifPermitted(m.get(ctx, &flags, featureFlags)) // what is not known refuses
	if err != nil || slices.Contains(flags, flagState{"track_qq_members_uids", "enabled"}) {
		return "", false, err
	}
	return fmt.Sprintf("a member of the queue is on a node that is down (%s), and would come back in a later queue of this name; start the node, or remove it from the cluster",
		text.Some(down)), false, nil
}
