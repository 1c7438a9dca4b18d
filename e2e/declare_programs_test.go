package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// snippet is how a program that generate args prints is built and run.
type snippet struct {
	file string
	// work is the line that a service replaces. failing is one for a test: it takes a second for the
	// body "slow" and ten for "slower", and fails the bodies "bad", "permanent" and "long", the last
	// with an error text of megabytes. The body "flaky" succeeds the third time alone.
	work, failing string
	// kind and permanent are the types of the errors for "bad" and "permanent", and stack is what a
	// stack shows. Empty: errors have none.
	kind, permanent, stack string
	build, run             []string
}

func snippets() map[string]snippet {
	return map[string]snippet{
		"go": {
			"main.go", "return nil // your work",
			`switch string(d.Body) {
			case "slow":
				println("has begun")
				return syscall.Nanosleep(&syscall.Timespec{Sec: 1}, nil)
			case "slower":
				println("has begun")
				return syscall.Nanosleep(&syscall.Timespec{Sec: 10}, nil)
			case "bad": return fmt.Errorf("bad row 7%w", errors.New(""))
			case "permanent": return Permanent{errors.New("bad row 7")}
			case "flaky":
				times := len(os.Getenv("TIMES")) + 1
				os.Setenv("TIMES", strings.Repeat("x", times))
				if times != 3 { return fmt.Errorf("time %d", times) }
			case "long": return errors.New(strings.Repeat("é", 1<<21)) }
			return nil // your work`,
			"*errors.errorString", "main.Permanent", "",
			[]string{"go", "build", "-o", "DIR/consumer", "DIR/main.go"},
			[]string{"DIR/consumer"},
		},
		"python": {
			"consumer.py", "pass  # your work",
			`import time
    if body == b"slow": print("has begun", flush=True) or time.sleep(1)
    if body == b"slower": print("has begun", flush=True) or time.sleep(10)
    if body == b"bad": raise ValueError("bad row 7")
    if body == b"permanent": raise Permanent("bad row 7")
    if body == b"long": raise ValueError("é" * 2**21)
    if body == b"flaky":
        handle.times = getattr(handle, "times", 0) + 1
        if handle.times != 3: raise ValueError(f"time {handle.times}")
    pass  # your work`,
			"ValueError", "Permanent", "in handle",
			[]string{"python3", "-m", "py_compile", "DIR/consumer.py"},
			[]string{"python3", "DIR/consumer.py"},
		},
		"node": {
			"consumer.js", "// your work",
			`const body = message.content.toString();
			if (body === "slow") await new Promise((resolve) => (console.log("has begun"), setTimeout(resolve, 1000)));
			if (body === "slower") await new Promise((resolve) => (console.log("has begun"), setTimeout(resolve, 10000)));
			if (body === "bad") throw new RangeError("bad row 7");
			if (body === "permanent") throw new Permanent("bad row 7");
			if (body === "flaky") {
				handle.times = (handle.times ?? 0) + 1;
				if (handle.times !== 3) throw new Error("time " + handle.times);
			}
			if (body === "long") throw new Error("é".repeat(2**21)); // your work`,
			"RangeError", "Permanent", "at handle",
			[]string{"node", "--check", "DIR/consumer.js"},
			[]string{"node", "DIR/consumer.js"},
		},
		"java": {
			"Consumer.java", "// your work",
			`switch (new String(body)) {
				case "slow": System.out.println("has begun"); Thread.sleep(1000); break;
				case "slower": System.out.println("has begun"); Thread.sleep(10000); break;
				case "bad": throw new IllegalStateException("bad row 7");
				case "permanent": throw new Permanent("bad row 7", null);
				case "flaky":
					int times = Integer.getInteger("times", 0) + 1;
					System.setProperty("times", "" + times);
					if (times != 3) throw new Exception("time " + times);
					break;
				case "long": throw new Exception("é".repeat(1 << 21)); } // your work`,
			"java.lang.IllegalStateException", "Consumer$Permanent", "Consumer.handle",
			[]string{"javac", "-encoding", "UTF-8", "-d", "DIR", "DIR/Consumer.java"},
			[]string{"java", "Consumer"},
		},
		"elixir": {
			"consumer.ex", "def handle(_payload, _meta), do: :ok",
			`def handle("slow", _), do: (IO.puts("has begun"); Process.sleep(1000))
  def handle("slower", _), do: (IO.puts("has begun"); Process.sleep(10000))
  def handle("bad", _), do: raise(ArgumentError, "bad row 7")
  def handle("permanent", _), do: raise(Permanent, "bad row 7")
  def handle("long", _), do: raise(String.duplicate("é", 2 ** 21))
  def handle("flaky", _) do
    Process.put(:times, Process.get(:times, 0) + 1)
    if Process.get(:times) != 3, do: raise("time #{Process.get(:times)}")
  end
  def handle(_payload, _meta), do: :ok`,
			"ArgumentError", "Permanent", "Consumer.handle",
			[]string{"elixirc", "-o", "DIR", "DIR/consumer.ex"},
			[]string{"elixir", "-pa", "DIR", "-e", "Application.ensure_all_started(:amqp_client); Consumer.run()"},
		},
	}
}

