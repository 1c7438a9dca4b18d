package planview_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Whatever is handed over as a saved plan, reading it ends in an error or in a
// plan that can be made again, shown and checked against any virtual host. What
// was read is the same when it is saved and read again.
func FuzzReadSaved(f *testing.F) {
	data, err := os.ReadFile("../../testdata/shop.yaml")
	if err != nil {
		f.Fatal(err)
	}
	want, _, err := spec.Load([]spec.Source{{Name: "f", Data: data}}, func(string) (string, bool) { return "", false })
	if err != nil {
		f.Fatal(err)
	}
	nothing := topology.State{Version: "4.3.0", VHost: "/", Cluster: "c"}
	var saved bytes.Buffer
	if err := planview.Save(&saved, plan.Make(want, nothing, plan.Options{}), want, planview.Source{Files: []string{"f"}},
		plan.Options{Allow: plan.Allow(topology.DropsRouting)}, "dev", ""); err != nil {
		f.Fatal(err)
	}
	f.Add(saved.Bytes())
	for _, s := range []string{
		`{}`, `null`, `[]`, `{"plan":{"version":2}}`, `{"plan":{"version":1e0,"fingerprint":"f"},"want":{"topology":"a"}}`,
		`{"plan":{"version":1,"fingerprint":"f"},"want":{"topology":"a","policies":[{"name":"p","pattern":"(","definition":[]}]}}`,
		`{"plan":{"version":1,"fingerprint":"f"},"want":{"topology":"a","workQueues":[{"name":"q","backoff":"b","replaces":"q"}],"backoffs":[{"name":"b","tiers":null}]}}`,
		`{"plan":{"version":1,"fingerprint":"f"},"want":{"topology":"a","queues":[{"name":"q"},{"name":"q","arguments":{"x-queue-type":1,"x-max-length":1.5}}],"bindings":[{"destination":"q"}]}}`,
	} {
		f.Add([]byte(s))
	}
	crowded := nothing
	crowded.Have = want.Topology
	crowded.Have.Queues = append(crowded.Have.Queues,
		topology.Queue{
			Name: "a.old", Durable: true,
			Arguments: topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("a")},
		})
	crowded.Have.Policies = append(crowded.Have.Policies,
		topology.Policy{Name: "p", Pattern: ".*", ApplyTo: "all", Definition: topology.Arguments{"max-length": int64(1)}})
	// Names that another user of the virtual host may choose, to attack a terminal or a CI runner.
	evil := "\x1b[2J\r\n::error::`|<b>\u202e"
	for _, mark := range []topology.Arguments{
		{topology.ArgManagedBy: topology.OwnerMark("a")},
		{topology.ArgManagedBy: topology.OwnerMark(want.Name)},
	} {
		crowded.Have.Queues = append(crowded.Have.Queues,
			topology.Queue{Name: mark.String() + evil, Durable: true, Arguments: mark.With(evil, evil)})
	}
	crowded.Have.Exchanges = append(crowded.Have.Exchanges, topology.Exchange{Name: evil, Type: evil})
	crowded.Have.Bindings = append(crowded.Have.Bindings,
		topology.Binding{
			Source: evil, Destination: "billing", DestinationType: topology.ToQueue, Key: evil,
			Arguments: topology.Arguments{evil: evil},
		})
	crowded.Have.Policies = append(crowded.Have.Policies,
		topology.Policy{
			Name: evil, Pattern: "^billing$", ApplyTo: "queues", Priority: 1,
			Definition: topology.Arguments{"max-length": evil, "overflow": evil},
		})
	crowded.Have.Sort()
	crowded.Version, crowded.Cluster = evil, evil
	crowded.QueuePolicies = map[string]string{"billing": evil, "q": evil}
	crowded.Alarm = "memory" // oneLine has read it
	crowded.Usage = map[string]topology.Usage{"billing": {Ready: 1, Consumers: 2}, "a.old": {Ready: 3}}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := planview.ReadSaved(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, state := range []topology.State{nothing, crowded} {
			p := plan.Make(s.Want, state, s.Options)
			plan.Rights(p)
			_ = plan.Check(p, s.Options.Allow)
			if s.Check(p) == nil && s.Fingerprint != p.Fingerprint {
				t.Error("another plan passes for it")
			}
			var text, markdown, out bytes.Buffer
			if err := planview.WriteText(&text, p, planview.TextOptions{Verbose: true}); err != nil {
				t.Error(err)
			}
			if err := planview.WriteMarkdown(&markdown, p, ""); err != nil {
				t.Error(err)
			}
			for _, shown := range []string{text.String(), markdown.String()} {
				if i := strings.IndexFunc(shown, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("it shows what no line may hold: %q", shown[max(0, i-100):min(len(shown), i+100)])
				}
				if strings.Contains(shown, "\n::error") {
					t.Errorf("a name makes a line of its own: %q", shown)
				}
			}
			if err := planview.Save(&out, p, s.Want, s.Source, s.Options, "dev", ""); err != nil {
				t.Fatal(err)
			}
			one := out.String()
			again, err := planview.ReadSaved(&out)
			var two strings.Builder
			if err := planview.Save(&two, p, again.Want, again.Source, again.Options, "dev", ""); err != nil {
				t.Fatal(err)
			}
			if err != nil || one != two.String() || again.Fingerprint != p.Fingerprint {
				t.Errorf("saved and read again it is another: %v\n%s\n%s", err, one, two.String())
			}
		}
	})
}
