package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// plugin is the exchange "later" of the plugin for delayed messages. The plugin cannot be had on
// the brokers of the tests. On a broker without it, the exchange is a direct one, and the test
// itself holds what is delayed: a proxy tells of it what the plugin would tell, by its source: the
// type, the argument, and the number of messages. All else is that of the broker. On a broker that
// has the plugin nothing is changed.
type plugin struct {
	target brokertest.Target
	real   bool

	mu     sync.Mutex
	held   int
	silent bool   // it does not tell how many messages it holds
	node   string // another node of the cluster; empty: there is none
}

func newPlugin(t *testing.T, target brokertest.Target) *plugin {
	t.Helper()
	p := &plugin{target: target}
	var o struct {
		Types []struct{ Name string } `json:"exchange_types"`
	}
	if err := json.Unmarshal(target.Call(t, "GET", "overview", nil), &o); err != nil {
		t.Fatal(err)
	}
	for _, have := range o.Types {
		p.real = p.real || have.Name == topology.DelayedMessage
	}
	t.Log("with the plugin itself:", p.real)
	p.declare(t)
	putQueue(t, target, "legacy", nil)
	p.bind(t, "later")
	p.target.API = apiProxy(t, target.API, func(w http.ResponseWriter, r *http.Request) bool {
		nodes, exchanges := strings.HasPrefix(r.URL.Path, "/api/nodes"), strings.HasPrefix(r.URL.Path, "/api/exchanges/")
		if r.Method != http.MethodGet || !nodes && !exchanges {
			return false
		}
		p.answer(w, r, target.API, nodes)
		return true
	})
	return p
}

// declare creates the exchange.
func (p *plugin) declare(t *testing.T) {
	t.Helper()
	kind, args := topology.Direct, map[string]any(nil)
	if p.real {
		kind, args = topology.DelayedMessage, map[string]any{"x-delayed-type": topology.Direct}
	}
	p.target.Call(t, "PUT", "exchanges/"+p.target.VHost+"/later", durable(kind, args))
}

func (p *plugin) bind(t *testing.T, from string) {
	t.Helper()
	brokertest.Bind(t, p.target.Channel(t), "legacy", "reminder", from, nil)
}

// answer passes a request on, and changes the answer as p says.
func (p *plugin) answer(w http.ResponseWriter, r *http.Request, api string, nodes bool) {
	req := r.Clone(r.Context())
	req.RequestURI, req.Header["Accept-Encoding"] = "", nil
	req.URL.Scheme, req.URL.Host = "http", strings.TrimPrefix(api, "http://")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if resp.StatusCode == http.StatusOK && decoder.Decode(&value) == nil {
		body, _ = json.Marshal(p.changed(value, nodes))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}

func (p *plugin) changed(value any, nodes bool) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	for _, e := range list {
		e, _ := e.(map[string]any)
		if nodes || e["name"] != "later" {
			continue
		}
		if !p.real && e["type"] == topology.Direct {
			e["type"], e["arguments"] = topology.DelayedMessage, map[string]any{"x-delayed-type": topology.Direct}
			e["messages_delayed"] = p.held
		}
		if p.silent {
			delete(e, "messages_delayed")
		}
	}
	if nodes && p.node != "" {
		return append(list, map[string]any{"name": p.node})
	}
	return value
}

// publish publishes a message to the exchange, which comes to the queue after the delay.
func (p *plugin) publish(t *testing.T, id string, delay time.Duration) {
	t.Helper()
	ch, m := p.target.Confirming(t), amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent}
	if p.real {
		m.Headers = amqp091.Table{"x-delay": delay.Milliseconds()}
		brokertest.PublishConfirmed(t, ch, "later", "reminder", m)
		return
	}
	p.add(1)
	time.AfterFunc(delay, func() {
		_ = brokertest.Publish(t.Context(), ch, "later", "reminder", m) // the test misses it otherwise
		p.add(-1)
	})
}

func (p *plugin) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += n
}

func (p *plugin) set(silent bool, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent, p.node = silent, node
}

// exists reports whether the exchange exists with its binding.
func (p *plugin) exists(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(p.target.Definitions(t), func(line string) bool {
		return strings.HasPrefix(line, "bindings ") && strings.Contains(line, `"source":"later"`)
	})
}

const nextToThePlugin = `version: 1
name: shop
exchanges: [{name: events, type: direct}]
delays: [{name: %s, to: events}]
`

