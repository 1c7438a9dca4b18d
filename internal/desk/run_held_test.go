package desk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// A machine that works on a run dies, and the broker ends its connections one after the other: that
// which takes is the last, and holds what the queue will get back. The run is resumed meanwhile. It
// waits for the end of that connection, and then knows which messages are in the hold and in the
// queue too.
func TestAConnectionThatOutlivesTheLocks(t *testing.T) {
	t.Parallel()
	for _, typ := range queueKinds() {
		for _, at := range []int{10, 100} { // the consumer is at work, or has got all
			for _, back := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d copied, return %t", typ, at, back), func(t *testing.T) {
					t.Parallel()
					s := newShop(t, typ)
					chosen, rest := s.bury(t, 400)
					run := s.dies(t, at)
					end := func() (desk.Result, error) { return s.desk.Resume(t.Context(), run, nil, nil) }
					if back {
						end = func() (desk.Result, error) { return s.desk.Return(t.Context(), run, nil) }
					}
					r, err := end()
					if err != nil || !r.Ended || r.Missing+r.DoubledAtMost > 0 {
						t.Fatalf("%+v, %v", r, err)
					}
					want := map[string][]string{"billing": chosen, "billing.dead": rest}
					if back {
						want = map[string][]string{"billing": nil, "billing.dead": append(chosen, rest...)}
					}
					for queue, want := range want {
						s.awaitReady(t, queue, len(want)) // also what that connection had
						if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
							t.Errorf("%s: %d lost, %d doubled; %+v", queue, lost, doubled, r)
						}
					}
					s.tidy(t)
				})
			}
		}
	}
}

// dies runs a replay whose process stands still when its hold has confirmed so many messages. At
// that moment the broker loses all its connections but the one that takes, from which it hears
// nothing any more.
func (s *shop) dies(t *testing.T, at int) (run string) {
	t.Helper()
	dead, die := context.WithCancel(t.Context())
	over := make(chan struct{})
	takes := regexp.MustCompile(`dlxctl desk takes \d`)
	d := s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		stays := false
		var mu sync.Mutex
		stop := context.AfterFunc(dead, func() {
			mu.Lock()
			defer mu.Unlock()
			if !stays {
				_ = server.Close()
			}
		})
		defer stop()
		for buffer := make([]byte, 1<<16); ; {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			stays = stays || takes.Match(buffer[:n])
			mu.Unlock()
			if dead.Err() != nil {
				continue
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	})).Holding()
	d.Endpoint.Heartbeat = 5 * time.Second // the broker ends a silent connection after 10 to 15 s
	p, err := d.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	stalled, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.Execute(t.Context(), p, func(p desk.Progress) { // it fails, as does all that it tries
			if p.Phase == desk.Taking && p.Done == at {
				die()
				stalled <- p.Run
				<-over
			}
		})
	}()
	t.Cleanup(func() { close(over); <-ended })
	select {
	case run = <-stalled:
	case <-ended:
		t.Fatal("the run ended before it could be stopped")
	}
	return run
}

// The lock of the queue ends before the run has taken its messages: another run may take from the
// queue then, and this one stops. It can be resumed.
func TestARunStopsWithoutTheLockOfItsQueue(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 400)
	ends, end := context.WithCancel(t.Context())
	defer end()
	d := s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		brokertest.Forward(client, server, func(piece []byte) bool {
			if bytes.Contains(piece, []byte("takes from billing.dead")) {
				context.AfterFunc(ends, func() { _ = client.Close() })
			}
			return true
		})
	})).Holding()
	p, err := d.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	var run string
	_, err = d.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Phase != desk.Taking || run != "" {
			return
		}
		run = p.Run
		end()
		brokertest.Eventually(t, "the lock to be free", func() bool {
			_, err := s.target.Channel(t).QueueDeclarePassive(topology.DeskLockName("shop", "billing.dead"),
				false, false, true, false, nil)
			var refused *amqp091.Error
			return errors.As(err, &refused) && refused.Code == amqp091.NotFound
		})
	})
	if err == nil || !strings.Contains(err.Error(), "the connection that holds the lock of the queue ended") {
		t.Fatalf("the run goes on without its lock: %v", err)
	}
	if r, err := s.desk.Resume(t.Context(), run, nil, nil); err != nil || !r.Ended || r.Missing+r.DoubledAtMost > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for queue, want := range map[string][]string{"billing": chosen, "billing.dead": rest} {
		s.awaitReady(t, queue, len(want))
		if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
			t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
		}
	}
	s.tidy(t)
}

