package e2e_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// The chart of Kubernetes makes the pods of the plain manifests, and has what is around them. What
// it renders is in a file that scripts/helm writes, and that is of the chart as it is now.
func TestTheChart(t *testing.T) {
	t.Parallel()
	rendered, err := os.ReadFile("../testdata/helm/rendered.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = filepath.WalkDir("../templates/helm/dlxctl", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(data)
	}
	if head := fmt.Sprintf("# The chart with the sum %x, ", sum.Sum(nil)); !strings.HasPrefix(string(rendered), head) {
		t.Error("the chart has changed: run scripts/helm --update, and read the diff")
	}

	kinds := map[string]int{}
	var chart, plain map[string]any
	for d := yaml.NewDecoder(strings.NewReader(string(rendered))); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprint(o["apiVersion"], " ", o["kind"])
		if kinds[kind]++; o["kind"] == "Deployment" {
			chart = o["spec"].(map[string]any)
		}
	}
	want := map[string]int{
		"apps/v1 Deployment": 1, "policy/v1 PodDisruptionBudget": 1, "v1 Secret": 1, "v1 ConfigMap": 2,
		"monitoring.coreos.com/v1 PodMonitor": 1, "monitoring.coreos.com/v1 PrometheusRule": 1,
	}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Errorf("the objects (-want +got):\n%s", d)
	}
	readYAML(t, "../templates/kubernetes/deployment.yaml", false, &plain)
	plain = plain["spec"].(map[string]any)
	if d := cmp.Diff(text(t, plain["strategy"]), text(t, chart["strategy"])); d != "" {
		t.Errorf("how it is rolled out (-plain +chart):\n%s", d)
	}
	if plain["replicas"] != chart["replicas"] {
		t.Errorf("%v replicas, and %v in the plain manifests", chart["replicas"], plain["replicas"])
	}
	pods := func(spec map[string]any) string {
		return text(t, spec["template"].(map[string]any)["spec"])
	}
	// The chart names objects by its release, which is shop, and the image by its registry.
	same := strings.NewReplacer(
		"app.kubernetes.io/instance: shop\n", "", "imagePullPolicy: IfNotPresent\n", "",
		"ghcr.io/dlxctl/dlxctl:0.1.0", "dlxctl:latest", "name: shop-topology", "name: dlxctl-topology",
		"name: shop\n", "name: dlxctl\n")
	if d := cmp.Diff(lines(pods(plain)), lines(same.Replace(pods(chart)))); d != "" {
		t.Errorf("the pods (-plain +chart):\n%s", d)
	}
}

// text returns a value as YAML with sorted keys.
func text(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lines returns the lines of a text, without margins.
func lines(s string) []string {
	all := strings.Split(s, "\n")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
