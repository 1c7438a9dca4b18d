package migrate_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// command returns a run of dlxctl migrate.
func (s *stage) command(tb testing.TB, path string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte(s.file), 0o600); err != nil {
		tb.Fatal(err)
	}
	// One that hangs says where.
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	tb.Cleanup(cancel)
	if strings.HasPrefix(args[0], "--") { // a run: many tests fill the legacy queue by its name
		allow := "drops-routing=old"
		if s.declares != "" {
			allow = "replaces-queue=" + s.declares
		}
		args = append(args, "--allow", allow)
	}
	c := exec.CommandContext(ctx, path, append([]string{"migrate", "-f", file}, args...)...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) }
	c.Env = append(os.Environ(), "RABBITMQ_URL="+s.user.URL, "RABBITMQ_API_URL="+s.target.API)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	return c, &out
}

// killed starts a command and kills it after a time. It reports whether that met it
// alive; one that was over before must have succeeded.
func killed(t *testing.T, c *exec.Cmd, out *bytes.Buffer, after time.Duration) bool {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, after)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its exit code says how it ended
	code := c.ProcessState.ExitCode()
	if code > 0 {
		t.Fatalf("%q exits with %d:\n%s", c.Args, code, out)
	}
	return code == -1
}

// Killed again and again, at random moments of each stage, and run again: nothing
// is lost, and doubled is at most what the drain had in flight.
func TestMigrateKilled(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	vhost := brokertest.Fragile(t)
	perRound := brokertest.Rounds(7, 13) // kills of one migration, before it may end
	for round, typ := range brokertest.Share([]string{"classic", "quorum", "classic", "quorum"}) {
		t.Run(fmt.Sprintf("round %d %s", round, typ), func(t *testing.T) {
			t.Parallel()
			s := newStageIn(t, vhost(t), fmt.Sprintf(topologyFile, typ), typ, nil)
			r := rand.New(rand.NewPCG(uint64(round), 1)) //nolint:gosec // the same moments each time
			stopOld := s.consume(t, "old")
			published := s.publish(t, 100*time.Millisecond)
			stopNew := s.consumeThrough(t, "new")
			kills := 0
			for kill := range perRound {
				if kill == perRound/2 {
					stopOld() // now the drain can begin
				}
				c, out := s.command(t, dlxctl, "--yes", "--settle", "50ms", "--idle", "2s", "--wait", "20s", "--lock-timeout",
					"20s")
				if killed(t, c, out, time.Duration(r.IntN(900))*time.Millisecond) {
					kills++
				}
			}
			c, out := s.command(t, dlxctl, "--yes", "--idle", "1s", "--wait", "60s", "--lock-timeout", "20s")
			if err := c.Run(); err != nil {
				t.Fatalf("the last run: %v\n%s", err, out)
			}
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			stopNew()
			// What the drain had in flight when it was killed: its prefetch, each time.
			if lost > 0 || doubled > kills*1000 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
			}
			if s.exists(t, "old") {
				t.Errorf("the legacy queue is still there:\n%s", out)
			}
			s.tidy(t)
			t.Logf("%d kills, %d published, %d lost, %d doubled", kills, len(confirmed), lost, doubled)
		})
	}
}

