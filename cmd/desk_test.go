package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/topology"
)

// Resume keeps the limits of a run, except those on the command line.
func TestResumeKeepsTheLimitsOfTheRun(t *testing.T) {
	t.Parallel()
	limits := desk.Replay.Kind().Limits
	f := pflag.NewFlagSet("resume", pflag.ContinueOnError)
	addLimits(f, &limits)
	if err := f.Parse([]string{"--rate", "2/s"}); err != nil {
		t.Fatal(err)
	}
	run := desk.SendOptions{Rate: 50, Ramp: []int{7}, StopShare: 0.5}
	got, err := limits.Over(run, f.Changed)
	if d := cmp.Diff(desk.SendOptions{Rate: 2, Ramp: []int{7}, StopShare: 0.5}, got); d != "" || err != nil {
		t.Errorf("options (-want +got): %v\n%s", err, d)
	}
}

// Each action has a command of its name.
func TestEachActionHasACommand(t *testing.T) {
	t.Parallel()
	for _, kind := range desk.Kinds() {
		c, _, err := newRoot(&app{}).Find([]string{"desk", string(kind.Action)})
		if err != nil || c.Name() != string(kind.Action) || c.Flags().Lookup("reason") == nil {
			t.Errorf("no command does the action %s: %v", kind.Action, err)
		}
	}
}

// @WORKQUEUE is the dead-letter queue of a work queue, and only its messages.
func TestDeskQueue(t *testing.T) {
	t.Parallel()
	shop := topology.Compiled{Name: "shop", WorkQueues: []topology.WorkQueue{
		{Name: "billing", DeadLetterQueue: "shop.dead"}, {Name: "mail", DeadLetterQueue: "mail.dead"},
	}}
	for argument, want := range map[string]deskPlace{
		"@billing": {queue: "shop.dead", work: "billing"}, "shop.dead": {queue: "shop.dead"}, "other": {queue: "other"},
	} {
		if got, err := deskQueue(shop, argument); err != nil || got != want {
			t.Errorf("%s is %+v, %v", argument, got, err)
		}
	}
	for argument, want := range map[string]string{
		"@biling": `the topology "shop" has no queue "biling"; did you mean "billing"?`,
		"billing": `"billing" is a work queue; write @billing for its dead letters, which are in "shop.dead"`,
	} {
		if _, err := deskQueue(shop, argument); err == nil || err.Error() != want {
			t.Errorf("%s: %v", argument, err)
		}
	}
	for where, want := range map[string]string{
		"":                 `queue == "billing"`,
		`a == 1 || b == 2`: `queue == "billing" && (a == 1 || b == 2)`,
	} {
		if got := (deskPlace{queue: "shop.dead", work: "billing"}).only(where); got != want {
			t.Errorf("only(%q) is %s", where, got)
		}
	}
}

// Mistakes on the command line of the desk are refused with the fix, before anything is read.
func TestDeskUsageErrors(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"desk prak":                       `unknown command "prak"; did you mean "park"?`,
		"desk delete":                     `unknown command "delete"; did you mean "discard"?`,
		"desk billing.dead":               `unknown command "billing.dead"; if it is a queue, this lists its messages: dlxctl desk list billing.dead`,
		"desk park":                       "no queue is named; write dlxctl desk park QUEUE, or @WORKQUEUE",
		"desk park a b":                   "dlxctl desk park accepts one queue, but got 2; run it once for each",
		"desk edit billing":               `handle "billing" has`,
		"desk edit":                       "no message is named; write dlxctl desk edit HANDLE",
		"desk replay q --handle xyz":      `--handle: handle "xyz" has`,
		"desk replay q --to billing":      `--to is "billing"; write queue, original, queue:NAME or exchange:NAME`,
		"desk replay q --rate fast":       `--rate is "fast"; write a number of messages per s`,
		"desk replay q --hold-limit much": `--hold-limit is "much"; write a number of messages such as 200000, or a size such as 256MiB`,
		"desk replay q --limit -1":        "--limit is -1; write 0 or more, where 0 is all",
		"desk replay q --since today":     `--since is "today"; write a duration such as 2h or 30d`,
		"desk discard q --forever --yes":  "--forever --yes needs --expect, the number of messages to delete",
		"desk run return":                 "dlxctl desk run return accepts the name of one run, but got 0 arguments",
		"desk park q -o xml":              `dlxctl desk park has no output format "xml"; write text, json`,
	} {
		code, said := runWith(t, append(strings.Fields(args), "-f", "../testdata/shop.yaml"), "")
		if code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("dlxctl %s exits with %d and prints\n%s\nwithout\n%s", args, code, said, want)
		}
	}
}

