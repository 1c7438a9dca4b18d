package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

// genomics compiles the topology file of a real pipeline, in an environment.
func genomics(t *testing.T, env map[string]string) topology.Compiled {
	t.Helper()
	path := filepath.Join("..", "..", "testdata", "genomics", "topology.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	out, warnings, err := Load([]Source{{Name: path, Data: data}}, lookup)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %v, error:\n%v", warnings, err)
	}
	return out
}

// The file declares what the pipeline has, but for its streams: the same
// exchanges, which the broker would take for the ones that are there, the same
// queues and the same bindings.
func TestGenomicsIsThePipeline(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "genomics", "legacy.json"))
	if err != nil {
		t.Fatal(err)
	}
	type exchange struct {
		Name, Type string
		Durable    bool
	}
	type binding struct {
		Source      string
		Destination string
		Key         string `json:"routing_key"`
	}
	var legacy struct {
		Exchanges []exchange
		Queues    []struct {
			Name      string
			Arguments map[string]any
		}
		Bindings []binding
	}
	if err := json.Unmarshal(data, &legacy); err != nil {
		t.Fatal(err)
	}
	var works []string
	for _, q := range legacy.Queues {
		if q.Arguments[topology.ArgQueueType] != topology.Stream {
			works = append(works, q.Name)
		}
	}
	legacy.Bindings = slices.DeleteFunc(legacy.Bindings,
		func(b binding) bool { return !slices.Contains(works, b.Destination) })

	out := genomics(t, nil)
	var gotWorks []string
	for _, w := range out.WorkQueues {
		gotWorks = append(gotWorks, w.Name)
		if typ := queueOf(t, out, w.Name).Type(); typ != topology.Classic {
			t.Errorf("queue %s is %s", w.Name, typ)
		}
	}
	var exchanges []exchange
	for _, e := range out.Exchanges {
		if e.Label.Role == topology.RoleBusiness {
			exchanges = append(exchanges, exchange{e.Name, e.Type, e.Durable})
			if _, has := e.Arguments[topology.ArgAlternateExchange]; has {
				t.Errorf("exchange %s has an alternate: the broker would refuse it next to the legacy queue", e.Name)
			}
		}
	}
	var bindings []binding
	for _, b := range out.Bindings {
		if b.Label.Role == topology.RoleBusiness {
			bindings = append(bindings, binding{b.Source, b.Destination, b.Key})
		}
	}
	slices.Sort(works)
	slices.Sort(gotWorks)
	for what, d := range map[string]string{
		"queues": cmp.Diff(works, gotWorks), "exchanges": cmp.Diff(legacy.Exchanges, exchanges),
		"bindings": cmp.Diff(legacy.Bindings, bindings),
	} {
		if d != "" {
			t.Errorf("%s (-legacy +file):\n%s", what, d)
		}
	}
}

// The environment makes the file quick enough for tests on a broker.
func TestGenomicsTiersComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	out := genomics(t, map[string]string{"TIER_1": "0s", "TIER_2": "50ms", "TIER_3": "50ms", "TYPE": topology.Quorum})
	loop, _ := out.Backoff("pipeline")
	want := []topology.Tier{
		{Delay: 0, Queue: "genomics.pipeline.retry.0s"},
		{Delay: 50 * time.Millisecond, Queue: "genomics.pipeline.retry.50ms"},
		{Delay: 50 * time.Millisecond, Queue: "genomics.pipeline.retry.50ms"},
	}
	if d := cmp.Diff(want, loop.Tiers); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if typ := queueOf(t, out, "ingest").Type(); typ != topology.Quorum {
		t.Errorf("queue ingest is %s", typ)
	}
}