// The program that generate args prints runs with the rights that 'dlxctl rights' prints: it
// declares its queue before and after apply without an error, finds it when a policy has taken over
// its dead-lettering, acknowledges the messages it can process, and says of the others why it
// failed. The test always runs Go. scripts/snippets installs the libraries of the other languages
// and lists them in DLXCTL_TEST_SNIPPETS. Debian does not have Elixir's package amqp: compile it,
// name its folder in ERL_LIBS, and list elixir by hand.
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
			topology, rights := writeTopology(t, snippetTopology), grant(t, snippetTopology, "team")
			user, dir := as(t, target, rights), ""
			for _, queue := range []string{"classic", "odd \"name\" \\u000a #{x}", "billing"} {
				dir = s.write(t, target, topology, lang, queue)
				s.consumes(t, target, user, dir, queue) // before apply
			}
			start(t, target, "apply", "--yes", "-f", topology).exits(t, 0) // finds nothing blocked
			s.consumes(t, target, user, dir, "billing")
			// The queues keep their arguments, and their services the calls that have them.
			policies := writeTopology(t, strings.ReplaceAll(snippetTopology, "owner:", "deadLetterBy: policy, owner:"))
			start(t, target, "apply", "--yes", "-f", policies).exits(t, 0)
			dir = s.write(t, target, policies, lang, "billing")
			s.saysWhy(t, target, s.start(t, user, dir))
			s.skipsDuplicates(t, target, s.start(t, user, dir))
			s.rejectsLargeHeaders(t, target, s.start(t, user, dir))
			alive := user
			alive.URL += "?heartbeat=3"
			s.keepsItsConnection(t, target, func() *consumer { return s.start(t, alive, dir) })
			less := as(t, target, without(rights, right{"write", `shop\.failed`}))
			s.fallsBack(t, target, s.start(t, less, dir)) // 403
			acceptsOnlyRejected(t, target)
			s.fallsBack(t, target, s.start(t, user, dir)) // basic.return
			bindFull(t, target)
			s.fallsBack(t, target, s.start(t, user, dir)) // basic.nack
		})
	}
}

const snippetTopology = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1h]}}
exchanges: [{name: events}]
queues:
  - {name: billing, owner: team, deliveryLimit: 5, bindings: [{exchange: events, key: order}]}
  - {name: classic, owner: team, type: classic, arguments: {x-max-priority: 3, x-single-active-consumer: true}}
  - {name: "odd \"name\" \\u000a #{x}", owner: team}
