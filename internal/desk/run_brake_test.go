package desk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/processor"
)

// process runs a processor for the shop until the test ends.
func (s *shop) process(t *testing.T) {
	t.Helper()
	p := &processor.Processor{
		Topology: s.topology, Endpoint: s.desk.Endpoint, Prefetch: 100, PrefetchBytes: 32 << 20,
		Grace: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("processor: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// consume is a consumer of a queue. It rejects what fails reports to fail.
func (s *shop) consume(t *testing.T, queue string, fails func(amqp091.Delivery) bool) {
	t.Helper()
	s.consumeWith(t, queue, 10, func(d amqp091.Delivery) error {
		if fails(d) {
			return d.Reject(false)
		}
		return d.Ack(false)
	})
}

// consumeWith is a consumer of a queue with a prefetch. It ends when settle fails, as the test is
// over then.
func (s *shop) consumeWith(t *testing.T, queue string, prefetch int, settle func(amqp091.Delivery) error) {
	t.Helper()
	ch := s.target.Channel(t)
	deliveries := brokertest.Consume(t, ch, queue, prefetch)
	go func() {
		for d := range deliveries {
			if settle(d) != nil {
				return
			}
		}
	}()
}

// A run stops within a moment when replayed messages fail again. Each message counts once, although
// it fails in each tier, and the rest stays in the hold.
func TestBrake(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.process(t)
	var mu sync.Mutex
	var first time.Time
	s.consume(t, "billing", func(amqp091.Delivery) bool {
		mu.Lock()
		defer mu.Unlock()
		if first.IsZero() {
			first = time.Now()
		}
		return true
	})
	chosen, _ := s.bury(t, 400)
	q := request(t, desk.Replay)
	q.Send = desk.SendOptions{Rate: 20, StopFailures: 3}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil || len(p.Notes) > 0 {
		t.Fatal(p.Notes, err)
	}
	var last desk.Progress
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	t.Logf("stopped %s after the first failure: %q", time.Since(first).Round(time.Millisecond), r.Stopped)
	mu.Unlock()
	if !strings.Contains(r.Stopped, "failed again") || r.FailedAgain < 3 || r.Moved > 20 ||
		r.Moved+r.Left != len(chosen) {
		t.Errorf("%+v", r)
	}
	if last.LastFailure != "rejected" || last.LastFailureKey != "order.chosen" {
		t.Errorf("the last failure: %+v", last)
	}
	// What failed is a dead letter again, and keeps the headers of the desk through all tiers.
	dead := 0
	brokertest.Eventually(t, "the failed ones to be dead letters", func() bool {
		dead = readyIn(t, s.ch, "billing.dead")
		return dead == 300+r.Moved
	}, &dead)
	for _, d := range s.drained(t, "billing.dead")[300:] {
		if d.Headers["desk-run"] != r.Run || d.Headers["desk-replays"] != int64(1) ||
			d.Headers["retry-attempts"] != int64(2) {
			t.Errorf("headers %v", d.Headers)
		}
	}
	if _, err := s.desk.Return(t.Context(), r.Run, nil); err != nil {
		t.Fatal(err)
	}
	s.tidy(t)
}

// A batch of the ramp that fails is the last one.
func TestRamp(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		fails   bool
		moved   int
		stopped bool
	}{
		"all good":  {false, 50, false},
		"first bad": {true, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "classic")
			s.process(t)
			s.consume(t, "billing", func(amqp091.Delivery) bool { return tc.fails })
			s.bury(t, 200)
			q := request(t, desk.Replay)
			q.Send = desk.SendOptions{Ramp: []int{1, 10}, Settle: 500 * time.Millisecond}
			if r := s.execute(t, q); r.Moved != tc.moved || (r.Stopped != "") != tc.stopped {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A run whose last batch fails says so, and has ended: nothing is left to resume. It closes its
// hold while it listens.
func TestALastBatchIsHeard(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.process(t)
	var mended atomic.Bool
	s.consume(t, "billing", func(amqp091.Delivery) bool { return !mended.Load() })
	s.bury(t, 8)
	q := request(t, desk.Replay)
	q.Limit, q.Send = 1, desk.SendOptions{Rate: 10, Ramp: []int{1, 10}, Settle: time.Second}
	const why = `1 of a batch of 1 failed again, the last one with key "order.chosen": rejected`
	if r := s.execute(t, q); r.Moved != 1 || !r.Ended || r.FailedAgain != 1 || r.Stopped != why {
		t.Errorf("%+v", r)
	}
	s.tidy(t)
	mended.Store(true)
	if r := s.execute(t, q); r.Moved != 1 || !r.Ended || r.FailedAgain != 0 || r.Stopped != "" || len(r.Unheard) > 0 {
		t.Errorf("%+v", r)
	}
	s.tidy(t)
}

// A consumer that says why it failed publishes to the exchange of failures with the address of its
// queue. A run that stops names the key of the publisher.
func TestTheBrakeNamesTheKeyOfThePublisher(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	s.process(t)
	says := s.target.Confirming(t)
	s.consumeWith(t, "billing", 1, func(d amqp091.Delivery) error {
		h := d.Headers
		delete(h, "CC")
		h["retry-error"] = "no such customer"
		for name, v := range map[string]string{"retry-exchange": d.Exchange, "retry-routing-key": d.RoutingKey} {
			if _, set := h[name]; !set {
				h[name] = v
			}
		}
		confirm, err := says.PublishWithDeferredConfirm("shop.failed", "@billing", true, false,
			amqp091.Publishing{MessageId: d.MessageId, Headers: h, Body: d.Body})
		if err != nil || !confirm.Wait() {
			return errors.Join(err, amqp091.ErrClosed) // the test is over
		}
		return d.Ack(false)
	})
	s.bury(t, 8)
	q := request(t, desk.Replay)
	q.Limit, q.Send = 1, desk.SendOptions{Rate: 10, Ramp: []int{1, 10}, Settle: time.Second}
	const why = `1 of a batch of 1 failed again, the last one with key "order.chosen": no such customer`
	if r := s.execute(t, q); r.Stopped != why {
		t.Errorf("%+v", r)
	}
}

// A run with the limits of the command line sends all of its messages and ends: the records in its
// hold, which are not sent, take no part in the pace.
func TestAPacedRunEnds(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, n := range []int{4, 40, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.process(t)
			s.consume(t, "billing", func(amqp091.Delivery) bool { return false })
			chosen, _ := s.bury(t, n)
			q := request(t, desk.Replay)
			q.Send = desk.SendOptions{
				Rate: 100, Ramp: []int{1, 10, 100}, MaxWaiting: 1000, StopFailures: 3, Settle: 100 * time.Millisecond,
			}
			if r := s.execute(t, q); r.Moved != len(chosen) || r.Left != 0 || r.Stopped != "" {
				t.Errorf("%+v", r)
			}
			s.tidy(t)
		})
	}
}

// With two target queues, of which one has no consumer, each batch waits until the consumers of the
// other have read the one before, also after the last batch.
func TestABatchIsReadWhereThereAreConsumers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum") // audit has no consumer
	chosen, _ := s.bury(t, 12)
	const before = 3
	brokertest.PublishConfirmed(t, s.ch, "", "billing", make([]amqp091.Publishing, before)...)
	read := make(chan struct{})
	s.consumeOneByOne(t, "billing", read)
	s.awaitReady(t, "billing", before-1)
	q := request(t, desk.Replay)
	q.Target = desk.Target{Exchange: "events", Key: "order.chosen"}
	q.Send = desk.SendOptions{Ramp: []int{1, 2}, Settle: 50 * time.Millisecond}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	var waits []string
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		why, _, waiting := strings.Cut(p.Pausing, " have read")
		why = fmt.Sprintf("%d sent: %s", p.Done, why)
		if !waiting || slices.Contains(waits, why) {
			return
		}
		waits = append(waits, why)
		go func() {
			for range p.Done + before - len(waits) {
				select {
				case read <- struct{}{}:
				case <-t.Context().Done():
				}
			}
		}()
	})
	want := []string{
		"1 sent: waiting until the consumers of billing", "3 sent: waiting until the consumers of billing",
	}
	if d := cmp.Diff(want, waits); d != "" {
		t.Errorf("the pauses (-want +got):\n%s", d)
	}
	if err != nil || !r.Ended || r.Moved != len(chosen) || r.SoFar || r.Stopped != "" ||
		!slices.Equal(r.Unheard, []string{"audit (it has no consumer)"}) {
		t.Errorf("%+v, %v", r, err)
	}
	s.tidy(t)
}

