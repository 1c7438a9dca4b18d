package main

import (
	"bytes"
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
	"github.com/dlxctl/dlxctl/cmd"
	"github.com/dlxctl/dlxctl/generate"
)

const rightsFile = `
version: 1
name: shop
defaults: {backoff: standard, type: classic}
backoff: {standard: {tiers: [100ms]}}
exchanges:
  - {name: events}
  - {name: inner, type: direct, bindings: [{exchange: events, key: in}]}
  - {name: legacy.bus, external: true}
queues:
  - {name: billing, owner: team, bindings: [{exchange: events, key: order}]}
  - {name: mail, dead: {queue: graves}, bindings: [{exchange: legacy.bus, key: mail}]}
  - {name: crm.inbox, external: true, bindings: [{exchange: inner, key: crm}]}
`

// rightsLess is the same with everything gone, and one queue that is new.
const rightsLess = `
version: 1
name: shop
defaults: {backoff: none, type: classic}
queues:
  - {name: rest, dead: shared}
removed: [billing, mail]
`

// prepared gives a virtual host with what the file takes for granted, and a
// folder with both files.
func prepared(t *testing.T) (brokertest.Target, string) {
	t.Helper()
	target := brokertest.VHost(t)
	vhost := url.PathEscape(target.VHost)
	target.Call(t, "PUT", "exchanges/"+vhost+"/legacy.bus", map[string]any{"type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": map[string]any{}})
	target.Call(t, "PUT", "queues/"+vhost+"/crm.inbox", map[string]any{"durable": true, "auto_delete": false, "arguments": map[string]any{}})
	dir := t.TempDir()
	for name, text := range map[string]string{"shop.yaml": rightsFile, "less.yaml": rightsLess} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return target, dir
}

// dlxctl runs the program as the user of target.
func dlxctl(target brokertest.Target, args ...string) (code int, output string) {
	var out bytes.Buffer
	args = append(args, "--url", target.URL, "--api", target.API)
	code = cmd.Main(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// as gives the user of a grant.
func as(t *testing.T, target brokertest.Target, g generate.Grant) brokertest.Target {
	t.Helper()
	return target.User(t, strings.Join(g.Tags, ","), generate.Expression(g.Configure), generate.Expression(g.Write), generate.Expression(g.Read))
}

// With what 'dlxctl rights' prints everything works: applying, publishing,
// consuming and processing, and taking it all away again.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	target, dir := prepared(t)
	users := map[string]brokertest.Target{}
	grants := generate.Rights(compiled(t, rightsFile))
	for _, g := range grants {
		users[g.User] = as(t, target, g)
	}
	ci := users["ci"]
	must := func(user brokertest.Target, args ...string) {
		t.Helper()
		if code, out := dlxctl(user, args...); code != 0 {
			t.Fatalf("dlxctl %s exits with %d:\n%s", strings.Join(args, " "), code, out)
		}
	}
	shop, less := filepath.Join(dir, "shop.yaml"), filepath.Join(dir, "less.yaml")
	must(ci, "apply", "--yes", "-f", shop)
	must(ci, "plan", "--detailed-exitcode", "-f", shop)

	ch := users["publisher"].Channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("events", "order", true, false, amqp.Publishing{MessageId: "m"})
	if err != nil || !confirm.Wait() {
		t.Fatalf("publish: %v", err)
	}
	team := users["team"].Channel(t)
	if err := team.QueueBind("billing", "order", "events", false, nil); err != nil {
		t.Fatalf("bind again: %v", err)
	}
	deliveries, err := team.Consume("billing", "", false, false, false, false, nil)
	if err != nil {
		t.Fatalf("consume: %v", err)
	}
	d := <-deliveries
	if err := d.Reject(false); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, target, "shop.standard.failed")
	must(users["processor"], "process", "--until-empty", "-f", shop)
	if again := <-deliveries; again.MessageId != "m" || again.Ack(false) != nil {
		t.Fatalf("%q came back", again.MessageId)
	}
	if err := team.QueueUnbind("billing", "order", "events", nil); err != nil {
		t.Fatal(err)
	}
	if err := team.Close(); err != nil {
		t.Fatal(err)
	}

	ci = as(t, target, union(grants[0], generate.Rights(compiled(t, rightsLess))[0]))
	must(ci, "apply", "--yes", "--wait", "--allow", "drops-routing", "--allow", "loses-messages", "--allow", "stops-consumers", "-f", less)
	must(ci, "plan", "--detailed-exitcode", "-f", less)
}

// union permits what either does.
func union(a, b generate.Grant) generate.Grant {
	a.Configure, a.Write, a.Read = slices.Concat(a.Configure, b.Configure), slices.Concat(a.Write, b.Write), slices.Concat(a.Read, b.Read)
	return a
}

// awaitReady waits until a queue holds a message.
func awaitReady(t *testing.T, target brokertest.Target, queue string) {
	t.Helper()
	ch := target.Channel(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		if m, ok, err := ch.Get(queue, false); err == nil && ok && m.Nack(false, true) == nil {
			return
		}
	}
	t.Fatalf("no message came to %s", queue)
}

// With one right less, apply says which before the first write: from nothing to
// the file, or from the file to nothing.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	// The list of removed queues adds rights for their dead-letter queues by a guess at the
	// names, and read for the case that these are quorum queues.
	certain, _, _ := strings.Cut(rightsLess, "removed:")
	full := union(generate.Rights(compiled(t, rightsFile))[0], generate.Rights(compiled(t, certain))[0])
	for _, permission := range []string{"configure", "write", "read", "tag"} {
		list := map[string][]string{"configure": full.Configure, "write": full.Write, "read": full.Read, "tag": full.Tags}[permission]
		for _, missing := range list {
			if missing == "management" {
				continue // without it there is no plan
			}
			t.Run(fmt.Sprintf("%s %s", permission, missing), func(t *testing.T) {
				t.Parallel()
				target, dir := prepared(t)
				g := full
				less := func(list []string) []string {
					return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == missing })
				}
				switch permission {
				case "configure":
					g.Configure = less(g.Configure)
				case "write":
					g.Write = less(g.Write)
				case "read":
					g.Read = less(g.Read)
				default:
					g.Tags = less(g.Tags)
				}
				user := as(t, target, g)
				refused := false
				for _, file := range []string{"shop.yaml", "less.yaml"} {
					before := target.Definitions(t)
					code, out := dlxctl(user, "apply", "--yes", "--allow", "drops-routing", "--allow", "loses-messages", "--allow", "stops-consumers", "-f", filepath.Join(dir, file))
					if code == 0 {
						continue
					}
					name := strings.ReplaceAll(strings.TrimSuffix(missing, ".*"), `\`, "")
					if refused = true; code != 1 || !strings.Contains(out, name) {
						t.Errorf("apply exits with %d and does not name %s:\n%s", code, name, out)
					}
					if d := cmp.Diff(before, target.Definitions(t)); d != "" {
						t.Errorf("something was written (-before +after):\n%s", d)
					}
					if code, out := dlxctl(target, "apply", "--yes", "--allow", "drops-routing", "--allow", "loses-messages", "-f", filepath.Join(dir, file)); code != 0 {
						t.Fatalf("apply as administrator exits with %d:\n%s", code, out)
					}
				}
				if !refused {
					t.Errorf("it is not needed")
				}
			})
		}
	}
}
