package desk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// spentLimit is a delivery limit of dlq with which a run may begin, and not go on. Since 4.3 what
// is dead-lettered brings a return along.
func spentLimit(target brokertest.Target) int64 {
	if target.AtLeast("4.3") {
		return 6
	}
	return 5
}

// newLimited returns a desk without a file, and three dead letters in dlq.
func newLimited(t *testing.T, target brokertest.Target) (s *shop, all []string) {
	t.Helper()
	s, all = newUnfiledOn(t, target, "quorum", 3)
	s.limitDLQ(t, map[string]any{})
	return s, all
}

// limitDLQ limits how often messages may be returned to dlq, by a policy that says more.
func (s *shop) limitDLQ(t *testing.T, more map[string]any) {
	t.Helper()
	more["delivery-limit"] = spentLimit(s.target)
	setPolicy(t, s.target, "policies", "dlq", more)
	brokertest.Eventually(t, "the broker to see the policy", func() bool {
		state, err := s.desk.Management.Inspect(t.Context())
		return err == nil && (state.QueuePolicies == nil || state.QueuePolicies["dlq"] == "dlq")
	})
}

// spendDLQ returns the messages of dlq as often as they may be returned.
func (s *shop) spendDLQ(t *testing.T) {
	t.Helper()
	for count := int64(0); count+1 < spentLimit(s.target); { // each time returns them once more
		count, _ = s.peeked(t, "dlq")[0].Headers["x-delivery-count"].(int64)
	}
}

// keepsAll checks that the queues have each message once.
func (s *shop) keepsAll(t *testing.T, all []string, queues ...string) {
	t.Helper()
	var got []string
	for _, queue := range queues {
		got = append(got, identities(s.drained(t, queue))...)
	}
	if lost, doubled := compareCounts(all, got); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	s.tidyDesk(t)
}

// returns gives back the only run, and checks that nothing went wrong.
func (s *shop) returns(t *testing.T) {
	t.Helper()
	r, err := s.desk.Return(t.Context(), s.onlyRun(t), nil)
	if err != nil || !r.Ended || r.DoubledAtMost > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// choosing returns a request to replay one message of dlq.
func choosing(t *testing.T, id int) desk.Request {
	t.Helper()
	f, err := deadletter.NewFilter(fmt.Sprintf("id == %q", fmt.Sprint(id)))
	if err != nil {
		t.Fatal(err)
	}
	return desk.Request{Action: desk.Replay, Queue: "dlq", Filter: f}
}

// A run stops while it takes, is resumed until that is refused, some times more, and is returned.
// Each step returns the messages that the run does not choose. The queue has each of them once in
// the end: none was brought over its delivery limit.
func TestAReturnDoesNotBringMessagesOverTheirLimit(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		for more := range 4 {
			t.Run(fmt.Sprintf("killed %v, refused %d times", killed, more+1), func(t *testing.T) {
				t.Parallel()
				s, all := newLimited(t, brokertest.VHost(t))
				if killed {
					k := task{
						Action: desk.Replay, Queue: "dlq", Where: `id == "1"`, Hold: true,
						StallIn: desk.Taking, StallAt: 1,
					}
					if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
						t.Fatal("it was not killed")
					}
				} else {
					takenBy(t, unfiled(t, s.target).Holding(), choosing(t, 1), 1)
				}
				for range more + 1 {
					r, err := s.desk.Resume(t.Context(), s.onlyRun(t), nil, nil)
					if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "(delivery limit ") {
						t.Fatalf("%+v, %v", r, err)
					}
				}
				s.returns(t)
				s.keepsAll(t, all, "dlq")
			})
		}
	}
}

// Other looks use up the returns of a queue before a proposal is executed. The run moves the
// message that it chose, if its target accepts it, and the queue keeps the others.
func TestAnOldProposalDoesNotBringMessagesOverTheirLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		holds bool
		to    string
		moved int
	}{
		"through a hold": {holds: true, to: "keep", moved: 1},
		"directly":       {to: "keep", moved: 1},
		"nowhere":        {to: "full"},
	} {
		for chosen := range 2 {
			t.Run(fmt.Sprintf("%s, message %d", name, chosen), func(t *testing.T) {
				t.Parallel()
				s, all := newLimited(t, brokertest.VHost(t))
				s.declare(t, "full", amqp091.Table{
					"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish",
				})
				d := unfiled(t, s.target)
				if tc.holds {
					d.Holding()
				}
				q := choosing(t, chosen)
				q.Target.Queue = tc.to
				p, err := d.Propose(t.Context(), q)
				if err != nil || len(p.Refusals) > 0 {
					t.Fatal(p.Refusals, err)
				}
				s.spendDLQ(t)
				r, err := d.Execute(t.Context(), p, nil)
				if err != nil || r.Moved != tc.moved || r.Missing+r.DoubledAtMost > 0 || r.Direct == tc.holds {
					t.Errorf("%+v, %v", r, err)
				}
				s.awaitReady(t, tc.to, tc.moved)
				s.keepsAll(t, all, "dlq", tc.to)
			})
		}
	}
}

// Where a message that has used up its returns cannot be copied, as its queue is full and rejects
// messages, the return of a run is refused before it holds any, and works as the refusal says.
func TestAReturnToAFullQueueIsRefusedInTime(t *testing.T) {
	t.Parallel()
	s, all := newLimited(t, brokertest.VHost(t))
	takenBy(t, unfiled(t, s.target).Holding(), choosing(t, 1), 1)
	s.spendDLQ(t)
	s.limitDLQ(t, map[string]any{"max-length": 2, "overflow": "reject-publish"})
	for range 3 {
		r, err := s.desk.Return(t.Context(), s.onlyRun(t), nil)
		if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "raise max-length") {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	s.limitDLQ(t, map[string]any{"max-length": 10, "overflow": "reject-publish"})
	brokertest.Eventually(t, "the return, once the higher limit is in effect", func() bool {
		r, err := s.desk.Return(t.Context(), s.onlyRun(t), nil)
		if err != nil && !errors.Is(err, desk.ErrRefused) {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Ended
	})
	s.keepsAll(t, all, "dlq")
}

// During an alarm no message can be copied: a return is refused before it holds any, and does not
// hang. After the alarm it gives back.
func TestAReturnDuringAnAlarmIsRefusedInTime(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	s, all := newLimited(t, node.VHost(t))
	takenBy(t, unfiled(t, s.target).Holding(), choosing(t, 1), 1)
	s.spendDLQ(t)
	node.Alarm(t, true)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := s.desk.Return(ctx, s.onlyRun(t), nil)
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "accepts no messages") {
		t.Errorf("%+v, %v", r, err)
	}
	node.Alarm(t, false)
	s.returns(t)
	s.keepsAll(t, all, "dlq")
}
