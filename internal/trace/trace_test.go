package trace_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// queue is a queue of another team, with pairs of arguments.
func queue(name, kind string, arguments ...any) topology.Queue {
	args := topology.Arguments{topology.ArgQueueType: kind}
	for i := 0; i < len(arguments); i += 2 {
		args[arguments[i].(string)] = arguments[i+1]
	}
	return topology.Queue{Name: name, Durable: true, Arguments: args}
}

// ways describes a report: each stop, and how copies end.
func ways(r trace.Report) []string {
	var out []string
	for _, e := range r.Ends {
		out = append(out, string(e.Kind))
	}
	for _, j := range r.Journeys {
		for _, s := range j.Stops {
			line := fmt.Sprintf("%s %s %s", text.Duration(s.At), s.Queue, s.Event)
			if s.Reason != "" {
				line += " by " + string(s.Reason)
			}
			for _, e := range s.Ends {
				line += ", " + string(e.Kind)
			}
			out = append(out, line)
		}
	}
	return out
}

// TestRun follows messages through queues that dlxctl did not make.
func TestRun(t *testing.T) {
	t.Parallel()
	const dlx, key, ttl = topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgMessageTTL
	loop := []topology.Queue{
		queue("q", topology.Classic, dlx, "", key, "wait"),
		queue("wait", topology.Classic, ttl, int64(5000), dlx, "", key, "q"),
	}
	minute := time.Minute
	for name, tc := range map[string]struct {
		state topology.State
		input trace.Input
		want  []string
	}{
		"a retry loop, twice": {
			topology.State{Have: topology.Topology{Queues: loop}},
			trace.Input{Failures: 2},
			[]string{
				"0s q failed by rejected", "0s wait waited by expired", "5s q failed by rejected",
				"5s wait waited by expired", "10s q acknowledged, acknowledged",
			},
		},
		"a retry loop without end": {
			topology.State{Have: topology.Topology{Queues: loop}},
			trace.Input{Failures: trace.Always},
			[]string{
				"0s q failed by rejected", "0s wait waited by expired", "5s q failed by rejected",
				"5s wait waited by expired", "10s q failed, endless",
			},
		},
		"a retry loop that the broker cuts": {
			topology.State{Version: "4.3.6", Have: topology.Topology{Queues: []topology.Queue{
				queue("q", topology.Classic, dlx, "", key, "wait"), loop[1],
			}}},
			trace.Input{Failures: trace.Always, Cause: trace.Expired, Expiration: &minute},
			[]string{"0s q failed by expired", "1m wait waited by expired, lost"},
		},
		"a policy sets the delay": {
			topology.State{Have: topology.Topology{
				Queues: []topology.Queue{loop[0], queue("wait", topology.Classic, dlx, "", key, "q")},
				Policies: []topology.Policy{{
					Name: "p", Pattern: "wait", ApplyTo: "all", Definition: topology.Arguments{"message-ttl": int64(9000)},
				}},
			}},
			trace.Input{Failures: 1},
			[]string{"0s q failed by rejected", "0s wait waited by expired", "9s q acknowledged, acknowledged"},
		},
		"no dead-lettering": {
			topology.State{Have: topology.Topology{Queues: []topology.Queue{queue("q", topology.Classic)}}},
			trace.Input{Failures: 1},
			[]string{"0s q failed by rejected, lost"},
		},
		"dropped at the default delivery limit": {
			topology.State{Version: "4.0.5", Have: topology.Topology{Queues: []topology.Queue{queue("q", topology.Quorum)}}},
			trace.Input{Failures: 1, Cause: trace.Crash},
			[]string{"0s q failed by delivery_limit, lost"},
		},
		"no delivery limit before 4.0": {
			topology.State{Version: "3.10.8", Have: topology.Topology{Queues: []topology.Queue{queue("q", topology.Quorum)}}},
			trace.Input{Failures: 1, Cause: trace.Crash},
			[]string{"0s q failed, endless"},
		},
		"at-least-once without a target": {
			topology.State{Have: topology.Topology{Queues: []topology.Queue{queue("q", topology.Quorum, dlx, "gone",
				topology.ArgDeadLetterStrategy, topology.AtLeastOnce, topology.ArgOverflow, topology.RejectPublish)}}},
			trace.Input{Failures: 1},
			[]string{"0s q failed by rejected, stuck"},
		},
		"another topology decides": {
			topology.State{Have: topology.Topology{Queues: []topology.Queue{
				queue("q", topology.Classic, dlx, "", key, "mail.slow.failed"),
				queue("mail.slow.failed", topology.Classic, topology.ArgManagedBy, "dlxctl/mail"),
			}}},
			trace.Input{Failures: 1},
			[]string{"0s q failed by rejected", "0s mail.slow.failed kept, unknown"},
		},
		"nothing is known to consume it": {
			topology.State{Have: topology.Topology{Queues: []topology.Queue{
				queue("q", topology.Classic, dlx, "", key, "keeper"), queue("keeper", topology.Classic),
			}}},
			trace.Input{Failures: 1},
			[]string{"0s q failed by rejected", "0s keeper kept, stays"},
		},
		"no such queue": {topology.State{}, trace.Input{Failures: 1}, []string{"lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := tc.input
			in.State, in.Key = tc.state, "q"
			if in.Cause == "" {
				in.Cause = trace.Rejected
			}
			if d := cmp.Diff(tc.want, ways(trace.Run(in))); d != "" {
				t.Errorf("the way (-want +got):\n%s", d)
			}
		})
	}
}

