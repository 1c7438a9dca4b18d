package e2e_test

import (
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The job of the template for Kubernetes runs, and fails where no processor does.
func TestTheJobThatVerifiesRuns(t *testing.T) {
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
	if out := p.stdout.String(); !strings.Contains(out, "problem no-processor: ") {
		t.Errorf("the job prints\n%s", out)
	}
}
