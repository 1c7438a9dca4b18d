package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// setup is how a template runs the processor.
type setup struct {
	args         []string
	env          map[string]string
	patience     time.Duration // how long it is waited for after a signal
	health, live string        // paths of the probes; empty if there are none
	user         int64
}

func fromSystemd(t *testing.T) setup {
	t.Helper()
	data, err := os.ReadFile("templates/systemd/dlxctl.service")
	if err != nil {
		t.Fatal(err)
	}
	s := setup{env: map[string]string{}}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "Environment":
			name, v, _ := strings.Cut(value, "=")
			s.env[name] = v
		case "ExecStart":
			s.args = strings.Fields(value)[1:]
		case "TimeoutStopSec":
			if s.patience, err = time.ParseDuration(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func fromKubernetes(t *testing.T) setup {
	t.Helper()
	data, err := os.ReadFile("templates/kubernetes/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Grace    int64 `yaml:"terminationGracePeriodSeconds"`
					Security struct {
						User int64 `yaml:"runAsUser"`
					} `yaml:"securityContext"`
					Containers []struct {
						Args  []string
						Env   []struct{ Name, Value string }
						Ports []struct {
							Name string
							Port string `yaml:"containerPort"`
						}
						Liveness  probe `yaml:"livenessProbe"`
						Readiness probe `yaml:"readinessProbe"`
					}
				}
			}
		}
	}
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	s := setup{
		args: c.Args, env: map[string]string{}, patience: time.Duration(pod.Grace) * time.Second, user: pod.Security.User,
		health: c.Readiness.HTTPGet.Path, live: c.Liveness.HTTPGet.Path,
	}
	for _, e := range c.Env {
		s.env[e.Name] = e.Value
	}
	if port := c.Ports[0]; ":"+port.Port != s.env["DLXCTL_LISTEN"] || c.Readiness.HTTPGet.Port != port.Name || c.Liveness.HTTPGet.Port != port.Name {
		t.Error("probes, port and DLXCTL_LISTEN do not fit each other")
	}
	return s
}

// The processor runs as the templates for systemd and Kubernetes say: it becomes
// ready, its probes answer, and after SIGTERM it ends well within the time that it
// is given.
func TestTheTemplatesRun(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(*testing.T) setup{"systemd": fromSystemd, "kubernetes": fromKubernetes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t)
			grace, err := time.ParseDuration(s.env["DLXCTL_GRACE"])
			if err != nil || s.patience < grace+8*time.Second {
				t.Errorf("it is killed after %s, and wants %s and 8 seconds more (%v)", s.patience, grace, err)
			}
			target := brokertest.VHost(t)
			topology := file(t, alerted)
			start(t, target, "apply", "--yes", "-f", topology).exits(t, 0)
			p := command(t, target, s.args...)
			for name, value := range s.env {
				switch name {
				case "DLXCTL_FILE":
					value = topology
				case "DLXCTL_LISTEN":
					value = "127.0.0.1:0"
				}
				p.Env = append(p.Env, name+"="+value)
			}
			p.begin(t)
			var address string
			eventually(t, "the address", func() bool {
				if found := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(p.stderr.String()); found != nil {
					address = found[1]
				}
				return address != ""
			})
			for _, path := range []string{s.health, s.live} {
				if path != "" {
					eventually(t, path, func() bool { return strings.HasPrefix(get(t, address, path), "200 ok") })
				}
			}
			if s.health == "" {
				eventually(t, "it to be ready", func() bool { return strings.HasPrefix(get(t, address, "/readyz"), "200 ok") })
			}
			p.signal(t, syscall.SIGTERM)
			p.exits(t, 0)
		})
	}
}

// The image's user is the one that Kubernetes is told, its port the one that is
// listened on, and the program is where the entry point says.
func TestTheImageFitsTheManifests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	s := fromKubernetes(t)
	for _, want := range []string{
		"FROM scratch\n", "USER 65532:65532\n", "EXPOSE " + strings.TrimPrefix(s.env["DLXCTL_LISTEN"], ":") + "\n",
		"COPY --from=build /dlxctl /dlxctl\n", "ENTRYPOINT [\"/dlxctl\"]\n", "CGO_ENABLED=0 go build",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the Dockerfile does not say %q", want)
		}
	}
	if s.user != 65532 {
		t.Errorf("Kubernetes runs it as %d", s.user)
	}
	if dir := filepath.Dir(s.env["DLXCTL_FILE"]); dir != "/etc/dlxctl" {
		t.Errorf("the topology is looked for in %s", dir)
	}
}
