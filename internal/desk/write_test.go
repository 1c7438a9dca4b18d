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
	const doubled = "run r1: parked 2 messages in 0s; an earlier process doubled what its result says, " +
		"and at most 1 if it was killed; doubles carry the same message-id, if the publisher sets one\n"
	resumed := desk.Result{Run: "r1", Moved: 2, DoubledAtMost: 1}
	if err := desk.WriteResult(&b, desk.Park, resumed); err != nil || b.String() != doubled {
		t.Errorf("the result of a run that was resumed is %q, %v", b.String(), err)
	}
	b.Reset()
	const both = "run r1: parked 9 messages in 0s; an earlier process doubled what its result says, " +
		"and at most 1 if it was killed; at most 3 may be doubled; doubles carry the same message-id, if the publisher sets one\n"
	resumed = desk.Result{Run: "r1", Moved: 9, DoubledAtMost: 4, InDoubt: 3}
	if err := desk.WriteResult(&b, desk.Park, resumed); err != nil || b.String() != both {
		t.Errorf("the result of a run with messages in doubt is %q, %v", b.String(), err)
	}
	b.Reset()
	// A second edit has another message-id than the first: no consumer knows it for a double.
	const edited = "run r1: edited and sent 0 messages in 0s; 1 still in billing.dead; none failed again; " +
		"the edited message may have been sent nevertheless\n"
	refused := desk.Result{Run: "r1", Ended: true, Direct: true, LeftInQueue: 1, DoubledAtMost: 1, Queue: "billing.dead"}
	if err := desk.WriteResult(&b, desk.Edit, refused); err != nil || !strings.HasPrefix(b.String(), edited) {
		t.Errorf("the result of an edit whose original is not parked is %q, %v", b.String(), err)
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

// A person at a terminal of 80 columns sees the queue with most messages first, and how long ago;
// the empty ones take one line. Elsewhere times stay whole.
func TestWriteOverview(t *testing.T) {
	t.Parallel()
	o := desk.Overview{Topology: "shop", Queues: []desk.QueueOverview{
		{Queue: "news.dead", Exists: true, Age: 5},
		{Queue: "crm.dead"},
		{Queue: "mail.dead", Exists: true, Messages: 3, Age: 5, NotLooked: "it has consumers"},
		{
			Queue: "billing.payments.dead", Owners: []string{"team-billing"}, Messages: 1204, Looked: 1000, Oldest: at(2),
			New: 999, TopCause: "failed: Payment.Declined", TopCount: 990, Exists: true,
		},
		{Queue: "sales.dead", Exists: true},
		{Queue: "sms.dead", Exists: true, Messages: 2, Looked: 2, Oldest: at(1), New: 2, TopCause: "rejected", TopCount: 2},
	}, Runs: []desk.Run{{
		ID: "r1", Action: desk.Replay, Queue: "billing.payments.dead", Phase: desk.Sending, Chosen: 37, Holds: 12,
		Started: at(50), By: "ann@host", Age: 5,
	}}}
	const piped = `
QUEUE                  MESSAGES  OLDEST                NEW IN 24 H  TOP CAUSE                       OWNER
billing.payments.dead  1204      2026-01-02T09:02:00Z  999 or more  990 × failed: Payment.Declined  team-billing
mail.dead              3         -                     ?            -                               -
sms.dead               2         2026-01-02T09:01:00Z  2            2 × rejected                    -
billing.payments.dead: looked at 1000 of 1204
mail.dead: looked at 0 of 3: it has consumers
up to 5 seconds old: the count of mail.dead, which desk did not look at
crm.dead does not exist; run dlxctl apply
2 more are empty, by counts that are up to 5 seconds old; -v lists them

RUN  ACTION  QUEUE                  PHASE             CHOSEN  LEFT  STARTED               BY        REASON
r1   replay  billing.payments.dead  sending, stopped  37      12    2026-01-02T09:50:00Z  ann@host  -
up to 5 seconds old: what is left of r1
`
	const terminal = `
QUEUE                  MESSAGES  OLDEST  NEW 24H  TOP CAUSE             OWNER
billing.payments.dead  1204      1h      999+     990 × Payment.Decli…  team-bi…
mail.dead              3         -       ?        -                     -
sms.dead               2         1h      2        rejected              -
billing.payments.dead: looked at 1000 of 1204
mail.dead: looked at 0 of 3: it has consumers
up to 5 seconds old: the count of mail.dead, which desk did not look at
crm.dead does not exist; run dlxctl apply
2 more are empty, by counts that are up to 5 seconds old; -v lists them

RUN  ACTION  QUEUE     PHASE             CHOSEN  LEFT  STARTED  BY        REASON
r1   replay  billing…  sending, stopped  37      12    13m      ann@host  -
up to 5 seconds old: what is left of r1
`
	empty := desk.Overview{Topology: "shop", Queues: []desk.QueueOverview{
		{Queue: "mail.dead", Exists: true, Age: 5}, {Queue: "news.dead", Exists: true, Age: 5},
	}}
	screen := desk.Screen{Width: 80, Now: at(63)}
	for name, tc := range map[string]struct {
		overview desk.Overview
		screen   desk.Screen
		all      bool
		want     string
	}{
		"piped":    {o, desk.Screen{}, false, piped},
		"terminal": {o, screen, false, terminal},
		"unknown": {
			desk.Overview{Topology: "shop", Queues: []desk.QueueOverview{
				{Queue: "mail.dead", Exists: true, Unknown: true, NotLooked: "its node is down"},
				{Queue: "news.dead", Exists: true},
			}},
			screen, false, `QUEUE      MESSAGES  OLDEST  NEW 24H  TOP CAUSE  OWNER
mail.dead  ?         -       ?        -          -
mail.dead: not looked at: its node is down
1 more is empty; -v lists it
`,
		},
		"some do not tell when they failed": {
			desk.Overview{Topology: "shop", Queues: []desk.QueueOverview{
				{Queue: "mail.dead", Exists: true, Messages: 4, Looked: 4, Undated: 4, TopCause: "failed", TopCount: 4},
				{Queue: "news.dead", Exists: true, Messages: 3, Looked: 3, Oldest: at(1), New: 2, Undated: 1, TopCause: "failed", TopCount: 3},
			}},
			screen, false, `QUEUE      MESSAGES  OLDEST  NEW 24H  TOP CAUSE  OWNER
mail.dead  4         -       ?        failed     -
news.dead  3         1h      2+       failed     -
`,
		},
		"all": {empty, screen, true, `QUEUE      MESSAGES  OLDEST  NEW 24H  TOP CAUSE  OWNER
mail.dead  0         -       0        -          -
news.dead  0         -       0        -          -
up to 5 seconds old: the count of mail.dead and news.dead, which desk did not look at
`},
		"empty": {
			empty, screen, false,
			"all 2 dead-letter queues are empty, by counts that are up to 5 seconds old; -v lists them\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := desk.WriteOverview(&b, tc.overview, tc.screen, tc.all); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), b.String()); d != "" {
				t.Errorf("WriteOverview (-want +got):\n%s", d)
			}
		})
	}
}

