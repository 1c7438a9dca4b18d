package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
)

// place is a virtual host in which a test plays a case.
type place struct {
	t      *testing.T
	target brokertest.Target
	ch     *amqp091.Channel
	conn   *amqp091.Connection // a second one; nil where no case needs it
}

// What can be done to a virtual host between one file and the next.

func (p place) publish(queue string) {
	p.t.Helper()
	brokertest.PublishConfirmed(p.t, p.ch, "", queue, amqp091.Publishing{Body: []byte("x")})
}

func (p place) consume(queue string) {
	p.t.Helper()
	brokertest.Consume(p.t, p.ch, queue, 0)
}

// call calls the management API below the virtual host: call("PUT", "queues", "q", body).
func (p place) call(method, kind, name string, body any) {
	p.t.Helper()
	p.target.Call(p.t, method, kind+"/"+url.PathEscape(p.target.VHost)+"/"+name, body)
}

func (p place) bind(source, queue, key string) {
	p.t.Helper()
	brokertest.Bind(p.t, p.ch, queue, key, source, nil)
}

// topologyFile returns a topology with the queues and exchanges of a case, next to a queue that
// stays.
func topologyFile(lines ...string) string {
	return "version: 1\nname: shop\ndefaults: {backoff: a, type: classic}\n" +
		"backoff: {a: {tiers: [1s, 1m]}, b: {tiers: [2s]}}\n" + strings.Join(lines, "\n") + "\n"
}

// The queues and exchanges of the files.
const (
	oneQueue    = `queues: [{name: keep}]`
	twoQueues   = `queues: [{name: keep}, {name: q}]`
	boundQueues = `queues: [{name: keep}, {name: q, bindings: [{exchange: e, key: k}]}]`
	direct      = `exchanges: [{name: e, type: direct}]`
)

// change is a row of the table: a file that is applied, what happens on the broker then, and the
// file that is planned and applied next. testdata/changes.txt has what the plan prints and the
// code with which apply exits.
type change struct {
	name    string
	before  string
	between func(p place) // nil is nothing
	after   string        // empty is the file from before
	flags   []string      // of plan and apply
}

