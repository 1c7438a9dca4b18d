package desk_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

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
}
