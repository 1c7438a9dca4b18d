package status_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// Loops and consumers that stand still are problems; a restart, slow consumers, messages that no
// consumer holds, and what the broker keeps no statistics of are none.
func TestTraffic(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
defaults: {backoff: standard}
queues:
  - {name: mail}
  - {name: plain, type: classic}
`)
	const begins = "problem loops: messages are redelivered again and again: "
	const rates = " (1,615 redeliveries, 0 acknowledgements in 30s) "
	const rejects = "fix: let consumers reject a failed message without requeue; if they do, they lose their channel or connection, and their logs say why"
	recent, long := 30*time.Second, 10*time.Minute
	loop := topology.Traffic{Within: recent, Delivered: 1625, Redelivered: 1615, Redelivering: 6}
	held := topology.Usage{Ready: 20, Unacknowledged: 10, Consumers: 1}
	for name, tc := range map[string]struct {
		queue   string
		version string // empty: 4.3.6
		usage   topology.Usage
		recent  *topology.Traffic
		long    *topology.Traffic
		want    string
	}{
		"a loop": {
			queue: "plain", usage: held, recent: &loop,
			want: begins + "plain" + rates +
				rejects + "; classic queues have no delivery limit",
		},
		"uncounted": {
			queue: "mail", usage: held, recent: &loop,
			want: begins + "mail" + rates +
				rejects + "; this broker does not count basic.nack with requeue, so that no delivery limit ends it",
		},
		"counted": {
			queue: "mail", version: "4.0.5", usage: held, recent: &loop,
			want: begins + "mail" + rates +
				rejects,
		},
		"a restart": {queue: "mail", usage: held, recent: &topology.Traffic{
			Within: recent, Redelivered: 2500, Redelivering: 2,
		}},
		"one poison message among good ones": {queue: "mail", usage: held, recent: &topology.Traffic{
			Within: recent, Redelivered: 900, Acknowledged: 901, Redelivering: 6,
		}},
		"a message that is requeued after a second": {queue: "mail", usage: held, recent: &topology.Traffic{
			Within: recent, Redelivered: 29, Redelivering: 6,
		}},
		"stuck": {
			queue: "mail", usage: held, recent: &topology.Traffic{Within: recent}, long: &topology.Traffic{Within: long},
			want: "problem stuck: consumers hold messages, and by the broker's statistics none was delivered or acknowledged for 10m: mail (10 messages, and 20 more wait) " +
				"fix: look at the consumers: they hang, wait for something, or have jobs that take longer; stopping one gives its messages back",
		},
		"slow": {
			queue: "mail", usage: held, recent: &topology.Traffic{Within: recent},
			long: &topology.Traffic{Within: long, Acknowledged: 1},
		},
		"delayed": {
			queue: "mail", usage: topology.Usage{Unacknowledged: 10, Other: 10, Consumers: 1},
			recent: &topology.Traffic{Within: recent}, long: &topology.Traffic{Within: long},
		},
		"not known": {queue: "mail", usage: held},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
				"mail": {Consumers: 1}, "plain": {Consumers: 1}, "shop.standard.failed": {Consumers: 1},
			}}
			if tc.version != "" {
				state.Version = tc.version
			}
			state.Usage[tc.queue] = tc.usage
			var n status.Traffic
			if tc.recent != nil {
				n.Recent = map[string]topology.Traffic{tc.queue: *tc.recent}
			}
			if tc.long != nil {
				n.Long = map[string]topology.Traffic{tc.queue: *tc.long}
			}
			got := written(t, status.Make(top, state, status.Options{At: read, Traffic: n}), status.TextOptions{}, 40)
			_, problems, _ := strings.Cut(got, "\n\n")
			problems, _, _ = strings.Cut(problems, "\n\n")
			want := tc.want
			if want == "" {
				want = "no problems"
			}
			if d := cmp.Diff(want, strings.Join(strings.Fields(problems), " ")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Messages of a delay that are due and that a processor keeps are a problem; those that it moves,
// and those that it has just got, are none.
func TestOverdue(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, "version: 1\nname: shop\nexchanges: [{name: events}]\ndelays: [{name: later, to: events}]\n")
	due := top.Delays[0].Due
	state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
		top.Delays[0].Intake: {Consumers: 1}, due: {Ready: 1, Unacknowledged: 4, Consumers: 1},
	}}
	if busy := status.Busy(top, state, status.Filter{}, false); !slices.Contains(busy, due) {
		t.Errorf("traffic is read of %q", busy)
	}
	for want, n := range map[string]topology.Traffic{
		"problem overdue: 5 messages of the delay later are due, and no processor has moved one for 30s": {Delivered: 3},
		"no problems": {Delivered: 4}, "no problems ": {Acknowledged: 1},
	} {
		n.Within = status.LoopTime
		traffic := status.Traffic{Recent: map[string]topology.Traffic{due: n}}
		got := written(t, status.Make(top, state, status.Options{At: read, Traffic: traffic}), status.TextOptions{}, 40)
		if got = strings.Join(strings.Fields(got), " "); !strings.Contains(got+" ", want) {
			t.Errorf("%+v: %s", n, got)
		}
		state.Alarm = "disk space alarm on a" // that is why
		report := status.Make(top, state, status.Options{At: read, Traffic: traffic})
		if got := written(t, report, status.TextOptions{}, 40); strings.Contains(got, "overdue") {
			t.Errorf("during an alarm: %s", got)
		}
		state.Alarm = ""
	}
}

// What the traffic is read of: the queues of the file that hold messages, and with everything those
// of other teams; for the longer time only those that stand still.
func TestBusy(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top.Topology
	have.Queues = append(have.Queues, topology.Queue{Name: "foreign"})
	state := topology.State{Have: have, Usage: map[string]topology.Usage{
		"billing": {Ready: 1}, "mail": {Unacknowledged: 1, Other: 1}, "audit": {Ready: 1},
		"foreign":              {Unacknowledged: 1},
		"shop.standard.failed": {Unacknowledged: 1}, "shop.dead": {Ready: 1},
	}}
	names := func(f status.Filter, everything bool) string {
		return strings.Join(status.Busy(top, state, f, everything), " ")
	}
	for want, got := range map[string]string{
		"audit billing shop.standard.failed":                   names(status.Filter{}, false),
		"audit billing shop.dead shop.standard.failed foreign": names(status.Filter{}, true),
		"audit": names(status.Filter{Queues: []string{"audit"}}, true),
		"foreign": strings.Join(status.Still(state, map[string]topology.Traffic{
			"foreign": {}, "billing": {}, "shop.standard.failed": {Delivered: 1},
		}), " "),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Messages that no consumer holds are not shown as unacknowledged, and the queue not as empty.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
	top := shop(t)
	state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: map[string]topology.Usage{
		"billing": {Unacknowledged: 10, Other: 10, Consumers: 1}, "audit": {Consumers: 1}, "mail": {Consumers: 1},
	}}
	got := written(t, status.Make(top, state, status.Options{At: read}), status.TextOptions{}, 40)
	for _, want := range []string{
		"READY  UNACKED  OTHER  RETRYING", "  0        0     10         0",
		"OTHER: RabbitMQ is dead-lettering these messages, or delays them",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