func changes() []change {
	message := func(queue string) func(place) { return func(p place) { p.publish(queue) } }
	consumer := func(queue string) func(place) { return func(p place) { p.consume(queue) } }
	put := func(kind, name string, body any) func(place) {
		return func(p place) { p.call("PUT", kind, name, body) }
	}
	made := func(queue string, args map[string]any) func(place) { return put("queues", queue, durable("", args)) }
	remove := func(kind, name string) func(place) {
		return func(p place) { p.call("DELETE", kind, name, nil) }
	}
	foreignBinding := func(p place) { p.bind("amq.direct", "q", "x") }
	limit := func(pattern string, priority int) map[string]any {
		return map[string]any{
			"pattern": pattern, "apply-to": "queues", "priority": priority,
			"definition": map[string]any{"max-length": 5},
		}
	}
	otherOwner := map[string]any{"x-managed-by": "dlxctl/other"}

	loses, stops := []string{"--allow", "loses-messages"}, []string{"--allow", "stops-consumers"}
	drops, skip := []string{"--allow", "drops-routing"}, []string{"--skip-blocked"}
	prune := []string{"--allow", "drops-routing", "--prune"}

	with := func(queue string) string { return "queues: [{name: keep}, {" + queue + "}]" }
	queue := func(fields string) string { return topologyFile(with("name: q, " + fields)) }
	queueAtE := func(fields string) string { return topologyFile(direct, with("name: q, "+fields)) }
	queueAtH := func(fields string) string {
		return topologyFile("exchanges: [{name: h, type: headers}]", with("name: q, "+fields))
	}
	exchangeE := func(fields string) string {
		return topologyFile("exchanges: [{name: e, "+fields+"}]", oneQueue)
	}
	edited := func(old, replacement string) string {
		return strings.Replace(topologyFile(twoQueues), old, replacement, 1)
	}
	tiers := func(list string) string { return edited("[1s, 1m]", list) }
	keepOnly, withQ := topologyFile(oneQueue), topologyFile(twoQueues)
	onlyExchange, exchangeAndQ := topologyFile(direct, oneQueue), topologyFile(direct, twoQueues)
	boundQ := topologyFile(direct, boundQueues)
	ttl := queue("arguments: {x-message-ttl: 5000}")
	boundTTL := queueAtE("arguments: {x-message-ttl: 5000}, bindings: [{exchange: e, key: k}]")
	byPolicy, backoffB := queue("deadLetterBy: policy"), queue("backoff: b")
	graves := queue("dead: {queue: graves}")
	gravesLimited := queue("dead: {queue: graves, arguments: {x-max-length: 10000}}")
	otherHeader := edited("name: shop", "name: shop\ncountHeader: tries")
	quorumPlane := edited("type: classic", "type: quorum")

	return []change{
		{name: "work queue removed, empty", before: withQ, after: keepOnly},
		{name: "work queue removed, bound", before: boundQ, after: onlyExchange},
		{name: "work queue removed, bound, allowed", before: boundQ, after: onlyExchange, flags: drops},
		{name: "work queue removed, with a message", before: withQ, after: keepOnly, between: message("q")},
		{
			name:   "work queue removed, with a message, allowed",
			before: withQ, after: keepOnly, between: message("q"), flags: loses,
		},
		{
			name:   "work queue removed, with a message, something else allowed",
			before: withQ, after: keepOnly, between: message("q"), flags: stops,
		},
		{name: "work queue removed, with a consumer", before: withQ, after: keepOnly, between: consumer("q")},
		{
			name:   "work queue removed, with a consumer, allowed",
			before: withQ, after: keepOnly, between: consumer("q"), flags: stops,
		},
		{
			name:   "work queue removed, with a message unacknowledged",
			before: withQ, after: keepOnly, between: func(p place) { p.publish("q"); p.consume("q") },
		},
		{
			name:   "work queue removed, bound by a service",
			before: withQ, after: keepOnly, between: foreignBinding,
		},
		{
			name:   "work queue removed, its dead letters waiting",
			before: withQ, after: keepOnly, between: message("q.dead"),
		},
		{
			name:   "work queue removed, gone already",
			before: withQ, after: keepOnly, between: remove("queues", "q"),
		},
		{name: "work queue gone", before: boundQ, between: remove("queues", "q")},
		{
			name:   "work queue new, made by a service the same way",
			before: keepOnly,
			after:  withQ,
			between: made("q", map[string]any{
				"x-queue-type": "classic", "x-dead-letter-exchange": "shop.failed", "x-dead-letter-routing-key": "@q",
			}),
		},
		{
			name:   "work queue new, made by a service in another way",
			before: keepOnly, after: withQ, between: made("q", map[string]any{"x-message-ttl": 5}),
		},
		{name: "work queue new, of another topology", before: keepOnly, after: withQ, between: made("q", otherOwner)},
		{
			name:    "work queue of another topology, skipped",
			before:  keepOnly,
			after:   topologyFile("queues: [{name: keep}, {name: q}, {name: r}]"),
			between: made("q", otherOwner),
			flags:   skip,
		},

		{name: "argument added, empty", before: withQ, after: ttl},
		{name: "argument added, with a message", before: withQ, after: ttl, between: message("q")},
		{name: "argument added, with a consumer", before: withQ, after: ttl, between: consumer("q")},
		{name: "argument added, bound", before: boundQ, after: boundTTL},
		{name: "argument added, bound, allowed", before: boundQ, after: boundTTL, flags: drops},
		{
			name:   "argument added, bound by a service, allowed",
			before: withQ, after: ttl, between: foreignBinding, flags: prune,
		},
		{name: "argument taken out, empty", before: ttl, after: withQ},
		{name: "type changed, empty", before: queue("type: quorum"), after: withQ},
		{
			name:   "type changed, with a message",
			before: withQ, after: queue("type: quorum"), between: message("q"),
		},
		{name: "another backoff, empty", before: withQ, after: backoffB},
		{name: "another backoff, with a message", before: withQ, after: backoffB, between: message("q")},
		{name: "no backoff any more, empty", before: withQ, after: queue("backoff: none")},
		{name: "a backoff now, empty", before: queue("backoff: none"), after: withQ},
		{name: "another owner", before: withQ, after: queue("owner: me, severity: page")},

		{name: "dead letters shared now", before: withQ, after: queue("dead: shared")},
		{
			name:   "dead letters shared now, some waiting",
			before: withQ, after: queue("dead: shared"), between: message("q.dead"),
		},
		{name: "dead letters elsewhere now", before: withQ, after: graves},
		{name: "dead letters kept for a time now", before: withQ, after: queue("dead: {keep: 30d}")},
		{name: "dead-letter queue with other arguments", before: graves, after: gravesLimited},
		{
			name:   "dead-letter queue with other arguments, allowed",
			before: graves, after: gravesLimited, flags: drops,
		},
		{
			name:   "dead-letter queue with other arguments, with a message",
			before: graves, after: gravesLimited, between: message("graves"),
		},
		{
			name:   "one of two that share dead letters removed",
			before: topologyFile("queues: [{name: keep, dead: shared}, {name: q, dead: shared}]"),
			after:  topologyFile("queues: [{name: keep, dead: shared}]"),
		},

		{name: "external queue missing", before: keepOnly, after: queue("external: true")},
		{
			name:   "external queue there",
			before: keepOnly, after: queue("external: true"), between: made("q", nil),
		},
		{
			name:   "external queue of another type",
			before: keepOnly, after: queue("external: true, type: quorum"), between: made("q", nil),
		},
		{
			name:    "external queue with a dead-letter exchange",
			before:  keepOnly,
			after:   queue("external: true"),
			between: made("q", map[string]any{"x-dead-letter-exchange": "x"}),
		},
		{name: "policy now, with a message", before: withQ, after: byPolicy, between: message("q")},
		{name: "arguments now, empty", before: byPolicy, after: withQ},
		{name: "arguments now, with a message", before: byPolicy, after: withQ, between: message("q")},
		{
			name:   "another backoff by policy, with a message",
			before: byPolicy, after: queue("deadLetterBy: policy, backoff: b"), between: message("q"),
		},
		{name: "policy gone", before: byPolicy, between: remove("policies", "dlxctl.shop.queue.q")},
		{
			name:    "policy changed by hand",
			before:  byPolicy,
			between: put("policies", "dlxctl.shop.queue.q", limit("^q$", 0)),
		},
		{
			name:    "foreign policy over dlxctl's",
			before:  byPolicy,
			between: put("policies", "p", limit("^q$", 5000)),
		},
		{name: "queue with a policy removed", before: byPolicy, after: keepOnly},

		{name: "exchange removed", before: onlyExchange, after: keepOnly},
		{
			name:   "exchange removed, bound by a service",
			before: onlyExchange, after: keepOnly, between: func(p place) { p.bind("e", "keep", "x") },
		},
		{name: "exchange gone", before: boundQ, between: remove("exchanges", "e")},
		{name: "exchange of another type", before: onlyExchange, after: exchangeE("type: fanout")},
		{
			name:   "exchange of another type, allowed",
			before: onlyExchange, after: exchangeE("type: fanout"), flags: drops,
		},
		{
			name:   "exchange of another type, bound",
			before: boundQ,
			after:  topologyFile("exchanges: [{name: e, type: topic}]", boundQueues),
			flags:  drops,
		},
		{name: "exchange internal now", before: onlyExchange, after: exchangeE("type: direct, internal: true")},
		{
			name:   "exchange with an alternate now",
			before: onlyExchange, after: exchangeE("type: direct, arguments: {alternate-exchange: amq.fanout}"),
		},
		{name: "exchange of an unknown type", before: keepOnly, after: exchangeE("type: x-nothing")},
		{
			name:   "exchange of another topology",
			before: keepOnly, after: onlyExchange, between: put("exchanges", "e", durable("direct", otherOwner)),
		},
		{
			name:   "exchange new, made by a service the same way",
			before: keepOnly, after: onlyExchange, between: put("exchanges", "e", durable("direct", nil)),
		},
		{
			name:   "external exchange missing",
			before: keepOnly, after: topologyFile("exchanges: [{name: bus, external: true}]", oneQueue),
		},
		{
			name:    "external exchange of another type",
			before:  keepOnly,
			after:   topologyFile("exchanges: [{name: bus, type: topic, external: true}]", oneQueue),
			between: put("exchanges", "bus", durable("direct", nil)),
		},
		{
			name: "external exchange no longer used",
			before: topologyFile("exchanges: [{name: amq.direct, external: true}]",
				with("name: q, bindings: [{exchange: amq.direct, key: k}]")),
			after: withQ,
			flags: drops,
		},

		{name: "binding added", before: boundQ, after: queueAtE("bindings: [{exchange: e, keys: [k, l]}]")},
		{name: "binding removed", before: boundQ, after: exchangeAndQ},
		{name: "binding removed, allowed", before: boundQ, after: exchangeAndQ, flags: drops},
		{
			name:   "binding with another key, allowed",
			before: boundQ, after: queueAtE("bindings: [{exchange: e, key: l}]"), flags: drops,
		},
		{
			name:   "binding gone",
			before: boundQ,
			between: func(p place) {
				p.call("DELETE", "bindings", "e/e/q/q/"+propertiesKey(p, "e", "q", "k"), nil)
			},
		},
		{
			name:   "binding made by a service too",
			before: boundQ, between: func(p place) { p.bind("e", "q", "k") },
		},
		{name: "foreign binding to a work queue", before: boundQ, between: foreignBinding},
		{
			name:   "foreign binding to a work queue, pruned",
			before: boundQ, between: foreignBinding, flags: prune,
		},
		{
			name:   "foreign binding to a generated exchange",
			before: withQ,
			between: func(p place) {
				p.call("PUT", "queues", "spy", durable("", nil))
				p.bind("shop.return", "spy", "@q")
			},
		},
		{
			name:   "binding between exchanges removed",
			before: exchangeE("type: direct}, {name: f, type: fanout, bindings: [{exchange: e, key: k}]"),
			after:  exchangeE("type: direct}, {name: f, type: fanout"),
		},
		{
			name:   "headers of a binding changed, allowed",
			before: queueAtH("bindings: [{exchange: h, headers: {a: 1}}]"),
			after:  queueAtH("bindings: [{exchange: h, headers: {a: 2}}]"),
			flags:  drops,
		},

		{name: "tier removed, empty", before: withQ, after: tiers("[1s]")},
		{
			name:   "tier removed, with a message",
			before: withQ, after: tiers("[1s]"), between: message("shop.a.retry.1m"),
		},
		{name: "tier added", before: withQ, after: tiers("[1s, 5s, 1m]"), between: message("shop.a.retry.1m")},
		{
			name:   "tiers in another order",
			before: withQ, after: tiers("[1m, 1s]"), between: message("shop.a.retry.1m"),
		},
		{name: "more attempts", before: withQ, after: tiers("[1s, 1m], attemptsPerTier: 2")},
		{name: "another count header", before: withQ, after: otherHeader},
		{
			name:   "another count header, with a processor",
			before: withQ, after: otherHeader, between: consumer("shop.a.failed"),
		},
		{name: "another type of generated queues", before: withQ, after: quorumPlane},
		{name: "retry queue gone", before: withQ, between: remove("queues", "shop.a.retry.1m")},
		{name: "failed queue gone", before: withQ, between: remove("queues", "shop.a.failed")},
		{name: "unroutable queue gone", before: withQ, between: remove("queues", "shop.unroutable")},
		{name: "backoff no longer used", before: backoffB, after: keepOnly},
		{
			name:   "backoff no longer used, with a failed message",
			before: backoffB, after: keepOnly, between: message("shop.b.failed"),
		},
		{
			name:   "backoff no longer used, with a processor",
			before: backoffB, after: keepOnly, between: consumer("shop.b.failed"),
		},
		{name: "everything removed", before: boundQ, after: "version: 1\nname: shop\n", flags: drops},
		{
			name:   "work queue removed, with a message, skipped",
			before: withQ, after: keepOnly, between: message("q"), flags: skip,
		},
		{name: "work queue removed, bound, skipped", before: boundQ, after: keepOnly, flags: skip},
		{
			name:   "backoff no longer used, with a processor, skipped",
			before: backoffB, after: keepOnly, between: consumer("shop.b.failed"), flags: skip,
		},
		{
			name:   "arguments now, with a message, skipped",
			before: byPolicy, after: withQ, between: message("q"), flags: skip,
		},
		{
			name:    "legacy queue alive",
			before:  keepOnly,
			after:   queueAtE("replaces: old, bindings: [{exchange: e, key: k}]"),
			between: made("old", nil),
		},
		{
			name:   "legacy queue gone",
			before: keepOnly, after: queueAtE("replaces: old, bindings: [{exchange: e, key: k}]"),
		},
	}
}

