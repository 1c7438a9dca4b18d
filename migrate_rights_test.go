package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/generate"
)

// legacyStage gives a virtual host in which each of these queues is bound to the
// exchange events by its own name and holds a message, and a file that replaces
// them.
func legacyStage(t *testing.T, target brokertest.Target, kind string, names ...string) (file string) {
	t.Helper()
	vhost := url.PathEscape(target.VHost)
	target.Call(t, "PUT", "exchanges/"+vhost+"/events", map[string]any{"type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": map[string]any{}})
	ch := target.Channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {backoff: a, type: %s}\nbackoff: {a: {tiers: [50ms]}}\nexchanges: [{name: events}]\nqueues:\n", kind)
	for i, name := range names {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("k.%d", i)
		if err := ch.QueueBind(name, key, "events", false, nil); err != nil {
			t.Fatal(err)
		}
		c, err := ch.PublishWithDeferredConfirm("events", key, true, false, amqp.Publishing{MessageId: name})
		if err != nil || !c.Wait() {
			t.Fatalf("publish: %v", err)
		}
		fmt.Fprintf(&b, "  - {name: new.%d, replaces: %s, bindings: [{exchange: events, key: %s}]}\n", i, quoted(name), key)
	}
	file = filepath.Join(t.TempDir(), "topology.yaml")
	writeTo(t, file, b.String())
	return file
}

// migrator gives the grant that 'dlxctl rights' prints for migrate.
func migrator(t *testing.T, text string) generate.Grant {
	t.Helper()
	grants := generate.Rights(compiled(t, text))
	i := slices.IndexFunc(grants, func(g generate.Grant) bool { return g.User == "migrator" })
	if i < 0 {
		t.Fatal("no grant for migrate")
	}
	return grants[i]
}

// With what 'dlxctl rights' prints a migration goes from its first step to its
// last, and another one back.
func TestMigrateRightsSuffice(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			names := []string{"old", "bills/üb.er (a|b)"}
			file := legacyStage(t, target, kind, names...)
			user := as(t, target, migrator(t, readFile(t, file)))
			must := func(args ...string) {
				t.Helper()
				if code, out := dlxctl(user, append(args, "-f", file)...); code != 0 {
					t.Fatalf("dlxctl %s exits with %d:\n%s", strings.Join(args, " "), code, out)
				}
			}
			must("migrate", "--yes", "--until", "cutover", "--settle", "10ms")
			must("migrate", "abort", "--yes", "--settle", "10ms")
			for _, name := range names {
				awaitReady(t, target, name)
			}
			must("migrate", "--yes", "--settle", "10ms", "--idle", "300ms")
			ch := target.Channel(t)
			for i, name := range names {
				queue := fmt.Sprintf("new.%d", i)
				awaitReady(t, target, queue)
				eventually(t, "the message of "+name, func() bool {
					d, ok, err := ch.Get(queue, true)
					return err == nil && ok && d.MessageId == name
				})
			}
			must("apply", "--yes")
			must("plan", "--detailed-exitcode")
		})
	}
}

// With one right less migrate names it, and writes nothing.
func TestEachMigrateRightIsNeeded(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := legacyStage(t, target, "classic", "old")
	full := migrator(t, readFile(t, file))
	before := target.Definitions(t)
	for permission, list := range map[string]*[]string{"configure": &full.Configure, "write": &full.Write, "read": &full.Read, "tag": &full.Tags} {
		all := slices.Clone(*list)
		for _, missing := range all {
			// Without the tag management there is no plan, and the exchange is there.
			if missing == "management" || permission == "configure" && missing == "events" {
				continue
			}
			*list = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == missing })
			code, out := dlxctl(as(t, target, full), "migrate", "--yes", "--settle", "10ms", "--idle", "300ms", "-f", file)
			if name := strings.ReplaceAll(strings.TrimSuffix(missing, ".*"), `\`, ""); code != 1 || !strings.Contains(out, name) {
				t.Errorf("without %s %s it exits with %d, and does not name it:\n%s", permission, missing, code, out)
			}
			if d := cmp.Diff(before, target.Definitions(t)); d != "" {
				t.Fatalf("without %s %s something was written (-before +after):\n%s", permission, missing, d)
			}
		}
		*list = all
	}
}

// Legacy queues may have odd names, and as long ones as AMQP takes.
func TestMigrateOddNames(t *testing.T) {
	t.Parallel()
	target := oddVHost(t)
	names := append(oddly(), strings.Repeat("l", 255))
	file := legacyStage(t, target, "classic", names...)
	user := target.Tool(t, "policymaker") // all the names are more than the permissions of 4.3 can hold
	if code, out := dlxctl(user, "migrate", "--yes", "--settle", "10ms", "--idle", "300ms", "-f", file); code != 0 || strings.Contains(out, "\x1b") {
		t.Fatalf("migrate exits with %d:\n%q", code, out)
	}
	ch := target.Channel(t)
	for i, name := range names {
		eventually(t, "the message of "+name, func() bool {
			d, ok, err := ch.Get(fmt.Sprintf("new.%d", i), true)
			return err == nil && ok && d.MessageId == name
		})
	}
	code, out := dlxctl(user, "migrate", "status", "-f", file)
	if code != 0 || !strings.Contains(out, "no migration is to be done") {
		t.Errorf("status exits with %d:\n%s", code, out)
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
