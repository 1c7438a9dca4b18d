package desk_test

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// cuttable has the desk of the shop reach the broker through a proxy. The returned function cuts
// the connection of a run that does something, such as "listens". It is also cut once it has sent
// what is in at, unless that is empty.
func (s *shop) cuttable(t *testing.T, does, at string) (cut func()) {
	t.Helper()
	var found atomic.Pointer[net.Conn]
	s.desk = s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		buffer, name := make([]byte, 1<<16), []byte("dlxctl desk "+does+" 2") // the year of the run
		for is := false; ; {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if bytes.Contains(buffer[:n], name) {
				found.Store(&client)
				is = true
			}
			_, err = server.Write(buffer[:n])
			if err != nil || is && at != "" && bytes.Contains(buffer[:n], []byte(at)) {
				return
			}
		}
	}))
	return func() { _ = (*found.Load()).Close() }
}

// A run that does not hear failures any more, as the connection that listens is lost, stops. One
// that has sent all says that it has not heard.
func TestARunThatCannotListenStops(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 40
	for name, at := range map[string]int{"while it sends": 10, "after the last message": n} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			cut := s.cuttable(t, "listens", "")
			s.consume(t, "billing", func(amqp091.Delivery) bool { return false })
			s.bury(t, 4*n)
			q := request(t, desk.Replay)
			q.Send = desk.SendOptions{Rate: 20, Ramp: []int{n}, StopFailures: 3, Settle: time.Second}
			p, err := s.desk.Propose(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			lost := false
			r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase == desk.Sending && p.Done == at && !lost {
					lost = true
					cut()
				}
			})
			const unheard = "billing (the connection that listened was lost)"
			if !slices.Equal(r.Unheard, []string{unheard}) {
				t.Errorf("failures are not heard in %q, want %q", r.Unheard, unheard)
			}
			if all := at == n; r.Ended != all || (r.Left == 0) != all || r.Stopped != "" || (err == nil) != all ||
				err != nil && !strings.Contains(err.Error(), "dlxctl desk run resume "+r.Run) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
