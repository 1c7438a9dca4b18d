package desk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// lookWithoutTheNode stops the first node while it has the only member of a dead-letter queue, and
// a classic queue.
func lookWithoutTheNode(t *testing.T, nodes []*brokertest.Server) {
	t.Helper()
	s := newShopOn(t, nodes[0].VHost(t), shopFile("quorum"))
	// A deletion is refused, or not answered in time, while the one before is not committed or a
	// leader is elected. That of a member that is gone does nothing.
	brokertest.Eventually(t, "the first node to have the only member", func() bool {
		for _, other := range nodes[1:] {
			nodes[0].Eval(t, fmt.Sprintf(
				`catch rabbit_quorum_queue:delete_member(<<"%s">>, <<"billing.dead">>, '%s'), ok.`,
				s.target.VHost, other.Name(t)))
		}
		members, _ := s.target.Queue(t, "billing.dead")["members"].([]any)
		return slices.Equal(members, []any{nodes[0].Name(t)})
	})
	s.declare(t, "classic.dead", amqp091.Table{"x-queue-type": "classic"})
	for _, queue := range []string{"billing.dead", "classic.dead"} {
		brokertest.PublishConfirmed(t, s.ch, "", queue, deadLetter("billing", "order.chosen", "sought", 1))
	}
	s.declare(t, "stream", amqp091.Table{"x-queue-type": "stream", "x-initial-cluster-size": 1})
	brokertest.PublishConfirmed(t, s.ch, "", "stream", deadLetter("billing", "order.chosen", "sought", 1))
	elsewhere := s.deskOn(t, nodes[1].See(t, s.target))
	brokertest.Eventually(t, "the refusal of a stream that is on another node", func() bool {
		_, err := elsewhere.Look(t.Context(), "stream", desk.LookOptions{}, func(deadletter.Message) error { return nil })
		return errors.Is(err, desk.ErrRefused)
	})
	nodes[0].Stop(t)
	s.saysThatTheNodeIsDown(t, elsewhere)
	nodes[0].Start(t)
	brokertest.Eventually(t, "the message", func() bool {
		looked, err := s.desk.Look(t.Context(), "billing.dead", desk.LookOptions{},
			func(deadletter.Message) error { return nil })
		return err == nil && looked.Looked == 1
	})
}

// saysThatTheNodeIsDown checks what all commands say that look at dead-letter queues.
func (s *shop) saysThatTheNodeIsDown(t *testing.T, d *desk.Desk) {
	t.Helper()
	for _, queue := range []string{"billing.dead", "classic.dead"} {
		looked, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(deadletter.Message) error { return nil })
		if !errors.Is(err, desk.ErrRefused) || strings.Contains(err.Error(), "does not exist") {
			t.Errorf("a look at %s: %+v, %v", queue, looked, err)
		}
	}
	unlooked := func(all []desk.Unlooked) bool {
		return slices.ContainsFunc(all, func(u desk.Unlooked) bool {
			return u.Queue == "billing.dead" && !strings.Contains(u.Why, "not exist")
		})
	}
	digest, err := d.Digest(t.Context(), time.Time{}, desk.LookOptions{})
	if err != nil || !unlooked(digest.NotLookedAt) {
		t.Errorf("the digest: %+v, %v", digest, err)
	}
	err = d.Find(t.Context(), []string{"classic.dead", "shop.unroutable"}, "0123456789ab", desk.LookOptions{},
		func(deadletter.Message, deadletter.View) error { return nil })
	if !errors.Is(err, desk.ErrRefused) {
		t.Errorf("a message by its handle: %v", err)
	}
	sought, err := d.Seek(t.Context(), "sought", desk.LookOptions{})
	if err != nil || !unlooked(sought.NotLookedAt) {
		t.Errorf("the search: %+v, %v", sought, err)
	}
	overview, err := d.Overview(t.Context(), desk.LookOptions{Messages: 10})
	if err != nil || !slices.ContainsFunc(overview.Queues, func(q desk.QueueOverview) bool {
		return q.Queue == "billing.dead" && q.Exists && q.Unknown && q.NotLooked != ""
	}) {
		t.Errorf("the overview: %+v, %v", overview, err)
	}
}

// A user who may not read a queue, and so cannot prove that it is empty, is told so as before.
func TestALookAtAnEmptyQueueNeedsNoRightToRead(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	brokertest.Declare(t, target.Channel(t), "empty", amqp091.Table{"x-queue-type": "quorum"})
	looked, err := deskOf(t, target.User(t, "management", "", "empty", "")).Look(t.Context(), "empty", desk.LookOptions{},
		func(deadletter.Message) error { return nil })
	if err != nil || looked.Messages != 0 {
		t.Errorf("%+v, %v", looked, err)
	}
}

// A queue whose node is down is not in the lists of the broker since 4.3, but for the names of such
// queues. It is not passed over like one that does not exist.
func TestAQueueWhoseNodeIsDownExists(t *testing.T) {
	t.Parallel()
	state := topology.State{Down: []string{"classic.dead"}}
	state.Have.Queues = []topology.Queue{{Name: "billing.dead"}}
	got := desk.Existing(state, "classic.dead", "gone.dead", "billing.dead")
	if !slices.Equal(got, []string{"classic.dead", "billing.dead"}) {
		t.Errorf("the message is sought in %v", got)
	}
}
