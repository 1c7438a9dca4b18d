package e2e_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
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
delays: [{name: shop.later, to: events, max: 2s}]
queues:
  - {name: billing, owner: team, bindings: [{exchange: events, key: order}]}
  - {name: mail, dead: {queue: graves}, bindings: [{exchange: legacy.bus, key: mail}]}
  - {name: crm.inbox, external: true, bindings: [{exchange: inner, key: crm}]}
  - {name: parked, backoff: none}
`

// rightsLess removes what rightsFile declares and adds one queue.
const rightsLess = `
version: 1
name: shop
defaults: {backoff: none, type: classic}
queues:
  - {name: rest, dead: shared}
removed: [billing, mail, parked, shop.later]
`

// prepared returns a virtual host with the external objects of the files, and the paths of both
// files.
func prepared(t *testing.T) (target brokertest.Target, shop, less string) {
	t.Helper()
	target = brokertest.VHost(t)
	putExchange(t, target, "legacy.bus")
	putQueue(t, target, "crm.inbox", nil)
	return target, writeTopology(t, rightsFile), writeTopology(t, rightsLess)
}

// legacyStage creates an exchange events and legacy queues in a virtual host, each bound to the
// exchange and holding a message with its name as message-id. It returns the path of a file that
// replaces the queues by new.0, new.1 and so on.
func legacyStage(t *testing.T, target brokertest.Target, queueType string, names ...string) (file string) {
	t.Helper()
	putExchange(t, target, "events")
	ch := target.Channel(t)
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {backoff: a, type: %s}\nbackoff: {a: {tiers: [50ms]}}\n", queueType)
	b.WriteString("exchanges: [{name: events}]\nqueues:\n")
	for i, name := range names {
		brokertest.Declare(t, ch, name, nil)
		key := fmt.Sprintf("k.%d", i)
		brokertest.Bind(t, ch, name, key, "events", nil)
		brokertest.PublishConfirmed(t, ch, "events", key, amqp091.Publishing{MessageId: name})
		fmt.Fprintf(&b, "  - {name: new.%d, replaces: %s, bindings: [{exchange: events, key: %s}]}\n", i, quoted(name), key)
	}
	return writeTopology(t, b.String())
}

// as returns a user with the rights of a grant.
func as(t *testing.T, target brokertest.Target, g generate.Grant) brokertest.Target {
	t.Helper()
	return target.User(t, strings.Join(g.Tags, ","),
		generate.Expression(g.Configure), generate.Expression(g.Write), generate.Expression(g.Read))
}

// grant returns what 'dlxctl rights' prints for a user.
func grant(t *testing.T, text, user string) generate.Grant {
	t.Helper()
	grants := generate.Rights(compiled(t, text))
	i := slices.IndexFunc(grants, func(g generate.Grant) bool { return g.User == user })
	if i < 0 {
		t.Fatalf("dlxctl rights prints no grant for %s: %+v", user, grants)
	}
	return grants[i]
}

// union permits what either grant permits.
func union(a, b generate.Grant) generate.Grant {
	a.Configure = slices.Concat(a.Configure, b.Configure)
	a.Write = slices.Concat(a.Write, b.Write)
	a.Read = slices.Concat(a.Read, b.Read)
	return a
}

// right is one entry of a grant.
type right struct {
	permission string // configure, write, read or tag
	expression string
}

func (r right) String() string { return r.permission + " " + r.expression }

// object is the name that an error message has for the right.
func (r right) object() string {
	return strings.ReplaceAll(strings.TrimSuffix(r.expression, ".*"), `\`, "")
}

// lists returns the lists of a grant by their permission.
func lists(g *generate.Grant) map[string]*[]string {
	return map[string]*[]string{
		"configure": (*[]string)(&g.Configure), "write": (*[]string)(&g.Write), "read": (*[]string)(&g.Read), "tag": &g.Tags,
	}
}

// rightsOf returns the entries of a grant, without the tag management, which plan needs already.
func rightsOf(g generate.Grant) []right {
	var all []right
	for permission, list := range lists(&g) {
		for _, expression := range *list {
			if expression != "management" {
				all = append(all, right{permission, expression})
			}
		}
	}
	return all
}

// without returns a grant that lacks one right.
func without(g generate.Grant, missing right) generate.Grant {
	list := lists(&g)[missing.permission]
	*list = slices.DeleteFunc(slices.Clone(*list), func(s string) bool { return s == missing.expression })
	return g
}

// With the rights that 'dlxctl rights' prints, apply, publishers, consumers and the processor
// work, and apply removes everything again.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	target, shop, less := prepared(t)
	users := map[string]brokertest.Target{}
	grants := generate.Rights(compiled(t, rightsFile))
	for _, g := range grants {
		users[g.User] = as(t, target, g)
	}
	ci := users["ci"]
	succeeds(t, ci, "apply", "--yes", "-f", shop)
	succeeds(t, ci, "plan", "--detailed-exitcode", "-f", shop)

	brokertest.PublishConfirmed(t, users["publisher"].Channel(t), "events", "order", amqp091.Publishing{MessageId: "m"})
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
	succeeds(t, users["processor"], "process", "--until-empty", "-f", shop)
	if again := <-deliveries; again.MessageId != "m" || again.Ack(false) != nil {
		t.Fatalf("the retried message is %q, not m", again.MessageId)
	}
	brokertest.PublishConfirmed(t, users["publisher"].Channel(t), "shop.later", "order",
		amqp091.Publishing{MessageId: "later", Headers: amqp091.Table{"x-delay": int32(1000)}})
	p := start(t, users["processor"], "process", "-f", shop)
	if due := <-deliveries; due.MessageId != "later" || due.Ack(false) != nil {
		t.Fatalf("the delayed message is %q, not later", due.MessageId)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
	brokertest.Unbind(t, team, "billing", "order", "events", nil)
	if err := team.Close(); err != nil {
		t.Fatal(err)
	}

	ci = as(t, target, union(grants[0], generate.Rights(compiled(t, rightsLess))[0]))
	brokertest.Eventually(t, "the queues of the delay to count no message", func() bool {
		_, out := dlxctl(ci, "plan", "-f", less)
		return !strings.Contains(out, "the delay shop.later is to be removed")
	})
	succeeds(t, ci, "apply", "--yes", "--wait",
		"--allow", "drops-routing", "--allow", "loses-messages", "--allow", "stops-consumers", "-f", less)
	succeeds(t, ci, "plan", "--detailed-exitcode", "-f", less)
}

// A service may write to the exchange of failures, where it says why a message failed. So it can
// forge failures of the queues of other services.
func TestAServiceCanForgeFailures(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, shop, _ := prepared(t)
	succeeds(t, target, "apply", "--yes", "-f", shop)
	team := as(t, target, grant(t, rightsFile, "team")).Channel(t)
	for _, key := range []string{"@mail", "@parked", "@unknown"} {
		brokertest.PublishConfirmed(t, team, "shop.failed", key, amqp091.Publishing{MessageId: key})
	}
	succeeds(t, target, "process", "--until-empty", "-f", shop)
	ch := target.Channel(t)
	for key, queue := range map[string]string{"@mail": "mail", "@parked": "parked.dead", "@unknown": "shop.unroutable"} {
		if d := brokertest.Take(t, ch, queue); d.MessageId != key {
			t.Errorf("%s holds the message %q, not %s", queue, d.MessageId, key)
		}
	}
}

// Without one of the rights apply names it before the first write: when it creates what the file
// declares, or when it removes that again.
func TestEachRightIsNeeded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	// The list of removed queues adds rights for their dead-letter queues by a guess at the
	// names, and read for the case that these are quorum queues.
	certain, _, _ := strings.Cut(rightsLess, "removed:")
	full := union(generate.Rights(compiled(t, rightsFile))[0], generate.Rights(compiled(t, certain))[0])
	for _, missing := range rightsOf(full) {
		t.Run(missing.String(), func(t *testing.T) {
			t.Parallel()
			target, shop, less := prepared(t)
			user := as(t, target, without(full, missing))
			refused := false
			for _, file := range []string{shop, less} {
				apply := []string{"apply", "--yes", "--allow", "drops-routing", "--allow", "loses-messages", "-f", file}
				before := target.Definitions(t)
				code, out := dlxctl(user, append(slices.Clone(apply), "--allow", "stops-consumers")...)
				if code == 0 {
					continue // this file does not need the right
				}
				if refused = true; code != 1 || !strings.Contains(out, missing.object()) {
					t.Errorf("apply exits with %d and does not name %s:\n%s", code, missing.object(), out)
				}
				unchanged(t, target, before, "apply without "+missing.String())
				succeeds(t, target, apply...)
			}
			if !refused {
				t.Errorf("apply succeeds without %s", missing)
			}
		})
	}
}

// With the rights that 'dlxctl rights' prints for migrate, a migration finishes, and an unfinished
// one is rolled back.
func TestMigrateRightsSuffice(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			names := []string{"old", "bills/üb.er (a|b)"}
			file := legacyStage(t, target, queueType, names...)
			user := as(t, target, grant(t, readFile(t, file), "migrator"))
			succeeds(t, user, "migrate", "--yes", "--until", "cutover", "--settle", "10ms", "-f", file)
			succeeds(t, user, "migrate", "abort", "--yes", "--settle", "10ms", "-f", file)
			for _, name := range names {
				awaitReady(t, target, name)
			}
			succeeds(t, user, "migrate", "--yes", "--settle", "10ms", "--idle", "300ms", "-f", file)
			migrated(t, target, names)
			succeeds(t, user, "apply", "--yes", "-f", file)
			succeeds(t, user, "plan", "--detailed-exitcode", "-f", file)
		})
	}
}

// migrated checks that the message of each legacy queue of a legacyStage is in its successor.
func migrated(t *testing.T, target brokertest.Target, names []string) {
	t.Helper()
	ch := target.Channel(t)
	for i, name := range names {
		queue := fmt.Sprintf("new.%d", i)
		if d := brokertest.Take(t, ch, queue); d.MessageId != name {
			t.Errorf("%s holds message %q, not %q", queue, d.MessageId, name)
		} else if err := d.Ack(false); err != nil { // the test has seen it
			t.Error(err)
		}
	}
}

// Without one of its rights migrate names it and writes nothing.
func TestEachMigrateRightIsNeeded(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := legacyStage(t, target, "classic", "old")
	full := grant(t, readFile(t, file), "migrator")
	before := target.Definitions(t)
	for _, missing := range rightsOf(full) {
		if missing == (right{"configure", "events"}) {
			continue // the exchange exists already
		}
		user := as(t, target, without(full, missing))
		code, out := dlxctl(user, "migrate", "--yes", "--settle", "10ms", "--idle", "300ms", "-f", file)
		if code != 1 || !strings.Contains(out, missing.object()) {
			t.Errorf("migrate without %s exits with %d and does not name %s:\n%s", missing, code, missing.object(), out)
		}
		unchanged(t, target, before, "migrate without "+missing.String())
	}
}

// unchanged checks that the virtual host holds the same objects as before.
func unchanged(t *testing.T, target brokertest.Target, before []string, what string) {
	t.Helper()
	if d := cmp.Diff(before, target.Definitions(t)); d != "" {
		t.Fatalf("%s writes to the broker (-before +after):\n%s", what, d)
	}
}

// Commands that only read need the tag management and no permission. The broker still requires an
// entry in its list of permissions.
func TestReadersNeedNoPermission(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := legacyStage(t, target, "quorum", "old")
	reader, untagged := target.User(t, "management", "^$", "^$", "^$"), target.User(t, "", "^$", "^$", "^$")
	saved := filepath.Join(t.TempDir(), "plan.json")
	before := target.Definitions(t)
	exits := func(user brokertest.Target, want int, text string, args ...string) {
		t.Helper()
		if code, out := dlxctl(user, append(args, "-f", file)...); code != want || !strings.Contains(out, text) {
			t.Errorf("%q exits with %d, not %d, or does not print %q:\n%s", args, code, want, text, out)
		}
		unchanged(t, target, before, fmt.Sprintf("%q", args))
	}
	for _, args := range [][]string{
		{"plan"},
		{"plan", "--save", saved},
		{"plan", "-o", "json"},
		{"status"},
		{"migrate", "status"},
		{"migrate", "--dry-run"},
	} {
		exits(reader, 0, "", args...)
		exits(untagged, 1, "lacks the tag management", args...)
	}
	exits(reader, 1, `may not declare the queue "shop.lock"`, "apply", "--yes")
	exits(reader, 1, `may not declare the queue "shop.lock"`, "migrate", "--yes")
	for _, args := range [][]string{{"validate"}, {"compile"}, {"rights"}} {
		exits(untagged, 0, "", args...)
	}
}

// An audit of a user who sees no virtual host is an error, and not one that found nothing: CI would
// be green.
func TestAnAuditOfNothingFails(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	blind := target.User(t, "management", "", "", "")
	permission := url.PathEscape(target.VHost) + "/" + url.PathEscape(blind.Username)
	target.Call(t, "DELETE", "permissions/"+permission, nil)
	p := start(t, blind, "audit", "--all-vhosts", "--fail-on", "lost")
	p.exits(t, 1)
	if said := p.stderr.String(); !strings.Contains(said, "has permissions in no virtual host") {
		t.Errorf("it says %q", said)
	}
}

// With exactly the rights that are printed, a service declares a queue that a match covers, apply
// binds it, a processor retries its messages, and its consumer says why one failed.
func TestRightsOfAMatchSuffice(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, match is refused")
	}
	const text = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [100ms]}}
queues: [{match: '^svc\.(?!mine$)', external: true}]
`
	path := writeTopology(t, text)
	ci, service, processor := as(t, target, grant(t, text, "ci")), as(t, target, grant(t, text, "services")),
		as(t, target, grant(t, text, "processor"))
	declare := func(queue string) *amqp091.Channel {
		ch := service.Confirming(t)
		brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": "quorum"})
		brokertest.PublishConfirmed(t, target.Confirming(t), "", queue, amqp091.Publishing{MessageId: queue})
		return ch
	}
	early := declare("svc.early") // apply binds it
	succeeds(t, ci, "apply", "--yes", "-f", path)
	late := declare("svc.late") // the processor does
	p := start(t, processor, "process", "-f", path)
	p.logs(t, "connected")

	if d := brokertest.Take(t, early, "svc.early"); d.Reject(false) != nil {
		t.Fatal("it cannot be rejected")
	}
	d := brokertest.Take(t, late, "svc.late")
	brokertest.PublishConfirmed(t, late, "shop.failed", "@svc.late", amqp091.Publishing{
		MessageId: d.MessageId, Headers: amqp091.Table{
			"retry-error": "no stock", "retry-exchange": d.Exchange, "retry-routing-key": d.RoutingKey,
		},
	})
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	for ch, queue := range map[*amqp091.Channel]string{early: "svc.early", late: "svc.late"} {
		d := brokertest.Take(t, ch, queue)
		if d.MessageId != queue || d.Headers["retry-attempts"] != int64(1) || d.Ack(false) != nil {
			t.Errorf("%s has %q with %v", queue, d.MessageId, d.Headers)
		}
	}
	succeeds(t, ci, "plan", "--detailed-exitcode", "-f", path)
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
	// The broker counts the consumer of the processor for some seconds after its end.
	succeeds(t, ci, "destroy", "--yes", "--wait=1m", "--allow", "loses-messages", "--allow", "drops-routing",
		"--allow", "stops-consumers", "-f", path)
	if err := service.Channel(t).QueueBind("svc.early", "k", "amq.topic", false, nil); err == nil {
		t.Error("a service may bind to an exchange that the file does not have")
	}
	if _, err := service.Channel(t).QueueDeclare("other", true, false, false, false, nil); err == nil {
		t.Error("a service may declare a queue that the match does not cover")
	}
}

