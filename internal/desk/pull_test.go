package desk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// floor is a publisher and a consumer of billing, which go on while a desk pulls. Their messages
// count from 0, and every tenth has the key order.chosen.
type floor struct {
	shop *shop
	mu   sync.Mutex
	sent int
	// got are the numbers that the consumer has acknowledged, in the order in which it got them.
	got  []int
	stop context.CancelFunc
	done sync.WaitGroup
	// slow is how long the consumer takes for a message.
	slow atomic.Int64
}

// pace is how many messages billing has at first, how long the consumer takes for one, and how
// often one is published: enough stay ready while a desk pulls, in a classic queue not too many.
type pace struct {
	backlog             int
	consumes, publishes time.Duration
}

func paceOf(typ string) pace {
	if typ == "classic" {
		return pace{100, 200 * time.Millisecond, 250 * time.Millisecond}
	}
	return pace{2000, 5 * time.Millisecond, 10 * time.Millisecond}
}

// newFloor publishes a backlog, and then starts both.
func (s *shop) newFloor(tb testing.TB, p pace) *floor {
	tb.Helper()
	ctx, stop := context.WithCancel(tb.Context())
	f := &floor{shop: s, stop: stop}
	f.slow.Store(int64(p.consumes))
	publisher := s.target.Confirming(tb)
	f.publish(tb, publisher, p.backlog)
	s.awaitReady(tb, "billing", p.backlog)
	f.done.Go(func() {
		tick := time.NewTicker(p.publishes)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
				f.publish(tb, publisher, 1)
			case <-ctx.Done():
			}
		}
	})
	f.consume(ctx, tb, s.target)
	tb.Cleanup(f.end)
	return f
}

// publish publishes n messages. It stops at an error: the node is gone.
func (f *floor) publish(tb testing.TB, ch *amqp091.Channel, n int) {
	tb.Helper()
	for range n {
		key := "order.stays"
		if f.sent%10 == 0 {
			key = "order.chosen"
		}
		c, err := ch.PublishWithDeferredConfirm("events", key, true, false, amqp091.Publishing{
			MessageId: strconv.Itoa(f.sent), DeliveryMode: amqp091.Persistent, Body: []byte("{}"),
		})
		if err != nil || !c.Wait() {
			return
		}
		f.sent++
	}
}