// propertiesKey returns the name that the management API has for a binding.
func propertiesKey(p place, source, queue, key string) string {
	p.t.Helper()
	var list []struct {
		Key        string `json:"routing_key"`
		Properties string `json:"properties_key"`
	}
	path := "bindings/" + url.PathEscape(p.target.VHost) + "/e/" + source + "/q/" + queue
	if err := json.Unmarshal(p.target.Call(p.t, "GET", path, nil), &list); err != nil {
		p.t.Fatal(err)
	}
	for _, b := range list {
		if b.Key == key {
			return url.PathEscape(b.Properties)
		}
	}
	p.t.Fatalf("%s is not bound to %s by %s", queue, source, key)
	return ""
}

// Each change of the table is planned and applied as testdata/changes.txt says, and the plan after
// an apply that writes everything is empty.
func TestEachChange(t *testing.T) {
	t.Parallel()
	const golden = "testdata/changes.txt"
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for block := range strings.SplitSeq(string(data), "\n\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(block), "\n")
		want[strings.TrimPrefix(name, "== ")] = rest
	}
	all := changes()
	if !*update {
		all = brokertest.Share(all)
	}
	got := make([]string, len(all))
	t.Run("change", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				got[i] = c.play(t, want[c.name])
				if d := cmp.Diff(want[c.name], got[i]); d != "" && !*update {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		}
	})
	if !*update {
		return
	}
	var b strings.Builder
	for i, c := range all {
		fmt.Fprintf(&b, "== %s\n%s\n\n", c.name, got[i])
	}
	if err := os.WriteFile(golden, []byte(strings.TrimSpace(b.String())+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// user returns a user with the tags that 'dlxctl rights' prints for applying both files. It has
// all permissions, because a row may go beyond its files.
func (c change) user(t *testing.T, target brokertest.Target) brokertest.Target {
	t.Helper()
	var tags []string
	for _, file := range []string{c.before, c.after} {
		tags = append(tags, generate.Rights(compiled(t, file))[0].Tags...)
	}
	return target.Tool(t, tags...)
}

// play returns what the plan prints and the exit code of apply, for the user of the change: an
// administrator would see more. As the broker's statistics lag behind, it plans until the plan
// is as wanted, for a limited time.
func (c change) play(t *testing.T, want string) string {
	t.Helper()
	if c.after == "" {
		c.after = c.before
	}
	admin := brokertest.VHost(t)
	target := c.user(t, admin)
	after := writeTopology(t, c.after)
	succeeds(t, target, "apply", "--yes", "-f", writeTopology(t, c.before))
	if c.between != nil {
		c.between(place{t: t, target: admin, ch: admin.Channel(t)})
	}
	wanted, _, _ := strings.Cut(want, "apply exits with ")
	timeout := 30 * time.Second // statistics are 5 seconds old, and older on a busy machine
	if *update {
		timeout = 8 * time.Second
	}
	tick := time.NewTicker(500 * time.Millisecond) // other tests use this broker
	defer tick.Stop()
	var got string
	for end := time.Now().Add(timeout); ; <-tick.C {
		got = planned(t, target, append([]string{"-f", after}, c.flags...))
		if got == wanted && !*update || time.Now().After(end) {
			break
		}
	}
	code, out := dlxctl(target, append([]string{"apply", "--yes", "-f", after}, c.flags...)...)
	if code == 0 && !strings.Contains(out, "To delete ") {
		code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", after)
		if code != 0 && !strings.Contains(out, "no changes, and drift") {
			t.Errorf("the next plan exits with %d:\n%s", code, out)
		}
	}
	got += fmt.Sprintf("apply exits with %d", code)
	if slices.Contains(c.flags, "--skip-blocked") {
		got += "\nand leaves\n" + strings.TrimSpace(planned(t, target, []string{"-f", after}))
	}
	if got != want && !*update {
		t.Logf("apply prints:\n%s", out)
	}
	return got
}

// planned returns a line for each change, drift and warning of a plan.
func planned(t *testing.T, target brokertest.Target, args []string) string {
	t.Helper()
	_, out := dlxctl(target, append([]string{"plan", "-o", "json"}, args...)...)
	var p struct {
		Changes, Drift []struct {
			Action, Kind, Name string
			Fields             []struct{ Name string }
			Hazards            []string
		}
		Warnings []struct{ Name string }
	}
	if i := strings.Index(out, "{\n"); i < 0 || json.NewDecoder(strings.NewReader(out[i:])).Decode(&p) != nil {
		t.Fatalf("this is not a plan:\n%s", out)
	}
	var b strings.Builder
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s %s %s", c.Action, c.Kind, c.Name)
		if c.Action != "create" && c.Action != "delete" && c.Action != "migrate" {
			for _, f := range c.Fields {
				fmt.Fprintf(&b, " %s", f.Name)
			}
		}
		for _, h := range c.Hazards {
			fmt.Fprintf(&b, " [%s]", h)
		}
		b.WriteString("\n")
	}
	for _, c := range p.Drift {
		fmt.Fprintf(&b, "drift %s %s\n", c.Kind, c.Name)
	}
	for _, w := range p.Warnings {
		if w.Name != "no-processor" { // no test of changes runs a processor
			fmt.Fprintf(&b, "warning %s\n", w.Name)
		}
	}
	return b.String()
}
