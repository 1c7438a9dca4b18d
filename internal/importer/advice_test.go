package importer_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// followed returns an imported file in which all comments at queues are followed: their lines are
// uncommented, and a queue that gets a successor has its name, and is not external any more.
func followed(file string) string {
	proposed := regexp.MustCompile(`(?m)^    # (replaces|type|deliveryLimit|arguments|deadLetterBy|backoff|dead):`)
	item := regexp.MustCompile(`(?m)^  - name: (.*)$`)
	head, list, _ := strings.Cut(file, "\nqueues:\n")
	list, tail, _ := strings.Cut(list, "\n# ")
	var out []string
	for _, q := range strings.SplitAfter(list, "\n\n") {
		if strings.Contains(q, "    # replaces: ") {
			q = strings.Replace(item.ReplaceAllString(q, "  - name: $1.v2"), "    external: true\n", "", 1)
		}
		out = append(out, proposed.ReplaceAllString(q, "    $1:"))
	}
	return head + "\nqueues:\n" + strings.Join(out, "") + "\n# " + tail
}

// planFollowed returns the plan of an imported file whose comments are followed.
func planFollowed(t *testing.T, state topology.State) plan.Plan {
	t.Helper()
	result, _ := imported(t, state, importer.Options{})
	file := importer.File{Name: "followed.yaml", Data: []byte(followed(string(result.Files[0].Data)))}
	sources := []spec.Source{{Name: file.Name, Data: file.Data}}
	want, found, err := spec.Load(sources, spectest.NoVariables)
	if err != nil {
		t.Fatalf("%v\n%s", err, file.Data)
	}
	p := plan.Make(want, state, plan.Options{})
	for _, w := range found {
		p.Warnings = append(p.Warnings, plan.Warning{Name: w.Name, Text: w.Msg})
	}
	return p
}

func quorum(name string, args topology.Arguments) topology.Queue {
	return topology.Queue{Name: name, Durable: true, Arguments: args.With(topology.ArgQueueType, topology.Quorum)}
}

// A file whose comments are followed has no warning that other comments would have spared.
func TestFollowedComments(t *testing.T) {
	t.Parallel()
	into := func(key string) topology.Arguments {
		return topology.Arguments{topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: key}
	}
	bound := func(name string) topology.Binding {
		return topology.Binding{Source: "events", Destination: name, DestinationType: topology.ToQueue, Key: name}
	}
	for name, tc := range map[string]struct {
		queues   []topology.Queue
		policies []topology.Policy
		warning  string
	}{
		"a policy limits the length of two successors, which share no backoff": {
			queues: []topology.Queue{quorum("a", into("dead")), quorum("b", into("dead")), quorum("dead", nil)},
			policies: []topology.Policy{{
				Name: "limit", Pattern: "^[ab]", ApplyTo: "queues",
				Definition: topology.Arguments{topology.KeyMaxLength: int64(100), topology.KeyOverflow: topology.RejectPublish},
			}},
			warning: topology.WarnStarvesTier,
		},
		"a policy limits the length of two queues that stay": {
			queues: []topology.Queue{quorum("a", nil), quorum("b", nil), quorum("dead", nil)},
			policies: []topology.Policy{{
				Name: "limit", Pattern: "^[ab]$", ApplyTo: "queues",
				Definition: topology.Arguments{topology.KeyMaxLength: int64(100), topology.KeyOverflow: topology.RejectPublish},
			}},
			warning: topology.WarnStarvesTier,
		},
		"arguments limit the length of two queues that stay": {
			queues: []topology.Queue{
				quorum("a", topology.Arguments{topology.ArgMaxLength: int64(9), topology.ArgOverflow: topology.RejectPublish}),
				quorum("b", topology.Arguments{topology.ArgMaxLength: int64(9), topology.ArgOverflow: topology.RejectPublish}),
				quorum("dead", nil),
			},
			warning: topology.WarnStarvesTier,
		},
		"arguments that RabbitMQ does not know stay behind": {
			queues: []topology.Queue{
				quorum("a", into("dead").With("x-max-lengths", int64(5)).With("x-max-retries", int64(5)).With("x-owner", "team")),
				quorum("dead", nil),
			},
			warning: topology.WarnUnknownArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
				Exchanges: []topology.Exchange{{Name: "events", Type: topology.Topic, Durable: true}},
				Queues:    tc.queues, Policies: tc.policies,
			}}
			for _, q := range tc.queues[:len(tc.queues)-1] {
				state.Have.Bindings = append(state.Have.Bindings, bound(q.Name))
			}
			p := planFollowed(t, state)
			if len(p.Changes) == 0 {
				t.Fatal("the comments have no effect")
			}
			for _, w := range p.Warnings {
				if w.Name == tc.warning {
					t.Errorf("%s: %s", w.Name, w.Text)
				}
			}
			for _, c := range p.Changes {
				if c.Action == plan.Blocked {
					t.Errorf("blocked: %s: %s", c.Name, c.Reason)
				}
			}
		})
	}
}