// consume consumes from billing until ctx ends.
func (f *floor) consume(ctx context.Context, tb testing.TB, target brokertest.Target) {
	tb.Helper()
	ch := target.Channel(tb)
	deliveries := brokertest.Consume(tb, ch, "billing", 5)
	f.done.Go(func() {
		defer ch.Close() // the queue gets back what is not acknowledged
		for {
			select {
			case d, open := <-deliveries:
				if !open {
					return
				}
				timer := time.NewTimer(time.Duration(f.slow.Load()))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
				n, _ := strconv.Atoi(d.MessageId)
				f.mu.Lock()
				f.got = append(f.got, n)
				f.mu.Unlock()
				if d.Ack(false) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// end stops both.
func (f *floor) end() { f.stop(); f.done.Wait() }

// overtaken returns how many messages the consumer got after a later one.
func (f *floor) overtaken() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := -1
	for _, i := range f.got {
		if i < last {
			n++
		}
		last = max(last, i)
	}
	return n
}

// ends lets the consumer read all, stops both, and counts what is lost, and what is doubled in
// billing.dead or was read and is a dead letter too. It returns the dead letters.
func (f *floor) ends(t *testing.T) (lost, doubled int, dead []amqp091.Delivery) {
	t.Helper()
	f.slow.Store(0)
	brokertest.Eventually(t, "the consumer to have read all", func() bool { return readyIn(t, f.shop.ch, "billing") < 10 })
	f.end()
	var want, has []string
	for i := range f.sent {
		want = append(want, strconv.Itoa(i))
	}
	dead = f.shop.drained(t, "billing.dead")
	for _, d := range dead {
		has = append(has, d.MessageId)
	}
	read := map[int]bool{} // what was not acknowledged in time is read again
	for _, n := range f.got {
		if !read[n] {
			has = append(has, strconv.Itoa(n))
		}
		read[n] = true
	}
	// What the consumer had and not acknowledged comes back when its channel ends.
	for _, d := range f.left(t) {
		if n, _ := strconv.Atoi(d.MessageId); !read[n] {
			has = append(has, d.MessageId)
		}
	}
	// The last one may be there without its confirm, which the end of a node took away.
	if last := strconv.Itoa(f.sent); slices.Contains(has, last) {
		want = append(want, last)
	}
	lost, doubled = compareCounts(want, has)
	return lost, doubled, dead
}

// left returns what is left in billing once the consumer is gone.
func (f *floor) left(t *testing.T) []amqp091.Delivery {
	t.Helper()
	var out []amqp091.Delivery
	brokertest.Eventually(t, "billing to be without consumers", func() bool {
		q := f.shop.target.Channel(t)
		defer q.Close()
		now, err := q.QueueDeclarePassive("billing", true, false, false, false, nil)
		return err == nil && now.Consumers == 0
	})
	ch := f.shop.target.Channel(t)
	for {
		d, ok, err := ch.Get("billing", true)
		if err != nil || !ok {
			return out
		}
		out = append(out, d)
	}
}

func pullRequest(tb testing.TB) desk.Request {
	tb.Helper()
	r := request(tb, desk.Pull)
	r.Queue = "billing"
	return r
}

// shopToPull makes a virtual host with billing, whose dead letters are in billing.dead.
type shopToPull struct {
	name, typ string
	make      func(*testing.T) *shop
	tidy      func(*shop, testing.TB) // checks that nothing of a run is left
}

// shopsToPull are two that dlxctl has made, and two that it has not, for a desk without a file.
func shopsToPull() (out []shopToPull) {
	for _, typ := range []string{"quorum", "classic"} {
		out = append(out,
			shopToPull{typ, typ, func(t *testing.T) *shop { t.Helper(); return newShop(t, typ) }, (*shop).tidy},
			shopToPull{
				typ + " without a file", typ,
				func(t *testing.T) *shop { t.Helper(); return newUnfiledBilling(t, typ) }, (*shop).tidyDesk,
			})
	}
	return out
}

// A pull takes the chosen messages that are ready, while a publisher and a consumer work. The
// consumer gets all others in their order. The dead letters say why, who and when.
func TestPull(t *testing.T) {
	t.Parallel()
	rounds := brokertest.Rounds(1, 20)
	for _, of := range shopsToPull() {
		for round := range rounds {
			t.Run(fmt.Sprintf("%s %d", of.name, round), func(t *testing.T) {
				t.Parallel()
				s, typ := of.make(t), of.typ
				f := s.newFloor(t, paceOf(typ))
				began := time.Now().Add(-time.Minute)
				r := s.execute(t, pullRequest(t))
				if r.Moved == 0 || r.Left > 0 || !r.Ended || r.DoubledAtMost > 0 || strings.Join(r.To, " ") != "billing.dead" {
					t.Errorf("the result is %+v", r)
				}
				overtaken := f.overtaken()
				lost, doubled, dead := f.ends(t)
				if lost+doubled+overtaken > 0 || len(dead) != r.Moved {
					t.Errorf("%d lost, %d doubled, %d overtaken; %d dead letters, and %d were pulled", lost, doubled, overtaken,
						len(dead), r.Moved)
				}
				known := deadletter.Knows(s.topology)
				for _, d := range dead {
					facts := deadletter.Read(d, "billing.dead", known)
					if facts.Cause != "pulled" || facts.Error != "pulled by tester@here; reason: test" || facts.Attempts != 0 ||
						facts.WorkQueue != "billing" || facts.Exchange != "events" || facts.Key != "order.chosen" ||
						facts.Run != r.Run || facts.LastFailed.Before(began) {
						t.Fatalf("a dead letter tells %+v, headers %v", facts, d.Headers)
					}
				}
				t.Logf("%d of %d pulled, %d missing, in %s", r.Moved, r.Chosen, r.Missing, time.Duration(r.Took))
				of.tidy(s, t)
			})
		}
	}
}

// interruption is how a pull is interrupted at a moment at which the hold has copies and nothing is
// acknowledged.
type interruption struct {
	name string
	// pull pulls until then. It returns the name of the run.
	pull func(t *testing.T, s *shop) (run string)
	// undo puts the messages back, in place of going on.
	undo bool
}

func interruptions() []interruption {
	killed := func(t *testing.T, s *shop) string {
		t.Helper()
		// The program gets no further than to that record, so the kill is never too late. How many it
		// has copied by then depends on how many the consumer has read since the look.
		through, at := *s, make(chan struct{})
		through.target = moment{sent: recordOfAcks()}.reach(t, s.target, func() { close(at); <-t.Context().Done() })
		program := through.start(t, task{Action: desk.Pull, Queue: "billing"}, func(string) bool { return false })
		select {
		case <-at:
		case <-t.Context().Done():
		}
		if program.cmd.Process.Kill() != nil || !program.ended(t) {
			t.Fatal("the program has ended before")
		}
		return s.onlyRun(t)
	}
	cut := func(t *testing.T, s *shop) string {
		t.Helper()
		through, proxy := brokertest.NewProxy(t, s.target)
		d := s.deskOn(t, through)
		p, err := d.Propose(t.Context(), pullRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Execute(t.Context(), p, func(p desk.Progress) {
			// The consumer may read all others that were chosen.
			if p.Phase == desk.Taking && p.Done == 1 {
				proxy.Cut()
			}
		})
		if err == nil || r.Moved > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Run
	}
	return []interruption{
		{"the program is killed", killed, false},
		{"the program is killed, and returned", killed, true},
		{"the connection is cut", cut, false},
	}
}

// A pull that ends before it acknowledges has taken nothing: the consumer gets the messages of
// which the hold has copies. Nothing is lost or doubled, whether it is resumed or returned.
func TestPullInterrupted(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		for _, tc := range brokertest.Share(interruptions()) {
			t.Run(typ+", "+tc.name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				f := s.newFloor(t, paceOf(typ))
				run := tc.pull(t, s)
				f.mu.Lock()
				before := len(f.got)
				f.mu.Unlock()
				brokertest.Eventually(t, "the consumer to go on", func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.got) > before+10
				})
				work := func() (desk.Result, error) { return s.desk.Resume(t.Context(), run, nil, nil) }
				if tc.undo {
					work = func() (desk.Result, error) { return s.desk.Return(t.Context(), run, nil) }
				}
				r, err := work()
				if err != nil || !r.Ended || r.DoubledAtMost > 0 || tc.undo && r.Moved > 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				if n := f.overtaken(); n > 0 {
					t.Errorf("%d were overtaken", n)
				}
				lost, doubled, dead := f.ends(t)
				if lost+doubled > 0 || len(dead) != r.Moved {
					t.Errorf("%d lost, %d doubled, %d dead letters; %+v", lost, doubled, len(dead), r)
				}
				t.Logf("%d pulled after that, %d missing", r.Moved, r.Missing)
				s.tidy(t)
			})
		}
	}
}

// moment is a moment around the transaction in which a pull acknowledges.
type moment struct {
	name string
	// sent is what the program sends to the broker at that moment.
	sent []byte
	// passes: the broker gets it.
	passes bool
	// within: the program ends up to that time later. Zero: at once.
	within time.Duration
}

// recordOfAcks is in the record that a pull sends before it acknowledges.
func recordOfAcks() []byte { return []byte("acking") }

func moments() []moment {
	record, commit := recordOfAcks(), []byte{0, 90, 0, 20, 0xCE} // tx.commit, and the octet that ends its frame
	return []moment{
		{"before the record", record, false, 0},
		{"after the record", record, true, 0},
		{"soon after the record", record, true, 80 * time.Millisecond},
		{"before the commit", commit, false, 0},
		{"after the commit", commit, true, 0},
		{"soon after the commit", commit, true, 10 * time.Millisecond},
		{"before the next record", []byte("S\x00\x00\x00\x07sending"), false, 0},
	}
}

// reach returns the target as reached through a proxy that calls end at that moment. end ends the
// program, or its connections. Until it has, the broker gets nothing on any connection.
func (m moment) reach(t *testing.T, target brokertest.Target, end func()) brokertest.Target {
	t.Helper()
	var once sync.Once
	var reached atomic.Bool
	ended := make(chan struct{})
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			now := false
			if bytes.Contains(buffer[:n], m.sent) {
				once.Do(func() { now = true })
			}
			if reached.Load() {
				<-ended
			}
			if !now || m.passes {
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
			switch {
			case now && m.within > 0:
				time.AfterFunc(rand.N(m.within), end) //nolint:gosec // any moment
			case now:
				reached.Store(true)
				end()
				close(ended)
				return
			}
		}
	})
}

