package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// The image holds the program, the certificates and nothing else. Its user is the one
// that Kubernetes is told, its port the one that is listened on.
func TestTheImageFitsTheManifests(t *testing.T) {
	t.Parallel()
	s := fromKubernetes(t)
	instructions := dockerfile(t)
	last := slices.IndexFunc(instructions, func(line string) bool { return line == "FROM scratch" })
	if last < 0 {
		t.Fatalf("no stage begins from nothing:\n%s", strings.Join(instructions, "\n"))
	}
	want := []string{
		"FROM scratch",
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt",
		"COPY --from=build /dlxctl /dlxctl",
		fmt.Sprintf("USER %d:%d", s.user, s.user),
		"EXPOSE " + strings.TrimPrefix(s.env["DLXCTL_LISTEN"], ":"),
		`ENTRYPOINT ["/dlxctl"]`,
		`CMD ["process"]`,
	}
	if d := cmp.Diff(want, instructions[last:]); d != "" {
		t.Errorf("the image (-want +got):\n%s", d)
	}
	if s.user == 0 || len(s.args) == 0 || s.args[0] != "process" {
		t.Errorf("Kubernetes runs %q as %d", s.args, s.user)
	}
	if dir := filepath.Dir(s.env["DLXCTL_FILE"]); dir != "/etc/dlxctl" {
		t.Errorf("the topology is looked for in %s", dir)
	}
}

// The program that the image is built with runs where there is nothing else: it asks
// for no loader and no library. It knows its version.
func TestTheProgramOfTheImageStandsAlone(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "dlxctl")
	built := false
	for _, line := range dockerfile(t) {
		command, isRun := strings.CutPrefix(line, "RUN ")
		if !isRun || !strings.Contains(command, "go build") {
			continue
		}
		built = true
		build := exec.CommandContext(t.Context(), "sh", "-ec", strings.Replace(command, "-o /dlxctl ", "-o "+out+" ", 1))
		build.Env = append(os.Environ(), "VERSION=v1.2.3-image")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, said)
		}
	}
	if !built {
		t.Fatal("the Dockerfile builds nothing")
	}
	program, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs the libraries %q (%v)", libraries, err)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("it needs a loader")
	}
	run := exec.CommandContext(t.Context(), out, "version")
	run.Env = []string{"PATH="} // as in the image
	if said, err := run.CombinedOutput(); err != nil || !strings.Contains(string(said), "v1.2.3-image") {
		t.Errorf("it says %q (%v)", said, err)
	}
}

// dockerfile gives the instructions of the Dockerfile, each on one line.
func dockerfile(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var instructions []string
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", "")) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			instructions = append(instructions, line)
		}
	}
	return instructions
}