// consumeOneByOne is a consumer of a queue that acknowledges one message for each value of read.
func (s *shop) consumeOneByOne(t *testing.T, queue string, read <-chan struct{}) {
	t.Helper()
	s.consumeWith(t, queue, 1, func(d amqp091.Delivery) error {
		select {
		case <-read:
			return d.Ack(false)
		case <-t.Context().Done():
			return t.Context().Err()
		}
	})
}

// A run that another process cancels stops, and names who asked.
func TestCancel(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 200)
	s.block(t)
	q := request(t, desk.Replay)
	q.Send.MaxWaiting = 1
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	pausing := make(chan string, 1000)
	type end struct {
		desk.Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
			if p.Pausing != "" {
				pausing <- p.Run
			}
		})
		ended <- end{r, err}
	}()
	run := <-pausing
	// A second process cannot work on the run.
	if _, err := s.desk.Resume(t.Context(), run, nil, nil); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("a second worker: %v", err)
	}
	runs, err := s.desk.Runs(t.Context())
	if err != nil || len(runs) != 1 || !runs[0].Active || runs[0].Phase != desk.Sending || runs[0].Chosen != 50 {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	if err := s.desk.Cancel(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.err != nil || r.Stopped != "canceled by tester@here" || r.Left != 50 {
		t.Errorf("%+v", r)
	}
	if err := s.desk.Cancel(t.Context(), run); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("nothing to cancel: %v", err)
	}
}