// Killed at the boundary of each step, as soon as it is said, and run again.
func TestMigrateKilledAtEachStep(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, typ, nil)
			stopOld := s.consume(t, "old")
			published := s.publish(t, 100*time.Millisecond)
			stopNew := s.consumeThrough(t, "new")
			flags := []string{"--yes", "--settle", "50ms", "--idle", "1s", "--wait", "60s", "--lock-timeout", "20s"}
			var told strings.Builder // what the runs said
			missed := 0              // steps that were done before a kill came
			for _, step := range []string{
				"prepare:", "cutover: create the switch", "cutover: bind the switch", "cutover: unbind old", "cutover: switch from",
				"cutover: bind new", "cutover: unbind the switch", "cutover: delete the switch", "drain: moved", "retire: deleted",
			} {
				if step == "drain: moved" {
					stopOld()
					s.fill(t, 2000, 100)
				}
				if strings.Contains(told.String(), " "+step) {
					missed++
					continue
				}
				log := func(line string) { fmt.Fprintln(&told, time.Now().Format("15:04:05.000"), line) }
				log("run until " + step)
				if !s.killAt(t, dlxctl, flags, step, func() {}, log) {
					missed++
				}
			}
			if missed > 1 {
				t.Errorf("%d kills came too late:\n%s", missed, &told)
			}
			if c, out := s.command(t, dlxctl, flags...); c.Run() != nil {
				t.Fatalf("the last run:\n%s", out)
			}
			confirmed := published()
			for i := range 2000 {
				confirmed[fmt.Sprint(i)] = true
			}
			lost, doubled := s.account(t, confirmed)
			stopNew()
			if lost > 0 || doubled > 1000 { // what the drain had in flight when it was killed
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
				s.where(t, confirmed)
				t.Logf("the runs:\n%s", &told)
			}
			s.tidy(t)
			t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
		})
	}
}

// An abort that is killed again and again goes on where it was.
func TestAbortKilled(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for _, steps := range brokertest.Share([]int{3, 5, 7}) {
		t.Run(fmt.Sprintf("after %d steps", steps), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			before := s.target.Definitions(t)
			stop := s.consume(t, "old")
			published := s.publish(t, 100*time.Millisecond)
			r := s.runner(t)
			r.Until = migrate.Prepare
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range steps {
				s.step(t)
			}
			moments := rand.New(rand.NewPCG(uint64(steps), 2)) //nolint:gosec // the same moments each time
			kills := 0
			for range brokertest.Rounds(5, 8) {
				c, out := s.command(t, dlxctl, "abort", "--yes", "--settle", "50ms", "--lock-timeout", "20s")
				if killed(t, c, out, time.Duration(moments.IntN(1200))*time.Millisecond) {
					kills++
				}
			}
			if c, out := s.command(t, dlxctl, "abort", "--yes", "--lock-timeout", "20s"); c.Run() != nil {
				t.Fatalf("the last run:\n%s", out)
			}
			confirmed := published()
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s", d)
			}
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 || doubled > kills*1000 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
				s.where(t, confirmed)
			}
			t.Logf("%d kills, %d published, %d lost, %d doubled", kills, len(confirmed), lost, doubled)
		})
	}
}

// Of two at once one refuses, and says why.
func TestTwoMigratesAtOnce(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	dlxctl := brokertest.Program(t)
	s := newStage(t, "classic", nil)
	first, said := s.command(t, dlxctl, "--yes", "--settle", "500ms", "--idle", "3s")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); !s.exists(t, "new"); wait(t, 20*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first did not begin")
		}
	}
	second, out := s.command(t, dlxctl, "--yes")
	if err := second.Run(); err == nil || second.ProcessState.ExitCode() != 1 {
		t.Errorf("the second exits with %d: %s", second.ProcessState.ExitCode(), out)
	}
	if !strings.Contains(out.String(), "another dlxctl holds the lock of the topology \"shop\"") {
		t.Errorf("the second says: %s", out)
	}
	if err := first.Wait(); err != nil || s.exists(t, "old") {
		t.Errorf("the first ends with %v:\n%s", err, said)
	}
}