// A pull is killed around the transaction in which it acknowledges, and then resumed or returned:
// nothing is lost or doubled, and the run says so.
func TestPullKilledWhileItAcknowledges(t *testing.T) {
	t.Parallel()
	for at, m := range brokertest.Share(moments()) {
		for i, of := range append(shopsToPull(), shopsToPull()...) {
			undo := i >= len(shopsToPull())
			if (at+i+i/4)%4 != 0 && brokertest.Rounds(2, 4) == 2 {
				continue // each night
			}
			for round := range killRounds(1) {
				t.Run(fmt.Sprintf("%s, %s, return %t, %d", m.name, of.name, undo, round), func(t *testing.T) {
					t.Parallel()
					s, typ := of.make(t), of.typ
					f := s.newFloor(t, paceOf(typ))
					through, at := *s, make(chan struct{})
					through.target = m.reach(t, s.target, sync.OnceFunc(func() { close(at) }))
					program := through.start(t, task{Action: desk.Pull, Queue: "billing"}, func(string) bool { return false })
					<-at
					_ = program.cmd.Process.Kill() // it fails if the program is at its end already
					if !program.ended(t) {
						t.Skip("the program has ended before")
					}
					run := s.onlyRun(t)
					if run == "" {
						t.Skip("the run has ended before")
					}
					work := func() (desk.Result, error) { return s.desk.Resume(t.Context(), run, nil, nil) }
					if undo {
						work = func() (desk.Result, error) { return s.desk.Return(t.Context(), run, nil) }
					}
					r, err := work()
					sent := r.DoubledAtMost > 0 && m.within > 0 // it was killed while it sent, which has limits of its own
					if err != nil || !r.Ended || r.DoubledAtMost > 0 && !sent {
						t.Fatalf("%+v, %v", r, err)
					}
					overtaken := f.overtaken()
					if undo && r.Moved > 0 {
						overtaken = 0 // they went back to the tail
					}
					lost, doubled, dead := f.ends(t)
					if sent {
						doubled = max(0, doubled-r.DoubledAtMost)
					} else if m.within == 0 && (!undo && len(dead) != r.Moved || undo && len(dead) > 0) {
						// Within some time the program may have sent all of them before.
						t.Errorf("%d dead letters", len(dead))
					}
					if lost+doubled+overtaken > 0 {
						t.Errorf("%d lost, %d doubled, %d overtaken; %+v", lost, doubled, overtaken, r)
					}
					t.Logf("%d moved after that, %d missing; killed while it sent: %t", r.Moved, r.Missing, sent)
					of.tidy(s, t)
				})
			}
		}
	}
}

