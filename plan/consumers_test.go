package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// consumed is a topology with one backoff, of which the queue gone is no longer in the
// file.
func consumed(usage map[string]topology.Usage) (topology.Compiled, topology.State) {
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop"), topology.ArgQueueType: topology.Quorum}
	failed := topology.Queue{
		Name: "shop.a.failed", Durable: true, Arguments: mark,
		Label: topology.Label{Role: topology.RoleFailed, Backoff: "a"},
	}
	want := topology.Compiled{
		Name: "shop", CountHeader: "count", Topology: topology.Topology{
			Queues: []topology.Queue{failed},
		},
		Backoffs: []topology.Backoff{{
			Name: "a", FailedQueue: failed.Name, RetryExchange: "shop.a.dlx",
			Tiers: []topology.Tier{{Delay: time.Second, Queue: "shop.a.retry.1s"}},
		}},
	}
	return want, topology.State{Version: "4.0.5", Usage: usage, Have: topology.Topology{
		Queues: []topology.Queue{failed, {Name: "gone", Durable: true, Arguments: mark}, {Name: "foreign", Durable: true}},
	}}
}

// A queue whose consumers are unknown is not deleted without
// consent, and the plan says what would show it.
func TestUnknownConsumersNeedConsent(t *testing.T) {
	t.Parallel()
	p := consumedBy(topology.Usage{ConsumersUnknown: true})
	if err := plan.Check(p, nil); !errors.Is(err, plan.ErrHazard) ||
		!strings.Contains(err.Error(), "stops-consumers (1 change)") {
		t.Errorf("Check gives %v", err)
	}
	if err := plan.Check(p, plan.Allow(topology.StopsConsumers)); err != nil {
		t.Errorf("with consent: %v", err)
	}
	for format, write := range map[string]func(*bytes.Buffer) error{
		"text":     func(b *bytes.Buffer) error { return planview.WriteText(b, p, planview.TextOptions{}) },
		"markdown": func(b *bytes.Buffer) error { return planview.WriteMarkdown(b, p, "") },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil ||
			!strings.Contains(b.String(), "consumers unknown: the statistics of the broker do not show them") ||
			!strings.Contains(b.String(), "any permission for the queue") {
			t.Errorf("%s: %v\n%s", format, err, b.String())
		}
	}
	var b bytes.Buffer
	err := planview.WriteJSON(&b, p, "test", "")
	if err != nil || !strings.Contains(b.String(), `"consumersUnknown": true`) {
		t.Errorf("JSON: %v\n%s", err, b.String())
	}
	if p := consumedBy(topology.Usage{}); plan.Check(p, nil) != nil {
		t.Error("a queue without consumers is not deleted")
	}
}

// consumedBy returns the plan for that topology with this usage of the queue gone.
func consumedBy(u topology.Usage) plan.Plan {
	want, state := consumed(map[string]topology.Usage{"gone": u})
	return plan.Make(want, state, plan.Options{})
}

// A failed queue without consumers is warned about, before the first failure too. Where that is not
// known it is not.
func TestNoProcessor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		usage topology.Usage
		text  string
		line  string // the last of the plan, behind the name of the warning
	}{
		"ready": {
			topology.Usage{Ready: 12, ConsumersAsked: true},
			"shop.a.failed holds 12 messages and no processor is consuming it: run dlxctl process",
			"no processor is consuming shop.a.failed (holds 12 messages); keep one running: dlxctl process -f a.yaml",
		},
		"ready, by statistics": {
			topology.Usage{Ready: 1},
			"shop.a.failed holds 1 message and no processor is consuming it (by statistics that are up to 10s old): run dlxctl process",
			"no processor is consuming shop.a.failed (holds 1 message; by statistics that are up to 10s old); keep one running: dlxctl process -f a.yaml",
		},
		"unacknowledged": {
			topology.Usage{Unacknowledged: 1, ConsumersAsked: true},
			"shop.a.failed holds 1 message and no processor is consuming it: run dlxctl process",
			"no processor is consuming shop.a.failed (holds 1 message); keep one running: dlxctl process -f a.yaml",
		},
		"a consumer holds messages, and the statistics do not show it yet": {
			topology.Usage{Ready: 5, Unacknowledged: 1}, "", "",
		},
		"empty": {
			topology.Usage{ConsumersAsked: true},
			"no processor is consuming shop.a.failed, where messages that consumers reject will wait: run dlxctl process",
			"no processor is consuming shop.a.failed; keep one running: dlxctl process -f a.yaml",
		},
		"empty, by statistics": {topology.Usage{}, "", ""},
		"consumed":             {topology.Usage{Ready: 12, Consumers: 1, ConsumersAsked: true}, "", ""},
		"unknown":              {topology.Usage{Ready: 12, ConsumersUnknown: true}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, state := consumed(map[string]topology.Usage{"shop.a.failed": tc.usage})
			text := ""
			p := plan.Make(want, state, plan.Options{})
			for _, w := range p.Warnings {
				if w.Name == "no-processor" {
					text = w.Text
				}
			}
			if text != tc.text {
				t.Errorf("the warning is %q", text)
			}
			var b strings.Builder
			if err := planview.WriteText(&b, p, planview.TextOptions{Process: "dlxctl process -f a.yaml"}); err != nil {
				t.Fatal(err)
			}
			before, line, _ := strings.Cut(b.String(), "warning no-processor: ")
			if strings.TrimSuffix(line, "\n") != tc.line {
				t.Errorf("the last line is %q behind %s", line, before)
			}
		})
	}
}

