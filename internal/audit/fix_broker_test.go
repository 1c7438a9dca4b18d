package audit_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// send makes a change on a broker.
func send(t *testing.T, target brokertest.Target, c audit.Change) {
	t.Helper()
	r, ok := c.Request(target.VHost)
	if !ok {
		t.Fatalf("no request for %v", c)
	}
	if r.Body == nil {
		target.Call(t, r.Method, r.Path, nil)
		return
	}
	target.Call(t, r.Method, r.Path, r.Body)
}

// create creates the objects of definitions that the broker takes: no mirroring on 4.x, and no
// bindings of what does not exist.
func create(t *testing.T, target brokertest.Target, have topology.Topology) {
	t.Helper()
	exists := map[topology.Key]bool{}
	for _, e := range have.Exchanges {
		exists[e.ID()] = true
		if !strings.HasPrefix(e.Name, "amq.") && e.Name != "" {
			send(t, target, audit.Change{Object: e})
		}
	}
	for _, q := range have.Queues {
		exists[q.ID()] = true
		send(t, target, audit.Change{Object: q})
	}
	for _, b := range have.Bindings {
		to := topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}
		if exists[to] && exists[topology.Key{Kind: topology.KindExchange, Name: b.Source}] {
			send(t, target, audit.Change{Object: b})
		}
	}
	for _, p := range have.Policies {
		if !target.AtLeast("4.0") || !p.Definition.HasAny("ha-mode") {
			send(t, target, audit.Change{Object: p})
		}
	}
}

// The fixes that audit prints for a live broker, run as they are printed, remove their findings and
// make nothing worse. What is printed as lines of a topology file is created as dlxctl would.
func TestFixesOnABroker(t *testing.T) {
	t.Parallel()
	cases := map[string]string{}
	for name, tc := range advices() {
		if !strings.Contains(tc.definitions, `"durable": false`) { // 4.3 refuses such queues
			cases[name] = tc.definitions
		}
	}
	files, err := filepath.Glob("../../testdata/real/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases[filepath.Base(file)] = string(data)
	}
	for name, definitions := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			create(t, target, read(t, "fixes.json", definitions).State.Have)
			m := managementtest.Client(t, target)
			inspect := func() audit.Input {
				state, err := m.Inspect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return audit.Input{State: state, Live: &topology.Live{}}
			}
			var before audit.Report
			brokertest.Eventually(t, "policies in effect", func() bool { // a broker applies policies afterwards
				before = audit.Run(inspect())
				return !finds(before, "policy-not-in-effect")
			})
			var fixed []audit.Finding
			written := map[string]bool{} // the lines of the file, which one writes once for all its findings
			for _, f := range before.Findings {
				if len(f.Fix.Changes) == 0 {
					continue
				}
				if f.Fix.Lines == "" || !written[f.Fix.Lines] {
					fix(t, target, f)
				}
				written[f.Fix.Lines] = true
				fixed = append(fixed, f)
			}
			var left []string
			brokertest.Eventually(t, "an audit without these findings", func() bool {
				left = worse(before, audit.Untried(inspect()), fixed)
				return len(left) == 0
			}, &left)
			t.Logf("%d of %d findings fixed", len(fixed), len(before.Findings))
		})
	}
}

// fix runs the commands of a fix, or makes the changes of its lines.
func fix(t *testing.T, target brokertest.Target, f audit.Finding) {
	t.Helper()
	if f.Fix.Lines != "" {
		for _, c := range f.Fix.Changes {
			send(t, target, c)
		}
		return
	}
	api, err := url.Parse(target.API)
	if err != nil {
		t.Fatal(err)
	}
	api.User = url.UserPassword(target.Username, target.Password)
	command := exec.CommandContext(t.Context(), "sh", "-c", f.Remedy)
	command.Env = append(os.Environ(), "RABBITMQ_API_URL="+api.String())
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s of %s: %v\n%s\n%s", f.Rule, f.DisplayName(), err, f.Remedy, out)
	}
}

// worse lists the findings that are still there after their fix, and errors and warnings that are
// new.
func worse(before, after audit.Report, fixed []audit.Finding) []string {
	var out []string
	was := worst(before)
	for _, f := range after.Findings {
		if slices.ContainsFunc(fixed, func(o audit.Finding) bool { return o.Rule == f.Rule && o.Object == f.Object }) {
			out = append(out, "still there: "+f.Rule+" of "+f.DisplayName())
		}
		if _, there := was[[2]any{f.Rule, f.Object}]; !there && f.Severity != audit.Note {
			out = append(out, "new: "+f.Rule+" of "+f.DisplayName()+": "+f.Evidence)
		}
	}
	return out
}
