package audit_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// What dlxctl makes has neither errors nor warnings but those that its file means, as the file says
// it and as a broker shows it, without labels.
func TestCompiledTopologiesHaveNoFindings(t *testing.T) {
	t.Parallel()
	// What a file means, and plan asks for consent for.
	consented := map[string][]string{"discard.yaml": {"error dead-letter-queue-expires samples.discarded"}}
	refused := []string{"error policy-refused dlxctl.native.queue.native.mails"} // so apply is, too
	older := map[string][]string{"native.yaml 3.10.8": refused, "native.yaml 4.0.5": refused}
	fates := map[string]audit.Fate{"discard.yaml": audit.Lost} // the others keep what fails
	var files []string
	for _, pattern := range []string{
		"../../testdata/*.yaml", "../../testdata/genomics/*.yaml", "../../templates/starters/*.yaml",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 8 {
		t.Fatalf("only %d topologies", len(files))
	}
	for _, file := range files {
		for _, version := range []string{"", "3.10.8", "4.0.5", "4.3.6"} {
			t.Run(filepath.Base(file)+" "+version, func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				compiled, _, err := spec.Load([]spec.Source{{Name: file, Data: data}},
					func(string) (string, bool) { return "", false })
				if err != nil {
					t.Fatal(err)
				}
				for name, have := range map[string]topology.Topology{
					"file": compiled.Topology, "broker": withoutLabels(compiled.Topology),
				} {
					report := audit.Run(audit.Input{State: topology.State{VHost: "/", Version: version, Have: have}})
					var found []string
					for _, f := range report.Findings {
						if f.Severity != audit.Note {
							found = append(found, fmt.Sprintf("%s %s %s", f.Severity, f.Rule, f.Object.Name))
						}
					}
					want := append(slices.Clone(older[filepath.Base(file)+" "+version]), consented[filepath.Base(file)]...)
					if !slices.Equal(found, want) {
						t.Errorf("%s: found %q, want %q", name, found, want)
					}
					for _, w := range compiled.WorkQueues {
						if want := cmp.Or(fates[filepath.Base(file)], audit.Kept); report.Fates[w.Name] != want {
							t.Errorf("%s: the failures of %s are %q, want %q", name, w.Name, report.Fates[w.Name], want)
						}
					}
					if len(report.Fates) != len(compiled.WorkQueues) {
						t.Errorf("%s: fates %v of %d work queues", name, report.Fates, len(compiled.WorkQueues))
					}
				}
			})
		}
	}
}

// withoutLabels returns objects as they are read from a broker.
func withoutLabels(t topology.Topology) topology.Topology {
	var out topology.Topology
	for _, e := range t.Exchanges {
		e.Label = topology.Label{}
		out.Exchanges = append(out.Exchanges, e)
	}
	for _, q := range t.Queues {
		q.Label = topology.Label{}
		out.Queues = append(out.Queues, q)
	}
	for _, b := range t.Bindings {
		b.Label = topology.Label{}
		out.Bindings = append(out.Bindings, b)
	}
	for _, p := range t.Policies {
		p.Label = topology.Label{}
		out.Policies = append(out.Policies, p)
	}
	return out
}

// A policy of another team that deletes a failed queue deletes what failed with it. What it lets
// expire there, or drop, becomes a dead letter.
func TestAPolicyOnAFailedQueue(t *testing.T) {
	t.Parallel()
	compiled, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(`
version: 1
name: shop
backoff: {standard: {tiers: [10s]}}
queues: [{name: billing, backoff: standard}]
`)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		topology.KeyExpires:       "lost, dead-letter-queue-deleted: all failed messages are lost after 1m without a consumer",
		topology.KeyMessageTTL:    "kept",
		topology.KeyMaxLength:     "kept",
		topology.KeyDeliveryLimit: "kept",
	} {
		have := withoutLabels(compiled.Topology)
		have.Policies = append(slices.Clone(have.Policies), topology.Policy{
			Name: "team", Pattern: `^shop\.standard\.failed$`, ApplyTo: "queues",
			Definition: topology.Arguments{key: int64(60000)},
		})
		report := audit.Run(audit.Input{State: topology.State{VHost: "/", Version: "4.3.6", Have: have}})
		got := string(report.Fates["billing"])
		for _, f := range report.Findings {
			if f.Severity == audit.Error {
				got += fmt.Sprintf(", %s: %s", f.Rule, f.Consequence)
			}
		}
		if got != want {
			t.Errorf("with %s: %s, not %s", key, got, want)
		}
	}
}