// TestLiveConsumersDecide has a queue that is consumed because the broker says so.
func TestLiveConsumersDecide(t *testing.T) {
	t.Parallel()
	state := topology.State{Have: topology.Topology{Queues: []topology.Queue{
		queue("q", topology.Classic, topology.ArgDeadLetterExchange, "", topology.ArgDeadLetterRoutingKey, "keeper"),
		queue("keeper", topology.Classic, topology.ArgMessageTTL, int64(1000)),
	}}}
	in := trace.Input{State: state, Live: true, Key: "q", Failures: 1, Cause: trace.Rejected}
	want := []string{"0s q failed by rejected", "0s keeper waited by expired, lost"}
	if d := cmp.Diff(want, ways(trace.Run(in))); d != "" {
		t.Errorf("without consumers (-want +got):\n%s", d)
	}
	in.State.Usage = map[string]topology.Usage{"keeper": {Consumers: 1}}
	in.QueueFailures = map[string]int{"keeper": 0}
	want[1] = "0s keeper acknowledged, acknowledged"
	if d := cmp.Diff(want, ways(trace.Run(in))); d != "" {
		t.Errorf("with consumers (-want +got):\n%s", d)
	}
}

// TestADeadLetterQueueThatIsDeleted has a dead-letter queue that does not keep its messages: trace
// does not say that they stay.
func TestADeadLetterQueueThatIsDeleted(t *testing.T) {
	t.Parallel()
	c := spectest.Compile(t, `version: 1
name: shop
queues:
  - {name: q, backoff: none, dead: {queue: expires, arguments: {x-expires: 1000}}}
  - {name: r, backoff: none, dead: {queue: by-policy}}
  - {name: s, backoff: none, dead: {queue: auto, external: true}}
`)
	state := topology.State{Have: c.Topology}
	state.Have.Queues = append(slices.Clip(state.Have.Queues),
		topology.Queue{Name: "auto", Durable: true, AutoDelete: true})
	state.Have.Policies = []topology.Policy{{
		Name: "p", Pattern: "^by-policy$", ApplyTo: "queues",
		Definition: topology.Arguments{topology.KeyExpires: int64(5000)},
	}}
	for key, want := range map[string]string{
		"q": "expires kept, lost", "r": "by-policy kept, lost", "s": "auto kept, unknown",
	} {
		got := ways(trace.Run(trace.Input{
			State: state, Key: key, Failures: trace.Always, Cause: trace.Rejected, Files: []topology.Compiled{c},
		}))
		if d := cmp.Diff([]string{"0s " + key + " failed by rejected", "0s " + want}, got); d != "" {
			t.Errorf("the way (-want +got):\n%s", d)
		}
	}
}

// TestAMissingBindingEndsInTheUnroutableQueue has a message that the processor counts, and that the
// broker returns.
func TestAMissingBindingEndsInTheUnroutableQueue(t *testing.T) {
	t.Parallel()
	c := spectest.Compile(t, `version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s]}}
queues: [{name: billing}]
`)
	in := trace.Input{Key: "billing", Failures: trace.Always, Cause: trace.Rejected, Files: []topology.Compiled{c}}
	in.State.Have = c.Topology
	in.State.Have.Exchanges = nil
	for _, e := range c.Exchanges {
		if e.Name != "shop.standard.dlx" {
			in.State.Have.Exchanges = append(in.State.Have.Exchanges, e)
		}
	}
	want := []string{
		"0s billing failed by rejected", "0s shop.standard.failed counted", "0s shop.unroutable kept, unroutable",
	}
	if d := cmp.Diff(want, ways(trace.Run(in))); d != "" {
		t.Errorf("the way (-want +got):\n%s", d)
	}
}

// TestATierThatIsGoneBringsTheMessageBack has a file with more tiers than the broker: the message
// comes back once, and is a dead letter.
func TestATierThatIsGoneBringsTheMessageBack(t *testing.T) {
	t.Parallel()
	file := func(tiers string) topology.Compiled {
		return spectest.Compile(t, `version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: `+tiers+`}}
queues: [{name: billing}]
`)
	}
	in := trace.Input{
		Key: "billing", Failures: trace.Always, Cause: trace.Rejected, Files: []topology.Compiled{file("[10s, 1m, 1h]")},
	}
	in.State.Have = file("[10s]").Topology
	want := []string{
		"0s billing failed by rejected", "0s shop.standard.failed counted", "0s shop.standard.retry.10s waited by expired",
		"10s billing failed by rejected", "10s shop.standard.failed counted", "10s shop.standard.failed counted",
		"10s billing.dead kept, dead-letter",
	}
	if d := cmp.Diff(want, ways(trace.Run(in))); d != "" {
		t.Errorf("the way (-want +got):\n%s", d)
	}
}

