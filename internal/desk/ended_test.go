package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// ended returns the runs that have ended, once their records are written.
func (s *shop) ended(t *testing.T) []desk.EndedRun {
	t.Helper()
	s.desk.AwaitRecords()
	ended, err := s.desk.EndedRuns(t.Context())
	if err != nil || ended.Unreadable > 0 || ended.Looked.Missed != "" {
		t.Fatalf("%+v, %v", ended, err)
	}
	return ended.Runs
}

// records makes a desk tell of each record that it cannot write, and returns what it told.
func records(d *desk.Desk) func() []string {
	var lines []string
	d.Unrecorded = func(run string, err error) { lines = append(lines, run+": "+err.Error()) }
	return func() []string {
		d.AwaitRecords()
		return lines
	}
}

// Each run that has ended is in the list, the newest first, with who did what to which messages,
// and the result that it printed. A run that has not ended is not. To look at the list changes
// nothing.
func TestEndedRunsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	unrecorded := records(s.desk)
	if got := s.ended(t); len(got) > 0 {
		t.Fatalf("before any run: %+v", got)
	}
	chosen, _ := s.bury(t, 80)

	s.desk.By = "ann@here"
	r := request(t, desk.Replay)
	r.Limit, r.Reason = 3, "ticket 4711"
	replayed := s.execute(t, r)

	s.desk.Holding()
	ctx, cancel := context.WithCancel(t.Context())
	p, err := s.desk.Propose(t.Context(), request(t, desk.Park))
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == len(chosen)-3 {
			cancel()
		}
	})
	if err != nil || held.Ended {
		t.Fatalf("%+v, %v", held, err)
	}
	if got := s.ended(t); len(got) != 1 {
		t.Fatalf("with a run that has not ended: %+v", got)
	}
	resumed, err := s.desk.As("bob@there").Resume(t.Context(), held.Run, nil, nil)
	if err != nil || !resumed.Ended {
		t.Fatalf("%+v, %v", resumed, err)
	}
	replayed.Direct = false // a record does not tell
	criteria := desk.Criteria{Where: `key == "order.chosen"`}
	want := []desk.EndedRun{
		{Result: resumed, ChosenBy: criteria, Resumed: true},
		{Result: replayed, ChosenBy: desk.Criteria{Where: `key == "order.chosen"`, Limit: 3}},
	}
	for range 2 {
		got := s.ended(t)
		for i := range got {
			if at := got[i].EndedAt; at.Before(got[i].Begun) || time.Since(at) > time.Hour {
				t.Errorf("%s ended at %s", got[i].Run, at)
			}
			got[i].EndedAt = time.Time{}
		}
		if d := cmp.Diff(want, got, about()); d != "" {
			t.Fatalf("the records (-want +got):\n%s", d)
		}
	}
	s.awaitReady(t, topology.LogName("shop"), 2)
	if resumed.By != "ann@here" || resumed.Continued != "bob@there" || resumed.Moved != len(chosen)-3 {
		t.Errorf("%+v", resumed)
	}
	if lines := unrecorded(); len(lines) > 0 {
		t.Errorf("not recorded: %q", lines)
	}
	s.tidy(t)
}

// about compares durations to the microsecond, which is what JSON keeps of a second.
func about() cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Took" }, cmp.Ignore())
}

// A run that was returned is recorded as such. So is one whose process died when nothing was left
// but its hold, with what the hold tells, and one that has failed.
func TestRunsThatEndOtherwiseAreRecorded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 80)
	returned := s.takenOnly(t, len(chosen))
	if _, err := s.desk.Return(t.Context(), returned, nil); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t, "billing.dead", 80)
	emptied := s.takenOnly(t, len(chosen))
	s.drained(t, topology.HoldName("shop", emptied))
	if _, err := s.desk.Resume(t.Context(), emptied, nil, nil); err != nil {
		t.Fatal(err)
	}
	got := s.ended(t)
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for i, e := range got {
		if e.Action != desk.Replay || e.Queue != "billing.dead" || e.Chosen != len(chosen) || e.By != "tester@here" ||
			e.Reason != "test" || !e.Resumed || !e.Ended || e.Returned != (i == 1) {
			t.Errorf("%+v", e)
		}
	}
	if e := got[1]; e.Run != returned || e.Moved != len(chosen) || !cmp.Equal(e.To, []string{"billing.dead"}) {
		t.Errorf("the returned run: %+v", e)
	}
	if e := got[0]; e.Run != emptied || e.Moved != 0 {
		t.Errorf("the run with an empty hold: %+v", e)
	}
}

