package status_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

func shop(t *testing.T) topology.Compiled {
	t.Helper()
	return spectest.Compile(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s, {delay: 1m, attempts: 2}]}}
queues:
  - {name: billing, owner: team-billing, severity: page}
  - {name: audit, backoff: none, dead: shared}
  - {name: mail, type: classic, dead: shared}
`)
}

func TestMake(t *testing.T) {
	t.Parallel()
	top := shop(t)
	state := topology.State{VHost: "/", Version: "4.0.5", Have: top.Topology, Usage: map[string]topology.Usage{
		"billing":                 {Ready: 1, Unacknowledged: 2, Consumers: 3},
		"audit":                   {Consumers: 1},
		"mail":                    {Consumers: 1},
		"shop.standard.failed":    {Ready: 4, ConsumersAsked: true},
		"shop.standard.retry.10s": {Ready: 5},
		"billing.dead":            {Ready: 6},
		"shop.unroutable":         {Ready: 1},
	}}
	want := status.Report{
		Topology: "shop", VHost: "/", Version: "4.0.5", Wrong: 3,
		Problems: []status.Problem{
			{
				Name: "no-processor", Queues: []string{"shop.standard.failed"}, Command: "dlxctl process",
				Text: "no processor is consuming shop.standard.failed, where 4 messages wait",
			},
			{
				Name: "unroutable", Queues: []string{"shop.unroutable"}, Command: "dlxctl desk groups shop.unroutable",
				Text: "shop.unroutable holds 1 message that could not be routed; where the processor put them there, the header retry-error says why",
			},
			{
				Name: "dead-letters", Queues: []string{"billing.dead"}, Command: "dlxctl desk groups billing.dead",
				Text: "billing.dead holds 6 dead letters of team-billing (page)",
			},
		},
		Works: []status.Work{
			{
				Name: "billing", Role: "work", Backoff: "standard", Owner: "team-billing", Severity: "page", Type: "quorum",
				Ready: 1, Unacknowledged: 2, Retrying: 9, SharedRetrying: true, Dead: 6, Consumers: 3,
				Problems: []string{"dead-letters"},
			},
			{Name: "audit", Role: "work", Backoff: "none", Severity: "ticket", Type: "quorum", SharedDead: true, Consumers: 1},
			{
				Name: "mail", Role: "work", Backoff: "standard", Severity: "ticket", Type: "classic",
				Retrying: 9, SharedRetrying: true, SharedDead: true, Consumers: 1,
			},
		},
		Backoffs: []status.Backoff{{
			Name: "standard", Queues: 2, Failed: 4, Unprocessed: true, Asked: true,
			Tiers: []status.Tier{{Delay: 10 * time.Second, Messages: 5}, {Delay: time.Minute}},
		}},
		Queues: []status.Queue{
			{
				Name: "billing", Role: "work", Backoff: "standard", Type: "quorum", Messages: 3, Unacknowledged: 2, Consumers: 3,
				Owner: "team-billing", Severity: "page",
			},
			{Name: "audit", Role: "work", Backoff: "none", Type: "quorum", Consumers: 1, Severity: "ticket"},
			{Name: "mail", Role: "work", Backoff: "standard", Type: "classic", Consumers: 1, Severity: "ticket"},
			{Name: "shop.standard.failed", Role: "failed", Backoff: "standard", Type: "quorum", Messages: 4},
			{
				Name: "shop.standard.retry.10s", Role: "retry", Backoff: "standard", Delay: 10 * time.Second, Type: "quorum",
				Messages: 5,
			},
			{Name: "shop.standard.retry.1m", Role: "retry", Backoff: "standard", Delay: time.Minute, Type: "quorum"},
			{Name: "billing.dead", Role: "dead", Type: "quorum", Messages: 6, Owner: "team-billing", Severity: "page"},
			{Name: "shop.dead", Role: "dead", Type: "quorum"},
			{Name: "shop.unroutable", Role: "unroutable", Type: "quorum", Messages: 1},
		},
	}
	if d := cmp.Diff(want, status.Make(top, state, status.Options{})); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
}

// texts returns the problems of a report, a line each.
func texts(r status.Report) []string {
	var out []string
	for _, p := range r.Problems {
		line := p.Name + ": " + p.Text
		if p.Note {
			line = "note " + line
		}
		out = append(out, line)
	}
	return out
}

// A failed queue whose processor runs now and then is a note, if the file accepts it.
func TestAnAcceptedQueueWithoutProcessorIsANote(t *testing.T) {
	t.Parallel()
	top := shop(t)
	top.Accepted = []topology.Acceptance{{Warning: "no-processor", Object: "shop.standard.failed"}}
	usage := map[string]topology.Usage{"shop.standard.failed": {Ready: 4, ConsumersAsked: true}}
	state := topology.State{VHost: "/", Version: "4.0.5", Have: top.Topology, Usage: usage}
	got := status.Make(top, state, status.Options{})
	const want = "note no-processor: no processor is consuming shop.standard.failed, where 4 messages wait"
	if all := texts(got); all[len(all)-1] != want {
		t.Errorf("problems:\n%s", strings.Join(all, "\n"))
	}
}

// No consumer is connected, and the broker differs from the file.
func TestWarnings(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top
	have.Bindings = nil
	got := texts(status.Make(top, topology.State{VHost: "/", Version: "4.0.5", Have: have.Topology}, status.Options{}))
	want := []string{
		"no-processor: no processor is consuming shop.standard.failed: messages that consumers reject will wait there, and no retry will happen (by statistics that are up to 10s old)",
		"no-consumers: no consumer is connected to billing, audit and mail",
		"not-applied: the broker differs from the file in 14 places",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// A queue that the broker does not list as its node is down exists: apply does not create it.
func TestANodeIsDown(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top
	have.Queues = slices.DeleteFunc(slices.Clone(top.Queues), func(q topology.Queue) bool { return q.Name == "audit" })
	state := topology.State{VHost: "/", Version: "4.3.6", Have: have.Topology, Down: []string{"audit"}}
	got := texts(status.Make(top, state, status.Options{}))
	want := "node-down: the node of the queue audit is down: the queue exists, and the broker does not list it"
	if got[0] != want || strings.Contains(strings.Join(got, "\n"), "the queue audit does not exist") {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
}

// A failed queue and a tier whose backoff is no longer in the file are listed, and told of.
func TestRetired(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top
	mark := topology.OwnerMark("shop")
	have.Queues = append(slices.Clone(top.Queues),
		topology.Queue{
			Name: "shop.old.failed", Durable: true,
			Arguments: topology.Arguments{"x-queue-type": "quorum", topology.ArgManagedBy: mark},
		},
		topology.Queue{
			Name: "shop.old.retry.1m", Durable: true,
			Arguments: topology.Arguments{"x-queue-type": "quorum", "x-message-ttl": int64(60000), topology.ArgManagedBy: mark},
		})
	r := status.Make(top,
		topology.State{
			VHost: "/", Version: "4.0.5", Have: have.Topology,
			Usage: map[string]topology.Usage{"shop.old.failed": {Ready: 2}, "shop.old.retry.1m": {Ready: 3}},
		}, status.Options{})
	var rows []status.Queue
	for _, q := range r.Queues {
		if q.Backoff == "old" {
			rows = append(rows, q)
		}
	}
	want := []status.Queue{
		{Name: "shop.old.failed", Role: "failed", Backoff: "old", Type: "quorum", Messages: 2},
		{Name: "shop.old.retry.1m", Role: "retry", Backoff: "old", Delay: time.Minute, Type: "quorum", Messages: 3},
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	if !slices.ContainsFunc(r.Problems, func(p status.Problem) bool { return p.Name == "retired-backoff" && p.Note }) {
		t.Errorf("no note of the failed queue: %v", r.Problems)
	}
}

// A file without queues has nothing to be missing, and one difference is one place.
func TestAFileWithoutQueues(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, "version: 1\nname: shop\n")
	if got := status.Make(top, topology.State{VHost: "/", Version: "4.0.5"}, status.Options{}); len(got.Queues) > 0 ||
		len(got.Problems) > 0 {
		t.Errorf("report: %+v", got)
	}
	left := topology.Queue{
		Name: "shop.unroutable", Durable: true,
		Arguments: topology.Arguments{"x-queue-type": "quorum", "x-managed-by": "dlxctl/shop"},
	}
	got := status.Make(top, topology.State{
		VHost: "/", Version: "4.0.5", Have: topology.Topology{Queues: []topology.Queue{left}},
		Usage: map[string]topology.Usage{"shop.unroutable": {Ready: 2}},
	}, status.Options{})
	want := []string{
		"unroutable: shop.unroutable holds 2 messages that could not be routed; where the processor put them there, the header retry-error says why",
		"not-applied: the broker differs from the file in 1 place",
	}
	if d := cmp.Diff(want, texts(got)); d != "" || len(got.Queues) != 1 {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// Nothing is left out of the JSON, so that scripts need not ask.
func TestJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	sent := time.Date(2026, 11, 22, 19, 3, 40, 0, time.FixedZone("CET", 3600))
	if err := jsondoc.Write(&b,
		status.Report{
			Topology: "shop", VHost: "/", At: sent.Add(time.Minute), Wrong: 1,
			Queues: []status.Queue{{Name: "r", Role: "retry", Delay: time.Minute, Type: "classic", Oldest: sent}},
			Works:  []status.Work{{Name: "w", Ready: 1, Retrying: 2, SharedRetrying: true}},
			Problems: []status.Problem{
				{Name: "alarm", Text: "no memory"}, {Name: "forwards", Note: true, Queues: []string{"w"}},
			},
		}); err != nil {
		t.Fatal(err)
	}
	want := `{
  "version": 1,
  "topology": "shop",
  "vhost": "/",
  "time": "2026-11-22T18:04:40Z",
  "problems": 1,
  "queues": [
    {
      "name": "r",
      "role": "retry",
      "backoff": "",
      "delay": 60000,
      "type": "classic",
      "messages": 0,
      "unacknowledged": 0,
      "consumers": 0,
      "owner": "",
      "severity": "",
      "oldest": "2026-11-22T18:03:40Z"
    }
  ],
  "workQueues": [
    {
      "name": "w",
      "ready": 1,
      "unacknowledged": 0,
      "retrying": 2,
      "sharedRetrying": true,
      "dead": 0,
      "problems": []
    }
  ],
  "warnings": [
    {
      "name": "alarm",
      "text": "no memory",
      "fix": "",
      "command": "",
      "queues": []
    },
    {
      "name": "forwards",
      "text": "",
      "fix": "",
      "command": "",
      "note": true,
      "queues": [
        "w"
      ]
    }
  ]
}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
}

