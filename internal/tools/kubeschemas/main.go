// Command kubeschemas writes the JSON schemas with which scripts/helm checks objects of
// Kubernetes. It takes them from the sources of Kubernetes and of the Prometheus operator, which
// the go command downloads, and closes each object: a key that is not in a schema is an error.
//
//	go run ./internal/tools/kubeschemas testdata/kubernetes
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	kubernetes = "k8s.io/kubernetes@v1.37.2"
	operator   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// kinds are the definitions of Kubernetes, by what kubeconform calls their files.
var kinds = map[string]string{
	"configmap-v1":                  "io.k8s.api.core.v1.ConfigMap",
	"cronjob-batch-v1":              "io.k8s.api.batch.v1.CronJob",
	"deployment-apps-v1":            "io.k8s.api.apps.v1.Deployment",
	"poddisruptionbudget-policy-v1": "io.k8s.api.policy.v1.PodDisruptionBudget",
	"secret-v1":                     "io.k8s.api.core.v1.Secret",
}

// resources are the plural names of the kinds of the Prometheus operator.
var resources = map[string]string{
	"podmonitor-monitoring-v1":     "podmonitors",
	"prometheusrule-monitoring-v1": "prometheusrules",
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschemas:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	var swagger struct {
		Definitions map[string]any `json:"definitions"`
	}
	data, err := read(kubernetes, "api/openapi-spec/swagger.json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &swagger); err != nil {
		return err
	}
	// These are strings or numbers, which the swagger file cannot say.
	const unit = "io.k8s.apimachinery.pkg."
	swagger.Definitions[unit+"util.intstr.IntOrString"] = map[string]any{"type": []any{"string", "integer"}}
	swagger.Definitions[unit+"api.resource.Quantity"] = map[string]any{"type": []any{"string", "number"}}
	for file, name := range kinds {
		used := map[string]any{}
		collect(map[string]any{"$ref": "#/definitions/" + name}, swagger.Definitions, used)
		schema := map[string]any{"$ref": "#/definitions/" + name, "definitions": used}
		if err := write(dir, file, kubernetes, schema); err != nil {
			return err
		}
	}
	for file, name := range resources {
		data, err := read(operator, "example/prometheus-operator-crd/monitoring.coreos.com_"+name+".yaml")
		if err != nil {
			return err
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						Schema map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return err
		}
		if err := write(dir, file, operator, crd.Spec.Versions[0].Schema.Schema); err != nil {
			return err
		}
	}
	return nil
}

// read returns a file of a module.
func read(module, file string) ([]byte, error) {
	out, err := exec.CommandContext(context.Background(), "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	var where struct{ Dir string }
	if err := json.Unmarshal(out, &where); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(where.Dir, filepath.FromSlash(file)))
}

// collect adds the definitions to which a schema refers.
func collect(schema any, definitions, used map[string]any) {
	switch schema := schema.(type) {
	case map[string]any:
		if ref, ok := schema["$ref"].(string); ok {
			if name := path.Base(ref); used[name] == nil {
				used[name] = definitions[name]
				collect(definitions[name], definitions, used)
			}
		}
		for _, v := range schema {
			collect(v, definitions, used)
		}
	case []any:
		for _, v := range schema {
			collect(v, definitions, used)
		}
	}
}

// write writes a schema without its texts, and closed, and says where it is from.
func write(dir, file, module string, schema map[string]any) error {
	closed(schema)
	schema["$comment"] = "changed from " + module + " (Apache-2.0) by internal/tools/kubeschemas"
	data, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file+".json"), append(data, '\n'), 0o644)
}

// closed removes what is for people and for Kubernetes alone, and refuses unknown keys. The
// metadata of the Prometheus operator has none: it stays open.
func closed(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		for _, key := range slices.Collect(maps.Keys(schema)) {
			if _, text := schema[key].(string); text && key == "description" || strings.HasPrefix(key, "x-kubernetes-") {
				delete(schema, key)
			}
		}
		if _, known := schema["properties"].(map[string]any); known && schema["additionalProperties"] == nil {
			schema["additionalProperties"] = false
		}
		for _, v := range schema {
			closed(v)
		}
	case []any:
		for _, v := range schema {
			closed(v)
		}
	}
}
