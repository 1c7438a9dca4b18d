package desk_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// killRounds is how often each kill test kills, for each type of queue: half as often on a push;
// DLXCTL_TEST_KILLS sets it.
func killRounds(most int) int {
	if n, err := strconv.Atoi(os.Getenv("DLXCTL_TEST_KILLS")); err == nil {
		return n
	}
	return brokertest.Rounds((most+1)/2, most)
}

// The program is killed by SIGKILL while it proposes, writes the list, or takes. Resumed, the hold
// has each chosen message once, and the queue the others once. In three of five kills it takes, and
// the broker has confirmed a part of the chosen messages, with more on their way.
func TestTakeKilled(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"quorum", "classic"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(7, uint64(len(typ)))) //nolint:gosec // the same moments each time
			kills, between, half := 0, 0, 0
			s := newShop(t, typ)
			s.block(t)
			for rounds := killRounds(6); kills < rounds; {
				chosen, rest := s.bury(t, 2000)
				for run := ""; ; {
					k := task{Action: desk.Replay, Send: desk.SendOptions{MaxWaiting: 1}, Run: run}
					at := []int{-1, 0, len(chosen) - 1}[r.IntN(3)]
					if r.IntN(5) < 3 {
						at = len(chosen)
						k.StallIn, k.StallAt = desk.Taking, len(chosen)/10+r.IntN(len(chosen)/4)
						k.Copying = 1 + r.IntN(k.StallAt) // some are acknowledged
					}
					delay := time.Duration(r.IntN(100)) * time.Millisecond
					s.start(t, k, func(line string) bool {
						done, taking := strings.CutPrefix(line, "taking ")
						n, _ := strconv.Atoi(strings.TrimSpace(done))
						if line == "proposed" && at < 0 {
							<-time.After(delay)
							return true
						}
						return taking && n >= at && at >= 0 || strings.HasPrefix(line, "sending") || line == "stalled"
					}).ended(t)
					kills++
					if run = s.onlyRun(t); run == "" {
						break
					}
					// The hold may still be getting what the killed process had published.
					n := readyIn(t, s.ch, "shop.desk."+run)
					if n > 1 && n < len(chosen) {
						between++
					}
					if n*10 >= len(chosen) && n*10 <= len(chosen)*9 {
						half++
					}
					if r.IntN(2) == 0 {
						break
					}
				}
				run := s.onlyRun(t)
				if run == "" {
					s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
					lost, doubled := compareCounts(append(chosen, rest...), identities(s.drained(t, "billing.dead")))
					if lost+doubled > 0 {
						t.Fatalf("killed before the run: %d lost, %d doubled", lost, doubled)
					}
					continue
				}
				held := s.held(t, run, s.resumeTaking(t, run))
				if len(held) == 0 { // killed while it wrote the list
					held = nil
				} else if lost, doubled := compareCounts(chosen, held); lost+doubled > 0 {
					t.Fatalf("in the hold: %d lost, %d doubled", lost, doubled)
				}
				got := identities(s.peeked(t, "billing.dead"))
				if len(held) > 0 {
					if lost, doubled := compareCounts(rest, got); lost+doubled > 0 {
						t.Fatalf("in the queue: %d lost, %d doubled", lost, doubled)
					}
				}
				if s.onlyRun(t) != "" {
					if _, err := s.desk.Return(t.Context(), run, nil); err != nil {
						t.Fatal(err)
					}
				}
				s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
				lost, doubled := compareCounts(append(chosen, rest...), identities(s.drained(t, "billing.dead")))
				if lost+doubled > 0 {
					t.Fatalf("returned: %d lost, %d doubled", lost, doubled)
				}
			}
			t.Logf("%d kills, %d of them in the middle of the taking, %d with 10 %% to 90 %% in the hold; 0 lost, 0 doubled",
				kills, between, half)
			s.tidy(t)
		})
	}
}

// block makes billing so full that a run with MaxWaiting 1 sends nothing.
func (s *shop) block(t *testing.T) {
	t.Helper()
	for range 2 {
		if _, err := s.ch.PublishWithDeferredConfirm("", "billing", true, false, amqp091.Publishing{}); err != nil {
			t.Fatal(err)
		}
	}
}

// resumeTaking resumes a run until all is taken. It returns how many messages the hold has.
func (s *shop) resumeTaking(t *testing.T, run string) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.desk.Resume(ctx, run, nil, func(p desk.Progress) {
		if p.Phase == desk.Sending {
			cancel()
		}
	})
	if err != nil || r.Moved > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Left
}

// held returns the messages in the hold of a run, which has n of them, without those of the run
// itself.
func (s *shop) held(t *testing.T, run string, n int) []string {
	t.Helper()
	if s.onlyRun(t) == "" {
		return nil
	}
	// What the sender had comes back a moment after its connections have ended.
	ready := 0
	brokertest.Eventually(t, fmt.Sprintf("%d messages and records in the hold", n), func() bool {
		ready = readyIn(t, s.ch, "shop.desk."+run)
		return ready > n
	}, &ready)
	var out []string
	for _, d := range s.peeked(t, "shop.desk."+run) {
		if d.Headers["desk-manifest"] == nil {
			out = append(out, identity(d.MessageId, d.Body))
		}
	}
	return out
}

