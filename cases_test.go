package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// place is a virtual host in which a case is played.
type place struct {
	t      *testing.T
	target brokertest.Target
	ch     *amqp.Channel
}

// What can be done to a virtual host between one file and the next.

func (p place) publish(queue string) {
	p.t.Helper()
	if err := p.ch.Confirm(false); err != nil {
		p.t.Fatal(err)
	}
	confirm, err := p.ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: amqp.Persistent})
	if err != nil || !confirm.Wait() {
		p.t.Fatalf("publish to %s: %v", queue, err)
	}
}

func (p place) consume(queue string) {
	p.t.Helper()
	if _, err := p.ch.Consume(queue, "", false, false, false, false, nil); err != nil {
		p.t.Fatal(err)
	}
}

// call calls the management API below the virtual host: call("PUT", "queues", "q", body).
func (p place) call(method, kind, name string, body any) {
	p.t.Helper()
	p.target.Call(p.t, method, kind+"/"+url.PathEscape(p.target.VHost)+"/"+name, body)
}

// durable is the body of a queue or exchange.
func durable(typ string, args map[string]any) map[string]any {
	if args == nil {
		args = map[string]any{}
	}
	o := map[string]any{"durable": true, "auto_delete": false, "arguments": args}
	if typ != "" {
		o["type"], o["internal"] = typ, false
	}
	return o
}

func (p place) bind(source, queue, key string) {
	p.t.Helper()
	if err := p.ch.QueueBind(queue, key, source, false, nil); err != nil {
		p.t.Fatal(err)
	}
}

// topologyFile gives a topology: the queues and exchanges a case is about, beside a queue
// that stays.
func topologyFile(lines ...string) string {
	return "version: 1\nname: shop\ndefaults: {backoff: a, type: classic}\n" +
		"backoff: {a: {tiers: [1s, 1m]}, b: {tiers: [2s]}}\n" + strings.Join(lines, "\n") + "\n"
}

const (
	bound  = `queues: [{name: keep}, {name: q, bindings: [{exchange: e, key: k}]}]`
	free   = `queues: [{name: keep}, {name: q}]`
	none   = `queues: [{name: keep}]`
	direct = `exchanges: [{name: e, type: direct}]`
)

// oneCase is a row of the table: what a file was, what happened since, and what
// the file is now. What the plan says and with which code apply exits stands in
// testdata/cases.txt.
type oneCase struct {
	name          string
	before, after string
	between       func(p place)
	flags         []string
}