// Park, restore and discard move messages whole, and restore puts them back as they were.
func TestParkAndRestore(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 100)
	before := map[string]amqp091.Delivery{}
	for _, d := range s.peeked(t, "billing.dead") {
		before[identity(d.MessageId, d.Body)] = d
	}
	if r := s.execute(t, request(t, desk.Park)); r.Moved != len(chosen) {
		t.Fatalf("%+v", r)
	}
	if n := readyIn(t, s.ch, "shop.parked"); n != len(chosen) {
		t.Fatalf("%d are parked", n)
	}
	if r := s.execute(t, desk.Request{Action: desk.Restore, Queue: "shop.parked"}); r.Moved != len(chosen) {
		t.Fatalf("%+v", r)
	}
	got := s.drained(t, "billing.dead")
	if d := cmp.Diff(append(rest, chosen...), identities(got)); d != "" {
		t.Errorf("billing.dead (-want +got):\n%s", d)
	}
	for _, d := range got {
		if diff := cmp.Diff(content(before[identity(d.MessageId, d.Body)]), content(d)); diff != "" {
			t.Fatalf("a message changed (-was +is):\n%s", diff)
		}
	}
	s.tidy(t)
}

// Discard parks, unless it is forever.
func TestDiscard(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, forever := range []bool{false, true} {
		t.Run(fmt.Sprint(forever), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "classic")
			chosen, rest := s.bury(t, 100)
			q := request(t, desk.Discard)
			q.Forever = forever
			if r := s.execute(t, q); r.Moved != len(chosen) || r.Left != 0 {
				t.Fatalf("%+v", r)
			}
			if d := cmp.Diff(rest, identities(s.drained(t, "billing.dead"))); d != "" {
				t.Errorf("the rest (-want +got):\n%s", d)
			}
			if !forever {
				for _, d := range s.drained(t, "shop.parked") {
					if d.Headers["desk-parked-as"] != "discarded" || d.Headers["desk-parked-from"] != "billing.dead" {
						t.Errorf("headers %v", d.Headers)
					}
				}
			}
			s.tidy(t)
		})
	}
}

// An edited message goes to work with its new headers and key, and the original is parked: also
// through a hold, which keeps both for the process that resumes the run.
func TestEdit(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprint("with a hold ", holds), func(t *testing.T) { t.Parallel(); testEdit(t, holds) })
	}
}

func testEdit(t *testing.T, holds bool) {
	t.Helper()
	s := newShop(t, "quorum")
	if holds {
		s.desk.Holding()
	}
	s.bury(t, 20)
	handle := ""
	if _, err := s.desk.Look(t.Context(), "billing.dead", desk.LookOptions{}, func(m deadletter.Message) error {
		if m.Delivery.MessageId == "12" {
			handle = m.Name()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	q := desk.Request{
		Action: desk.Edit, Queue: "billing.dead", Handles: []string{handle},
		Edited: &deadletter.Edited{Body: []byte(`{"order": 0}`), MessageID: "new", Headers: map[string]any{"mine": int32(5)}},
		Key:    "order.edited",
	}
	if r := s.execute(t, q); r.Moved != 1 || r.Direct == holds {
		t.Fatalf("%+v", r)
	}
	got := s.drained(t, "billing")
	if len(got) != 1 || string(got[0].Body) != `{"order": 0}` || got[0].MessageId != "new" ||
		got[0].Headers["mine"] != int32(5) ||
		got[0].RoutingKey != "order.edited" || got[0].Headers["desk-handle"] == nil || got[0].Type != "order" {
		t.Errorf("billing: %+v", got)
	}
	parked := s.drained(t, "shop.parked")
	if len(parked) != 1 || parked[0].MessageId != "12" || parked[0].Headers["desk-parked-as"] != "edited" {
		t.Errorf("parked: %+v", parked)
	}
	s.tidy(t)
}

// A run whose origin is in doubt, whose target is missing, or that names what is not there is
// refused, and messages that were replayed before are left out.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	doubtful := deadLetter("billing", "k", "a", 1)
	delete(doubtful.Headers, "retry-queue")
	delete(doubtful.Headers, "CC")
	missing := deadLetter("gone", "k", "b", 2)
	delete(missing.Headers, "CC")
	again := deadLetter("billing", "k", "c", 3)
	again.Headers["desk-replays"] = int64(1)
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", doubtful, missing, again)
	p, err := s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Replay, Queue: "billing.dead",
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(p.Refusals, "\n")
	if p.Chosen != 2 || p.ReplayedBefore != 1 || len(p.Refusals) != 2 || !strings.Contains(all, "gone does not exist") ||
		!strings.Contains(all, "1 message: no header names the queue") {
		t.Errorf("%d chosen, %d left out: %s", p.Chosen, p.ReplayedBefore, all)
	}
	if _, err := s.desk.Execute(t.Context(), p, nil); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("Execute: %v", err)
	}
	p, err = s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Replay, Queue: "billing.dead", Handles: []string{"000000000000"},
	})
	if err != nil || len(p.Refusals) != 1 || p.Chosen != 0 {
		t.Errorf("%v, %v", p.Refusals, err)
	}
}
