package desk_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A replay that nothing disturbs leaves no message that it has sent in the dead-letter queue. The
// nightly run repeats it, with DLXCTL_TEST_LONG.
func TestAReplayLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	const n = 400
	for round := range brokertest.Rounds(3, 50) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			var dead []amqp091.Publishing
			var all []string
			for i := range n {
				m := deadLetter("billing", "order.chosen", fmt.Sprint(i), i)
				dead, all = append(dead, m), append(all, identity(m.MessageId, m.Body))
			}
			s.buryAll(t, dead)
			if r := s.execute(t, request(t, desk.Replay)); r.Moved != n {
				t.Errorf("%d messages were sent, want %d", r.Moved, n)
			}
			lost, doubled := compareCounts(all, identities(s.drained(t, "billing")))
			conn, err := amqp.Dial(t.Context(), s.desk.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			left, _, err := conn.Settled(t.Context(), "billing.dead", 0)
			if err != nil || lost+doubled+left > 0 {
				t.Errorf("%d messages are lost, %d doubled, and %d left: %v", lost, doubled, left, err)
			}
		})
	}
}

// A connection that ends while the queue receives acknowledgements doubles nothing: the run looks
// through the queue again.
func TestARunWhoseAcknowledgementsAreInterrupted(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 200)
	cut := s.cutCommit(t)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err != nil && r.Run != "" { // the connection ended before Release
		r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
	}
	if err != nil || cut.Load() == 0 || r.DoubledAtMost > 0 {
		t.Fatalf("cut %d times, result %+v: %v", cut.Load(), r, err)
	}
	for queue, want := range map[string][]string{"billing": chosen, "billing.dead": rest} {
		if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
			t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
		}
	}
}

// Messages without a date that are in the hold and in the queue, as a connection of the run ended,
// stay in both, and are reported. The report does not speak of an earlier process: none was killed.
func TestARunWhoseAcknowledgementsAreInterruptedReportsItsOwnDoubles(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	var dead []amqp091.Publishing
	var all []string
	for i := range 20 {
		m := deadLetter("billing", "order.chosen", "", 1000*i+999) // it failed at a whole second
		dead, all = append(dead, m), append(all, identity(m.MessageId, m.Body))
	}
	s.buryAll(t, dead)
	cut := s.cutCommit(t)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err != nil && r.Run != "" { // the connection ended before Release
		r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
	}
	if err != nil || cut.Load() == 0 || r.DoubledAtMost == 0 {
		t.Fatalf("cut %d times, result %+v: %v", cut.Load(), r, err)
	}
	got := append(identities(s.drained(t, "billing")), identities(s.drained(t, "billing.dead"))...)
	if lost, doubled := compareCounts(all, got); lost > 0 || doubled == 0 || doubled > r.DoubledAtMost {
		t.Errorf("%d lost, %d doubled, at most %d reported", lost, doubled, r.DoubledAtMost)
	}
	var b strings.Builder
	if err := desk.WriteResult(&b, r.Action, r); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("at most %d may be doubled", r.DoubledAtMost); !strings.Contains(b.String(), want) ||
		strings.Contains(b.String(), "earlier process") {
		t.Error(b.String())
	}
}

// cutCommit has the runs of the shop use a hold, and cuts the first connection that is about to
// commit acknowledgements. It counts the commits.
func (s *shop) cutCommit(t *testing.T) (commits *atomic.Int32) {
	t.Helper()
	commits = new(atomic.Int32)
	s.desk = s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		commit := []byte{0, 90, 0, 20, 0xCE} // tx.commit, and the octet that ends its frame
		brokertest.Forward(client, server, func(piece []byte) bool {
			return !bytes.Contains(piece, commit) || commits.Add(1) > 1
		})
	})).Holding()
	return commits
}
