package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/cmd"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// Topology files.

// compiled returns what a topology file compiles to.
func compiled(tb testing.TB, text string) topology.Compiled {
	tb.Helper()
	return spectest.Compile(tb, text)
}

// writeTopology writes a topology file to a folder of its own and returns its path.
func writeTopology(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.yaml")
	writeTo(t, path, text)
	return path
}

// manyQueues writes a topology file with the queues q<from> to q<to-1>.
func manyQueues(t *testing.T, name string, from, to int) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: %s\ndefaults: {type: classic, backoff: quick}\nbackoff: {quick: {tiers: [1s, 1m]}}\n", name)
	fmt.Fprintf(&b, "exchanges: [{name: %[1]s.events, type: direct}]\nqueues:\n", name)
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "  - {name: %[1]s.q%[2]d, dead: shared, bindings: [{exchange: %[1]s.events, key: k%[2]d}]}\n", name,
			i)
	}
	return writeTopology(t, b.String())
}

func writeTo(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// dlxctl within the test binary.

// run runs the program. The broker is the one that the arguments name.
func run(args ...string) (code int, output string) {
	var out bytes.Buffer
	code = cmd.Main(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// dlxctl runs the program as the user of the target.
func dlxctl(target brokertest.Target, args ...string) (code int, output string) {
	return run(append(args, "--url", target.URL, "--api", target.API)...)
}

// needsLine skips a test on lines of RabbitMQ before the one that can do what the test asks of it.
func needsLine(t *testing.T, line string) {
	t.Helper()
	if v := brokertest.VHost(t); !v.AtLeast(line) {
		t.Skipf("RabbitMQ %s cannot do it", v.Version)
	}
}

// succeeds runs the program as the user of the target, checks that it exits with 0 and returns
// its output. A very busy broker may give up the start of a quorum queue: then the program says so,
// and is run again.
func succeeds(t *testing.T, target brokertest.Target, args ...string) string {
	t.Helper()
	code, out := dlxctl(target, args...)
	for tries := 1; code != 0 && tries < 3 && strings.Contains(out, "cluster_not_formed"); tries++ {
		code, out = dlxctl(target, args...)
	}
	if code != 0 {
		t.Fatalf("dlxctl %s exits with %d:\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// dlxctl in a process of its own.

// process is a dlxctl that runs in a process of its own.
type process struct {
	*exec.Cmd
	stdout, stderr output
	ended          chan struct{} // closed when it has ended
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts dlxctl, which TestMain has put into PATH.
func start(t *testing.T, target brokertest.Target, args ...string) *process {
	t.Helper()
	return startIn(t, "", target, args...)
}

// startIn starts dlxctl in a folder.
func startIn(t *testing.T, dir string, target brokertest.Target, args ...string) *process {
	t.Helper()
	p := command(t, target, args...)
	p.Dir = dir
	p.begin(t)
	return p
}

// command returns a dlxctl that is not started yet.
func command(t *testing.T, target brokertest.Target, args ...string) *process {
	t.Helper()
	return commandOf(t, target, exec.CommandContext(t.Context(), "dlxctl", args...))
}

// tolerated is how late a canary of verify may be: the broker of the tests is busy.
const tolerated = "1m"

// commandOf returns a process of any program, with the target in its environment.
func commandOf(t *testing.T, target brokertest.Target, c *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: c, ended: make(chan struct{})}
	p.Env = append(os.Environ(), "RABBITMQ_URL="+target.URL, "RABBITMQ_API_URL="+target.API, "DLXCTL_LATE="+tolerated)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

func (p *process) begin(t *testing.T) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // ProcessState says how it ended
		close(p.ended)
	}()
}

// exits waits until p has ended and checks its exit code.
func (p *process) exits(t *testing.T, code int) {
	t.Helper()
	<-p.ended
	if got := p.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code of %q is %d, not %d\n%s%s", p.Args, got, code, &p.stdout, &p.stderr)
	}
}

// logs waits until p's log contains a text.
func (p *process) logs(t *testing.T, text string) {
	t.Helper()
	brokertest.Eventually(t, fmt.Sprintf("the log of %q to contain %q", p.Args, text), func() bool {
		return strings.Contains(p.stderr.String(), text)
	}, &p.stderr)
}

// address returns the address on which a processor listens, once its log contains it.
func (p *process) address(t *testing.T) string {
	t.Helper()
	logged := regexp.MustCompile(`\baddress=(\S+)|"address":"([^"]+)"`)
	var address string
	brokertest.Eventually(t, fmt.Sprintf("the address of %q", p.Args), func() bool {
		if found := logged.FindStringSubmatch(p.stderr.String()); found != nil {
			address = found[1] + found[2]
		}
		return address != ""
	}, &p.stderr)
	return address
}

// answers waits until a page of a processor says that all is well.
func (p *process) answers(t *testing.T, path string) {
	t.Helper()
	const text = "200 ok" // the status and the body
	address, page := p.address(t), ""
	brokertest.Eventually(t, fmt.Sprintf("%s of %q to answer %q", path, p.Args, text), func() bool {
		page = get(t, address, path)
		return strings.HasPrefix(page, text)
	}, &page, &p.stderr)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%s to %q: %v", s, p.Args, err)
	}
}

// killAfter kills p after a delay and reports false if p ended by itself before.
func (p *process) killAfter(t *testing.T, delay time.Duration) bool {
	t.Helper()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-p.ended:
		return false
	case <-timer.C:
	}
	return p.kill()
}

// kill kills p and reports false if p ended by itself before.
func (p *process) kill() bool {
	_ = p.Process.Kill() // it may have ended just now
	<-p.ended
	return p.ProcessState.ExitCode() == -1
}

// get returns status and body of a page.
func get(t *testing.T, address, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + path) //nolint:noctx // the process ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status[:4] + string(body)
}

// The broker.

// lockFreed is the time within which the broker releases the lock of an apply that was killed or
// lost its connection: the broker first finishes what the connection had asked for.
const lockFreed = "20s"

// putExchange creates a durable topic exchange as another team would.
func putExchange(t *testing.T, target brokertest.Target, name string) {
	t.Helper()
	target.Call(t, "PUT", "exchanges/"+url.PathEscape(target.VHost)+"/"+url.PathEscape(name), durable("topic", nil))
}

// putQueue creates a durable queue as another team would.
func putQueue(t *testing.T, target brokertest.Target, name string, args map[string]any) {
	t.Helper()
	target.Call(t, "PUT", "queues/"+url.PathEscape(target.VHost)+"/"+url.PathEscape(name), durable("", args))
}

// durable returns the body of a request for an exchange, or for a queue if the type is empty.
func durable(exchangeType string, args map[string]any) map[string]any {
	if args == nil {
		args = map[string]any{}
	}
	o := map[string]any{"durable": true, "auto_delete": false, "arguments": args}
	if exchangeType != "" {
		o["type"], o["internal"] = exchangeType, false
	}
	return o
}

// apiProxy returns the URL of a proxy for the management API. It shows each request to intercept,
// and passes it on unless intercept has answered it.
func apiProxy(t *testing.T, api string, intercept func(http.ResponseWriter, *http.Request) (answered bool)) string {
	t.Helper()
	u, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !intercept(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// awaitReady waits until a queue holds a message, and leaves it there. A queue that the broker
// lists may not answer yet, which ends the channel.
func awaitReady(t *testing.T, target brokertest.Target, queue string) {
	t.Helper()
	ch := target.Channel(t)
	brokertest.Eventually(t, "a message in "+queue, func() bool {
		m, ok, err := ch.Get(queue, false)
		if err != nil {
			ch = target.Channel(t)
		}
		return err == nil && ok && m.Nack(false, true) == nil
	})
}
