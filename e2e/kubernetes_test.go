package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// labels are those of an object of Kubernetes, or what selects by them.
type labels map[string]string

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

// kubernetesObject is what each file has at its top.
type kubernetesObject struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels labels
	}
}

// manifest reads a template of Kubernetes into v, and fails for a key that v does not have.
func manifest(t *testing.T, file string, v any) {
	t.Helper()
	data, err := os.ReadFile("../templates/kubernetes/" + file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The templates of Kubernetes fit together: what selects pods selects those of the deployment, one
// of them may be evicted, and Prometheus scrapes the port on which they listen.
func TestTheManifestsFitTogether(t *testing.T) {
	t.Parallel()
	var deployment struct {
		Spec struct {
			Replicas int
			Selector selector
			Template struct {
				Metadata struct{ Labels labels }
				Spec     struct {
					Spread []struct {
						MaxSkew       int      `yaml:"maxSkew"`
						Key           string   `yaml:"topologyKey"`
						Unsatisfiable string   `yaml:"whenUnsatisfiable"`
						Selector      selector `yaml:"labelSelector"`
					} `yaml:"topologySpreadConstraints"`
					Containers []struct{ Ports []struct{ Name string } }
				}
			}
		}
	}
	data, err := os.ReadFile("../templates/kubernetes/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &deployment); err != nil {
		t.Fatal(err)
	}
	var budget struct {
		kubernetesObject `yaml:",inline"`
		Spec             struct {
			MinAvailable int    `yaml:"minAvailable"`
			Unhealthy    string `yaml:"unhealthyPodEvictionPolicy"`
			Selector     selector
		}
	}
	manifest(t, "disruption.yaml", &budget)
	var monitor struct {
		kubernetesObject `yaml:",inline"`
		Spec             struct {
			Selector  selector
			Endpoints []struct{ Port, Path, Interval string } `yaml:"podMetricsEndpoints"`
		}
	}
	manifest(t, "podmonitor.yaml", &monitor)

	pods := deployment.Spec.Template.Metadata.Labels
	spread := deployment.Spec.Template.Spec.Spread
	if len(pods) == 0 || len(spread) != 1 || len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("labels %v, spread %v, endpoints %v", pods, spread, monitor.Spec.Endpoints)
	}
	for what, s := range map[string]selector{
		"deployment": deployment.Spec.Selector, "budget": budget.Spec.Selector, "monitor": monitor.Spec.Selector,
		"spread": spread[0].Selector,
	} {
		if d := cmp.Diff(pods, s.MatchLabels); d != "" {
			t.Errorf("the selector of the %s (-pods +selector):\n%s", what, d)
		}
	}
	if n := budget.Spec.MinAvailable; n < 1 || n >= deployment.Spec.Replicas || budget.Spec.Unhealthy != "AlwaysAllow" {
		t.Errorf("of %d replicas %d must stay, and unhealthy ones: %s", deployment.Spec.Replicas, n, budget.Spec.Unhealthy)
	}
	if spread[0].Key != "kubernetes.io/hostname" || spread[0].MaxSkew != 1 || spread[0].Unsatisfiable != "ScheduleAnyway" {
		t.Errorf("the replicas are spread by %+v", spread[0])
	}
	if port := deployment.Spec.Template.Spec.Containers[0].Ports[0].Name; monitor.Spec.Endpoints[0].Port != port {
		t.Errorf("Prometheus scrapes the port %s, not %s", monitor.Spec.Endpoints[0].Port, port)
	}
	if budget.APIVersion != "policy/v1" || budget.Kind != "PodDisruptionBudget" ||
		monitor.APIVersion != "monitoring.coreos.com/v1" || monitor.Kind != "PodMonitor" {
		t.Errorf("the kinds are %+v and %+v", budget.kubernetesObject, monitor.kubernetesObject)
	}
}

// The kustomization lists files that there are, and makes the config map that the pods mount. It
// names the files that it does not list.
func TestTheKustomizationFits(t *testing.T) {
	t.Parallel()
	var k struct {
		kubernetesObject `yaml:",inline"`
		Resources        []string
		Maps             []struct {
			Name  string
			Files []string
		} `yaml:"configMapGenerator"`
	}
	manifest(t, "kustomization.yaml", &k)
	text, err := os.ReadFile("../templates/kubernetes/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../templates/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(k.Resources) < 2 || len(files) < 5 || len(k.Maps) != 1 {
		t.Fatalf("the resources %q of the files %q, and the config maps %v", k.Resources, files, k.Maps)
	}
	for _, r := range k.Resources {
		if _, err := os.Stat("../templates/kubernetes/" + r); err != nil {
			t.Error(err)
		}
	}
	for _, f := range files {
		if name := filepath.Base(f); name != "kustomization.yaml" && !strings.Contains(string(text), "- "+name) {
			t.Errorf("the kustomization does not name %s", name)
		}
	}
	for _, file := range []string{"deployment.yaml", "verify.yaml"} {
		data, err := os.ReadFile("../templates/kubernetes/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if volume := fmt.Sprintf("- configMap: {name: %s}\n", k.Maps[0].Name); !strings.Contains(string(data), volume) {
			t.Errorf("%s does not mount it:\n%s", file, data)
		}
	}
}

// mounted lays files out as Kubernetes does with those of a projected volume, each of a config map
// of its own: links to a folder that is swapped as a whole.
func mounted(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	version := filepath.Join(dir, "..2026_11_24")
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(version), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		writeTo(t, filepath.Join(version, name), text)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