// What stays for a legacy queue that dlxctl made is listed, and that a legacy queue but forwards is
// said.
func TestLegacyQueues(t *testing.T) {
	t.Parallel()
	load := func(text string) topology.Compiled {
		return spectest.Compile(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, b: {tiers: [1m]}}\nqueues: "+text)
	}
	want := load("[{name: new, replaces: old, backoff: a}]")
	has := func(r status.Report, queue string, role topology.Role) bool {
		return slices.ContainsFunc(r.Queues, func(q status.Queue) bool { return q.Name == queue && q.Role == role })
	}
	r := status.Make(want, topology.State{Version: "4.0.5", Have: load("[{name: old, backoff: b}]").Topology},
		status.Options{})
	for queue, role := range map[string]topology.Role{
		"old": "legacy", "old.dead": "dead", "shop.b.failed": "failed",
		"shop.b.retry.1m": "retry",
	} {
		if !has(r, queue, role) {
			t.Errorf("%s is not listed as %s: %v", queue, role, r.Queues)
		}
	}
	name := topology.ForwardPolicyName("shop", "old")
	forwards := topology.State{Version: "4.0.5", QueuePolicies: map[string]string{"old": name}, Have: topology.Topology{
		Queues:   []topology.Queue{{Name: "old", Arguments: topology.Arguments{"x-queue-type": "classic"}}},
		Policies: []topology.Policy{{Name: name, Pattern: "^old$", ApplyTo: "queues"}},
	}}
	if r := status.Make(want, forwards, status.Options{}); !slices.ContainsFunc(r.Problems,
		func(p status.Problem) bool { return p.Name == "forwards" && p.Note }) {
		t.Errorf("it does not say that the queue forwards: %v", r.Problems)
	}
}

