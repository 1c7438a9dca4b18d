package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/status"
)

// watched runs the watch of a status with one look after the other, and interrupts it during the
// last. It returns what the watch writes.
func watched(t *testing.T, inPlace bool, looks ...any) (stdout, stderr string, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var out, problems bytes.Buffer
		a := &app{stdout: &out, stderr: &problems, output: "text", env: func(string) (string, bool) { return "", false }}
		ctx, interrupt := context.WithCancel(context.Background())
		w := &statusWatch{
			k: &statusCommand{app: a, interval: 5 * time.Second}, inPlace: inPlace,
			size: func() (int, int) { return 0, 0 },
		}
		if inPlace {
			w.size = func() (int, int) { return 60, 10 }
		}
		w.read = func(context.Context) ([]status.Report, error) {
			if len(looks) == 0 {
				interrupt()
				return nil, ctx.Err()
			}
			look := looks[0]
			looks = looks[1:]
			if failed, ok := look.(error); ok {
				return nil, failed
			}
			report, _ := look.(status.Report)
			return []status.Report{report}, nil
		}
		err = w.run(ctx)
		stdout, stderr = out.String(), problems.String()
	})
	return stdout, stderr, err
}

func lookAt(second int, queues ...string) status.Report {
	r := status.Report{Topology: "shop", VHost: "/", At: time.Date(2026, 11, 22, 18, 3, second, 0, time.UTC)}
	for _, name := range queues {
		r.Works = append(r.Works, status.Work{Name: name, Backoff: "none", Ready: 1, Consumers: 1})
	}
	return r
}

// Without a terminal one block follows the other, each with its time. An outage is reported on
// stderr and does not end the watch; Ctrl-C ends it without an error.
func TestStatusWatchWithoutATerminal(t *testing.T) {
	t.Parallel()
	stdout, stderr, err := watched(t, false, lookAt(40), errors.New("the broker is\ndown"), lookAt(50))
	if err != nil {
		t.Errorf("Ctrl-C is an error: %v", err)
	}
	want := ""
	for _, second := range []int{40, 50} {
		want += fmt.Sprintf("topology shop, vhost /\n2026-11-22 18:03:%d UTC; counts are up to 5s old, consumers up to 10s\n\nno problems\n\n", second)
	}
	if d := cmp.Diff(want, stdout); d != "" {
		t.Errorf("stdout (-want +got):\n%s", d)
	}
	if !strings.HasSuffix(stderr, " cannot read the broker, trying again: the broker is down\n") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr: %q", stderr)
	}
}

// A first look that fails ends the watch: the address or the password may be wrong.
func TestStatusWatchThatCannotBegin(t *testing.T) {
	t.Parallel()
	refused := errors.New("401")
	for _, inPlace := range []bool{false, true} {
		if stdout, _, err := watched(t, inPlace, refused, lookAt(1)); !errors.Is(err, refused) || stdout != "" {
			t.Errorf("it ends with %v behind %q", err, stdout)
		}
	}
}

// On a terminal the status is painted over the one before, on the alternate screen, and never
// longer than the screen. At the end the screen is as it was, with the last status below.
func TestStatusWatchOnATerminal(t *testing.T) {
	t.Parallel()
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("queue%02d", i)
	}
	stdout, stderr, err := watched(t, true, lookAt(40, many...), errors.New("the broker is down"))
	if err != nil || stderr != "" {
		t.Errorf("it ends with %v, stderr %q", err, stderr)
	}
	rest, begun := strings.CutPrefix(stdout, enterScreen)
	painted, after, ended := strings.Cut(rest, leaveScreen)
	if !begun || !ended || !strings.Contains(after, "queue00") || strings.Contains(after, "\x1b") {
		t.Fatalf("it does not enter and leave the screen: %q", stdout)
	}
	screens := strings.Split(painted, cursorHome)[1:]
	if len(screens) != 2 {
		t.Fatalf("%d screens: %q", len(screens), painted)
	}
	for _, screen := range screens {
		if !strings.HasSuffix(screen, clearLine+clearBelow) || strings.Count(screen, "\n") > 9 {
			t.Errorf("it does not fit: %q", screen)
		}
	}
	if !strings.HasPrefix(screens[1], "cannot read the broker, trying again: the broker is down"+clearLine) ||
		!strings.Contains(screens[1], "18:03:40") {
		t.Errorf("the outage is shown as %q", screens[1])
	}
}
