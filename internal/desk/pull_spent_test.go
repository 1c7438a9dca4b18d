package desk_test

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// limit sets how often billing and billing.dead may be given a message back. Zero takes that away.
func (s *shop) limit(t *testing.T, limit int) {
	t.Helper()
	path, want := "policies/"+url.PathEscape(s.target.VHost)+"/limit", "limit"
	if limit > 0 {
		s.target.Call(t, "PUT", path, map[string]any{
			"pattern": `^billing(\.dead)?$`, "apply-to": "queues", "definition": map[string]any{"delivery-limit": limit},
			"priority": 9,
		})
	} else {
		s.target.Call(t, "DELETE", path, nil)
		want = ""
	}
	brokertest.Eventually(t, "the broker to see the policy", func() bool {
		state, err := s.desk.Management.Inspect(t.Context())
		return err == nil && (state.QueuePolicies == nil || state.QueuePolicies["billing"] == want)
	})
}

// order publishes a message of billing, which is its n-th.
func (s *shop) order(t *testing.T, key string, n int) {
	t.Helper()
	brokertest.PublishConfirmed(t, s.ch, "events", key, amqp091.Publishing{MessageId: strconv.Itoa(n)})
}

// Each pull, and each that is refused, returns the messages that it does not choose, which a quorum
// queue counts. However often it is tried, none of them is brought over its delivery limit: those
// at the limit are copied to the tail, which is said, and count anew.
func TestPullsDoNotBringMessagesOverTheirLimit(t *testing.T) {
	t.Parallel()
	const limit, rest = 7, 20
	s := newShop(t, "quorum")
	s.limit(t, limit)
	var want []string
	for i := range rest {
		s.order(t, "order.stays", i)
		want = append(want, strconv.Itoa(i))
	}
	pulled, refused := 0, 0
	for cost := ""; !strings.Contains(cost, "to the tail"); {
		if refused == 0 {
			s.order(t, "order.chosen", rest+pulled)
		}
		s.awaitReady(t, "billing", rest+1)
		p, err := s.desk.Propose(t.Context(), pullRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		if cost = p.Looked.Cost; len(p.Refusals) == 0 {
			if r, err := s.desk.Execute(t.Context(), p, nil); err != nil || r.Moved != 1 {
				t.Fatalf("%+v: %v", r, err)
			}
			pulled++
			continue
		}
		refused++
		s.awaitReady(t, "billing", rest+1)
		if failed := readyIn(t, s.ch, "shop.quick.failed"); failed > 0 || refused > limit ||
			!strings.Contains(p.Refusals[0], "a pull returns the messages that it does not choose") {
			t.Fatalf("%d messages have failed; refused %d times: %s", failed, refused, p.Refusals)
		}
		if refused == 1 { // so far the order is as it was
			var has []string
			for _, d := range s.peeked(t, "billing") {
				has = append(has, d.MessageId)
			}
			if d := cmp.Diff(append(want, strconv.Itoa(rest+pulled)), has); d != "" {
				t.Errorf("billing (-want +got):\n%s", d)
			}
		}
	}
	if dead := readyIn(t, s.ch, "billing.dead"); pulled < 2 || dead != pulled {
		t.Errorf("%d were pulled, and billing.dead has %d", pulled, dead)
	}
	t.Logf("%d pulls, refused %d times", pulled, refused)
}

// A run is interrupted while it takes, and resumed, over and over. Each process returns the
// messages that are not chosen. Before one of them would be over the delivery limit of its queue,
// the run is refused. With a higher limit it goes on.
func TestResumesDoNotBringMessagesOverTheirLimit(t *testing.T) {
	t.Parallel()
	const messages = 20
	for _, action := range []desk.Action{desk.Pull, desk.Replay} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.limit(t, 10)
			from, to, r := "billing", "billing.dead", pullRequest(t)
			if action == desk.Replay {
				from, to, r = "billing.dead", "billing", request(t, desk.Replay)
			}
			for i := range messages {
				key := "order.stays"
				if i == messages/2 {
					key = "order.chosen"
				}
				if action == desk.Replay {
					brokertest.PublishConfirmed(t, s.ch, "", from, deadLetter("billing", key, fmt.Sprint(i), i))
				} else {
					s.order(t, key, i)
				}
			}
			s.awaitReady(t, from, messages)
			through, proxy := brokertest.NewProxy(t, s.target)
			d := s.deskOn(t, through).Holding()
			p, err := d.Propose(t.Context(), r)
			if err != nil || len(p.Refusals) > 0 {
				t.Fatal(p.Refusals, err)
			}
			result, err := d.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase == desk.Taking {
					proxy.Cut() // the copy is in the hold, and nothing is acknowledged
				}
			})
			before := moment{sent: recordOfAcks()} // of a pull; another run counts the queue, and then takes
			if action == desk.Replay {
				before.sent = []byte("takes " + result.Run)
			}
			resumed := 0
			for ; err != nil && !errors.Is(err, desk.ErrRefused) && resumed < 12; resumed++ {
				s.awaitReady(t, from, messages)
				d = s.deskOn(t, before.reach(t, s.target, func() {})).Holding()
				result, err = d.Resume(t.Context(), result.Run, nil, nil)
			}
			if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "(delivery limit 10)") {
				t.Fatalf("resumed %d times: %+v, %v", resumed, result, err)
			}
			t.Logf("refused at the %d. time: %v", resumed, err)
			s.awaitReady(t, from, messages)
			s.limit(t, 0)
			result, err = s.desk.Resume(t.Context(), result.Run, nil, nil)
			if err != nil || !result.Ended || result.Moved != 1 || result.DoubledAtMost > 0 {
				t.Fatalf("%+v: %v", result, err)
			}
			s.awaitReady(t, from, messages-1)
			s.awaitReady(t, to, 1)
			s.awaitReady(t, "shop.quick.failed", 0)
			s.tidy(t)
		})
	}
}