// tidy checks that nothing of the switch is left.
func (s *stage) tidy(t *testing.T) {
	t.Helper()
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range state.Have.Exchanges {
		if topology.IsSwitchName("shop", e.Name) {
			left = append(left, e.Name)
		}
	}
	for _, p := range state.Have.Policies {
		if topology.IsSwitchName("shop", p.Name) {
			left = append(left, p.Name)
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// Interrupted in the middle of the drain, twice, it says truly what is moved and what is left, and
// the command that it prints continues. The second run writes nothing but the messages it moves.
func TestMigrateInterrupted(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	s := newStage(t, "classic", nil)
	const n = 40_000 // some seconds of a drain, or it would be over before the signal comes
	s.fill(t, n, 10)
	if c, said := s.command(t, dlxctl, "--yes", "--settle", "10ms", "--until", "cutover"); c.Run() != nil {
		t.Fatalf("the cutover:\n%s", said)
	}
	moved, eyes := 0, s.target.Channel(t)
	drains := func() bool { return brokertest.Ready(t, eyes, "new") > moved }
	for range 2 {
		c, said := s.command(t, dlxctl, "--yes", "--settle", "10ms", "--idle", "30s")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		brokertest.EventuallyEvery(t, 5*time.Millisecond, "the drain to begin", drains)
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // the code tells
		if code := c.ProcessState.ExitCode(); code != 4 {
			t.Fatalf("it exits with %d:\n%s", code, said)
		}
		match := regexp.MustCompile(`(?m)^dlxctl: interrupted, and no message is lost
old -> new: new messages go to new; this run moved ([\d,]+) messages to new, and ([\d,]+) are left in old
to continue: dlxctl migrate --allow drops-routing=old --idle 30s --settle 10ms --yes -f \S+
to roll back: dlxctl migrate abort --yes -f \S+$`).FindStringSubmatch(said.String())
		if match == nil {
			t.Fatalf("it says:\n%s", said)
		}
		moved += number(t, match[1])
		if left := number(t, match[2]); moved+left != n || s.ready(t, "new") != moved || s.ready(t, "old") != left {
			t.Errorf("it says that %s are moved and %s left; in all %d are moved; new has %d, old %d",
				match[1], match[2], moved, s.ready(t, "new"), s.ready(t, "old"))
		}
	}
	// A run that is killed cannot say anything; the next one says how many it may have doubled.
	c, _ := s.command(t, dlxctl, "--yes", "--idle", "30s")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	brokertest.EventuallyEvery(t, 5*time.Millisecond, "the drain to go on", drains)
	_ = c.Process.Kill() // it runs: it waits for --idle at least
	_ = c.Wait()         // it was killed
	c, said := s.command(t, dlxctl, "--yes", "--idle", "1s", "--lock-timeout", "20s")
	if c.Run() != nil || s.exists(t, "old") {
		t.Fatalf("the last run:\n%s", said)
	}
	twice, done := s.ready(t, "new")-n, doneLine(t, said.String())
	if twice < 0 || twice > done.doubled || done.doubled > 1000 {
		t.Errorf("new has %d messages more than there were; the last run says:\n%s", twice, said)
	}
	t.Logf("%d messages were moved before the kill, then %d; %d are doubled, at most %d, it says", moved, done.moved,
		twice, done.doubled)
}

// Interrupted in the cutover, it says truly to which of the two queues messages go.
func TestCutoverInterrupted(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{
		"cutover: create the switch exchange": "old", "cutover: switch from": "old", "cutover: bind new": "new",
		"cutover: delete the switch exchange": "new",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				if strings.HasPrefix(fmt.Sprintf(format, args...), step) {
					stop() // before the step is taken
				}
			}
			cause := r.Run(ctx)
			lines, err := r.Interrupted(t.Context(), cause)
			if line := "old -> new: new messages go to " + want; err != nil || len(lines) != 1 ||
				!strings.HasPrefix(lines[0], line) || !r.Wrote() {
				t.Errorf("it says %q, %v; want %q", lines, err, line)
			}
			brokertest.Fill(t, s.target.Confirming(t), "d", "a", 1, 10)
			for queue, n := range map[string]int{"old": 0, "new": 0, want: 1} {
				if got := s.ready(t, queue); got != n {
					t.Errorf("%s has %d messages, not %d", queue, got, n)
				}
			}
		})
	}
}