func cases() []oneCase {
	ours := map[string]any{"x-managed-by": "dlxctl/other"}
	message := func(queue string) func(place) { return func(p place) { p.publish(queue) } }
	consumer := func(queue string) func(place) { return func(p place) { p.consume(queue) } }
	put := func(kind, name string, body any) func(place) {
		return func(p place) { p.call("PUT", kind, name, body) }
	}
	remove := func(kind, name string) func(place) {
		return func(p place) { p.call("DELETE", kind, name, nil) }
	}
	loses, stops, drops := []string{"--allow", "loses-messages"}, []string{"--allow", "stops-consumers"}, []string{"--allow", "drops-routing"}
	with := func(queue string) string { return "queues: [{name: keep}, {" + queue + "}]" }
	return []oneCase{
		{"work queue removed, empty", topologyFile(free), topologyFile(none), nil, nil},
		{"work queue removed, bound", topologyFile(direct, bound), topologyFile(direct, none), nil, nil},
		{"work queue removed, bound, allowed", topologyFile(direct, bound), topologyFile(direct, none), nil, drops},
		{"work queue removed, with a message", topologyFile(free), topologyFile(none), message("q"), nil},
		{"work queue removed, with a message, allowed", topologyFile(free), topologyFile(none), message("q"), loses},
		{"work queue removed, with a message, something else allowed", topologyFile(free), topologyFile(none), message("q"), stops},
		{"work queue removed, with a consumer", topologyFile(free), topologyFile(none), consumer("q"), nil},
		{"work queue removed, with a consumer, allowed", topologyFile(free), topologyFile(none), consumer("q"), stops},
		{"work queue removed, with a message unacknowledged", topologyFile(free), topologyFile(none), func(p place) { p.publish("q"); p.consume("q") }, nil},
		{"work queue removed, bound by somebody", topologyFile(free), topologyFile(none), func(p place) { p.bind("amq.direct", "q", "x") }, nil},
		{"work queue removed, its dead letters waiting", topologyFile(free), topologyFile(none), message("q.dead"), nil},
		{"work queue removed, gone already", topologyFile(free), topologyFile(none), remove("queues", "q"), nil},
		{"work queue gone", topologyFile(direct, bound), topologyFile(direct, bound), remove("queues", "q"), nil},
		{"work queue new, made by a service the same way", topologyFile(none), topologyFile(free), put("queues", "q", durable("", map[string]any{"x-queue-type": "classic", "x-dead-letter-exchange": "shop.a.failed", "x-dead-letter-routing-key": "@q"})), nil},
		{"work queue new, made by a service in another way", topologyFile(none), topologyFile(free), put("queues", "q", durable("", map[string]any{"x-message-ttl": 5})), nil},
		{"work queue new, of another topology", topologyFile(none), topologyFile(free), put("queues", "q", durable("", ours)), nil},
		{"work queue of another topology, skipped", topologyFile(none), topologyFile("queues: [{name: keep}, {name: q}, {name: r}]"), put("queues", "q", durable("", ours)), []string{"--skip-blocked"}},

		{"argument added, empty", topologyFile(free), topologyFile(with("name: q, arguments: {x-message-ttl: 5000}")), nil, nil},
		{"argument added, with a message", topologyFile(free), topologyFile(with("name: q, arguments: {x-message-ttl: 5000}")), message("q"), nil},
		{"argument added, with a consumer", topologyFile(free), topologyFile(with("name: q, arguments: {x-message-ttl: 5000}")), consumer("q"), nil},
		{"argument added, bound", topologyFile(direct, bound), topologyFile(direct, with("name: q, arguments: {x-message-ttl: 5000}, bindings: [{exchange: e, key: k}]")), nil, nil},
		{"argument added, bound, allowed", topologyFile(direct, bound), topologyFile(direct, with("name: q, arguments: {x-message-ttl: 5000}, bindings: [{exchange: e, key: k}]")), nil, drops},
		{"argument added, bound by somebody, allowed", topologyFile(free), topologyFile(with("name: q, arguments: {x-message-ttl: 5000}")), func(p place) { p.bind("amq.direct", "q", "x") }, append(drops, "--prune")},
		{"argument taken out, empty", topologyFile(with("name: q, arguments: {x-message-ttl: 5000}")), topologyFile(free), nil, nil},
		{"type changed, empty", topologyFile(with("name: q, type: quorum")), topologyFile(free), nil, nil},
		{"type changed, with a message", topologyFile(free), topologyFile(with("name: q, type: quorum")), message("q"), nil},
		{"another backoff, empty", topologyFile(free), topologyFile(with("name: q, backoff: b")), nil, nil},
		{"another backoff, with a message", topologyFile(free), topologyFile(with("name: q, backoff: b")), message("q"), nil},
		{"no backoff any more, empty", topologyFile(free), topologyFile(with("name: q, backoff: none")), nil, nil},
		{"a backoff now, empty", topologyFile(with("name: q, backoff: none")), topologyFile(free), nil, nil},
		{"another owner", topologyFile(free), topologyFile(with("name: q, owner: me, severity: page")), nil, nil},

		{"dead letters shared now", topologyFile(free), topologyFile(with("name: q, dead: shared")), nil, nil},
		{"dead letters shared now, some waiting", topologyFile(free), topologyFile(with("name: q, dead: shared")), message("q.dead"), nil},
		{"dead letters elsewhere now", topologyFile(free), topologyFile(with("name: q, dead: {queue: graves}")), nil, nil},
		{"dead-letter queue with other arguments", topologyFile(with("name: q, dead: {queue: graves}")), topologyFile(with("name: q, dead: {queue: graves, arguments: {x-max-length: 5}}")), nil, nil},
		{"dead-letter queue with other arguments, with a message", topologyFile(with("name: q, dead: {queue: graves}")), topologyFile(with("name: q, dead: {queue: graves, arguments: {x-max-length: 5}}")), message("graves"), nil},
		{"one of two that share dead letters removed", topologyFile("queues: [{name: keep, dead: shared}, {name: q, dead: shared}]"), topologyFile("queues: [{name: keep, dead: shared}]"), nil, nil},

		{"external queue missing", topologyFile(none), topologyFile(with("name: q, external: true")), nil, nil},
		{"external queue there", topologyFile(none), topologyFile(with("name: q, external: true")), put("queues", "q", durable("", nil)), nil},
		{"external queue of another type", topologyFile(none), topologyFile(with("name: q, external: true, type: quorum")), put("queues", "q", durable("", nil)), nil},
		{"external queue with a dead-letter exchange", topologyFile(none), topologyFile(with("name: q, external: true")), put("queues", "q", durable("", map[string]any{"x-dead-letter-exchange": "x"})), nil},
		{"policy now, with a message", topologyFile(free), topologyFile(with("name: q, deadLetterBy: policy")), message("q"), nil},
		{"arguments now, empty", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(free), nil, nil},
		{"arguments now, with a message", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(free), message("q"), nil},
		{"another backoff by policy, with a message", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(with("name: q, deadLetterBy: policy, backoff: b")), message("q"), nil},
		{"policy gone", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(with("name: q, deadLetterBy: policy")), remove("policies", "dlxctl.shop.queue.q"), nil},
		{"policy changed by somebody", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(with("name: q, deadLetterBy: policy")), put("policies", "dlxctl.shop.queue.q", map[string]any{"pattern": "^q$", "apply-to": "queues", "priority": 0, "definition": map[string]any{"max-length": 5}}), nil},
		{"somebody's policy over ours", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(with("name: q, deadLetterBy: policy")), put("policies", "p", map[string]any{"pattern": "^q$", "apply-to": "queues", "priority": 5000, "definition": map[string]any{"max-length": 5}}), nil},
		{"queue with a policy removed", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(none), nil, nil},

		{"exchange removed", topologyFile(direct, none), topologyFile(none), nil, nil},
		{"exchange removed, bound by somebody", topologyFile(direct, none), topologyFile(none), func(p place) { p.bind("e", "keep", "x") }, nil},
		{"exchange gone", topologyFile(direct, bound), topologyFile(direct, bound), remove("exchanges", "e"), nil},
		{"exchange of another type", topologyFile(direct, none), topologyFile("exchanges: [{name: e, type: fanout}]", none), nil, nil},
		{"exchange of another type, allowed", topologyFile(direct, none), topologyFile("exchanges: [{name: e, type: fanout}]", none), nil, drops},
		{"exchange of another type, bound", topologyFile(direct, bound), topologyFile("exchanges: [{name: e, type: topic}]", bound), nil, drops},
		{"exchange internal now", topologyFile(direct, none), topologyFile("exchanges: [{name: e, type: direct, internal: true}]", none), nil, nil},
		{"exchange with an alternate now", topologyFile(direct, none), topologyFile("exchanges: [{name: e, type: direct, arguments: {alternate-exchange: amq.fanout}}]", none), nil, nil},
		{"exchange of a type nobody knows", topologyFile(none), topologyFile("exchanges: [{name: e, type: x-nothing}]", none), nil, nil},
		{"exchange of another topology", topologyFile(none), topologyFile(direct, none), put("exchanges", "e", durable("direct", ours)), nil},
		{"exchange new, made by a service the same way", topologyFile(none), topologyFile(direct, none), put("exchanges", "e", durable("direct", nil)), nil},
		{"external exchange missing", topologyFile(none), topologyFile("exchanges: [{name: bus, external: true}]", none), nil, nil},
		{"external exchange of another type", topologyFile(none), topologyFile("exchanges: [{name: bus, type: topic, external: true}]", none), put("exchanges", "bus", durable("direct", nil)), nil},
		{"external exchange no longer used", topologyFile("exchanges: [{name: amq.direct, external: true}]", `queues: [{name: keep}, {name: q, bindings: [{exchange: amq.direct, key: k}]}]`), topologyFile(free), nil, drops},

		{"binding added", topologyFile(direct, bound), topologyFile(direct, with("name: q, bindings: [{exchange: e, keys: [k, l]}]")), nil, nil},
		{"binding removed", topologyFile(direct, bound), topologyFile(direct, free), nil, nil},
		{"binding removed, allowed", topologyFile(direct, bound), topologyFile(direct, free), nil, drops},
		{"binding with another key, allowed", topologyFile(direct, bound), topologyFile(direct, with("name: q, bindings: [{exchange: e, key: l}]")), nil, drops},
		{"binding gone", topologyFile(direct, bound), topologyFile(direct, bound), func(p place) {
			p.call("DELETE", "bindings", "e/e/q/q/"+propertiesKey(p, "e", "q", "k"), nil)
		}, nil},
		{"binding made by a service too", topologyFile(direct, bound), topologyFile(direct, bound), func(p place) { p.bind("e", "q", "k") }, nil},
		{"binding of somebody to a queue of ours", topologyFile(direct, bound), topologyFile(direct, bound), func(p place) { p.bind("amq.direct", "q", "x") }, nil},
		{"binding of somebody to a queue of ours, pruned", topologyFile(direct, bound), topologyFile(direct, bound), func(p place) { p.bind("amq.direct", "q", "x") }, append(drops, "--prune")},
		{"binding of somebody to a generated exchange", topologyFile(free), topologyFile(free), func(p place) {
			p.call("PUT", "queues", "spy", durable("", nil))
			p.bind("shop.return", "spy", "@q")
		}, nil},
		{"binding between exchanges removed", topologyFile("exchanges: [{name: e, type: direct}, {name: f, type: fanout, bindings: [{exchange: e, key: k}]}]", none), topologyFile("exchanges: [{name: e, type: direct}, {name: f, type: fanout}]", none), nil, nil},
		{"headers of a binding changed, allowed", topologyFile("exchanges: [{name: h, type: headers}]", with("name: q, bindings: [{exchange: h, headers: {a: 1}}]")), topologyFile("exchanges: [{name: h, type: headers}]", with("name: q, bindings: [{exchange: h, headers: {a: 2}}]")), nil, drops},

		{"tier removed, empty", topologyFile(free), strings.Replace(topologyFile(free), "[1s, 1m]", "[1s]", 1), nil, nil},
		{"tier removed, with a message", topologyFile(free), strings.Replace(topologyFile(free), "[1s, 1m]", "[1s]", 1), message("shop.a.retry.1m"), nil},
		{"tier added", topologyFile(free), strings.Replace(topologyFile(free), "[1s, 1m]", "[1s, 5s, 1m]", 1), message("shop.a.retry.1m"), nil},
		{"tiers in another order", topologyFile(free), strings.Replace(topologyFile(free), "[1s, 1m]", "[1m, 1s]", 1), message("shop.a.retry.1m"), nil},
		{"more attempts", topologyFile(free), strings.Replace(topologyFile(free), "[1s, 1m]", "[1s, 1m], attemptsPerTier: 2", 1), nil, nil},
		{"another count header", topologyFile(free), strings.Replace(topologyFile(free), "name: shop", "name: shop\ncountHeader: tries", 1), nil, nil},
		{"another count header, with a processor", topologyFile(free), strings.Replace(topologyFile(free), "name: shop", "name: shop\ncountHeader: tries", 1), consumer("shop.a.failed"), nil},
		{"another type of generated queues", topologyFile(free), strings.Replace(topologyFile(free), "type: classic", "type: quorum", 1), nil, nil},
		{"retry queue gone", topologyFile(free), topologyFile(free), remove("queues", "shop.a.retry.1m"), nil},
		{"failed queue gone", topologyFile(free), topologyFile(free), remove("queues", "shop.a.failed"), nil},
		{"unroutable queue gone", topologyFile(free), topologyFile(free), remove("queues", "shop.unroutable"), nil},
		{"backoff no longer used", topologyFile(with("name: q, backoff: b")), topologyFile(none), nil, nil},
		{"backoff no longer used, with a failed message", topologyFile(with("name: q, backoff: b")), topologyFile(none), message("shop.b.failed"), nil},
		{"backoff no longer used, with a processor", topologyFile(with("name: q, backoff: b")), topologyFile(none), consumer("shop.b.failed"), nil},
		{"everything removed", topologyFile(direct, bound), "version: 1\nname: shop\n", nil, drops},
		{"work queue removed, with a message, skipped", topologyFile(free), topologyFile(none), message("q"), []string{"--skip-blocked"}},
		{"work queue removed, bound, skipped", topologyFile(direct, bound), topologyFile(none), nil, []string{"--skip-blocked"}},
		{"backoff no longer used, with a processor, skipped", topologyFile(with("name: q, backoff: b")), topologyFile(none), consumer("shop.b.failed"), []string{"--skip-blocked"}},
		{"arguments now, with a message, skipped", topologyFile(with("name: q, deadLetterBy: policy")), topologyFile(free), message("q"), []string{"--skip-blocked"}},
		{"legacy queue alive", topologyFile(none), topologyFile(direct, with("name: q, replaces: old, bindings: [{exchange: e, key: k}]")), put("queues", "old", durable("", nil)), nil},
		{"legacy queue gone", topologyFile(none), topologyFile(direct, with("name: q, replaces: old, bindings: [{exchange: e, key: k}]")), nil, nil},
	}
}