// A file may accept that a failed queue has no processor, by its name.
func TestNoProcessorIsAccepted(t *testing.T) {
	t.Parallel()
	for object, warnings := range map[string]int{"shop.a.failed": 0, "shop.b.failed": 1} {
		want, state := consumed(map[string]topology.Usage{"shop.a.failed": {Ready: 12, ConsumersAsked: true}})
		want.Accepted = []topology.Acceptance{{Warning: "no-processor", Object: object}}
		p := plan.Make(want, state, plan.Options{})
		if len(p.Unprocessed) != warnings {
			t.Errorf("with %s accepted: %+v", object, p.Unprocessed)
		}
	}
}

// Decisive are what the plan deletes, and failed queues that seem to have no processor or
// must have none.
func TestDecisive(t *testing.T) {
	t.Parallel()
	old := topology.Binding{
		Source: "shop.a.dlx", Destination: "shop.a.retry.1s", DestinationType: topology.ToQueue,
		Arguments: topology.Arguments{
			topology.ArgMatch: "all", "tries": int64(1), topology.ArgManagedBy: topology.OwnerMark("shop"),
		},
	}
	for name, tc := range map[string]struct {
		usage    map[string]topology.Usage
		bindings []topology.Binding
		want     []string
	}{
		"what is deleted": {nil, nil, []string{"gone"}},
		"messages, no processor": {
			map[string]topology.Usage{"shop.a.failed": {Ready: 1}},
			nil,
			[]string{"gone", "shop.a.failed"},
		},
		"messages and a processor": {
			map[string]topology.Usage{"shop.a.failed": {Ready: 1, Consumers: 1}},
			nil,
			[]string{"gone"},
		},
		"no processor, and no messages yet": {
			map[string]topology.Usage{"shop.a.failed": {}}, nil, []string{"gone", "shop.a.failed"},
		},
		"another count header":     {nil, []topology.Binding{old}, []string{"gone", "shop.a.failed"}},
		"what foreign queues hold": {map[string]topology.Usage{"foreign": {Ready: 1}}, nil, []string{"gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, state := consumed(tc.usage)
			state.Have.Bindings = tc.bindings
			if d := cmp.Diff(tc.want, plan.Decisive(plan.Make(want, state, plan.Options{}), want, state)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// Processors that consume while the tiers of their backoff change, or the dead-letter queue of a
// match, are to be restarted.
func TestRestartProcessors(t *testing.T) {
	t.Parallel()
	const tiers, jobs = "[1s]", "\n  - {match: ^jobs-, external: true, backoff: a}"
	const pit, mails = "\n  - {match: ^jobs-, external: true, backoff: a, dead: {queue: pit}}", "\n  - {match: ^mails-, external: true, backoff: a}"
	const match = "shop.a.failed has 1 consumer: what fails in queues that match ^%s may go to shop.unroutable until its processors have the new file; after apply, restart those that run without --watch"
	file := func(tiers, matches string) topology.Compiled {
		return loaded(t, shopFile("a: {tiers: "+tiers+"}", "{name: w, backoff: a}"+matches))
	}
	two := strings.Replace(pit, "jobs", "mails", 1)
	for name, tc := range map[string]struct {
		had, tiers, match string
		consumers         int64
		want              string
	}{
		"more tiers":                          {jobs, "[1s, 1m]", jobs, 2, "shop.a.failed has 2 consumers: a processor uses the tiers of the file that it has read, and dead-letters after the last of them; after apply, restart those that run without --watch"},
		"dead letters":                        {jobs, tiers, pit, 1, fmt.Sprintf(match, "jobs-")},
		"to the dead-letter queue of another": {pit + mails, tiers, jobs + mails, 1, fmt.Sprintf(match, "jobs-, ^mails-")},
		"a new match":                         {jobs, tiers, jobs + mails, 1, fmt.Sprintf(match, "mails-")},
		"a pattern less":                      {jobs + two, tiers, jobs, 1, ""},
		"a narrower pattern":                  {jobs, tiers, strings.Replace(jobs, "jobs-", "jobs-a", 1), 1, ""},
		"no consumers":                        {jobs, "[1s, 1m]", pit, 0, ""},
		"no change":                           {jobs, tiers, jobs, 2, ""},
	} {
		had := file(tiers, tc.had)
		state := topology.State{Version: "4.3.0", VHost: "/", Have: had.Topology, Usage: map[string]topology.Usage{
			"shop.a.failed": {Consumers: tc.consumers, ConsumersAsked: true},
		}}
		job := topology.Queue{Name: "jobs-a", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: "quorum"}}
		state.Have.Queues = append(slices.Clone(state.Have.Queues), job)
		state.Have.Bindings = append(slices.Clone(state.Have.Bindings), topology.ReturnBinding("shop", job.Name))
		got := ""
		want := file(tc.tiers, tc.match)
		for _, w := range plan.Make(want, state, plan.Options{}).Warnings {
			if w.Name == topology.WarnRestartProcessors {
				got = w.Text
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
