package importer_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// imported imports a virtual host, and reads the files again.
func imported(t failer, state topology.State, o importer.Options) (importer.Result, topology.Compiled) {
	t.Helper()
	result, err := importer.Import(state, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return result, compiled(t, result.Files)
}

func compiled(t failer, files []importer.File) topology.Compiled {
	t.Helper()
	var sources []spec.Source
	for _, f := range files {
		sources = append(sources, spec.Source{Name: f.Name, Data: f.Data})
	}
	want, _, err := spec.Load(sources, spectest.NoVariables)
	if err != nil {
		t.Fatalf("%v\n%s", err, all(files))
	}
	return want
}

func all(files []importer.File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "== %s\n%s", f.Name, f.Data)
	}
	return b.String()
}

// checkUnchanged checks the law of import: a plan of what it writes is empty.
func checkUnchanged(t failer, state topology.State, o importer.Options) {
	t.Helper()
	result, want := imported(t, state, o)
	if want.VHost != state.VHost {
		t.Fatalf("the file is for the virtual host %q, not %q", want.VHost, state.VHost)
	}
	p := plan.Make(want, state, plan.Options{})
	if len(p.Changes) == 0 && len(p.Drift) == 0 {
		return
	}
	var b strings.Builder
	_ = planview.WriteText(&b, p, planview.TextOptions{Verbose: true})
	t.Fatalf("the plan of an imported file is not empty:\n%s\n%s", b.String(), all(result.Files))
}

// The file of an import changes nothing, whatever the virtual host has.
func TestImportChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := importer.Options{Split: rapid.SampledFrom([]importer.Split{
			importer.SplitNone, importer.SplitPrefix, importer.SplitOwner,
		}).Draw(t, "split")}
		if rapid.Bool().Draw(t, "match") {
			o.Match = regexp.MustCompile(`[ao]`)
		}
		checkUnchanged(t, drawState(t), o)
	})
}

// An adopted file declares on an empty broker what was found, but for dead-lettering and owner
// marks. On the broker itself it only adds the objects of dlxctl, and arguments block the rest.
func TestAdoptDeclaresTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := drawState(t)
		result, want := imported(t, state, importer.Options{Adopt: true})
		checkSame(t, state, want, all(result.Files))
		for _, c := range plan.Make(want, state, plan.Options{}).Changes {
			q, isQueue := c.Before.(topology.Queue)
			blockedBy := isQueue && q.Arguments.HasAny(topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey,
				topology.ArgDeadLetterStrategy)
			if c.Action == plan.Create || c.Action == plan.Blocked && (blockedBy || c.Kind == topology.KindPolicy) {
				continue
			}
			t.Fatalf("the plan has %s %s %s: %s %v\n%s", c.Action, c.Kind, c.Name, c.Reason, c.Fields, all(result.Files))
		}
	})
}

// checkSame checks that each declared object is what was found.
func checkSame(t failer, state topology.State, want topology.Compiled, file string) {
	t.Helper()
	deadLettering := []string{
		topology.ArgManagedBy, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey,
		topology.ArgDeadLetterStrategy, topology.ArgDeliveryLimit, // the policy has it
	}
	queues := map[string]topology.Queue{}
	for _, q := range state.Have.Queues {
		queues[q.Name] = q
	}
	for _, q := range want.Queues {
		if q.Label.Role != topology.RoleWork {
			continue
		}
		have := queues[q.Name]
		without := deadLettering
		if _, managed := want.WorkQueue(q.Name); !managed {
			without = deadLettering[:1]
		}
		a, b := have.Arguments.Without(without...), q.Arguments.Without(without...)
		if !a.Equal(b) || q.Durable != have.Durable {
			t.Fatalf("queue %q has the arguments %s, and the file %s\n%s", q.Name, a, b, file)
		}
	}
	exchanges := map[string]topology.Exchange{}
	for _, e := range state.Have.Exchanges {
		exchanges[e.Name] = e
	}
	for _, e := range want.Exchanges {
		have := exchanges[e.Name]
		if e.External || e.Label.Role != topology.RoleBusiness {
			continue
		}
		a, b := have.Arguments, e.Arguments.Without(topology.ArgManagedBy)
		if !a.Equal(b) || have.Type != e.Type || have.Internal != e.Internal || have.Durable != e.Durable {
			t.Fatalf("exchange %q is %+v, and in the file %+v\n%s", e.Name, have, e, file)
		}
	}
	checkSameBindings(t, state, want, file)
}

// checkSameBindings checks that the file has no binding that was not found.
func checkSameBindings(t failer, state topology.State, want topology.Compiled, file string) {
	t.Helper()
	found := map[string]bool{}
	for _, b := range state.Have.Bindings {
		found[b.Identity()] = true
	}
	for _, b := range want.Bindings {
		b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
		if b.Label.Role == topology.RoleBusiness && !found[b.Identity()] {
			t.Fatalf("the file has the binding %s, which was not found\n%s", b, file)
		}
	}
}

// FuzzImport imports virtual hosts that a fuzzer makes.
func FuzzImport(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkUnchanged(t, drawState(t), importer.Options{}) }))
}

// Bindings from a headers exchange that differ in their keys alone are one entry, also where the
// keys do not fit into one line.
func TestLongKeysFromAHeadersExchange(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "/", Have: topology.Topology{Queues: []topology.Queue{{
		Name: "q", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
	}}}}
	for _, key := range []string{"", strings.Repeat("n", 200)} {
		state.Have.Bindings = append(state.Have.Bindings, topology.Binding{
			Source: "amq.headers", Destination: "q", DestinationType: topology.ToQueue, Key: key,
		})
	}
	state.Have.Exchanges = []topology.Exchange{{Name: "amq.headers", Type: topology.Headers, Durable: true}}
	_, want := imported(t, state, importer.Options{Adopt: true})
	var got int
	for _, b := range want.Bindings {
		if b.Source == "amq.headers" {
			got++
		}
	}
	if got != 2 {
		t.Errorf("%+v", want.Bindings)
	}
}
