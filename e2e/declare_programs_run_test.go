package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// write writes and builds the program of a queue and returns its folder.
func (s snippet) write(t *testing.T, target brokertest.Target, topology, lang, queue string) (dir string) {
	t.Helper()
	p := start(t, target, "generate", "args", "-f", topology, "--lang", lang, queue)
	p.exits(t, 0)
	code := p.stdout.String()
	if strings.Count(code, s.work) != 1 {
		t.Fatalf("the program does not contain %q once:\n%s", s.work, code)
	}
	dir = t.TempDir()
	writeTo(t, filepath.Join(dir, s.file), strings.Replace(code, s.work, s.failing, 1))
	args := within(dir, s.build)
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s\n%s", args, err, out, code)
	}
	return dir
}

func within(dir string, args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, "DIR", dir)
	}
	return out
}

// consumer is a running program.
type consumer struct {
	*exec.Cmd
	output output
}

// start starts a consumer, which ends with the test.
func (s snippet) start(t *testing.T, target brokertest.Target, dir string) *consumer {
	t.Helper()
	args := within(dir, s.run)
	p := &consumer{Cmd: exec.CommandContext(t.Context(), args[0], args[1:]...)}
	classes := dir + string(os.PathListSeparator) + os.Getenv("CLASSPATH")
	p.Env = append(os.Environ(), "RABBITMQ_URL="+target.URL, "CLASSPATH="+classes)
	p.Stdout, p.Stderr = &p.output, &p.output
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("%q prints:\n%s", args, &p.output)
		}
	})
	return p
}

// terminate asks the consumer to stop, as supervisors do, and waits until it has.
func (p *consumer) terminate(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()                                                     // its code tells
	if code := p.ProcessState.ExitCode(); code != 0 && code != 143 { // 143: Java, whose hooks cannot change that
		t.Errorf("after SIGTERM the consumer exits with %d", code)
	}
}

// stop kills the consumer: the broker requeues its unacknowledged messages.
func (p *consumer) stop(*testing.T) {
	if p.ProcessState == nil {
		_ = p.Process.Kill()
		_ = p.Wait() // it was killed
	}
}

// awaitConsumer waits until a queue exists and has a consumer.
func awaitConsumer(t *testing.T, target brokertest.Target, queue string) {
	t.Helper()
	conn, err := amqp091.Dial(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	brokertest.Eventually(t, "a consumer of "+queue, func() bool {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil) // closes the channel if there is none
		return err == nil && ch.Close() == nil && q.Consumers > 0
	})
}

// empty reports whether basic.get finds no message.
func empty(t *testing.T, ch *amqp091.Channel, queue string) bool {
	t.Helper()
	m, ok, err := ch.Get(queue, false)
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		if err := m.Nack(false, true); err != nil {
			t.Fatal(err)
		}
	}
	return !ok
}
