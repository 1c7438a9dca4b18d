package e2e_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// setup is how a template runs the processor.
type setup struct {
	args         []string
	env          map[string]string
	stopTimeout  time.Duration // between SIGTERM and SIGKILL
	health, live string        // paths of the probes; empty if there are none
	watchdog     time.Duration // after which systemd restarts it; zero if nothing does
	user         int64
}

func fromSystemd(t *testing.T) setup {
	t.Helper()
	data, err := os.ReadFile("../templates/systemd/dlxctl.service")
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
		case "WatchdogSec":
			if s.watchdog, err = time.ParseDuration(value); err != nil {
				t.Fatal(err)
			}
		case "TimeoutStopSec":
			if s.stopTimeout, err = time.ParseDuration(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func fromKubernetes(t *testing.T) setup {
	t.Helper()
	data, err := os.ReadFile("../templates/kubernetes/deployment.yaml")
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
		args: c.Args, env: map[string]string{}, stopTimeout: time.Duration(pod.Grace) * time.Second, user: pod.Security.User,
		health: c.Readiness.HTTPGet.Path, live: c.Liveness.HTTPGet.Path,
	}
	for _, e := range c.Env {
		s.env[e.Name] = e.Value
	}
	port := c.Ports[0]
	if ":"+port.Port != s.env["DLXCTL_LISTEN"] {
		t.Errorf("the container port is %s, but DLXCTL_LISTEN is %s", port.Port, s.env["DLXCTL_LISTEN"])
	}
	if c.Readiness.HTTPGet.Port != port.Name || c.Liveness.HTTPGet.Port != port.Name {
		t.Errorf("the probes %+v and %+v do not use the port %s", c.Readiness, c.Liveness, port.Name)
	}
	return s
}

// The processor runs with the settings of the templates for systemd and Kubernetes: it becomes
// ready, its probes answer, and after SIGTERM it ends before the template's timeout.
func TestTheTemplatesRun(t *testing.T) {
	brokertest.OnNewestLine(t)
	needsLine(t, "4.3") // for engine: native
	t.Parallel()
	for name, load := range map[string]func(*testing.T) setup{"systemd": fromSystemd, "kubernetes": fromKubernetes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := load(t)
			grace, err := time.ParseDuration(s.env["DLXCTL_GRACE"])
			if err != nil || s.stopTimeout < grace+11*time.Second {
				t.Errorf("the template kills it after %s, less than its grace period of %s and 11 seconds more (%v)", s.stopTimeout,
					grace, err)
			}
			target := brokertest.VHost(t)
			topology := writeTopology(t, alerted)
			if name == "kubernetes" { // two config maps, as for a topology of more than 1 MiB
				topology = mounted(t, map[string]string{
					"topology.yaml": alerted, "more.yaml": "version: 1\nqueues: [{name: more, backoff: hourly, deliveryLimit: 20}]\n",
				})
			}
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
			said := func(string) {}
			if s.watchdog > 0 {
				said = hearNotifications(t, p, s.watchdog)
			}
			p.begin(t)
			if s.health == "" { // systemd probes nothing
				s.health = "/readyz"
			}
			said("WATCHDOG=1")
			said("READY=1")
			for _, path := range []string{s.health, s.live} {
				if path != "" {
					p.answers(t, path)
				}
			}
			p.signal(t, syscall.SIGTERM)
			said("STOPPING=1")
			p.exits(t, 0)
		})
	}
}

// hearNotifications lets a process say to the test what it would say to systemd, and returns what
// waits for one text.
func hearNotifications(t *testing.T, p *process, watchdog time.Duration) (said func(string)) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	from, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = from.Close() })
	p.Env = append(p.Env, "NOTIFY_SOCKET="+socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))
	return func(want string) {
		t.Helper()
		if err := from.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				t.Fatalf("systemd does not hear %s: %v", want, err)
			}
			if string(buffer[:n]) == want {
				return
			}
		}
	}
}

// The image contains the program and the certificates only. Its user is the one of the Kubernetes
// template, and its port the one on which the processor listens there.
func TestTheImageFitsTheManifests(t *testing.T) {
	t.Parallel()
	s := fromKubernetes(t)
	instructions := dockerfile(t)
	last := slices.IndexFunc(instructions, func(line string) bool { return line == "FROM scratch" })
	if last < 0 {
		t.Fatalf("no stage starts from scratch:\n%s", strings.Join(instructions, "\n"))
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
	if dir := s.env["DLXCTL_FILE"]; dir != "/etc/dlxctl" {
		t.Errorf("the template expects the topology files in %s", dir)
	}
}

// The program of the image needs no loader and no library, and prints its version.
func TestTheProgramOfTheImageIsStatic(t *testing.T) {
	brokertest.OnNewestLine(t)
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
		build.Dir = ".."
		build.Env = append(os.Environ(), "VERSION=v1.2.3-image", "COMMIT=0123456789abcdef", "DATE=2026-01-02T03:04:05Z")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, said)
		}
	}
	if !built {
		t.Fatal("the Dockerfile does not run go build")
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
	if said, err := run.CombinedOutput(); err != nil || !strings.Contains(string(said), "v1.2.3-image (commit 0123456789ab of 2026-01-02T03:04:05Z, go") {
		t.Errorf("the program prints %q (%v), not its version and commit", said, err)
	}
}

// Docker compose starts a broker, then applies, then runs what needs the topology. Each command and
// each flag exists. No Docker runs it here.
func TestComposeFits(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../templates/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
			Volumes     []string
			Ports       []string
			ReadOnly    bool   `yaml:"read_only"`
			Network     string `yaml:"network_mode"`
			Restart     string
			Stop        time.Duration `yaml:"stop_grace_period"`
			Health      struct {
				Test              []string
				Interval, Timeout time.Duration
				Retries           int
			} `yaml:"healthcheck"`
			After map[string]struct{ Condition string } `yaml:"depends_on"`
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	after := map[string]string{
		"apply":     "map[rabbitmq:{service_healthy}]",
		"processor": "map[apply:{service_completed_successfully}]", "desk": "map[apply:{service_completed_successfully}]",
	}
	if len(c.Services) != 4 || c.Services["rabbitmq"].Health.Retries == 0 {
		t.Errorf("the services are %+v", c.Services)
	}
	for name, want := range after {
		s := c.Services[name]
		if got := fmt.Sprint(s.After); got != want || !s.ReadOnly {
			t.Errorf("%s waits for %s, and its root is read-only: %t", name, got, s.ReadOnly)
		}
		if len(s.Volumes) != 1 || s.Volumes[0] != "./topology:"+s.Environment["DLXCTL_FILE"]+":ro" {
			t.Errorf("%s has the volumes %q and reads %s", name, s.Volumes, s.Environment["DLXCTL_FILE"])
		}
		help := exec.CommandContext(t.Context(), "dlxctl", append(s.Command, "--help")...)
		if said, err := help.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", s.Command, err, said)
		}
	}
	if c.Services["processor"].Stop < 38*time.Second {
		t.Errorf("the processor is killed after %s", c.Services["processor"].Stop)
	}
}

// dockerfile returns the instructions of the Dockerfile, each on one line.
func dockerfile(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../Dockerfile")
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