// An abort that is interrupted says the same of the messages that it moved back.
func TestAbortInterrupted(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	s := newStage(t, "classic", nil)
	if c, said := s.command(t, dlxctl, "--yes", "--settle", "10ms", "--until", "cutover"); c.Run() != nil {
		t.Fatalf("the cutover:\n%s", said)
	}
	const n = 10_000
	brokertest.Fill(t, s.target.Confirming(t), "", "new", n, 10)
	c, said := s.command(t, dlxctl, "abort", "old", "--yes", "--settle", "10ms")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the drain to begin", func() bool { return s.ready(t, "old") > 0 })
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // the code tells
	match := regexp.MustCompile(`(?m)^dlxctl: interrupted, and no message is lost
old <- new: new messages go to old; this run moved ([\d,]+) messages to old, and ([\d,]+) (?:is|are) left in new
to continue: dlxctl migrate abort old --settle 10ms --yes -f \S+
to migrate after all: dlxctl migrate old --yes -f \S+$`).FindStringSubmatch(said.String())
	if code := c.ProcessState.ExitCode(); code != 4 || match == nil {
		t.Fatalf("it exits with %d:\n%s", code, said)
	}
	moved, left := number(t, match[1]), number(t, match[2])
	if moved+left != n || s.ready(t, "old") != moved || s.ready(t, "new") != left {
		t.Errorf("it says that %d are moved and %d left; old has %d, new %d", moved, left,
			s.ready(t, "old"), s.ready(t, "new"))
	}
}

// An abort that is killed while it moves messages back cannot say anything; the next one says how
// many it may have doubled.
func TestAbortSaysWhatIsDoubled(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	s := newStage(t, "quorum", nil)
	if c, said := s.command(t, dlxctl, "--yes", "--settle", "10ms", "--until", "cutover"); c.Run() != nil {
		t.Fatalf("the cutover:\n%s", said)
	}
	const n = 10_000
	brokertest.Fill(t, s.target.Confirming(t), "d", "a", n, 10)
	c, _ := s.command(t, dlxctl, "abort", "--yes", "--settle", "10ms")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the messages to move", func() bool { return s.ready(t, "old") > 0 })
	_ = c.Process.Kill() // it runs: it waits a second at least once all is moved
	_ = c.Wait()         // it was killed
	c, said := s.command(t, dlxctl, "abort", "--yes", "--settle", "10ms", "--lock-timeout", "20s")
	if c.Run() != nil || s.exists(t, "new") {
		t.Fatalf("the next abort:\n%s", said)
	}
	twice := s.ready(t, "old") - n
	match := regexp.MustCompile(`(?m)^abort: ([\d,]+) messages? had been delivered before; they are doubled if migrate`).
		FindStringSubmatch(said.String())
	if match == nil {
		t.Fatalf("%d messages are doubled, and it says nothing of it:\n%s", twice, said)
	}
	if most := number(t, match[1]); twice < 0 || twice > most || most > 1000 {
		t.Errorf("%d messages are doubled; it says:\n%s", twice, said)
	}
}

// ready returns how many messages are ready in a queue.
func (s *stage) ready(t *testing.T, queue string) int {
	t.Helper()
	if _, err := s.target.Channel(t).QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		return 0 // it does not exist yet
	}
	return brokertest.Ready(t, s.target.Channel(t), queue)
}

// number parses a number with commas between thousands.
func number(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(digits, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// done is what the last line of a run says.
type done struct{ moved, doubled int }

// doneLine reads the last line of a run that moved old to new.
func doneLine(t *testing.T, said string) done {
	t.Helper()
	match := regexp.MustCompile(
		`(?m)^done: old is now new; this run moved ([\d,]+) messages?, (?:at most )?([\d,]+) doubled, [\dms.]+$`,
	).FindStringSubmatch(said)
	if match == nil {
		t.Fatalf("it does not say that it is done:\n%s", said)
	}
	return done{number(t, match[1]), number(t, match[2])}
}

// killAt runs the program, passes each line that it prints to log, and kills it at the first line
// that starts with a text, after before has run. It reports whether there was such a line.
func (s *stage) killAt(t *testing.T, program string, flags []string, text string, before func(),
	log func(line string),
) bool {
	t.Helper()
	c, errs := s.command(t, program, flags...)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if errs.Len() > 0 {
			log(errs.String())
		}
	}()
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		log(lines.Text())
		if strings.HasPrefix(lines.Text(), text) && !killed {
			killed = true
			before()
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait() // it was killed
	return killed
}