// A queue that can have retries of RabbitMQ itself as it is, is told so, and can.
func TestNativeRetriesAreProposed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		queue   topology.Queue
		can     bool
	}{
		"quorum":               {"4.3.6", quorum("a", nil), true},
		"older":                {"4.3.0", quorum("a", nil), false},
		"classic":              {"4.3.6", topology.Queue{Name: "a", Durable: true}, false},
		"delayed already":      {"4.3.6", quorum("a", topology.Arguments{"x-delayed-retry-type": "all"}), false},
		"dead-letters already": {"4.3.6", quorum("a", topology.Arguments{topology.ArgDeadLetterExchange: "events"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{VHost: "shop", Version: tc.version, Have: topology.Topology{
				Exchanges: []topology.Exchange{{Name: "events", Type: topology.Topic, Durable: true}},
				Queues:    []topology.Queue{tc.queue},
				Bindings: []topology.Binding{
					{Source: "events", Destination: "a", DestinationType: topology.ToQueue, Key: "a"},
				},
			}}
			result, _ := imported(t, state, importer.Options{})
			file := string(result.Files[0].Data)
			commented := regexp.MustCompile(`(?m)^  # (native: \{.*\})$`)
			if commented.MatchString(file) != tc.can {
				t.Fatalf("it should be said: %t\n%s", tc.can, file)
			}
			if !tc.can {
				return
			}
			native := regexp.MustCompile(`    backoff: .*`).ReplaceAllString(
				commented.ReplaceAllString(followed(file), "  $1"), "    backoff: native")
			want, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(native)}}, spectest.NoVariables)
			if err != nil {
				t.Fatalf("%v\n%s", err, native)
			}
			if len(want.Native) == 0 {
				t.Fatal(native)
			}
			p := plan.Make(want, state, plan.Options{Allow: plan.Allow(topology.UncountedNack)})
			for _, c := range p.Changes {
				if c.Action == plan.Blocked {
					t.Errorf("blocked: %s: %s", c.Name, c.Reason)
				}
			}
		})
	}
}

// What the federation plugin makes and deletes is not part of a topology.
func TestFederationIsLeftOut(t *testing.T) {
	t.Parallel()
	const name = "federation: events -> rabbit@b"
	purpose := topology.Arguments{"x-internal-purpose": "federation"}
	state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "events", Type: topology.Topic, Durable: true},
			{Name: name + " B", Type: "x-federation-upstream", Durable: true, Internal: true, Arguments: purpose},
		},
		Queues: []topology.Queue{
			{Name: "billing", Durable: true},
			{Name: name, Durable: true, Arguments: purpose.With(topology.ArgExpires, int64(60000))},
		},
		Bindings: []topology.Binding{
			{Source: "events", Destination: "billing", DestinationType: topology.ToQueue, Key: "#"},
			{Source: "events", Destination: name + " B", DestinationType: topology.ToExchange, Key: "#"},
			{Source: name + " B", Destination: name, DestinationType: topology.ToQueue},
		},
	}}
	checkUnchanged(t, state, importer.Options{})
	result, want := imported(t, state, importer.Options{})
	if result.Queues != 1 || result.Exchanges != 1 || result.LeftOut != 2 {
		t.Errorf("%d queues, %d exchanges, %d left out:\n%s", result.Queues, result.Exchanges, result.LeftOut,
			all(result.Files))
	}
	elsewhere := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
		Exchanges: state.Have.Exchanges[:1], Queues: state.Have.Queues[:1], Bindings: state.Have.Bindings[:1],
	}}
	if p := plan.Make(want, elsewhere, plan.Options{}); len(p.Changes) > 0 {
		t.Errorf("the file has changes on a broker without the plugin: %v", p.Changes)
	}
}

// Files that differ in the case of letters alone are one file on Windows and macOS.
func TestFileNamesDifferWithoutCase(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{Queues: []topology.Queue{
		{Name: "Action.a", Durable: true}, {Name: "action.b", Durable: true}, {Name: "Topology.c", Durable: true},
	}}}
	result, _ := imported(t, state, importer.Options{Split: importer.SplitPrefix})
	var names []string
	for _, f := range result.Files {
		names = append(names, f.Name)
	}
	if want := []string{"topology.yaml", "Action.yaml", "action-2.yaml", "Topology-2.yaml"}; !slices.Equal(names, want) {
		t.Errorf("the files are %v, want %v", names, want)
	}
}

// More queues than a topology may have are refused before a file is made, with one sentence.
func TestTooManyQueues(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Version: "4.3.6"}
	for i := range 20_001 {
		state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: fmt.Sprintf("a%d.b", i%10), Durable: true})
		state.Have.Queues[i].Name += fmt.Sprint(i)
	}
	_, err := importer.Import(state, importer.Options{Split: importer.SplitPrefix})
	if err == nil || !strings.Contains(err.Error(), "declare 20001 queues, and a topology has at most 20000; pass --match") {
		t.Errorf("got %v", err)
	}
}

// A dead letter has no TTL of its own, so that it stays in a retry queue without one.
func TestARetryQueueWithoutTTL(t *testing.T) {
	t.Parallel()
	into := func(key string) topology.Arguments {
		return topology.Arguments{topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: key}
	}
	state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
		Exchanges: []topology.Exchange{{Name: "events", Type: topology.Topic, Durable: true}},
		Queues:    []topology.Queue{quorum("work", into("work.retry")), quorum("work.retry", into("work"))},
		Bindings:  []topology.Binding{{Source: "events", Destination: "work", DestinationType: topology.ToQueue, Key: "a"}},
	}}
	result, _ := imported(t, state, importer.Options{})
	for _, want := range []string{
		"# By argument, failed messages go to work.retry, which has no TTL, and stay there\n    # (retry-queue-returns-nothing).",
		"#   work.retry: failed messages stay here: it has no TTL (retry-queue-returns-nothing).",
	} {
		if !strings.Contains(all(result.Files), want) {
			t.Errorf("the file lacks %q:\n%s", want, all(result.Files))
		}
	}
}
