package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// snippet is how a program that generate args prints is built and run.
type snippet struct {
	file string
	// work is the line that a service replaces, and failing is one that fails a message with the body
	// "bad".
	work, failing string
	build, run    []string
}

func snippets() map[string]snippet {
	return map[string]snippet{
		"go": {
			"main.go", "return nil // your work",
			"if string(d.Body) == \"bad\" { return os.ErrInvalid }; return nil // your work",
			[]string{"go", "build", "-o", "DIR/consumer", "DIR/main.go"},
			[]string{"DIR/consumer"},
		},
		"python": {
			"consumer.py", "pass  # your work", "assert body != b'bad'  # your work",
			[]string{"python3", "-m", "py_compile", "DIR/consumer.py"},
			[]string{"python3", "DIR/consumer.py"},
		},
		"node": {
			"consumer.js", "// your work", "if (message.content.toString() === 'bad') throw new Error(); // your work",
			[]string{"node", "--check", "DIR/consumer.js"},
			[]string{"node", "DIR/consumer.js"},
		},
		"java": {
			"Consumer.java", "// your work", "if (new String(body).equals(\"bad\")) throw new Exception(); // your work",
			[]string{"javac", "-d", "DIR", "DIR/Consumer.java"},
			[]string{"java", "Consumer"},
		},
	}
}

// The program that generate args prints runs: it declares its queue before and after apply without
// an error, acknowledges the messages it can process, and rejects the others. The test always runs
// Go. scripts/snippets installs the libraries of the other languages and lists them in
// DLXCTL_TEST_SNIPPETS.
func TestSnippets(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, lang := range append([]string{"go"}, strings.Fields(os.Getenv("DLXCTL_TEST_SNIPPETS"))...) {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			s, ok := snippets()[lang]
			if !ok {
				t.Fatalf("the test has no program for the language %q", lang)
			}
			target := brokertest.VHost(t)
			topology := writeTopology(t, snippetTopology)
			for _, queue := range []string{"billing", "classic", "odd \"name\" \\u000a #{x}"} {
				dir := s.write(t, target, topology, lang, queue)
				first := s.start(t, target, dir) // before apply
				awaitConsumer(t, target, queue)
				first.stop(t)
			}
			start(t, target, "apply", "--yes", "-f", topology).exits(t, 0) // finds nothing blocked
			dir := s.write(t, target, topology, lang, "billing")
			s.start(t, target, dir)
			awaitConsumer(t, target, "billing")
			ch := target.Channel(t)
			for _, body := range []string{"good", "bad", "good"} {
				brokertest.PublishConfirmed(t, ch, "", "billing", amqp091.Publishing{MessageId: body, Body: []byte(body)})
			}
			var failed []string
			brokertest.Eventually(t, "the failed message", func() bool {
				m, ok, err := ch.Get("shop.standard.failed", true)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					failed = append(failed, m.MessageId)
				}
				return len(failed) > 0 && empty(t, ch, "billing")
			}, &failed)
			if len(failed) != 1 || failed[0] != "bad" {
				t.Errorf("the failed messages are %q, not only \"bad\"", failed)
			}
		})
	}
}

const snippetTopology = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1h]}}
queues:
  - {name: billing, deliveryLimit: 5}
  - {name: classic, type: classic, arguments: {x-max-priority: 3, x-single-active-consumer: true}}
  - {name: "odd \"name\" \\u000a #{x}"}
`

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