// A run that was killed has no record until it is resumed and ends.
func TestAKilledRunIsRecordedAtItsEnd(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 2000)
	k := task{Action: desk.Replay, StallIn: desk.Sending, StallAt: 100}
	if !s.start(t, k, func(line string) bool { return line == "stalled" }).ended(t) {
		t.Fatal("the run was not killed")
	}
	run := s.onlyRun(t)
	if got := s.ended(t); run == "" || len(got) > 0 {
		t.Fatalf("run %q, records %+v", run, got)
	}
	r, err := s.desk.Resume(t.Context(), run, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := s.ended(t)
	if len(got) != 1 || got[0].Run != run || got[0].By != "child" || got[0].Continued != "tester@here" ||
		got[0].Moved != r.Moved || !got[0].Resumed || got[0].ChosenBy.Where == "" {
		t.Errorf("%+v", got)
	}
}

// RabbitMQ itself drops the oldest records, by their number and by their age, and no consumer is
// needed for that.
func TestOldRecordsGo(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	log := desk.LogOf(s.desk)
	if ttl := log.Arguments[topology.ArgMessageTTL]; ttl != (90 * 24 * time.Hour).Milliseconds() {
		t.Errorf("records are kept for %v ms", ttl)
	}
	for name, tc := range map[string]struct {
		arguments topology.Arguments
		left      int
	}{
		"number": {log.Arguments.With(topology.ArgMaxLength, int64(3)), 3},
		"bytes":  {log.Arguments.With(topology.ArgMaxLengthBytes, int64(4500)), 4},
		"age":    {log.Arguments.With(topology.ArgMessageTTL, int64(1000)), 0},
	} {
		queue := "log-" + name
		brokertest.Declare(t, s.ch, queue, amqp.Table(tc.arguments))
		for i := range 10 {
			brokertest.PublishConfirmed(t, s.ch, "", queue, amqp091.Publishing{
				MessageId: fmt.Sprint(i), Body: []byte(strings.Repeat("x", 1000)),
			})
		}
		s.awaitReady(t, queue, tc.left)
		for i, m := range s.drained(t, queue) {
			if want := fmt.Sprint(10 - tc.left + i); m.MessageId != want {
				t.Errorf("%s: record %d is %s, want %s: the oldest go first", name, i, m.MessageId, want)
			}
		}
	}
}

// A run whose record cannot be written has the result that it has otherwise, and says so once. Its
// record goes nowhere else.
func TestARunWhoseRecordCannotBeWritten(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *shop)
		says    string
	}{
		"a policy would make dead letters of records": {
			func(t *testing.T, s *shop) {
				t.Helper()
				s.policy(t, "policies", topology.LogName("shop"), map[string]any{"dead-letter-exchange": "events"})
			},
			"a policy gives shop.desk.log a dead-letter exchange, to which its records would go; exclude the queue from the pattern",
		},
		"a queue that refuses": {
			func(t *testing.T, s *shop) {
				t.Helper()
				args := amqp091.Table{"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish"}
				brokertest.Declare(t, s.ch, topology.LogName("shop"), args)
			},
			"inequivalent arg",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 40)
			tc.prepare(t, s)
			unrecorded := records(s.desk)
			r := s.execute(t, request(t, desk.Park))
			if r.Moved != len(chosen) || !r.Ended || r.Stopped != "" {
				t.Errorf("%+v", r)
			}
			lines := unrecorded()
			if len(lines) != 1 || !strings.HasPrefix(lines[0], r.Run+": ") || !strings.Contains(lines[0], tc.says) {
				t.Errorf("the run says %q, want %q", lines, tc.says)
			}
			s.awaitReady(t, "billing.dead", len(rest))
			s.awaitReady(t, topology.ParkedName("shop"), len(chosen))
		})
	}
}