// A look that another person began after the proposal holds the messages of the queue. A run waits
// for its end, and does not say that another program took them.
func TestARunWaitsForALook(t *testing.T) {
	t.Parallel()
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprintf("hold %t", holds), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			if holds {
				s.desk = s.desk.Holding()
			}
			chosen, rest := s.bury(t, 400)
			p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
			if err != nil {
				t.Fatal(err)
			}
			over, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				o := desk.LookOptions{Hold: 9 * time.Second}
				_, _ = s.deskOn(t, s.target).Look(t.Context(), "billing.dead", o, func(deadletter.Message) error {
					<-over
					return nil
				})
			}()
			t.Cleanup(func() { close(over); <-ended })
			s.awaitReady(t, "billing.dead", 0)
			r, err := s.desk.Execute(t.Context(), p, nil)
			if err != nil || !r.Ended || r.Missing > 0 || r.Moved != len(chosen) || r.Direct == holds {
				t.Fatalf("%+v, %v", r, err)
			}
			for queue, want := range map[string][]string{"billing": chosen, "billing.dead": rest} {
				if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
					t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
				}
			}
			s.tidy(t)
		})
	}
}

// A consumer that stays ends a run before it has taken anything.
func TestARunEndsBecauseOfAConsumer(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 400)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	s.hold(t, "billing.dead", 400)
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err == nil || !strings.Contains(err.Error(), "another client consumes from queue billing.dead; stop it") ||
		errors.Is(err, desk.ErrRefused) || r.Missing+r.Moved > 0 || r.LeftInQueue != len(chosen) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A consumer that begins while a run takes holds some of the chosen messages. The run says so, and
// does not say that they are gone.
func TestAConsumerComesWhileARunTakes(t *testing.T) {
	t.Parallel()
	for _, holds := range []bool{false, true} {
		t.Run(fmt.Sprintf("hold %t", holds), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 400)
			var end func()
			d := s.deskOn(t, beforeConsume(t, s.target, "dlxctl desk takes 2", func() { end = s.hold(t, "billing.dead", 200) }))
			if holds {
				d = d.Holding()
			}
			p, err := d.Propose(t.Context(), request(t, desk.Replay))
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Execute(t.Context(), p, nil)
			if err == nil || !strings.Contains(err.Error(), "may hold 50 messages that the run chose") || r.Missing > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			end()
			s.awaitReady(t, "billing.dead", 350)
			if holds {
				r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
			} else if r.LeftInQueue != 50 {
				t.Errorf("%+v", r)
			} else {
				r = s.execute(t, request(t, desk.Replay))
			}
			if err != nil && holds || !r.Ended || r.Missing+r.DoubledAtMost > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			for queue, want := range map[string][]string{"billing": chosen, "billing.dead": rest} {
				if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
					t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
				}
			}
			s.tidy(t)
		})
	}
}

// A consumer that begins while doubles are counted holds some of them. They are counted once it has
// ended.
func TestAConsumerComesWhileDoublesAreCounted(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 400)
	k := task{Action: desk.Replay, Hold: true, StallIn: desk.Taking, StallAt: len(chosen)}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("it was not killed")
	}
	s.awaitReady(t, "billing.dead", 400)
	d := s.deskOn(t, beforeConsume(t, s.target, "dlxctl desk counts 2", func() {
		time.AfterFunc(3*time.Second, s.hold(t, "billing.dead", 200))
	}))
	r, err := d.Resume(t.Context(), s.onlyRun(t), nil, nil)
	if err != nil || !r.Ended || r.Missing+r.DoubledAtMost > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for queue, want := range map[string][]string{"billing": chosen, "billing.dead": rest} {
		if lost, doubled := compareCounts(want, identities(s.drained(t, queue))); lost+doubled > 0 {
			t.Errorf("%s: %d lost, %d doubled", queue, lost, doubled)
		}
	}
	s.tidy(t)
}

// hold holds the first n messages of a queue until end is called, or the test ends.
func (s *shop) hold(t *testing.T, queue string, n int) (end func()) {
	t.Helper()
	ch := s.target.Channel(t)
	if err := ch.Qos(n, 0, false); err != nil {
		t.Error(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, amqp091.Table{})
	if err != nil {
		t.Error(err)
	}
	for range n {
		<-deliveries
	}
	return func() { _ = ch.Close() } // the queue gets them back
}

// beforeConsume returns the target as reached through a proxy that calls do before the broker gets
// the first subscription of a connection with a name that begins so.
func beforeConsume(t *testing.T, target brokertest.Target, name string, do func()) brokertest.Target {
	t.Helper()
	var once sync.Once
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		is := false
		brokertest.Forward(client, server, func(piece []byte) bool {
			is = is || bytes.Contains(piece, []byte(name))
			if is && bytes.Contains(piece, []byte{0, 60, 0, 20}) { // basic.consume
				once.Do(do)
			}
			return true
		})
	})
}