`

// consumes checks that a program consumes from its queue.
func (s snippet) consumes(t *testing.T, target, user brokertest.Target, dir, queue string) {
	t.Helper()
	p := s.start(t, user, dir)
	awaitConsumer(t, target, queue)
	p.stop(t)
}

// saysWhy checks what a consumer publishes to the failed queue: each failed message, once, as it
// was, with the reason. A publisher's own headers about failures do not count on a first attempt,
// and those of the processor stay on a retry. The consumer finishes what it has begun when it is
// asked to stop, so that nothing is in its queue afterwards.
func (s snippet) saysWhy(t *testing.T, target brokertest.Target, p *consumer) {
	t.Helper()
	awaitConsumer(t, target, "billing")
	ch := target.Channel(t)
	death := []any{amqp091.Table{
		"queue": "shop.standard.retry.1h", "reason": "expired", "count": int64(1), "exchange": "shop.standard.dlx",
		"routing-keys": []any{"order", "@billing"}, "time": time.Unix(1700000000, 0),
	}}
	history := amqp091.Table{
		"x-death": death, "retry-queue": "billing", "retry-exchange": "legacy", "retry-routing-key": "k",
		"retry-error": "of before", "retry-error-type": "Before", "retry-error-stack": "of before",
		"retry-permanent": true, "count": int32(1), "mine": "é", "n": int32(7),
	}
	first := amqp091.Table{"count": int32(1), "mine": "é", "n": int32(7)}
	retried := maps.Clone(first)
	first["retry-exchange"], first["retry-routing-key"] = "events", "order"
	retried["retry-exchange"], retried["retry-routing-key"] = "legacy", "k"
	retried["x-death"], retried["retry-queue"] = death, "billing"
	m := amqp091.Publishing{
		Headers: history, UserId: target.Username, Expiration: "3600000", ContentType: "text/plain",
		ContentEncoding: "utf-8", DeliveryMode: amqp091.Persistent, Priority: 3, CorrelationId: "c", ReplyTo: "r",
		Timestamp: time.Unix(1700000001, 0), Type: "t", AppId: "a",
	}
	send := func(exchange, body string, cc any) {
		m.Body, m.MessageId = []byte(body), exchange+" "+body
		m.Headers["CC"] = []any{cc}
		brokertest.PublishConfirmed(t, ch, exchange, "order", m)
	}
	for _, body := range []string{"good", "bad", "permanent", "long"} {
		send("events", body, "nowhere")
		send("shop.return", body, "@billing")
	}
	got := failed(t, ch, 6)
	for _, exchange := range []string{"events", "shop.return"} {
		headers := first
		if exchange == "shop.return" {
			headers = retried
		}
		for _, body := range []string{"bad", "permanent", "long"} {
			d := got[exchange+" "+body]
			s.check(t, d, body, headers)
			want := fmt.Sprint(m.ContentType, m.ContentEncoding, m.DeliveryMode, m.Priority, m.CorrelationId, m.ReplyTo,
				m.Timestamp, m.Type, m.AppId, "", "")
			if have := fmt.Sprint(d.ContentType, d.ContentEncoding, d.DeliveryMode, d.Priority, d.CorrelationId, d.ReplyTo,
				d.Timestamp.Local(), d.Type, d.AppId, d.UserId, d.Expiration); have != want {
				t.Errorf("the copy of %q has the properties\n%s\nwant\n%s", body, have, want)
			}
		}
	}
	send("events", "slow", "nowhere")
	brokertest.Eventually(t, "the consumer to begin", func() bool {
		return strings.Contains(p.output.String(), "has begun")
	})
	p.terminate(t)
	if !empty(t, ch, "billing") || !empty(t, ch, "shop.standard.failed") {
		t.Error("a message is left after the consumer has stopped")
	}
}

// skipsDuplicates checks that a consumer handles no message again that it has finished, and each
// one that it has not: the retries of a message, which have its message-id, another message with
// the same message-id, and messages without any.
func (s snippet) skipsDuplicates(t *testing.T, target brokertest.Target, p *consumer) {
	t.Helper()
	awaitConsumer(t, target, "billing")
	ch := target.Channel(t)
	send := func(exchange, id, body string) {
		t.Helper()
		m := amqp091.Publishing{MessageId: id, Body: []byte(body), Headers: amqp091.Table{"CC": []any{"@billing"}}}
		brokertest.PublishConfirmed(t, ch, exchange, "order", m) // the key is not bound to shop.return
	}
	fails := func(id, body, text string) {
		t.Helper()
		d := failed(t, ch, 1)[id]
		if d.Headers["retry-error"] != text || string(d.Body) != body {
			t.Errorf("%q failed with %q, want %q with %q", d.Body, d.Headers["retry-error"], body, text)
		}
	}
	send("events", "7", "flaky")
	fails("7", "flaky", "time 1")
	send("shop.return", "7", "flaky") // its retry, which fails too
	fails("7", "flaky", "time 2")
	for range 20 { // the next retry, which succeeds, and duplicates of it at the same time
		send("shop.return", "7", "flaky")
	}
	send("events", "7", "flaky")
	send("events", "7", "bad")
	fails("7", "bad", "bad row 7")
	send("events", "8", "flaky")
	fails("8", "flaky", "time 4")
	for range 2 {
		send("events", "", "flaky")
		failed(t, ch, 1)
	}
	p.terminate(t)
	for _, queue := range []string{"billing", "shop.standard.failed"} {
		if m, ok, err := ch.Get(queue, true); ok || err != nil {
			t.Errorf("the consumer has stopped, and %s has %q (%s), %v", queue, m.Body, m.MessageId, err)
		}
	}
}

// keepsItsConnection checks that a consumer sends heartbeats while a message takes longer than the
// broker waits for them: it finishes the message, which does not come again. A machine that gives
// the consumer no processor for six seconds keeps it from sending one, so that it may try three
// times: without heartbeats each message comes back.
func (s snippet) keepsItsConnection(t *testing.T, target brokertest.Target, start func() *consumer) {
	t.Helper()
	ch := target.Channel(t)
	for try := 1; ; try++ {
		p := start()
		awaitConsumer(t, target, "billing")
		message := amqp091.Publishing{MessageId: fmt.Sprint(try), Body: []byte("slower")}
		brokertest.PublishConfirmed(t, ch, "events", "order", message)
		brokertest.Eventually(t, "the consumer to begin", func() bool {
			return strings.Contains(p.output.String(), "has begun")
		})
		p.terminate(t)
		back := !empty(t, ch, "billing") || !empty(t, ch, "shop.standard.failed")
		switch {
		case !back:
			return
		case try == 3:
			t.Fatal("a message that takes ten seconds came back, three times")
		}
		for _, queue := range []string{"billing", "shop.standard.failed"} {
			if _, err := ch.QueuePurge(queue, false); err != nil { // it holds this message alone
				t.Fatal(err)
			}
		}
	}
}

// check checks the headers of a failed message: those that stay, and the reason.
func (s snippet) check(t *testing.T, d amqp091.Delivery, body string, stay amqp091.Table) {
	t.Helper()
	maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	text, _ := d.Headers["retry-error"].(string)
	kind, _ := d.Headers["retry-error-type"].(string)
	stack, _ := d.Headers["retry-error-stack"].(string)
	cut := len(text) > 900 && len(text) < 4000 && len(stack) < 32000 && strings.Trim(text, "é") == ""
	switch {
	case body == "long" && !cut:
		t.Errorf("a long error is cut to %d bytes, its stack to %d", len(text), len(stack))
	case body == "bad" && (text != "bad row 7" || kind != s.kind),
		body == "permanent" && (text != "bad row 7" || kind != s.permanent || d.Headers["retry-permanent"] != true):
		t.Errorf("%s: the error is %q of type %q in %v", body, text, kind, d.Headers)
	case body != "long" && (s.stack == "" && stack != "" || !strings.Contains(stack, s.stack)):
		t.Errorf("%s: the stack is %q", body, stack)
	}
	for _, name := range []string{"retry-error", "retry-error-type", "retry-error-stack"} {
		delete(d.Headers, name)
	}
	if body == "permanent" {
		delete(d.Headers, "retry-permanent")
	}
	if want, got := fmt.Sprint(stay), fmt.Sprint(d.Headers); want != got || string(d.Body) != body {
		t.Errorf("%q has the headers\n%s\nwant\n%s", d.Body, got, want)
	}
}

// acceptsOnlyRejected replaces the failed exchange by one that routes only what RabbitMQ
// dead-letters, and returns copies that consumers publish.
func acceptsOnlyRejected(t *testing.T, target brokertest.Target) {
	t.Helper()
	ch := target.Channel(t)
	if err := ch.ExchangeDelete("shop.failed", false, false); err != nil {
		t.Fatal(err)
	}
	brokertest.DeclareExchange(t, ch, "shop.failed", "headers", nil)
	rejected := amqp091.Table{"x-match": "all-with-x", "x-first-death-queue": "billing"}
	brokertest.Bind(t, ch, "shop.standard.failed", "", "shop.failed", rejected)
}

// bindFull binds a full queue to the exchange of acceptsOnlyRejected: the broker refuses the
// copies that consumers publish.
func bindFull(t *testing.T, target brokertest.Target) {
	t.Helper()
	ch := target.Channel(t)
	limit := amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}
	brokertest.Declare(t, ch, "full", limit)
	brokertest.PublishConfirmed(t, ch, "", "full", amqp091.Publishing{})
	brokertest.Bind(t, ch, "full", "", "shop.failed", amqp091.Table{"retry-exchange": "events"})
}

// fallsBack checks that a consumer whose copies the broker does not accept rejects the message, and
// goes on.
func (s snippet) fallsBack(t *testing.T, target brokertest.Target, p *consumer) {
	t.Helper()
	awaitConsumer(t, target, "billing")
	ch := target.Channel(t)
	for _, body := range []string{"bad", "good", "bad"} {
		brokertest.PublishConfirmed(t, ch, "events", "order", amqp091.Publishing{MessageId: body, Body: []byte(body)})
		if body == "good" {
			continue
		}
		d := failed(t, ch, 1)["bad"]
		if death, _ := d.Headers["x-death"].([]any); len(death) != 1 || d.Headers["retry-error"] != nil {
			t.Errorf("a message that was rejected has the headers %v", d.Headers)
		}
	}
	p.terminate(t)
	if !empty(t, ch, "billing") || !empty(t, ch, "shop.standard.failed") {
		t.Error("a message is left after the consumer has stopped")
	}
}

// rejectsLargeHeaders checks that a consumer rejects a message whose headers almost fill a frame,
// also with many bytes in few characters: a copy with the reason would end the connection.
func (s snippet) rejectsLargeHeaders(t *testing.T, target brokertest.Target, p *consumer) {
	t.Helper()
	awaitConsumer(t, target, "billing")
	ch := target.Channel(t)
	m := amqp091.Publishing{MessageId: "large", Body: []byte("long")}
	m.Headers = amqp091.Table{"large": strings.Repeat("\u6f22", 42_000)}
	brokertest.PublishConfirmed(t, ch, "events", "order", m)
	d := failed(t, ch, 1)["large"]
	if death, _ := d.Headers["x-death"].([]any); len(death) != 1 || d.Headers["retry-error"] != nil {
		t.Errorf("a message with large headers was not rejected: %v, %v", death, d.Headers["retry-error-type"])
	}
	p.terminate(t)
}

// failed takes n messages out of the failed queue, by their message-ids.
func failed(t *testing.T, ch *amqp091.Channel, n int) map[string]amqp091.Delivery {
	t.Helper()
	got := map[string]amqp091.Delivery{}
	brokertest.Eventually(t, "the failed messages", func() bool {
		d, ok, err := ch.Get("shop.standard.failed", true)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[d.MessageId]; ok && twice {
			t.Errorf("the message %q failed twice", d.MessageId)
		}
		if ok {
			got[d.MessageId] = d
		}
		return len(got) == n
	})
	return got
}
