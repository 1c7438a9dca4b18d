package desk_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// No search finds a message by a message-id that is masked: it would tell that a guess is right.
func TestNoSearchFindsAMaskedMessageID(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	const masked, plain = "order-ann@example.com", "order-4711"
	for i, id := range []string{masked, plain} {
		brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", deadLetter("billing", "order.chosen", id, i))
	}
	rules, err := redact.New(redact.Rules{Types: []string{"email"}})
	if err != nil {
		t.Fatal(err)
	}
	s.desk.Reader.Redactor = func(string) *redact.Redactor { return rules }
	for id, want := range map[string]int{masked: 0, plain: 1} {
		found, err := s.desk.Seek(t.Context(), id, desk.LookOptions{})
		if err != nil || len(found.Found) != want || found.LookedAt != 2 {
			t.Errorf("%s: %d of %d found, %v", id, len(found.Found), found.LookedAt, err)
		}
	}
}

// While the leader of a quorum queue is silent, the broker counts no message there. A search does
// not say that there is no such message.
func TestASearchNeedsTheLeader(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := newShopOn(t, node.VHost(t), shopFile("quorum"))
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", deadLetter("billing", "order.chosen", "sought", 1))
	leader := func(call string) {
		t.Helper()
		node.Eval(t, fmt.Sprintf(
			`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"billing.dead">>)),
			%s(element(1, amqqueue:get_pid(Q))), ok.`, s.target.VHost, call))
	}
	leader("sys:suspend")
	found, err := s.desk.Seek(t.Context(), "sought", desk.LookOptions{})
	if err == nil && len(found.NotLookedAt) == 0 {
		t.Errorf("the leader is silent, and the search says: %+v", found)
	}
	t.Logf("%+v, %v", found, err)
	leader("sys:resume")
	if found, err := s.desk.Seek(t.Context(), "sought", desk.LookOptions{}); err != nil || len(found.Found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}

	// For a leader that is gone it counts none at once.
	leader("ok = (fun(Member) -> ra:stop_server(quorum_queues, {Member, node()}) end)")
	looked, err := s.desk.Look(t.Context(), "billing.dead", desk.LookOptions{},
		func(deadletter.Message) error { return nil })
	if !errors.Is(err, desk.ErrRefused) {
		t.Errorf("the leader is gone, and a look says: %+v, %v", looked, err)
	}
}