// TestNativeRetriesAreThoseInEffect has a file that leaves retries to RabbitMQ: what the broker has
// decides about them.
func TestNativeRetriesAreThoseInEffect(t *testing.T) {
	t.Parallel()
	file := func(queue, delays string) topology.Compiled {
		return spectest.Compile(t, `version: 1
name: shop
backoff: {steady: {engine: native, linear: `+delays+`}}
queues: [{name: billing, backoff: steady`+queue+`}]
`)
	}
	hour := file("", "{first: 1h, attempts: 4}")
	applied := file("", "{first: 10s, attempts: 2}")
	external := file(", external: true", "{first: 10s, attempts: 2}")
	unattached := applied.Topology
	unattached.Policies = nil
	retries := []string{
		"0s billing failed", "10s billing failed", "30s billing failed by delivery_limit",
		"30s billing.dead kept, dead-letter",
	}
	for name, tc := range map[string]struct {
		version string
		have    topology.Topology
		limit   int64 // of an operator policy
		want    []string
	}{
		"other delays than those of the file": {"4.3.6", applied.Topology, 0, retries},
		"an external queue of a file":         {"4.3.6", external.Topology, 0, retries},
		"fewer retries by an operator policy": {"4.3.6", applied.Topology, 1, []string{
			"0s billing failed", "10s billing failed by delivery_limit", "10s billing.dead kept, dead-letter",
		}},
		"no policy": {"4.3.6", unattached, 0, []string{"0s billing failed by rejected, lost"}},
		"a broker without retries": {"4.0.5", applied.Topology, 0, []string{
			"0s billing failed by rejected", "0s billing.dead kept, dead-letter",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: tc.version, Have: tc.have}
			if tc.limit > 0 {
				state.OperatorPolicies = []topology.Policy{{
					Name: "few", Pattern: "billing", ApplyTo: "queues",
					Definition: topology.Arguments{topology.KeyDeliveryLimit: tc.limit},
				}}
			}
			got := ways(trace.Run(trace.Input{
				State: state, Key: "billing", Failures: trace.Always, Cause: trace.Rejected, Files: []topology.Compiled{hour},
			}))
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("the way (-want +got):\n%s", d)
			}
		})
	}
}

// TestOutputs compares all formats with files, for a message with every kind of end.
func TestOutputs(t *testing.T) {
	t.Parallel()
	const dlx, key = topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey
	state := topology.State{Version: "4.3.6", Have: topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "in", Type: topology.Headers, Arguments: topology.Arguments{topology.ArgAlternateExchange: "spill"}},
			{Name: "spill", Type: topology.Fanout},
			{Name: "late", Type: "x-delayed-message"},
		},
		Queues: []topology.Queue{
			queue("gone", topology.Classic),
			queue("round", topology.Classic, dlx, "", key, "round.wait"),
			queue("round.wait", topology.Classic, topology.ArgMessageTTL, int64(5000), dlx, "", key, "round"),
			queue("split", topology.Classic, dlx, "spill", key, "x"), queue("plugin", topology.Classic, dlx, "late"),
		},
	}}
	for _, q := range []string{"gone", "round", "split", "plugin"} {
		state.Have.Bindings = append(state.Have.Bindings, topology.Binding{
			Source: "spill", Destination: q, DestinationType: topology.ToQueue,
		})
	}
	r := trace.Run(trace.Input{
		State: state, Exchange: "in", Headers: map[string]any{"kind": int64(7)}, Failures: 1, Cause: trace.Rejected,
		QueueFailures: map[string]int{"round": trace.Always},
	})
	for file, write := range map[string]func(*bytes.Buffer) error{
		"ends.txt":  func(b *bytes.Buffer) error { return trace.WriteText(b, r, false) },
		"ends.json": func(b *bytes.Buffer) error { return jsondoc.Write(b, r) },
		"ends.md":   func(b *bytes.Buffer) error { return trace.WriteMarkdown(b, r) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		goldentest.Check(t, "testdata/"+file, got.Bytes())
	}
}

// The time of a trace grows with the number of queues that the message misses, not with its square.
func TestTraceIsLinear(t *testing.T) { //nolint:paralleltest // it compares times
	spectest.Linear(t, func(c topology.Compiled) {
		r := trace.Run(trace.Input{
			State: topology.State{Have: c.Topology}, Files: []topology.Compiled{c}, Exchange: "events", Key: "k17", Failures: 1,
		})
		if len(r.Journeys) != 1 || len(r.Missed) != len(c.WorkQueues)-1 {
			t.Errorf("%d queues get the message, %d do not", len(r.Journeys), len(r.Missed))
		}
	})
}
