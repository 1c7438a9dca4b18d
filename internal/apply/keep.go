package apply

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// tierKeeper leaves retired retry and failed queues in which messages still wait for a
// later run, and with them the return bindings of these messages; also previous dead-letter queues
// that are not empty. The broker refuses to delete such queues: nothing is lost.
type tierKeeper struct {
	Converger

	mu   sync.Mutex
	kept map[topology.Key]bool
}

// Apply carries out a change, or notes that it has to wait.
func (k *tierKeeper) Apply(ctx context.Context, c plan.Change) error {
	// The queues come before the bindings that lead their messages back.
	if c.ReturnPath && k.keepsAny() {
		k.keep(c)
		return nil
	}
	err := k.Converger.Apply(ctx, c)
	generated := c.Label.Role == topology.RoleRetry || c.Label.Role == topology.RoleFailed || c.Outdated
	deletesQueue := c.Action == plan.Delete && c.Kind == topology.KindQueue
	mayLose := slices.Contains(c.Hazards, topology.LosesMessages)
	if deletesQueue && generated && !mayLose && errors.Is(err, broker.ErrRefused) {
		k.keep(c)
		return nil
	}
	return err
}

// keep notes that c has to wait.
func (k *tierKeeper) keep(c plan.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[keyOf(c)] = true
}

// keepsAny reports whether a queue stays.
func (k *tierKeeper) keepsAny() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.kept) > 0
}

// keyOf returns the key of the object that c changes.
func keyOf(c plan.Change) topology.Key { return topology.Key{Kind: c.Kind, Name: c.Name} }