// failed returns a dead letter of the examples.
func failed(handle deadletter.Handle, minute, attempts int, problem, body string) deadletter.View {
	v := deadletter.View{Handle: handle, Facts: deadletter.Facts{
		Cause: "rejected", Attempts: attempts, LastFailed: at(minute), Error: problem, Key: "order.placed.austria.vienna",
	}}
	v.Body.Text = body
	return v
}

// waiting returns a message that waits in a level of a delay until a minute.
func waiting(minute int, body string) deadletter.View {
	v := deadletter.View{Handle: "6a1b2c3d4e5f", Facts: deadletter.Facts{Attempts: -1, DueAt: at(minute), Key: "mail"}}
	v.Body.Text = body
	return v
}

// A list for a terminal of 80 columns says why each message failed, and says once what is the same
// in all. Elsewhere it has all columns, and times.
func TestWriteList(t *testing.T) {
	t.Parallel()
	const declined = "the bank of the customer has declined the payment, and gives no reason"
	one := failed("0a1b2c3d4e5f", 60, 3, declined, "{}")
	hidden := failed("4a1b2c3d4e5f", 60, 3, "", "")
	for name, tc := range map[string]struct {
		views []deadletter.View
		width int
		want  string
	}{
		"one": {[]deadletter.View{one}, 80, `
HANDLE        AGE  ERROR                                                KEY
0a1b2c3d4e5f  3m   the bank of the customer has declined the payment,…  order.p…
cause rejected, attempts 3, replays 0
`},
		"same": {[]deadletter.View{one, failed("1a1b2c3d4e5f", 2, 3, "", "{ \"order\": 2 }")}, 80, `
HANDLE        AGE  ERROR OR BODY                                        KEY
0a1b2c3d4e5f  3m   the bank of the customer has declined the payment,…  order.p…
1a1b2c3d4e5f  1h   { "order": 2 }                                       order.p…
the same in these 2 messages: cause rejected, attempts 3, replays 0
`},
		"other attempts": {[]deadletter.View{
			failed("1a1b2c3d4e5f", 2, 3, "", "{ \"order\": 2 }"), failed("2a1b2c3d4e5f", 2, 12, "", "{ \"order\": 3 }"),
		}, 80, `
HANDLE        AGE  ATTEMPTS  BODY            KEY
1a1b2c3d4e5f  1h   3         { "order": 2 }  order.placed.austria.vienna
2a1b2c3d4e5f  1h   12        { "order": 3 }  order.placed.austria.vienna
the same in these 2 messages: cause rejected, replays 0
`},
		"nothing is known": {[]deadletter.View{{Handle: "5a1b2c3d4e5f", Facts: deadletter.Facts{Attempts: -1}}}, 80, `
HANDLE        AGE
5a1b2c3d4e5f  -
cause unknown, attempts unknown, replays 0
`},
		"hidden bodies": {[]deadletter.View{hidden}, 80, `
HANDLE        AGE  KEY
4a1b2c3d4e5f  3m   order.placed.austria.vienna
cause rejected, attempts 3, replays 0
`},
		"piped": {[]deadletter.View{one}, 0, `
HANDLE        FAILED                CAUSE           ATTEMPTS  REPLAYS  KEY                       ERROR OR BODY
0a1b2c3d4e5f  2026-01-02T10:00:00Z  rejected        3         0        order.placed.austria.vienna  the bank of the customer has declined the payment, and gives no reason
`},
		"it waits": {[]deadletter.View{waiting(66, "{}"), waiting(62, "{}")}, 80, `
HANDLE        DUE    BODY  KEY
6a1b2c3d4e5f  in 3m  {}    mail
6a1b2c3d4e5f  now    {}    mail
`},
		"it waits, piped": {[]deadletter.View{waiting(66, "{}")}, 0, `
HANDLE        DUE                   CAUSE           ATTEMPTS  REPLAYS  KEY                       ERROR OR BODY
6a1b2c3d4e5f  2026-01-02T10:06:00Z  -               ?         0        mail                      {}
`},
		"none": {nil, 80, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			list := desk.NewList(&b, "text", desk.Screen{Width: tc.width, Now: at(63)})
			for _, v := range tc.views {
				if err := list.Add(v); err != nil {
					t.Fatal(err)
				}
			}
			if err := list.Close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want[1:], b.String()); d != "" {
				t.Errorf("the list (-want +got):\n%s", d)
			}
		})
	}
}

// A long list for a terminal is several tables, each of which says what its own messages share.
func TestALongListIsSeveralTables(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	list := desk.NewList(&b, "text", desk.Screen{Width: 80, Now: at(63)})
	for i := range 1001 {
		if err := list.Add(failed("0a1b2c3d4e5f", 2, 3+i/1000, "", "{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if strings.Count(got, "HANDLE") != 2 ||
		!strings.Contains(got, "\nthe same in these 1000 messages: cause rejected, attempts 3, replays 0\nHANDLE") ||
		!strings.HasSuffix(got, "\ncause rejected, attempts 4, replays 0\n") {
		t.Errorf("the list is\n%s", got)
	}
}