// A process does not wait for a record, and gives up one that a silent broker does not accept.
func TestARecordThatABrokerDoesNotAccept(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	d := &desk.Desk{
		Topology: topology.Compiled{Name: "shop"},
		Endpoint: broker.Endpoint{AMQP: broker.Address{Scheme: "amqp", Host: silent.Addr().String()}},
	}
	told := make(chan string, 1)
	d.Unrecorded = func(run string, err error) { told <- run + ": " + err.Error() }
	d.Keep(t.Context(), desk.EndedRun{Result: desk.Result{Run: "r1"}})
	select {
	case line := <-told:
		t.Errorf("the process has waited, until %q", line)
	default:
	}
	d.AwaitRecords()
	if line := <-told; line != "r1: shop.desk.log has not accepted the record in 5s" {
		t.Errorf("it says %q", line)
	}
}

// Without a topology file nothing is recorded, and the list says so.
func TestWithoutAFileNoRunIsRecorded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 40)
	if err := discover(t.Context(), s.desk); err != nil {
		t.Fatal(err)
	}
	unrecorded := records(s.desk)
	s.execute(t, request(t, desk.Park))
	if lines := unrecorded(); len(lines) > 0 {
		t.Errorf("it says %q", lines)
	}
	ended, err := s.desk.EndedRuns(t.Context())
	if err != nil || len(ended.Runs) > 0 {
		t.Fatalf("%+v, %v", ended, err)
	}
	var b strings.Builder
	if err := ended.Write(&b, 20, desk.Screen{}); err != nil ||
		b.String() != "ended runs are recorded only with a topology file that manages dead letters\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	known := desk.Comment{Queue: "billing.dead", By: "cause", Value: "rejected", Text: "known"}
	if _, err := s.desk.Comment(t.Context(), known); !errors.Is(err, desk.ErrRefused) {
		t.Errorf("a comment: %v", err)
	}
}

// A look at the records is not refused because the broker drops some of them meanwhile, and no run
// takes them for messages.
func TestTheRecordsAreNotMessages(t *testing.T) {
	t.Parallel()
	d := &desk.Desk{Topology: topology.Compiled{Name: "shop"}}
	log := desk.LogOf(d)
	state := topology.State{
		Version: "4.3.6", Have: topology.Topology{Queues: []topology.Queue{log}},
		Usage: map[string]topology.Usage{log.Name: {Ready: 10_000, Bytes: 16 << 20}},
	}
	if err := desk.RefuseLook(state, log.Name, 0, 0); err != nil {
		t.Error(err)
	}
	_, err := d.Propose(t.Context(), desk.Request{Action: desk.Discard, Queue: log.Name, Forever: true})
	if err == nil || !strings.Contains(err.Error(), "has the records of runs") {
		t.Errorf("%v", err)
	}
	for _, version := range []string{"3.10.8", "4.0.5", "4.3.6"} {
		state.Version = version
		if found := audit.Run(audit.Input{State: state}).Findings; len(found) > 0 {
			t.Errorf("on %s the audit finds %+v", version, found)
		}
	}
	if runs := desk.RunsOf("shop", state, time.Time{}); len(runs) > 0 {
		t.Errorf("it is taken for a run: %+v", runs)
	}
}

