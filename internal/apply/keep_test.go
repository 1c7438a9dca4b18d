package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// full refuses to delete one queue, as the broker does while it has messages.
type full struct {
	Converger

	queue   string
	deleted []string
}

func (f *full) Apply(_ context.Context, c plan.Change) error {
	if c.Kind == topology.KindQueue && c.Name == f.queue {
		return broker.ErrRefused
	}
	f.deleted = append(f.deleted, c.Name)
	return nil
}

// Once a queue of a delay turns out to have messages, nothing else of that delay is deleted, and
// the run does not say that it is done. A level alone may go later.
func TestADelayWithMessagesIsNotRemovedWhole(t *testing.T) {
	t.Parallel()
	d := topology.NewDelay("shop", "shop.later", "events", 2e9, false)
	broker := &full{queue: d.Intake}
	k := &tierKeeper{Converger: broker, kept: map[topology.Key]bool{}, delays: map[string][]string{}}
	remove := func(kind topology.Kind, name string, role topology.Role, delay string) {
		c := plan.Change{
			Action: plan.Delete, Kind: kind, Name: name, Label: topology.Label{Role: role, Delay: delay},
		}
		if err := k.Apply(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	remove(topology.KindQueue, d.Intake, topology.RoleFailed, d.Name)
	remove(topology.KindQueue, d.Due, topology.RoleFailed, d.Name)
	remove(topology.KindExchange, d.LevelExchange, topology.RoleRetry, d.Name)
	remove(topology.KindQueue, "other", topology.RoleFailed, "other.later")
	if !slices.Equal(broker.deleted, []string{"other"}) {
		t.Errorf("it has deleted %q", broker.deleted)
	}
	err := k.undelayed(topology.Compiled{})
	if _, is := errors.AsType[*UnfinishedError](err); !is || !strings.Contains(err.Error(), d.Intake+" stay") {
		t.Errorf("the error is %v", err)
	}
	if err := k.undelayed(topology.Compiled{Delays: []topology.Delay{d}}); err != nil {
		t.Errorf("where it stays in the file: %v", err)
	}
}

// What stays because of messages is said of queues alone, and of each once.
func TestOnlyQueuesHoldMessages(t *testing.T) {
	t.Parallel()
	left := plan.Plan{Retiring: []string{"shop.a.retry.1s"}, Changes: []plan.Change{
		{Action: plan.Delete, Kind: topology.KindExchange, Name: "shop.unroutable"},
		{Action: plan.Delete, Kind: topology.KindQueue, Name: "shop.unroutable"},
		{Action: plan.Delete, Kind: topology.KindExchange, Name: "shop.return"},
	}}
	if got := holding(left); !slices.Equal(got, []string{"shop.a.retry.1s", "shop.unroutable"}) {
		t.Error(got)
	}
}
