package desk_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A batch of the ramp is read once the consumers have read as many messages as the queue had when
// the batch was sent, however many arrive later.
func TestABatchIsReadBeforeTheQueueIsEmpty(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		now  [][2]int // ready, delivered
		want []int
	}{
		"as many arrive as leave":  {[][2]int{{100, 7000}, {100, 7050}, {100, 7099}, {100, 7100}}, []int{100, 100, 100, 0}},
		"fewer are ready than had": {[][2]int{{80, 7000}, {20, 7060}, {3, 7097}}, []int{80, 20, 3}},
		"nothing is delivered":     {[][2]int{{100, 0}, {150, 0}, {200, 0}}, []int{100, 100, 100}},
		"the counts begin anew":    {[][2]int{{100, 7000}, {100, 10}, {100, 90}, {100, 110}}, []int{100, 100, 100, 0}},
		"it stays read":            {[][2]int{{100, 0}, {50, 100}, {500, 100}}, []int{100, 0, 0}},
	} {
		if got := desk.BacklogLeft(100, tc.now...); !slices.Equal(got, tc.want) {
			t.Errorf("%s: left %v, want %v", name, got, tc.want)
		}
	}
}

// A ramp continues although its target queue is never empty. The statistics of the broker lag, so
// this takes half a minute for each batch: it runs only with DLXCTL_TEST_BACKLOG.
func TestRampIntoABacklog(t *testing.T) {
	t.Parallel()
	if os.Getenv("DLXCTL_TEST_BACKLOG") == "" {
		t.Skip("a long experiment; set DLXCTL_TEST_BACKLOG to run it")
	}
	s := newShop(t, "quorum")
	s.bury(t, 40)
	ch := s.target.Confirming(t)
	brokertest.Fill(t, ch, "", "billing", 50, 10)
	s.awaitReady(t, "billing", 50)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // one arrives, one leaves: the queue keeps its length
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = ch.Publish("", "billing", false, false, amqp091.Publishing{MessageId: "another"})
				_, _, _ = ch.Get("billing", true)
			case <-ctx.Done():
				return
			}
		}
	}()
	q := request(t, desk.Replay)
	q.Send = desk.SendOptions{Ramp: []int{1}, Settle: 100 * time.Millisecond}
	p, err := s.desk.Propose(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r, err := s.desk.Execute(within, p, nil)
	if err != nil || r.Moved != 10 || time.Duration(r.Took) < management.StatisticsLag {
		t.Errorf("%+v, %v", r, err)
	}
	stop()
	<-ended
}