// The program is killed while it sends. Nothing is lost, and each kill doubles at most what was in
// flight.
func TestSendKilled(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"quorum", "classic"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			const inFlight = 20
			s := newShop(t, typ)
			r := rand.New(rand.NewPCG(9, uint64(len(typ)))) //nolint:gosec // the same moments each time
			kills := 0
			for rounds := killRounds(4); kills < rounds; {
				chosen, rest := s.bury(t, 2000)
				run, before := "", kills
				for range 3 {
					at := r.IntN(len(chosen))
					send := desk.SendOptions{InFlight: inFlight}
					killed := s.start(t, task{Action: desk.Replay, Send: send, Run: run}, func(line string) bool {
						n := 0
						_, _ = fmt.Sscanf(line, "sending %d", &n)
						return n > at
					}).ended(t)
					if killed {
						kills++
					}
					if run = s.onlyRun(t); run == "" {
						break
					}
				}
				reported := inFlight * (kills - before)
				if run != "" {
					r, err := s.desk.Resume(t.Context(), run, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					reported = min(reported, r.DoubledAtMost)
				}
				lost, doubled := compareCounts(chosen, identities(s.drained(t, "billing")))
				if lost > 0 || doubled > reported {
					t.Errorf("%d lost, %d doubled in %d kills, at most %d reported", lost, doubled, kills-before, reported)
				}
				got := identities(s.drained(t, "billing.dead"))
				if d := cmp.Diff(rest, got); d != "" {
					t.Errorf("the rest (-want +got):\n%s", d)
				}
				t.Logf("%d kills: %d doubled", kills-before, doubled)
			}
			s.tidy(t)
		})
	}
}

// A process that ends leaves no trace of whether it was killed. The next one reports what those
// before it could have doubled in all, also those that had resumed the run with other limits.
func TestAResumeReportsWhatEachProcessMayHaveDoubled(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk.Holding()
	s.fill(t, 200)
	q := request(t, desk.Replay)
	q.Send.Rate = 1000
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	type work func(context.Context, func(desk.Progress)) (desk.Result, error)
	run := ""
	resume := func(inFlight int) work {
		return func(ctx context.Context, say func(desk.Progress)) (desk.Result, error) {
			return s.desk.Resume(ctx, run, &desk.SendOptions{InFlight: inFlight}, say)
		}
	}
	execute := func(ctx context.Context, say func(desk.Progress)) (desk.Result, error) {
		return s.desk.Execute(ctx, p, say)
	}
	putBack := func(ctx context.Context, _ func(desk.Progress)) (desk.Result, error) {
		return s.desk.Return(ctx, run, nil)
	}
	for i, works := range []work{execute, resume(50), resume(2), putBack} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := works(ctx, func(p desk.Progress) {
			if p.Phase == desk.Sending && p.Done > 0 {
				cancel()
			}
		})
		cancel()
		if want := []int{0, 1, 1 + 50, 1 + 50 + 2}[i]; err != nil || r.DoubledAtMost != want {
			t.Errorf("%+v, %v, want %d doubled at most", r, err, want)
		}
		run = r.Run
	}
	s.tidy(t)
}

// The program is killed while it gives back. Returned at last, the queue has each message once.
func TestReturnKilled(t *testing.T) {
	t.Parallel()
	for _, typ := range brokertest.Share([]string{"quorum", "classic"}) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(11, uint64(len(typ)))) //nolint:gosec // the same moments each time
			kills := 0
			s := newShop(t, typ)
			for rounds := killRounds(2); kills < rounds; {
				chosen, rest := s.bury(t, 1000)
				run := s.takenOnly(t, len(chosen))
				for range 2 {
					k := task{Run: run, Return: true, StallIn: desk.Sending, StallAt: 1 + r.IntN(len(chosen)/2)}
					if s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
						kills++
					}
				}
				if s.onlyRun(t) != "" {
					result, err := s.desk.Return(t.Context(), run, nil)
					if err != nil || result.DoubledAtMost > 0 {
						t.Fatalf("%+v, %v", result, err)
					}
				}
				s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
				lost, doubled := compareCounts(append(chosen, rest...), identities(s.drained(t, "billing.dead")))
				if lost+doubled > 0 {
					t.Fatalf("returned: %d lost, %d doubled", lost, doubled)
				}
			}
			t.Logf("%d kills; 0 lost, 0 doubled", kills)
			s.tidy(t)
		})
	}
}

// takenOnly starts a run and interrupts it once all is taken and nothing is sent.
func (s *shop) takenOnly(tb testing.TB, chosen int) (run string) {
	tb.Helper()
	return takenBy(tb, s.deskOn(tb, s.target).Holding(), request(tb, desk.Replay), chosen)
}

// takenBy is takenOnly for a request to a desk whose runs have a hold.
func takenBy(tb testing.TB, d *desk.Desk, r desk.Request, chosen int) (run string) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	p, err := d.Propose(tb.Context(), r)
	if err != nil {
		tb.Fatal(err)
	}
	result, err := d.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == chosen {
			cancel()
		}
	})
	if err != nil || result.Left != chosen {
		tb.Fatalf("%+v, %v", result, err)
	}
	return result.Run
}
