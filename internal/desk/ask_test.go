package desk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// What a person asks for becomes a request, and a wrong value is refused with what could be
// written.
func TestAsk(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		ask  func(*desk.Ask)
		want func(*desk.Request)
		err  string
	}{
		"nothing said": {ask: func(*desk.Ask) {}},
		"a minute": {
			ask:  func(a *desk.Ask) { a.Rate = "30/m" },
			want: func(r *desk.Request) { r.Send.Rate = 0.5 },
		},
		"no unit": {
			ask:  func(a *desk.Ask) { a.Rate = "250" },
			want: func(r *desk.Request) { r.Send.Rate = 250 },
		},
		"no limits": {
			ask:  func(a *desk.Ask) { a.Limits = desk.Limits{Rate: "none", Ramp: "none", StopOn: "never"} },
			want: func(r *desk.Request) { r.Send = desk.SendOptions{} },
		},
		"a share": {
			ask:  func(a *desk.Ask) { a.StopOn = "20%" },
			want: func(r *desk.Request) { r.Send.StopFailures, r.Send.StopShare = 0, 0.2 },
		},
		"two batches": {
			ask:  func(a *desk.Ask) { a.Ramp = "5,50" },
			want: func(r *desk.Request) { r.Send.Ramp = []int{5, 50} },
		},
		"window and settling": {
			ask:  func(a *desk.Ask) { a.InFlight, a.Settle = 8, time.Second },
			want: func(r *desk.Request) { r.Send.InFlight, r.Send.Settle = 8, time.Second },
		},
		"to the publisher's exchange": {
			ask:  func(a *desk.Ask) { a.To = "original" },
			want: func(r *desk.Request) { r.Target.Original = true },
		},
		"to a queue": {
			ask:  func(a *desk.Ask) { a.To = "queue:a:b" },
			want: func(r *desk.Request) { r.Target.Queue = "a:b" },
		},
		"to an exchange": {
			ask:  func(a *desk.Ask) { a.To = "exchange:events" },
			want: func(r *desk.Request) { r.Target.Exchange = "events" },
		},
		"to an exchange with a key": {
			ask:  func(a *desk.Ask) { a.To, a.Key = "exchange:events", "k" },
			want: func(r *desk.Request) { r.Target.Exchange, r.Target.Key = "events", "k" },
		},
		"since a duration": {
			ask:  func(a *desk.Ask) { a.Since = "2h" },
			want: func(r *desk.Request) { r.Since = time.Date(2026, 1, 2, 13, 0, 0, 0, time.UTC) },
		},
		"since a day": {
			ask:  func(a *desk.Ask) { a.Since = "2026-01-01" },
			want: func(r *desk.Request) { r.Since = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
		},
		"since a time": {
			ask:  func(a *desk.Ask) { a.Since = "2026-01-02T10:00:00+01:00" },
			want: func(r *desk.Request) { r.Since = time.Date(2026, 1, 2, 9, 0, 0, 0, time.UTC) },
		},
		"until days before": {
			ask:  func(a *desk.Ask) { a.Until = "30d" },
			want: func(r *desk.Request) { r.Until = time.Date(2025, 12, 3, 15, 0, 0, 0, time.UTC) },
		},
		"until nothing": {
			ask: func(a *desk.Ask) { a.Until = "soon" },
			err: `--until is "soon"; write a duration such as 2h or 30d, or a time such as 2026-01-02T15:04:05Z or 2026-01-02`,
		},
		"rate zero": {
			ask: func(a *desk.Ask) { a.Rate = "0/s" },
			err: `--rate is "0/s"; write more than 0/s, or none`,
		},
		"rate not a number": {
			ask: func(a *desk.Ask) { a.Rate = "NaN" },
			err: `--rate is "NaN"; write a number of messages`,
		},
		"rate of another": {
			ask: func(a *desk.Ask) { a.Rate = "5/d" },
			err: `--rate is "5/d"; write a number of messages`,
		},
		"batch of none": {
			ask: func(a *desk.Ask) { a.Ramp = "1,0" },
			err: `--ramp is "1,0"; write the sizes of the first batches such as 1,10,100, or none`,
		},
		"stop at zero": {
			ask: func(a *desk.Ask) { a.StopOn = "0" },
			err: `--stop-on is "0"; write a number of failures such as 3, a share such as 20%, or never`,
		},
		"more than all": {ask: func(a *desk.Ask) { a.StopOn = "101%" }, err: `--stop-on is "101%"; write`},
		"negative window": {
			ask: func(a *desk.Ask) { a.InFlight = -1 },
			err: "--in-flight is -1; write 0 or more",
		},
		"negative settling": {ask: func(a *desk.Ask) { a.Settle = -1 }, err: "--settle must be 0s or more"},
		"to nothing":        {ask: func(a *desk.Ask) { a.To = "" }, err: `--to is ""; write queue, original,`},
		"to a name": {
			ask: func(a *desk.Ask) { a.To = "billing" },
			err: `--to is "billing"; write queue, original,`,
		},
		"to no queue": {
			ask: func(a *desk.Ask) { a.To = "queue:" },
			err: `--to is "queue:"; write queue, original,`,
		},
		"to no exchange": {
			ask: func(a *desk.Ask) { a.To = "exchange:" },
			err: `--to is "exchange:"; write queue, original,`,
		},
		"to an Original": {
			ask: func(a *desk.Ask) { a.To = "Original" },
			err: `--to is "Original"; write queue, original,`,
		},
		"a key alone": {
			ask: func(a *desk.Ask) { a.Key = "k" },
			err: "--key needs --to exchange:NAME; pass both",
		},
		"since yesterday": {
			ask: func(a *desk.Ask) { a.Since = "yesterday" },
			err: `--since is "yesterday"; write a duration such as 2h`,
		},
		"since the future": {
			ask: func(a *desk.Ask) { a.Since = "-2h" },
			err: `--since is "-2h"; write a duration such as 2h`,
		},
		"since now": {
			ask: func(a *desk.Ask) { a.Since = "0s" },
			err: `--since is "0s"; write a duration such as 2h`,
		},
		"since a number": {
			ask: func(a *desk.Ask) { a.Since = "2" },
			err: `--since is "2"; write a duration such as 2h`,
		},
		"since an hour": {
			ask: func(a *desk.Ask) { a.Since = "10:00" },
			err: `--since is "10:00"; write a duration such as 2h`,
		},
		"negative limit": {
			ask: func(a *desk.Ask) { a.Limit = -1 },
			err: "--limit is -1; write 0 or more, where 0 is all",
		},
		"wrong handle": {
			ask: func(a *desk.Ask) { a.Handles = []string{"xyz"} },
			err: `--handle: handle "xyz" has`,
		},
		"wrong expression": {ask: func(a *desk.Ask) { a.Where = "wrong" }, err: "--where: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := desk.DefaultAsk(desk.Replay)
			ask.Queue = "billing.dead"
			tc.ask(&ask)
			got, err := ask.Request(now)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("the error is %v, without %q", err, tc.err)
				}
				return
			}
			want := desk.Request{Action: desk.Replay, Queue: "billing.dead", Send: desk.SendOptions{
				Rate: 10, Ramp: []int{1, 10, 100}, MaxWaiting: 1000, StopFailures: 3, Settle: 5 * time.Second,
			}}
			if tc.want != nil {
				tc.want(&want)
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || err != nil {
				t.Errorf("the request (-want +got): %v\n%s", err, d)
			}
		})
	}
}