// The connection of a pull ends around the transaction in which it acknowledges.
func TestPullCutWhileItAcknowledges(t *testing.T) {
	t.Parallel()
	for _, m := range brokertest.Share(moments()) {
		if m.within > 0 {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			f := s.newFloor(t, paceOf("quorum"))
			d := s.deskOn(t, m.reach(t, s.target, func() {}))
			p, err := d.Propose(t.Context(), pullRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Execute(t.Context(), p, nil)
			if err != nil && r.Run != "" {
				r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
			}
			if err != nil || r.DoubledAtMost > 0 {
				t.Fatalf("%+v: %v", r, err)
			}
			if lost, doubled, dead := f.ends(t); lost+doubled > 0 || len(dead) != r.Moved {
				t.Errorf("%d lost, %d doubled, %d dead letters; %+v", lost, doubled, len(dead), r)
			}
			s.tidy(t)
		})
	}
}

// pulled is a shop of which a pull is at work when its node ends.
type pulled struct {
	*shop
	typ string
	f   *floor
	r   desk.Result
	err error
}

// The node ends while pulls copy, or around the transactions in which they acknowledge. Nothing is
// lost. What may be doubled is said, as a witness does not survive its node.
func TestANodeEndsInAPull(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	for _, tc := range brokertest.Share([]struct {
		name  string
		ends  func(testing.TB)
		at    string // the name of a moment; empty is while the pull copies
		known bool   // nothing was acknowledged
	}{
		{"while it copies", node.Kill, "", true},
		{"before the commit", node.Kill, "before the commit", false},
		{"before the commit, without a crash", node.Stop, "before the commit", false},
		{"after the commit", node.Kill, "after the commit", false},
	}) {
		var all []*pulled
		var working, ahead sync.WaitGroup // ahead of that moment
		ahead.Add(len(queueKinds()))
		die := sync.OnceFunc(func() { ahead.Wait(); tc.ends(t) })
		for _, typ := range queueKinds() {
			v := &pulled{shop: newShopOn(t, node.VHost(t), shopFile(typ)), typ: typ}
			v.f = v.newFloor(t, paceOf(typ))
			all = append(all, v)
			end := sync.OnceFunc(func() { ahead.Done(); die() }) // it waits until the node has ended
			d := v.desk
			for _, m := range moments() {
				if m.name == tc.at {
					d = v.deskOn(t, m.reach(t, v.target, end))
				}
			}
			p, err := d.Propose(t.Context(), pullRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			// A consumer whose acknowledgement a killed node forgets gets the message again. This
			// one has acknowledged nothing for seconds when the node ends.
			v.f.slow.Store(int64(time.Hour))
			working.Go(func() {
				v.r, v.err = d.Execute(t.Context(), p, func(p desk.Progress) {
					if tc.at == "" && p.Phase == desk.Taking && p.Done == 5 {
						end()
					}
				})
				end()
			})
		}
		working.Wait()
		for _, v := range all {
			v.f.end()
		}
		node.Start(t)
		for _, v := range all {
			v.goesOn(t, tc.name, tc.known)
		}
	}
}

// goesOn resumes the pull, and counts what it did. known: nothing was acknowledged.
func (v *pulled) goesOn(t *testing.T, name string, known bool) {
	t.Helper()
	if v.err == nil || v.r.Run == "" {
		t.Fatalf("%s, %s: the run did not notice: %+v", v.typ, name, v.r)
	}
	v.ch = v.target.Confirming(t)
	ctx, cancel := context.WithCancel(t.Context())
	v.f.stop = cancel
	v.f.slow.Store(0)
	v.f.consume(ctx, t, v.target)
	p := paceOf(v.typ) // of a classic queue not many may be ready
	brokertest.Eventually(t, "the backlog to be as before", func() bool {
		return readyIn(t, v.ch, "billing") <= p.backlog
	})
	v.f.slow.Store(int64(p.consumes))
	result, err := v.desk.Resume(t.Context(), v.r.Run, nil, nil)
	doubtful := result.Moved // messages
	if known {
		doubtful = 0
	}
	if err != nil || !result.Ended || result.DoubledAtMost != doubtful {
		t.Fatalf("%s, %s: %+v, %v", v.typ, name, result, err)
	}
	lost, doubled, dead := v.f.ends(t)
	if lost > 0 || doubled > result.DoubledAtMost || len(dead) != result.Moved {
		t.Errorf("%s, %s: %d lost, %d doubled, %d dead letters; %+v", v.typ, name, lost, doubled, len(dead), result)
	}
	t.Logf("%s, %s: %d pulled, %d missing, %d doubled", v.typ, name, result.Moved, result.Missing, doubled)
	v.tidy(t)
}

// Queues from which nothing can be pulled without harm are refused, with the reason.
func TestPullRefusals(t *testing.T) {
	t.Parallel()
	state := func(typ string, args topology.Arguments) topology.State {
		return topology.State{Version: "4.3.6", Have: topology.Topology{Queues: []topology.Queue{
			{Name: "q", Durable: true, Arguments: args.With(topology.ArgQueueType, typ)},
		}}}
	}
	for name, tc := range map[string]struct {
		state     topology.State
		ready     int
		consumers int64
		want      string // part of the refusal; empty is none
	}{
		"quorum":                {state("quorum", nil), 30_000, 2, ""},
		"classic":               {state("classic", nil), 150, 2, ""},
		"long":                  {state("quorum", nil), 30_001, 1, "30001 messages ready and 1 consumer, and no more than 30000 of a quorum queue"},
		"long, classic":         {state("classic", nil), 151, 1, "no more than 150 of a classic queue"},
		"long, without readers": {state("classic", nil), 100_000, 0, ""},
		"stream":                {state("stream", nil), 1, 0, "is a stream"},
		"priorities":            {state("classic", topology.Arguments{topology.ArgMaxPriority: int64(5)}), 1, 0, "has priorities"},
		"single active":         {state("quorum", topology.Arguments{topology.ArgSingleActiveConsumer: true}), 1, 1, "single active consumer"},
		"drops": {
			state("quorum", topology.Arguments{"x-max-length": int64(10)}), 9, 1, "drops its oldest messages",
		},
	} {
		err := desk.RefusePull(tc.state, "q", tc.ready, tc.consumers)
		refused := errors.Is(err, desk.ErrRefused) && strings.Contains(err.Error(), tc.want)
		if tc.want == "" && err != nil || tc.want != "" && !refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pull is refused where the broker or the messages show that it would do harm: nothing is taken.
func TestPullIsRefusedByWhatTheQueueHas(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	refused := func(r desk.Request, want string) {
		t.Helper()
		p, err := s.desk.Propose(t.Context(), r)
		if err == nil && len(p.Refusals) > 0 {
			err = errors.New(p.Refusals[0])
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal is %v, not %q", err, want)
		}
	}
	of := func(queue string) desk.Request { r := pullRequest(t); r.Queue = queue; return r }
	refused(of("billing.dead"), "billing.dead is not a work queue of the topology shop")

	for i := range 3 {
		brokertest.PublishConfirmed(t, s.ch, "", "billing", amqp091.Publishing{Priority: uint8(i), Headers: amqp091.Table{"n": i}})
	}
	s.awaitReady(t, "billing", 3)
	r := pullRequest(t)
	r.Filter = nil
	if s.target.AtLeast("4.0") {
		refused(r, "messages of billing have different priorities")
	}
	s.drained(t, "billing")

	for range 3 {
		brokertest.PublishConfirmed(t, s.ch, "", "billing", amqp091.Publishing{})
	}
	s.awaitReady(t, "billing", 3)
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/limit", map[string]any{
		"pattern": "^billing$", "apply-to": "queues", "definition": map[string]any{"delivery-limit": 5}, "priority": 9,
	})
	brokertest.Eventually(t, "the policy", func() bool {
		p, err := s.desk.Propose(t.Context(), r)
		return err == nil && len(p.Refusals) > 0 &&
			strings.Contains(p.Refusals[0], "a pull returns the messages that it does not choose")
	})
	s.awaitReady(t, "billing", 3)
}

// A queue with an exclusive consumer is refused. A quorum queue does not know exclusive consumers.
func TestPullWithAnExclusiveConsumer(t *testing.T) {
	t.Parallel()
	s := newShop(t, "classic")
	ch := s.target.Channel(t)
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Consume("billing", "", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		brokertest.PublishConfirmed(t, s.ch, "", "billing", amqp091.Publishing{})
	}
	s.awaitReady(t, "billing", 2)
	_, err := s.desk.Propose(t.Context(), pullRequest(t))
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(fmt.Sprint(err), "queue billing has an exclusive consumer") {
		t.Errorf("the error is %v", err)
	}
}