// What only the topology file tells is refused without it, before the broker is asked.
func TestWhatNeedsAFile(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"desk park --past-keep", "desk comment 0123456789ab known"} {
		code, said := runWith(t, strings.Fields(command), "")
		if code != exitBlocked || !strings.Contains(said, "dlxctl import > topology.yaml") ||
			strings.Contains(said, "does not exist") {
			t.Errorf("%s exits with %d and prints\n%s", command, code, said)
		}
	}
}

// A file that is named must exist, also for a command that can look without: it may mask values.
func TestNamedFileMustExist(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"desk", "desk list q", "peek q"} {
		code, said := runWith(t, append(strings.Fields(args), "-f", "topology.yaml"), "")
		if code != exitFailed || !strings.Contains(said, "file topology.yaml does not exist") {
			t.Errorf("dlxctl %s exits with %d and prints\n%s", args, code, said)
		}
	}
}

// The command line that a command prints does the same again, with the global flags that were
// given, and without a password.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`desk replay @billing`: `dlxctl desk replay @billing --yes`,
		`desk replay @billing --yes --expect 3 -f a.yaml -f b.yaml`: `dlxctl desk replay @billing --yes -f a.yaml -f b.yaml`,
		`desk replay q --handle 0a1b2c3d4e5f#2 --again --vhost /x`: `dlxctl desk replay q --again ` +
			`--handle '0a1b2c3d4e5f#2' --yes --vhost /x`,
		`desk replay q --url amqp://me:secret@host/ --rate 5/s`:       `dlxctl desk replay q --rate 5/s --yes`,
		`desk replay q --where cause=="rejected"&&attempts>2 -o json`: `dlxctl desk replay q --where 'cause=="rejected"&&attempts>2' --yes`,
	} {
		c, rest, err := newRoot(&app{}).Find(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if got := commandLine(c, c.Flags().Args(), "--yes"); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", args, got, want)
		}
	}
}