// propertiesKey gives what the management API calls a binding of ours.
func propertiesKey(p place, source, queue, key string) string {
	p.t.Helper()
	var list []struct {
		Key        string `json:"routing_key"`
		Properties string `json:"properties_key"`
	}
	if err := json.Unmarshal(p.target.Call(p.t, "GET", "bindings/"+url.PathEscape(p.target.VHost)+"/e/"+source+"/q/"+queue, nil), &list); err != nil {
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

// TestCases plays each case on the broker: the plan is as the table says, apply
// exits as it says, and when all was written the next plan is empty.
func TestCases(t *testing.T) {
	t.Parallel()
	const golden = "testdata/cases.txt"
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for block := range strings.SplitSeq(string(data), "\n\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(block), "\n")
		want[strings.TrimPrefix(name, "== ")] = rest
	}
	all := cases()
	got := make([]string, len(all))
	t.Run("case", func(t *testing.T) {
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

// play gives what the plan says and the exit code of apply. As the broker's
// statistics lag, it plans until the plan is as wanted, but not for ever.
func (c oneCase) play(t *testing.T, want string) string {
	t.Helper()
	target := brokertest.VHost(t)
	dir := t.TempDir()
	before, after := filepath.Join(dir, "before.yaml"), filepath.Join(dir, "after.yaml")
	for path, text := range map[string]string{before: c.before, after: c.after} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := dlxctl(target, "apply", "--yes", "-f", before); code != 0 {
		t.Fatalf("the first apply exits with %d:\n%s", code, out)
	}
	if c.between != nil {
		c.between(place{t, target, target.Channel(t)})
	}
	got := ""
	wanted, _, _ := strings.Cut(want, "apply exits with ")
	patience := 30 * time.Second // statistics are 5 seconds old, and later on a busy machine
	if *update {
		patience = 8 * time.Second
	}
	tick := time.NewTicker(500 * time.Millisecond) // other tests wait for this broker
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		got = planned(t, target, append([]string{"-f", after}, c.flags...))
		if got == wanted && !*update || time.Now().After(end) {
			break
		}
	}
	code, out := dlxctl(target, append([]string{"apply", "--yes", "-f", after}, c.flags...)...)
	if code == 0 && !strings.Contains(out, "but to delete") {
		if code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", after); code != 0 && !strings.Contains(out, "no changes, and drift") {
			t.Errorf("the next plan exits with %d:\n%s", code, out)
		}
	}
	got += fmt.Sprintf("apply exits with %d", code)
	if slices.Contains(c.flags, "--skip-blocked") {
		got += "\nand leaves\n" + strings.TrimSpace(planned(t, target, []string{"-f", after}))
	}
	return got
}

// planned gives a line for each change, drift and warning of a plan.
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
		t.Fatalf("this is no plan:\n%s", out)
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
		fmt.Fprintf(&b, "warning %s\n", w.Name)
	}
	return b.String()
}
