package generate_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/topology"
)

// subdomain matches the names that Kubernetes accepts for a resource (RFC 1123).
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// manifestFile is one manifest, as the API server of Kubernetes sees it.
type manifestFile struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec map[string]any `yaml:"spec"`
}

func readManifests(data []byte) ([]manifestFile, error) {
	var out []manifestFile
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	for {
		var m manifestFile
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if m.Kind != "" {
			out = append(out, m)
		}
	}
}

// declaredBy returns the objects that the operator declares for manifests, and what is wrong with
// the manifests by the schemas of the operator.
func declaredBy(data []byte, vhost string) (decoded, error) {
	manifests, err := readManifests(data)
	if err != nil {
		return decoded{}, err
	}
	known, err := schemas("operator")
	if err != nil {
		return decoded{}, err
	}
	var d decoded
	var faults []string
	for _, m := range manifests {
		if name := m.Metadata.Name; len(name) > 253 || !subdomain.MatchString(name) {
			faults = append(faults, fmt.Sprintf("%s has the name %q", m.Kind, name))
		}
		for _, problem := range known[m.Kind].problems(m.Spec) {
			faults = append(faults, fmt.Sprintf("%s %s: %s", m.Kind, m.Metadata.Name, problem))
		}
		if m.APIVersion != "rabbitmq.com/v1beta1" || m.Spec["vhost"] != vhost {
			faults = append(faults, fmt.Sprintf("%s %s: %s in %v", m.Kind, m.Metadata.Name, m.APIVersion, m.Spec["vhost"]))
		}
		arguments, err := args(m.Spec["arguments"])
		if m.Kind == "Policy" {
			arguments, err = args(m.Spec["definition"])
		}
		if err != nil {
			return decoded{}, err
		}
		lower := map[string]any{}
		for name, v := range m.Spec {
			lower[strings.ToLower(name)] = v
		}
		d.labels = append(d.labels, m.Kind+" "+m.Metadata.Name)
		d.add(m.Kind, func(name string) any { return lower[name] }, arguments)
	}
	if len(faults) > 0 {
		return decoded{}, errors.New(strings.Join(faults, "\n"))
	}
	return d, nil
}

func TestOperatorRetainsQueuesAndBringsMessagesLast(t *testing.T) {
	t.Parallel()
	data, missing, err := generate.Operator(shop(t), "/", generate.ClusterReference{Name: "mq", Namespace: "infra"})
	if err != nil || len(missing) > 0 {
		t.Fatal(err, missing)
	}
	manifests, err := readManifests(data)
	if err != nil {
		t.Fatal(err)
	}
	steps, retained, business := map[string]int{}, 0, false
	for _, m := range manifests {
		step := m.Metadata.Labels[generate.StepLabel]
		steps[step]++
		if m.Kind == "Queue" && m.Spec["deletionPolicy"] == "retain" {
			retained++
		}
		if business && step != generate.StepBusiness {
			t.Errorf("%s %s comes after a business binding", m.Kind, m.Metadata.Name)
		}
		business = step == generate.StepBusiness
		reference, _ := m.Spec["rabbitmqClusterReference"].(map[string]any)
		if reference["name"] != "mq" || reference["namespace"] != "infra" {
			t.Errorf("%s %s is for the cluster %v", m.Kind, m.Metadata.Name, reference)
		}
	}
	if steps[generate.StepNet] != 36 || steps[generate.StepBusiness] != 6 || retained != 11 {
		t.Errorf("steps %v, %d queues retained; want 36 and 6, and 11", steps, retained)
	}
}

// The operator declares the manifests of a step in any order.
func TestOperatorAttachesPoliciesBetweenTheOtherSteps(t *testing.T) {
	t.Parallel()
	data, _, err := generate.Operator(byPolicy(t), "/", generate.ClusterReference{Name: "mq"})
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := readManifests(data)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, m := range manifests {
		step := m.Metadata.Labels[generate.StepLabel]
		if (m.Kind == "Policy") != (step == generate.StepPolicies) {
			t.Errorf("%s %s is of the step %s", m.Kind, m.Metadata.Name, step)
		}
		steps = append(steps, step)
	}
	want := []string{generate.StepNet, generate.StepPolicies, generate.StepBusiness}
	if got := slices.Compact(steps); !slices.Equal(got, want) {
		t.Errorf("the steps are %v, want %v", got, want)
	}
}

func TestParseClusterReference(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]generate.ClusterReference{
		"mq": {Name: "mq"}, "infra/mq-1": {Name: "mq-1", Namespace: "infra"},
		"": {}, "/mq": {}, "infra/": {}, "a/b/c": {}, "Upper": {}, "under_score": {},
	} {
		got, err := generate.ParseClusterReference(s)
		if got != want || (err == nil) != (want.Name != "") {
			t.Errorf("ParseClusterReference(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

// The name of a resource is stable: it does not depend on the other objects of the topology.
func TestResourcesInOtherVirtualHostsHaveOtherNames(t *testing.T) {
	t.Parallel()
	one := topology.Compiled{Name: "shop", Topology: topology.Topology{Queues: []topology.Queue{{Name: "billing", Durable: true}}}}
	names := map[string]bool{}
	for _, vhost := range []string{"/", "a", "b"} {
		data, _, err := generate.Operator(one, vhost, generate.ClusterReference{Name: "mq"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := declaredBy(data, vhost)
		if err != nil {
			t.Fatal(err)
		}
		names[d.labels[0]] = true
	}
	if len(names) != 3 || !names["Queue billing"] {
		t.Errorf("the queue has the names %v; want billing for /, and two others", names)
	}
}