// Each way in which a run can end has its exit code, and says what to do next.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result desk.Result
		err    error
		code   int
		says   string
		by     string
	}{
		"all moved": {result: desk.Result{Run: "r1", Moved: 3, Ended: true}, code: exitDone},
		"stopped by brake": {
			result: desk.Result{
				Run: "r1", Queue: "q.dead", Moved: 3, Left: 7, FailedAgain: 3, Stopped: "3 messages failed again",
			},
			code: exitPending,
			says: "stopped: 3 messages failed again\n" +
				"  to see what failed again, once it is a dead letter: dlxctl desk list q.dead --where 'run == \"r1\"'\n" +
				"  to continue: dlxctl desk run resume r1 --yes\n  to put the rest back: dlxctl desk run return r1 --yes",
		},
		"stopped by a signal": {
			result: desk.Result{Run: "r1", Moved: 3, Left: 7, Stopped: "interrupted"}, code: exitPending,
			says: "stopped: interrupted\n  to continue: dlxctl desk run resume r1 --yes\n  to put the rest back: ",
		},
		"interrupted at its end": {
			result: desk.Result{Run: "r1", Moved: 10, Stopped: "interrupted"}, code: exitPending,
			says: "stopped: interrupted\n  all is moved; to remove its empty hold: dlxctl desk run resume r1 --yes",
		},
		"return stopped": {
			result: desk.Result{Run: "r1", Moved: 3, Left: 7, Stopped: "interrupted"}, code: exitPending, by: byReturn,
			says: "stopped: interrupted\n  to continue: dlxctl desk run return r1 --yes",
		},
		"nothing was taken": {
			result: desk.Result{Run: "r1", Ended: true, Stopped: "the run is gone, start it again"}, code: exitPending,
			says: "stopped: the run is gone, start it again",
		},
		"refused": {err: desk.ErrRefused, code: exitBlocked, says: "refused"},
		"broker died": {
			result: desk.Result{Run: "r1", Moved: 3, Left: 7}, err: errors.New("the connection ended"), code: exitPartial,
			says: "the connection ended\n  to continue: dlxctl desk run resume r1",
		},
		"broker was down": {err: errors.New("nothing answers"), code: exitFailed, says: "nothing answers"},
		"some were gone": {
			result: desk.Result{Run: "r1", Moved: 3, Missing: 1, Ended: true}, code: exitPartial,
			says: "1 chosen message is no longer in the queue: another program took it, or it expired",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &app{output: "text", stdout: io.Discard}
			c := newDeskReplay(a)
			c.SetContext(t.Context())
			by := byResume
			if tc.by != "" {
				by = tc.by
			}
			err := a.finishRun(c, by, desk.Replay, tc.result, tc.err)
			if code := exitCode(t.Context(), err); code != tc.code {
				t.Errorf("the exit code is %d, not %d", code, tc.code)
			}
			if tc.says != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.says)) {
				t.Errorf("it says\n%v\nand does not begin with\n%s", err, tc.says)
			}
			if tc.result.Ended && err != nil && strings.Contains(err.Error(), "dlxctl desk") {
				t.Errorf("it offers to go on with a run that has ended:\n%v", err)
			}
		})
	}
}

// A run that waits says why, and says it again only after a while, although the numbers change.
func TestARunSaysRarelyWhyItPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := (&app{stderr: &out}).watchRun(t.Context(), desk.Replay)
		for i := range 60 { // 12 seconds
			for _, why := range []string{fmt.Sprintf("billing holds %d messages", 2000-i), ""} {
				w.progress(desk.Progress{Run: "r1", Phase: desk.Sending, Done: 1, Chosen: 1, Pausing: why})
			}
			<-time.After(200 * time.Millisecond)
		}
		w.progress(desk.Progress{Run: "r1", Phase: desk.Sending, Done: 1, Chosen: 1, Pausing: "listening"})
		w.finish()
		const want = "run r1\npausing: billing holds 2000 messages\nreplayed 1 of 1 messages\n" +
			"pausing: billing holds 1950 messages\npausing: listening\n"
		if out.String() != want {
			t.Errorf("it prints %q, not %q", out.String(), want)
		}
	})
}

