package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// changeTime is how long a run waits for the end of a command that changes the topology.
const changeTime = time.Minute

// unchanging does something while no other command of dlxctl changes the topology: it holds the
// lock of the topology meanwhile. While another command has the lock it calls waiting with a line
// that says so. The run stops if that command does not end in time. If unchanging fails, the work
// may have been done without the lock, and must be undone.
func (s *session) unchanging(ctx context.Context, waiting func(line string), do func() error) error {
	d, m := s.worker.desk, s.manifest
	name := topology.LockName(d.Topology.Name)
	conn, err := d.lock(ctx, wish{
		what: string(m.Action) + " " + m.Run, queue: name,
		taken: fmt.Sprintf("another dlxctl holds the lock of the topology %q", d.Topology.Name),
		fix:   "wait for its end, then " + s.again(),
		wait:  cmp.Or(d.ChangeWait, changeTime), waiting: waiting,
	})
	if errors.Is(err, ErrRefused) {
		return stopped(err.Error())
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := do(); err != nil {
		return err
	}
	// The connection has held the lock all the time if it can free it now.
	if err := conn.Unlock(name); err != nil {
		return fmt.Errorf("the lock of the topology was lost: %w", err)
	}
	return nil
}

// failureRoutes returns the queues whose failures the topology routes: true if the failed exchange
// does so itself, and false if it leaves them to its next exchange, as in the middle of a change.
func failureRoutes(t topology.Compiled, state topology.State) map[string]bool {
	name := t.Name
	out, failed := map[string]bool{}, topology.FailedExchangeName(name)
	for _, b := range state.Have.Bindings {
		queue, address := strings.CutPrefix(b.Key, addressPrefix)
		if owner, _ := topology.Owner(b.Arguments); !address || owner != name {
			continue
		}
		if direct := b.Source == failed; direct || b.Source == topology.NextExchangeName(failed) {
			out[queue] = out[queue] || direct
		}
	}
	if direct, routed := out[""]; routed { // the address that names no queue
		for _, w := range t.WorkQueues {
			if w.Match != "" {
				out[w.Name] = direct
			}
		}
	}
	return out
}

// failureKey returns the routing key of the failures of a queue. No run must listen to the address
// of a queue that a match covers: what a consumer publishes under it takes the alternate exchange.
func failureKey(t topology.Compiled, queue string) string {
	if w, _ := t.WorkQueue(queue); w.Match != "" {
		return topology.UnnamedAddress
	}
	return topology.AddressKey(queue)
}

// unfinishedChange says that failures of some of these queues take the alternate exchange. They
// would not do so while a run listens: what a binding of the run matches is matched, and so the
// failures would reach nothing but the run. Empty: of none.
func unfinishedChange(queues []string, routes map[string]bool) string {
	var changing []string
	for _, queue := range queues {
		if direct, routed := routes[queue]; routed && !direct {
			changing = append(changing, text.Name(queue))
		}
	}
	if len(changing) == 0 {
		return ""
	}
	slices.Sort(changing)
	return fmt.Sprintf("a change of the backoff of %s is not finished, and failures would be lost while a run listens for them; run 'dlxctl apply' first",
		strings.Join(changing, ", "))
}
