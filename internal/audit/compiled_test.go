package audit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// What dlxctl makes has neither errors nor warnings, as its file says it and as a broker shows it,
// without labels.
func TestCompiledTopologiesHaveNoFindings(t *testing.T) {
	t.Parallel()
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
					for _, f := range report.Findings {
						if f.Severity != audit.Note {
							t.Errorf("%s: %s %s %s: %s", name, f.Severity, f.Rule, f.Object.Name, f.Evidence)
						}
					}
					for _, w := range compiled.WorkQueues {
						if report.Fates[w.Name] != audit.Kept {
							t.Errorf("%s: the failures of %s are %q", name, w.Name, report.Fates[w.Name])
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