// A run without a hold that stopped has nothing to resume: the rest is where it was, and the
// command line chooses it alone. An edit that was sent is not repeated: that would be another
// message.
func TestTheNextStepOfARunWithoutAHold(t *testing.T) {
	t.Parallel()
	r := desk.Result{Run: "r1", Queue: "billing.dead", Direct: true, Ended: true, Moved: 3, LeftInQueue: 4, FailedAgain: 1}
	edited := r
	edited.Action, edited.DoubledAtMost = desk.Edit, 1
	parked := edited
	parked.Parked = true
	const rest = "to do the rest, once the cause is gone: dlxctl desk "
	for want, tc := range map[string]struct {
		command *cobra.Command
		line    string
		result  desk.Result
	}{
		rest + "replay @billing --yes": {newDeskReplay(&app{}), "@billing --yes", r},
		rest + "replay @billing --limit 4 --rate 50/s --yes --expect 4": {
			newDeskReplay(&app{}), "@billing --yes --expect 7 --limit 7 --rate 50/s", r,
		},
		rest + "discard @billing --forever --limit 4 --yes --expect 4": {
			newDeskDiscard(&app{}), "@billing --yes --expect 7 --forever --limit 7", r,
		},
		rest + "replay @billing --reason why --yes": {newDeskReplay(&app{}), "@billing --yes --expect 7 --reason why", r},
		"to do the rest, once the cause is gone: repeat the command with the handles that are left: dlxctl desk list billing.dead": {
			newDeskReplay(&app{}), "@billing --yes --handle 0a1b2c3d4e5f", r,
		},
		rest + "edit 0a1b2c3d4e5f --body-file b --yes": {newDeskEdit(&app{}), "0a1b2c3d4e5f --body-file b --yes", r},
		"to end the edit, if the edited message has arrived: dlxctl desk park billing.dead --handle 0a1b2c3d4e5f --yes": {
			newDeskEdit(&app{}), "0a1b2c3d4e5f @billing --body-file b --yes", edited,
		},
		"the edit is done if the edited message has arrived: its original stays parked": {
			newDeskEdit(&app{}), "0a1b2c3d4e5f shop.parked --body-file b --yes", parked,
		},
	} {
		deskSub(tc.command)
		if err := tc.command.ParseFlags(strings.Fields(tc.line)); err != nil {
			t.Fatal(err)
		}
		got := nextSteps(tc.command, byResume, tc.result)
		if len(got) != 2 || !strings.Contains(got[0], "run == ") || got[1] != want {
			t.Errorf("%q, not %q", got, want)
		}
		if tc.result.LeftInQueue = 0; nextSteps(tc.command, byResume, tc.result) != nil {
			t.Error("a run that has sent all has a next step")
		}
	}
}

// A run that is refused once messages are in its hold says how to get them out.
func TestTheNextStepOfARefusedRun(t *testing.T) {
	t.Parallel()
	replay, out := deskSub(newDeskReplay(&app{})), &strings.Builder{}
	replay.SetContext(t.Context())
	refused := fmt.Errorf("%w: no room", desk.ErrRefused)
	for left, want := range map[int]string{
		0: refused.Error(),
		3: refused.Error() + "\n  to continue: dlxctl desk run resume r1 --yes\n  to put the rest back: dlxctl desk run return r1 --yes",
	} {
		err := (&app{stdout: out}).finishRun(replay, byResume, desk.Replay, desk.Result{Run: "r1", Left: left}, refused)
		if err.Error() != want || !errors.Is(err, desk.ErrRefused) || out.Len() > 0 {
			t.Errorf("%d left in the hold: %q, and it wrote %q", left, err, out)
		}
	}
}

// The end of the page says of each run what is left, and where: a run without a hold has left it in
// its queue.
func TestTheEndOfThePageSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	out := &strings.Builder{}
	k := deskServeCommand{app: &app{stderr: out}}
	err := k.ended([]page.Stopped{
		{Run: "r1", Moved: 20, LeftInQueue: 40, Queue: "billing.dead", Next: "to see: dlxctl desk list billing.dead"},
		{Run: "r2", Moved: 3, Left: 4, Next: "to continue: dlxctl desk run resume r2 --yes"},
	}, nil)
	const says = "dlxctl: run r1: moved 20, 40 still in billing.dead\ndlxctl: run r2: moved 3, 4 left in its hold\n"
	const want = "interrupted; runs of the page have not moved all messages\n" +
		"  to see: dlxctl desk list billing.dead\n  to continue: dlxctl desk run resume r2 --yes"
	if out.String() != says || err == nil || err.Error() != want || exitCode(t.Context(), err) != exitPending {
		t.Errorf("it prints %q and ends with %v", out, err)
	}
}

