package desk_test

import (
	"bytes"
	"fmt"
	"net"
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
	var cut atomic.Int32
	s.desk = s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		commit := []byte{0, 90, 0, 20, 0xCE} // tx.commit, and the octet that ends its frame
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil || bytes.Contains(buffer[:n], commit) && cut.Add(1) == 1 {
				return
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	})).Holding()
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
