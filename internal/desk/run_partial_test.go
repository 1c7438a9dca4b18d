package desk_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// A broker that nacks a message may have given it to a queue: to another one of those that get it,
// or to the one to which a full queue dead-letters what it refuses. A run publishes such a message
// once, stops, and says that it may be doubled.
func TestARunStopsAtAPartialNack(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	toAll, toFull := desk.Target{Exchange: "all", Key: "k"}, desk.Target{Queue: "full"}
	for name, tc := range map[string]struct {
		overflow     string
		target       desk.Target
		holds, edits bool
	}{
		"several queues":              {"reject-publish", toAll, true, false},
		"several queues, direct":      {"reject-publish", toAll, false, false},
		"reject-publish-dlx":          {"reject-publish-dlx", toFull, true, false},
		"several queues, edited":      {"reject-publish", toAll, true, true},
		"reject-publish-dlx, at once": {"reject-publish-dlx", toFull, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, topology.Quorum)
			if tc.holds {
				s.desk = s.desk.Holding()
			}
			s.fill(t, 4)
			s.declare(t, "other", nil)
			s.declare(t, "full", amqp091.Table{
				"x-max-length": 1, "x-overflow": tc.overflow, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other",
			})
			brokertest.PublishConfirmed(t, s.ch, "", "full", amqp091.Publishing{})
			brokertest.DeclareExchange(t, s.ch, "all", topology.Fanout, nil)
			for _, queue := range []string{"full", "other"} {
				brokertest.Bind(t, s.ch, queue, "", "all", nil)
			}
			q := request(t, desk.Replay)
			if tc.edits {
				q.Action, q.Limit = desk.Edit, 1
				q.Edited = &deadletter.Edited{Body: []byte(`{"order": 9}`), MessageID: "new"}
			}
			q.Target, q.Send = tc.target, desk.SendOptions{Rate: 10}
			if !tc.holds {
				q.Send.Rate = 0 // at once
			}
			r := s.execute(t, q)
			doubled := readyIn(t, s.ch, "other")
			if r.Direct == tc.holds || r.Stopped == "" || r.Moved > 0 || doubled == 0 || r.DoubledAtMost != doubled {
				t.Fatalf("%d are doubled: %+v", doubled, r)
			}
			has := counts(identities(s.drained(t, "other")))
			for id, n := range has {
				if n > 1 {
					t.Errorf("%s was published %d times", id, n)
				}
			}
			if left := r.Left + r.LeftInQueue; left != r.Chosen {
				t.Errorf("%d of %d are left", left, r.Chosen)
			}
		})
	}
}
