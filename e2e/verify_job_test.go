package e2e_test

import (
	"os"
	"regexp"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The job of the template for Kubernetes runs, and fails where no processor does.
func TestTheJobThatVerifiesRuns(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	var job struct {
		Spec struct {
			Job struct {
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct {
								Args []string
								Env  []struct{ Name, Value string }
							}
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	data, err := os.ReadFile("../templates/kubernetes/verify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &job); err != nil {
		t.Fatal(err)
	}
	c := job.Spec.Job.Spec.Template.Spec.Containers[0]
	target, file := brokertest.VHost(t), writeTopology(t, verifyFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	p := command(t, target, c.Args...)
	for _, e := range c.Env {
		if e.Name == "DLXCTL_FILE" {
			e.Value = file
		}
		p.Env = append(p.Env, e.Name+"="+e.Value)
	}
	p.begin(t)
	p.exits(t, 2)
	// A busy broker may be late to say that no processor consumes: then the canary shows it.
	out := p.stdout.String()
	if !regexp.MustCompile(`problem (no-processor|processor): no processor is consuming`).MatchString(out) {
		t.Errorf("the job prints\n%s", out)
	}
}