// A queue that drops messages at its limit lacks the policy of the file: the plan shows it. An
// audit of the file would find nothing.
func TestAQueueThatDropsAtItsLimit(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, `
version: 1
name: shop
backoff: {a: {tiers: [1s]}}
queues: [{name: q, type: quorum, external: true, deadLetterBy: policy, backoff: a}]
`)
	have := top.Topology
	have.Policies = nil
	have.Queues = append(slices.Clone(have.Queues), topology.Queue{
		Name: "q", Durable: true, Arguments: topology.Arguments{"x-queue-type": "quorum"},
	})
	report := status.Make(top, topology.State{
		Version: "4.0.5", Have: have, Usage: map[string]topology.Usage{"q": {Consumers: 1}},
	}, status.Options{})
	i := slices.IndexFunc(report.Problems, func(p status.Problem) bool { return p.Name == "drops-at-limit" })
	if i < 0 {
		t.Fatalf("no problem: %+v", report.Problems)
	}
	if got := report.Problems[i].Command; got != "dlxctl plan" {
		t.Errorf("the command is %q", got)
	}
}

// Runs that have not ended and parked messages are shown, with what to do about them.
func TestDesk(t *testing.T) {
	t.Parallel()
	top := shop(t)
	have := top.Topology
	mark := topology.Arguments{
		"x-queue-type": "quorum", "x-managed-by": topology.DeskMark("shop"), "x-delivery-limit": topology.Unlimited,
	}
	have.Queues = append(slices.Clone(have.Queues),
		topology.Queue{Name: topology.HoldName("shop", "r1"), Durable: true, Arguments: mark},
		topology.Queue{Name: topology.HoldName("shop", "r2"), Durable: true, Arguments: mark},
		topology.Queue{Name: topology.DeskWorkerName("shop", "r2"), Exclusive: true},
		topology.Queue{Name: topology.ParkedName("shop"), Durable: true, Arguments: mark},
		topology.Queue{Name: topology.LogName("shop"), Durable: true, Arguments: mark},
	)
	state := topology.State{VHost: "/", Version: "4.0.5", Have: have, Usage: map[string]topology.Usage{
		"billing": {Consumers: 3}, "audit": {Consumers: 1}, "mail": {Consumers: 1}, "shop.standard.failed": {Consumers: 1},
		"shop.desk.r1": {Ready: 3, Unacknowledged: 1}, "shop.desk.r2": {Ready: 2, Consumers: 1}, "shop.parked": {Ready: 1},
		"shop.desk.log": {Ready: 9},
	}}
	report := status.Make(top, state, status.Options{})
	queues := []status.Queue{
		{Name: "shop.desk.r1", Role: "hold", Type: "quorum", Messages: 4, Unacknowledged: 1},
		{Name: "shop.desk.r2", Role: "hold", Type: "quorum", Messages: 2, Consumers: 1},
		{Name: "shop.parked", Role: "parked", Type: "quorum", Messages: 1},
	}
	if d := cmp.Diff(queues, report.Queues[max(0, len(report.Queues)-3):]); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
	problems := []string{
		"desk-run: no process works on the run r1 of the desk, and shop.desk.r1 has its messages: 'dlxctl desk run list' shows what the run does, 'dlxctl desk run resume r1 --yes' goes on with that, and 'dlxctl desk run return r1' gives them back",
		"note desk-run: the run r2 of the desk is in progress, and shop.desk.r2 has its messages: 'dlxctl desk run list' shows how far it is",
		"note desk-parked: shop.parked has 1 message that a person parked; the broker deletes each 30 days later: 'dlxctl desk list shop.parked' shows them, and 'dlxctl desk restore' gives them back",
	}
	if d := cmp.Diff(problems, texts(report)); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// A tier is late if the messages past its delay are more than those that arrive in ten seconds.
// Some are always on their way.
func TestALateTier(t *testing.T) {
	t.Parallel()
	top := shop(t)
	for name, tc := range map[string]struct {
		usage topology.Usage // of the tier of 10s
		want  string
	}{
		"nothing waits":        {},
		"all wait":             {usage: topology.Usage{Ready: 68}},
		"1000 a second":        {usage: topology.Usage{Ready: 10_000, Unacknowledged: 300}},
		"late by 10 seconds":   {usage: topology.Usage{Ready: 300, Unacknowledged: 300}},
		"late by more":         {usage: topology.Usage{Ready: 300, Unacknowledged: 301}, want: "301 messages"},
		"none returns":         {usage: topology.Usage{Unacknowledged: 68}, want: "68 messages"},
		"one does not return":  {usage: topology.Usage{Unacknowledged: 1}, want: "1 message"},
		"one of many is moved": {usage: topology.Usage{Ready: 5, Unacknowledged: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			usage := map[string]topology.Usage{"shop.standard.failed": {Consumers: 1}, "shop.standard.retry.10s": tc.usage}
			for _, queue := range []string{"billing", "audit", "mail"} {
				usage[queue] = topology.Usage{Consumers: 1}
			}
			state := topology.State{VHost: "/", Version: "4.3.6", Have: top.Topology, Usage: usage}
			got := texts(status.Make(top, state, status.Options{}))
			var want []string
			if tc.want != "" {
				want = []string{"tier-late: messages are past their delay and have not returned to their work queues: shop.standard.retry.10s (" +
					tc.want + ")"}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}