// Each message that the plugin holds comes to its queue before its exchange is deleted, once, while
// publishers go over to the delay, and also if the command is killed. The command waits while
// messages come, and refuses what would lose some.
func TestFromThePluginToADelay(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, brokertest.VHost(t))
	target, file := p.target, writeTopology(t, fmt.Sprintf(nextToThePlugin, "shop.later"))
	idle := (6 * broker.Tick).String() // on a busy machine, statistics are late
	from := []string{"migrate", "--from-delayed", "later", "-f", file, "--idle", idle}
	expect := func(code int, text string, args ...string) {
		t.Helper()
		if got, out := dlxctl(target, append(from, args...)...); got != code || !strings.Contains(out, text) {
			t.Errorf("%v exits with %d, want %d and %q:\n%s", args, got, code, text, out)
		}
	}
	expect(3, `the broker has no exchange "shop.later": run dlxctl apply`, "--dry-run")
	succeeds(t, target, "apply", "--yes", "-f", file)
	expect(3, "no processor reads shop.delay.in.shop.later: run dlxctl process", "--dry-run")
	start(t, target, "process", "-f", file).logs(t, "msg=connected")
	expect(3, `of type direct, lacks 1 binding of later, which routes as direct: later -> legacy (reminder)`, "--yes")
	p.bind(t, "events")
	brokertest.Eventually(t, "the consumers to be counted", func() bool {
		code, _ := dlxctl(target, append(from, "--dry-run")...)
		return code == 0
	})
	p.set(true, "")
	expect(3, "does not tell how many messages it holds (messages_delayed)", "--yes")
	p.set(false, "rabbit@other")
	expect(3, "rabbit@other was not asked, and may hold messages", "--yes", "--node-api", target.API)
	p.set(false, "")
	ch := target.Channel(t)
	for _, step := range []error{
		ch.ExchangeBind("later", "a", "amq.direct", false, nil),
		ch.ExchangeDeclare("other", "fanout", true, false, false, false, amqp091.Table{"alternate-exchange": "later"}),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	putQueue(t, target, "retry", map[string]any{"x-dead-letter-exchange": "later"})
	expect(3, "the exchange amq.direct leads to it: bind shop.later in its place", "--dry-run")
	expect(3, "it is the alternate exchange of other: set shop.later in its place", "--dry-run")
	expect(3, "the queue retry dead-letters to it: let it dead-letter to shop.later", "--dry-run")
	if err := ch.ExchangeUnbind("later", "a", "amq.direct", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDelete("other", false, false); err != nil {
		t.Fatal(err)
	}
	brokertest.Delete(t, ch, "retry")

	// It waits for what is held, and is killed meanwhile.
	p.publish(t, "held", 10*broker.Tick) // longer than the next command takes to ask
	expect(2, "later holds 1 message (1 message on ", "--yes", "--wait", "0s")
	killed := start(t, target, append(from, "--yes")...)
	brokertest.Eventually(t, "the wait to begin", func() bool {
		return strings.Contains(killed.stdout.String(), "waiting until later holds nothing")
	}, &killed.stderr)
	if !killed.kill() || !p.exists(t) {
		t.Fatalf("the command ended before it was killed, or deleted what holds messages: %s%s", &killed.stdout, &killed.stderr)
	}
	// Publishers that still publish keep it, also where nothing is held.
	brokertest.Eventually(t, "nothing to be held", func() bool { return brokertest.Ready(t, ch, "legacy") == 1 })
	stop := brokertest.PublishEvery(t, target.Confirming(t), "later", "reminder", broker.Tick/20)
	expect(2, "and messages came to it in the last "+idle+": let publishers publish to shop.later", "--yes",
		"--wait", (8 * broker.Tick).String())
	sent := stop()
	p.publish(t, "last", 4*broker.Tick)
	expect(0, "deleted later with its 1 binding", "--yes")
	if p.exists(t) {
		t.Error("the exchange is still there")
	}
	expect(0, "done: there is no exchange later", "--yes")
	expect(0, "done: there is no exchange later", "--dry-run")

	brokertest.PublishConfirmed(t, target.Confirming(t), "shop.later", "reminder",
		amqp091.Publishing{MessageId: "after", Headers: amqp091.Table{"x-delay": 1000}})
	brokertest.Eventually(t, "all messages", func() bool { return brokertest.Ready(t, ch, "legacy") >= sent+3 })
	got := brokertest.Drain(t, ch, "legacy")
	for id, times := range got {
		if times != 1 {
			t.Errorf("%s came %d times", id, times)
		}
	}
	if len(got) != sent+3 || got["held"]+got["last"]+got["after"] != 3 {
		t.Errorf("%d messages came, and held, last, after %d, %d, %d times; want %d", len(got), got["held"], got["last"],
			got["after"], sent+3)
	}
}

// Where RabbitMQ does not count publishes, a message that comes and goes between two looks would be
// lost with the exchange.
func TestFromThePluginWithoutRates(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	p := newPlugin(t, brokertest.NodeWith(t, "--set", "management.rates_mode = none").VHost(t))
	file := writeTopology(t, fmt.Sprintf(nextToThePlugin, "soon"))
	succeeds(t, p.target, "apply", "--yes", "-f", file)
	p.bind(t, "events")
	code, out := dlxctl(p.target, "migrate", "--from-delayed", "later", "-f", file, "--yes", "--wait", "1m")
	if code != 3 || !strings.Contains(out, "does not count what is published") || !p.exists(t) {
		t.Errorf("it exits with %d: %s", code, out)
	}
}

// While the command waits for the lock, messages may come again, and be in their queues before it
// has it: it waits anew until none has come.
func TestFromThePluginWaitsAgainBehindALock(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	p := newPlugin(t, brokertest.VHost(t))
	target, file := p.target, writeTopology(t, fmt.Sprintf(nextToThePlugin, "later"))
	target.Call(t, "PUT", "exchanges/"+target.VHost+"/events", durable(topology.Direct, nil))
	p.bind(t, "events")
	other := target.Dial(t)
	ch, err := other.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(topology.LockName("shop"), false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	idle := 6 * broker.Tick // on a busy machine, statistics are late
	from := start(t, target, "migrate", "--from-delayed", "later", "-f", file, "--yes", "--allow", "drops-routing=later",
		"--idle", idle.String(), "--wait", (2 * idle).String(), "--lock-timeout", "2m")
	brokertest.Eventually(t, "it to wait for the lock", func() bool {
		return strings.Contains(from.stderr.String(), "lock")
	})
	stop := brokertest.PublishEvery(t, target.Confirming(t), "later", "reminder", broker.Tick/20)
	eyes := target.Channel(t)
	brokertest.Eventually(t, "messages for some time", func() bool { return brokertest.Ready(t, eyes, "legacy") >= 60 })
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	from.exits(t, 2)
	if stop(); !p.exists(t) {
		t.Error("it deleted the exchange to which messages were published")
	}
}

// Under the same name publishers must stop: the command asks for consent, and the delay is declared
// once the exchange is deleted.
func TestFromThePluginUnderTheSameName(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, brokertest.VHost(t))
	target, file := p.target, writeTopology(t, fmt.Sprintf(nextToThePlugin, "later"))
	from := []string{"migrate", "--from-delayed", "later", "-f", file, "--idle", (3 * broker.Tick).String(), "--yes"}
	target.Call(t, "PUT", "exchanges/"+target.VHost+"/events", durable(topology.Direct, nil))
	p.bind(t, "events")
	code, out := dlxctl(target, from...)
	if code != 3 || !strings.Contains(out, "allow the gap with --allow drops-routing=later") || !p.exists(t) {
		t.Errorf("without consent it exits with %d: %s", code, out)
	}
	from = append(from, "--allow", "drops-routing=later")
	p.publish(t, "held", 2*broker.Tick)
	if out := succeeds(t, target, from...); !strings.Contains(out, "run dlxctl apply, which declares the delay") {
		t.Error(out)
	}
	succeeds(t, target, "apply", "--yes", "-f", file)
	start(t, target, "process", "-f", file).logs(t, "msg=connected")
	brokertest.PublishConfirmed(t, target.Confirming(t), "later", "reminder",
		amqp091.Publishing{MessageId: "after", Headers: amqp091.Table{"x-delay": 1000}})
	ch := target.Channel(t)
	brokertest.Eventually(t, "both messages", func() bool { return brokertest.Ready(t, ch, "legacy") == 2 })
	if got := brokertest.Drain(t, ch, "legacy"); got["held"] != 1 || got["after"] != 1 {
		t.Errorf("came: %v", got)
	}
}

// What --from-delayed cannot do is said before the broker is asked.
func TestFromThePluginIsRefused(t *testing.T) {
	t.Parallel()
	two := writeTopology(t, strings.Replace(fmt.Sprintf(nextToThePlugin, "a"), "delays: [",
		"delays: [{name: b, to: events}, ", 1))
	none := writeTopology(t, "version: 1\nname: shop\nexchanges: [{name: events}]\nqueues: [{name: q, backoff: none}]\n")
	for args, want := range map[string]string{
		"-f " + none:                               "the file has no delay; write one under delays",
		"-f " + two:                                "name the delay that replaces the exchange, one of a and b",
		"-f " + two + " shop.c":                    `the file has no delay "shop.c"; it has a and b`,
		"-f " + two + " b --match x":               "--match is for queues; remove it, or --from-delayed",
		"-f " + two + " b --idle 1ms":              "--idle is 1ms; with --from-delayed it must be",
		"-f " + two + " b --allow drops-routing=x": "--allow is drops-routing=x; with --from-delayed it may be drops-routing=later",
		"-f " + two + " b --dry-run -o markdown":   "-o markdown is for queues",
	} {
		code, out := run(append([]string{"migrate", "--from-delayed", "later"}, strings.Fields(args)...)...)
		if code != 64 || !strings.Contains(out, want) {
			t.Errorf("%s exits with %d, want %q: %s", args, code, want, out)
		}
	}
	for arg, want := range map[string]string{
		"--node-api=http://localhost:1": "--node-api needs --from-delayed",
		"--from-delayed=":               "--from-delayed is empty; write the name of an exchange",
	} {
		if code, out := run("migrate", arg); code != 64 || !strings.Contains(out, want) {
			t.Errorf("%s exits with %d, want %q: %s", arg, code, want, out)
		}
	}
}