// With the rights that 'dlxctl rights' prints for apply, and replace: true in the file, apply
// replaces a queue under its name. Without one of those that only this needs, plan warns of it, and
// apply names it and writes nothing.
func TestReplacementRightsSuffice(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	const queue = "bills/üb.er (a|b)"
	replaces := `
version: 1
name: shop
defaults: {backoff: a}
backoff: {a: {tiers: [50ms]}}
exchanges: [{name: events}]
queues:
  - {name: "` + queue + `", replace: true, bindings: [{exchange: events, key: k.0}, {exchange: events, key: k.1}]}
`
	legacyStage(t, target, "classic", queue)
	file := writeTopology(t, replaces)
	full := grant(t, replaces, "ci")
	needed := grant(t, strings.ReplaceAll(replaces, "replace: true, ", ""), "ci")
	before := target.Definitions(t)
	for _, missing := range rightsOf(full) {
		if slices.Contains(rightsOf(needed), missing) {
			continue
		}
		user := as(t, target, without(full, missing))
		code, out := dlxctl(user, "apply", "--yes", "--settle", "10ms", "-f", file)
		if code != 1 || !strings.Contains(out, missing.object()) {
			t.Errorf("apply without %s exits with %d and does not name %s:\n%s", missing, code, missing.object(), out)
		}
		unchanged(t, target, before, "apply without "+missing.String())
		if code, out = dlxctl(user, "plan", "--require-rights", "-f", file); code != 1 ||
			!strings.Contains(out, missing.object()) {
			t.Errorf("plan without %s exits with %d and does not name it:\n%s", missing, code, out)
		}
	}
	user := as(t, target, full)
	succeeds(t, user, "plan", "--require-rights", "-f", file)
	succeeds(t, user, "apply", "--yes", "--settle", "10ms", "-f", file)
	succeeds(t, user, "plan", "--detailed-exitcode", "-f", file)
	if d := brokertest.Take(t, target.Channel(t), queue); d.MessageId != queue {
		t.Errorf("the queue holds message %q, not %q", d.MessageId, queue)
	}
}
