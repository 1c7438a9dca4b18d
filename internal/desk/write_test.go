package desk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

func at(minute int) time.Time { return time.Date(2026, 1, 2, 9, minute, 0, 0, time.UTC) }

// replay is the proposal of the examples.
func replay() desk.Proposal {
	return desk.Proposal{
		Request: desk.Request{Action: desk.Replay, Queue: "billing.dead", Send: desk.SendOptions{
			Rate: 10, Ramp: []int{1, 10, 100}, StopFailures: 3, MaxWaiting: 1000,
		}},
		Looked: desk.Looked{
			Queue: "billing.dead", Messages: 1204, Looked: 1204, Took: jsondoc.Seconds(211 * time.Millisecond),
		},
		Chosen: 37, ReplayedBefore: 2, Copies: 3,
		Groups: []deadletter.Group{{Value: "rejected, order.placed, billing", Count: 37, Example: "0a1b2c3d4e5f"}},
		First:  at(2), Last: at(41),
		Reaches: []desk.Reach{
			{Queue: "billing", Exchange: "shop.return", Key: "order.placed", Messages: 37, Consumers: 2, Waiting: 0},
		},
	}
}

// A proposal says all that a person must know before yes.
func TestWriteProposal(t *testing.T) {
	t.Parallel()
	refused := replay()
	refused.Reaches[0].Consumers, refused.Reaches[0].Waiting = -1, -1
	refused.Refusals = []string{"queue billing does not exist; run dlxctl apply"}
	never, neverNorRamp := replay(), replay()
	never.Request.Send.StopFailures, neverNorRamp.Request.Send.StopFailures = 0, 0
	neverNorRamp.Request.Send.Ramp = nil
	none := desk.Proposal{Request: desk.Request{Action: desk.Park}, Looked: desk.Looked{Queue: "billing.dead"}}
	forever := replay()
	forever.Request.Action, forever.Request.Forever, forever.Reaches = desk.Discard, true, nil
	for name, tc := range map[string]struct {
		proposal desk.Proposal
		do, want string
	}{
		"replay": {replay(), "dlxctl desk replay billing.dead --yes --expect 37", `
billing.dead holds 1204 messages; looked at 1204 in 211ms, order kept
37 chosen, failed 2026-01-02T09:02:00Z to 2026-01-02T09:41:00Z; 3 equal a message before them; 2 left out because they were replayed before (--again chooses them)
  37 × rejected, order.placed, billing, for example 0a1b2c3d4e5f
37 messages would go to billing (through shop.return, key order.placed): 2 consumers, 0 waiting
10/s after batches of 1, 10 and 100; stops after 3 repeated failures; pauses while the target holds more than 1000
nothing was moved; to do it: dlxctl desk replay billing.dead --yes --expect 37
`},
		"never": {never, "", `
billing.dead holds 1204 messages; looked at 1204 in 211ms, order kept
37 chosen, failed 2026-01-02T09:02:00Z to 2026-01-02T09:41:00Z; 3 equal a message before them; 2 left out because they were replayed before (--again chooses them)
  37 × rejected, order.placed, billing, for example 0a1b2c3d4e5f
37 messages would go to billing (through shop.return, key order.placed): 2 consumers, 0 waiting
10/s after batches of 1, 10 and 100; stops when a message of a batch fails again, and not later; pauses while the target holds more than 1000
`},
		"never, no ramp": {neverNorRamp, "", `
billing.dead holds 1204 messages; looked at 1204 in 211ms, order kept
37 chosen, failed 2026-01-02T09:02:00Z to 2026-01-02T09:41:00Z; 3 equal a message before them; 2 left out because they were replayed before (--again chooses them)
  37 × rejected, order.placed, billing, for example 0a1b2c3d4e5f
37 messages would go to billing (through shop.return, key order.placed): 2 consumers, 0 waiting
10/s; does not stop when messages fail again; pauses while the target holds more than 1000
`},
		"refused": {refused, "", `
billing.dead holds 1204 messages; looked at 1204 in 211ms, order kept
37 chosen, failed 2026-01-02T09:02:00Z to 2026-01-02T09:41:00Z; 3 equal a message before them; 2 left out because they were replayed before (--again chooses them)
  37 × rejected, order.placed, billing, for example 0a1b2c3d4e5f
37 messages would go to billing (through shop.return, key order.placed)
10/s after batches of 1, 10 and 100; stops after 3 repeated failures; pauses while the target holds more than 1000
refused: queue billing does not exist; run dlxctl apply
`},
		"empty queue": {none, "", "\nbilling.dead holds no messages\n0 chosen\n"},
		"forever": {forever, "", `
billing.dead holds 1204 messages; looked at 1204 in 211ms, order kept
37 chosen, failed 2026-01-02T09:02:00Z to 2026-01-02T09:41:00Z; 3 equal a message before them; 2 left out because they were replayed before (--again chooses them)
  37 × rejected, order.placed, billing, for example 0a1b2c3d4e5f
they would be deleted, and nothing could bring them back
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := desk.WriteProposal(&b, tc.proposal, tc.do); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), b.String()); d != "" {
				t.Errorf("WriteProposal (-want +got):\n%s", d)
			}
		})
	}
}

// The result of a run is its only record: it says who did what, from where to where, and why.
func TestWriteResult(t *testing.T) {
	t.Parallel()
	r := desk.Result{
		Run: "r1", Action: desk.Replay, Queue: "billing.dead", Chosen: 8, To: []string{"billing", "mail"},
		Begun: at(50), By: "ann@host", Continued: "bob@host", Reason: "fixed in 4.2", Moved: 1, Left: 7, FailedAgain: 1,
		Stopped: "1 of a batch of 1 failed again", Took: jsondoc.Seconds(353 * time.Millisecond),
	}
	const want = `
run r1: replayed 1 message in 353ms; 7 left in its hold; 1 failed again
  8 chosen in billing.dead, to billing and mail; begun 2026-01-02T09:50:00Z by ann@host, continued by bob@host; reason: fixed in 4.2
`
	var b strings.Builder
	if err := desk.WriteResult(&b, desk.Replay, r); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want[1:], b.String()); d != "" {
		t.Errorf("WriteResult (-want +got):\n%s", d)
	}
	b.Reset()
	if err := desk.WriteResult(&b, desk.Replay, desk.Result{Run: "r1", Moved: 1, SoFar: true}); err != nil ||
		b.String() != "run r1: replayed 1 message in 0s; none failed again so far\n" {
		t.Errorf("the result of a run that did not wait is %q, %v", b.String(), err)
	}
	b.Reset()
	// That an earlier process was killed is not known: Ctrl-C and cancel end one normally.
	const doubled = "run r1: parked 2 messages in 0s; an earlier process doubled none if it ended normally, " +
		"and at most 1, with the same message-id, if it was killed\n"
	resumed := desk.Result{Run: "r1", Moved: 2, DoubledAtMost: 1}
	if err := desk.WriteResult(&b, desk.Park, resumed); err != nil || b.String() != doubled {
		t.Errorf("the result of a run that was resumed is %q, %v", b.String(), err)
	}
	const wantJSON = `{
  "run": "r1",
  "action": "replay",
  "queue": "billing.dead",
  "to": [
    "billing",
    "mail"
  ],
  "chosen": 8,
  "begun": "2026-01-02T09:50:00Z",
  "by": "ann@host",
  "continuedBy": "bob@host",
  "reason": "fixed in 4.2",
  "ended": false,
  "moved": 1,
  "leftInHold": 7,
  "missing": 0,
  "doubledAtMost": 0,
  "failedAgain": 1,
  "stopped": "1 of a batch of 1 failed again",
  "seconds": 0.353
}
`
	b.Reset()
	if err := jsondoc.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantJSON, b.String()); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
}

// An overview says what was not looked at, and lists the runs in progress.
func TestWriteOverview(t *testing.T) {
	t.Parallel()
	o := desk.Overview{Topology: "shop", Queues: []desk.QueueOverview{
		{
			Queue: "billing.dead", Owners: []string{"team-billing"}, Messages: 1204, Looked: 1000, Oldest: at(2), New: 999,
			TopCause: "rejected", TopCount: 990, Exists: true,
		},
		{Queue: "mail.dead", Exists: true, Messages: 3, Age: 5, NotLooked: "it has consumers"},
		{Queue: "news.dead", Exists: true, Age: 5},
		{Queue: "crm.dead"},
	}, Runs: []desk.Run{{
		ID: "r1", Action: desk.Replay, Queue: "billing.dead", Phase: desk.Sending, Chosen: 37, Holds: 12, Started: at(50),
		By: "ann@host",
	}}}
	want := `QUEUE         MESSAGES                          OLDEST                NEW IN 24 H  TOP CAUSE       OWNER
billing.dead  1204                              2026-01-02T09:02:00Z  999 or more  990 × rejected  team-billing
mail.dead     3                                 -                     ?            -               -
news.dead     0                                 -                     0            -               -
crm.dead      does not exist; run dlxctl apply  -                     0            -               -
billing.dead: looked at 1000 of 1204
mail.dead: looked at 0 of 3: it has consumers
up to 5 seconds old: the count of mail.dead and news.dead, which desk did not look at

RUN  ACTION  QUEUE         PHASE             CHOSEN  LEFT  STARTED               BY        REASON
r1   replay  billing.dead  sending, stopped  37      12    2026-01-02T09:50:00Z  ann@host  -
`
	var b strings.Builder
	if err := desk.WriteOverview(&b, o, 0); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("WriteOverview (-want +got):\n%s", d)
	}
}