// The list of ended runs, as a person reads it.
func TestWriteEnded(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 9, 30, 0, 0, time.UTC)
	ended := desk.Ended{Runs: []desk.EndedRun{
		{
			Result: desk.Result{
				Run: "20261126-092900-bbbbbb", Action: desk.Replay, Queue: "billing.dead", Chosen: 40, Moved: 12,
				FailedAgain: 3, LeftInQueue: 28, By: "ann@desk", Reason: "ticket 4711", Stopped: "3 of 12 messages failed again",
			},
			EndedAt: at, ChosenBy: desk.Criteria{Where: `cause == "rejected"`, Since: at.Add(-time.Hour), Limit: 40},
		},
		{
			Result: desk.Result{
				Run: "20261126-091500-aaaaaa", Action: desk.Pull, Queue: "billing", Chosen: 12, Moved: 5,
				DoubledAtMost: 2, Missing: 1,
			},
			EndedAt: at.Add(-time.Minute), Returned: true, Resumed: true,
			ChosenBy: desk.Criteria{Handles: []string{"0a1b2c3d4e5f", "1a1b2c3d4e5f"}, HandleCount: 12},
		},
		{Result: desk.Result{Run: "20261126-090000-cccccc", Action: desk.Park, Queue: "billing.dead"}, EndedAt: at},
	}, Unreadable: 1, Looked: desk.Looked{Missed: "the look failed"}}
	var b strings.Builder
	if err := ended.WriteMissed(&b); err != nil {
		t.Fatal(err)
	}
	if err := ended.Write(&b, 2, desk.Screen{}); err != nil {
		t.Fatal(err)
	}
	const want = `1 record cannot be read: a newer release has written it, or another program
not all records were looked at: the look failed
RUN                     ENDED                 ACTION          QUEUE         RESULT                                                                                                        CHOSEN BY                                                               BY        REASON
20261126-092900-bbbbbb  2026-11-26T09:30:00Z  replay          billing.dead  replayed 12 of 40; 3 failed again; 28 left in the queue; stopped: 3 of 12 messages failed again               cause == "rejected"; failed since 2026-11-26T08:30:00Z; the first 40     ann@desk  ticket 4711
20261126-091500-aaaaaa  2026-11-26T09:29:00Z  pull, returned  billing       restored 5 of 12; 1 no longer there; counted since it was resumed; at most 2 doubled if a process was killed                          the handles 0a1b2c3d4e5f, 1a1b2c3d4e5f and 10 more                       -         -
the newest 2 of 3; --limit 0 lists all
`
	if d := cmp.Diff(strings.Fields(want), strings.Fields(b.String())); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, b.String())
	}
	raw, err := json.Marshal(ended.Runs)
	var back []desk.EndedRun
	if err != nil || json.Unmarshal(raw, &back) != nil || !cmp.Equal(ended.Runs, back) {
		t.Errorf("what is written is not what is read (-wrote +read):\n%s", cmp.Diff(ended.Runs, back))
	}
}

// Others can write a record, and make a queue that is named like a hold: what they say does nothing
// in a terminal.
func TestRunsOfOthersDoNothingInATerminal(t *testing.T) {
	t.Parallel()
	const odd = "\x1b]52;c;eA==\a"
	var b strings.Builder
	ended := desk.Ended{Runs: []desk.EndedRun{{Result: desk.Result{
		Run: odd, Action: odd, Queue: odd, By: odd, Reason: odd, Stopped: odd,
	}, ChosenBy: desk.Criteria{Where: odd, Handles: []string{odd}, HandleCount: 1}}}}
	runs := []desk.Run{{ID: odd, Action: odd, Queue: odd, Phase: desk.Sending, By: odd, Reason: odd, Age: 1}}
	if err := errors.Join(ended.Write(&b, 0, desk.Screen{}), desk.WriteRuns(&b, runs, desk.Screen{})); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\a") || !strings.Contains(b.String(), `\x1b]52`) {
		t.Errorf("the tables are\n%q", b.String())
	}
}

// A run whose list is gone is returned, and says and records what it was: its hold tells.
func TestAReturnWithoutAListIsRecorded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 40)
	run := s.takenOnly(t, len(chosen))
	hold := topology.HoldName("shop", run)
	had := readyIn(t, s.ch, hold)
	list, ok, err := s.ch.Get(hold, false)
	if err != nil || !ok || list.Headers["desk-record"] != "list" {
		t.Fatal(list.Headers, ok, err)
	}
	if err := list.Ack(false); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t, hold, had-1)
	r, err := s.desk.Return(t.Context(), run, nil)
	if err != nil || !r.Ended || r.Moved != len(chosen) || r.Queue != "billing.dead" || r.Chosen != len(chosen) {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
	var out strings.Builder
	if err := desk.WriteResult(&out, desk.Restore, r); err != nil || strings.Contains(out.String(), "nothing was left") {
		t.Errorf("%q, %v", out.String(), err)
	}
	e := s.ended(t)
	if len(e) != 1 || e[0].Action != desk.Replay || e[0].Queue != "billing.dead" || e[0].By == "" || !e[0].Returned {
		t.Errorf("%+v", e)
	}
}
