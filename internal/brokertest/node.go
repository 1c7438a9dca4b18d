package brokertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scriptTimeout is how long scripts/broker may take. The first call may have to
// install a broker.
const scriptTimeout = 15 * time.Minute

// Server is a node of the test's own.
type Server struct {
	server *server
	target Target
}

// Node starts a node of the test's own, of the same line as the shared one. It
// is stopped, and its data deleted, when the test ends.
func Node(tb testing.TB) *Server {
	tb.Helper()
	return NodeWith(tb)
}

// NodeWith starts a node as [Node] does, with more arguments for "scripts/broker
// start": --set and --env.
func NodeWith(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := start(tb.Context(), args...)
	if err != nil {
		tb.Fatalf("brokertest: no broker: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.remove(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("brokertest: %v", err)
		}
	})
	target, err := connect(tb.Context(), s.url, s.api)
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	return &Server{server: s, target: target}
}

// Fragile starts a node for tests that delete queues while the broker still creates them, and
// returns what makes virtual hosts there. On 3.10.8 that can end the process rabbit_fifo_dlx_sup,
// which the broker does not restart: from then on no queue of the whole node dead-letters at least
// once, and declaring such a queue fails with 541 INTERNAL_ERROR. On 4.3.6 a node that such tests
// shared with others refused quorum queues with cluster_not_formed from then on, on a busy machine.
func Fragile(tb testing.TB) func(testing.TB) Target {
	tb.Helper()
	return Node(tb).VHost
}

// Target returns the virtual host "/" of the node, as its administrator.
func (s *Server) Target() Target {
	password, _ := s.target.admin.Password()
	return s.target.as(s.target.admin.Username(), password)
}

// VHost returns a virtual host of its own. It goes with the node.
func (s *Server) VHost(tb testing.TB) Target {
	tb.Helper()
	return s.target.vhost(tb, "")
}

// Stop stops the node in good order. Its data stays.
func (s *Server) Stop(tb testing.TB) { tb.Helper(); s.do(tb, "halt") }

// Kill stops the node by SIGKILL. Its data stays, with one exception: RabbitMQ
// writes the name of a new quorum queue to disk a second after it said that the
// queue exists, or later while more are made (3.10.8), and forgets the queue's log
// if it is killed before.
func (s *Server) Kill(tb testing.TB) { tb.Helper(); s.do(tb, "kill") }

// Start starts the node again after Stop or Kill, on the same ports and data,
// and waits until it answers.
func (s *Server) Start(tb testing.TB) { tb.Helper(); s.do(tb, "boot") }

// Ctl runs rabbitmqctl against the node.
func (s *Server) Ctl(tb testing.TB, args ...string) { tb.Helper(); s.do(tb, "ctl", args...) }

// Eval evaluates Erlang on the node. It is quicker than rabbitmqctl, which takes seconds of a
// processor to start.
func (s *Server) Eval(tb testing.TB, code string) { tb.Helper(); s.do(tb, "eval", code) }

// Plugin enables a plugin on the node.
func (s *Server) Plugin(tb testing.TB, name string) { tb.Helper(); s.do(tb, "plugin", name) }

// Alarm makes the node raise its memory alarm, upon which it takes no more
// publishings, or clear it.
func (s *Server) Alarm(tb testing.TB, on bool) {
	tb.Helper()
	share := "0.4" // as scripts/broker sets it
	if on {
		share = "0.0"
	}
	s.Eval(tb, "vm_memory_monitor:set_vm_memory_high_watermark("+share+").")
}

func (s *Server) do(tb testing.TB, command string, args ...string) {
	tb.Helper()
	if _, err := script(tb.Context(), append([]string{command, s.server.dir}, args...)...); err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
}

// server is a node that scripts/broker started.
type server struct {
	dir, url, api string
}

// start starts a node that ends with this process at the latest, however that
// ends.
func start(ctx context.Context, more ...string) (*server, error) {
	args := append([]string{"start", "--for", strconv.Itoa(os.Getpid())}, more...)
	if tick != standardTick {
		args = append(args, "--tick", strconv.FormatInt(tick.Milliseconds(), 10))
	}
	if line := os.Getenv(envLine); line != "" {
		args = append(args, "--line", line)
	}
	out, err := script(ctx, args...)
	if err != nil {
		return nil, err
	}
	return read(out), nil
}

// read returns the node that scripts/broker printed.
func read(out []byte) *server {
	values := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		values[name] = value
	}
	return &server{dir: values["BROKER_DIR"], url: values["RABBITMQ_URL"], api: values["RABBITMQ_API_URL"]}
}

func (s *server) remove(ctx context.Context) error {
	_, err := script(ctx, "stop", s.dir)
	return err
}

// script runs scripts/broker and returns what it printed.
func script(ctx context.Context, args ...string) ([]byte, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(root, "scripts", "broker"), args...)
	// A signal lets it stop a node that is just starting.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("scripts/broker %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// repository returns the folder of go.mod, upwards from where the tests run.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the folder of the tests, so scripts/broker cannot be found")
		}
		dir = parent
	}
}