// Of several runs that are resumed each gets its turn, until a signal. The exit code says that some
// messages were moved, also if another run could not even begin.
func TestResumeOfSeveralRuns(t *testing.T) {
	t.Parallel()
	refused, unreachable := fmt.Errorf("%w: busy", desk.ErrRefused), errors.New("nothing answers")
	stop := &deskStopError{stepsError{err: errors.New("stopped: 3 failed again")}}
	for name, tc := range map[string]struct {
		results []error
		moved   int // by each run
		signal  bool
		code    int
		turns   int
	}{
		"all moved":             {results: []error{nil, nil}, moved: 5, code: exitDone, turns: 2},
		"one refused":           {results: []error{nil, refused}, moved: 5, code: exitPartial, turns: 2},
		"all refused":           {results: []error{refused, refused}, code: exitBlocked, turns: 2},
		"one unreachable":       {results: []error{unreachable, nil}, moved: 5, code: exitPartial, turns: 2},
		"one stopped":           {results: []error{stop, nil}, moved: 5, code: exitPending, turns: 2},
		"a signal in the first": {results: []error{nil, nil}, moved: 5, signal: true, code: exitPending, turns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := newDeskResume(&app{})
			c.SetContext(ctx)
			turns := 0
			resume := func(desk.Run) (desk.Result, error) {
				turns++
				if tc.signal {
					cancel()
				}
				return desk.Result{Moved: tc.moved}, tc.results[turns-1]
			}
			err := (&deskResumeCommand{}).each(c, make([]desk.Run, len(tc.results)), resume)
			if code := exitCode(ctx, err); code != tc.code || turns != tc.turns {
				t.Errorf("exit code %d after %d turns, want %d after %d: %v", code, turns, tc.code, tc.turns, err)
			}
		})
	}
}

// Who resumes a run that deletes messages says how many: it may be another person than the one who
// began it, and what says that a run has stopped does not say what it does.
func TestResumeOfARunThatDeletes(t *testing.T) {
	t.Parallel()
	stopped := func(forever bool) desk.Run {
		return desk.Run{ID: "r1", Action: desk.Discard, Chosen: 3, Forever: forever}
	}
	const steps = "\n  to delete them: dlxctl desk run resume r1 --yes --expect 3" +
		"\n  to put them back: dlxctl desk run return r1 --yes"
	const other = "refused: --expect is 4, but the run r1 has chosen 3; nothing was moved"
	for name, tc := range map[string]struct {
		forever bool
		expect  string
		want    string
	}{
		"it parks":            {},
		"it parks a number":   {expect: "3"},
		"it parks another":    {expect: "4", want: other},
		"it deletes":          {forever: true, want: "refused: the run r1 deletes 3 messages at once, and nothing brings them back" + steps},
		"it deletes a number": {forever: true, expect: "3"},
		"it deletes another":  {forever: true, expect: "4", want: other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, k := deskSub(newDeskResume(&app{})), deskResumeCommand{}
			if tc.expect != "" {
				k.expect, _ = strconv.Atoi(tc.expect)
				if err := c.Flags().Set("expect", tc.expect); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			if err := k.agree(c, stopped(tc.forever)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, not %q", got, tc.want)
			}
		})
	}
	r := desk.Result{Run: "r1", Action: desk.Discard, Chosen: 3, Left: 3, Deletes: true}
	next := nextSteps(deskSub(newDeskDiscard(&app{})), byResume, r)
	if len(next) == 0 || next[0] != "to continue: dlxctl desk run resume r1 --yes --expect 3" {
		t.Errorf("a stopped one says %q", next)
	}
}

// deskSub returns a command as one below dlxctl desk.
func deskSub(c *cobra.Command) *cobra.Command {
	parent := &cobra.Command{Use: "desk"}
	parent.AddCommand(c)
	(&cobra.Command{Use: "dlxctl"}).AddCommand(parent)
	return c
}
