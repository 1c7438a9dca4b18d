package e2e_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
)

// oddNames are names with a meaning in URLs, shells, YAML, regular expressions, terminals or AMQP.
// dlxctl must treat them as plain text.
func oddNames() []string {
	return []string{
		"a/b", "/", "50%", "%2F", "c#d", "what?", "with space", " before", "ünï-名前-🐇", "a+b&c=d;e",
		`"quoted"`, "it's", "<b>&amp;", `back\slash`, "$HOME", "${HOME}", "*", "#", "@at", "a.b.*", "^(.*)$",
		"[]", "{}", "-f", "--", "null", "~", "1", "1.0", "true", "a: b", "- a", "tab\there", "\x1b[2J", "...",
		strings.Repeat("n", 100) + strings.Repeat("é", 77),
	}
}

// quoted returns a name as YAML, in which no variable is expanded.
func quoted(name string) string {
	return fmt.Sprintf("%q", strings.ReplaceAll(name, "${", "$${"))
}

// oddFile returns a file with an exchange and a bound queue for each of the names.
func oddFile() string {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\ndefaults: {backoff: a, type: classic}\nbackoff: {a: {tiers: [50ms]}}\nexchanges:\n")
	long := strings.Repeat("x", 255)
	for _, name := range append(oddNames(), long) {
		fmt.Fprintf(&b, "  - {name: %s, type: direct}\n", quoted(name))
	}
	b.WriteString("queues:\n")
	for i, name := range append(oddNames(), strings.Repeat("y", 254)) {
		exchange := append(oddNames(), long)[i]
		fmt.Fprintf(&b, "  - {name: %[1]s, dead: shared, owner: %[1]s, bindings: [{exchange: %[2]s, keys: [%[1]s, %[3]s]}]}\n",
			quoted(name), quoted(exchange), quoted(long))
	}
	return b.String()
}

// listed returns the lists of all objects. It does not export the definitions, because 4.3.6
// truncates them for a virtual host whose name is not ASCII.
func listed(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	list := func(kind, query string) string {
		return string(target.Call(t, "GET", kind+"/"+url.PathEscape(target.VHost)+query, nil))
	}
	return []string{
		list("exchanges", "?columns=name,type"), list("queues", "?columns=name"), list("bindings", ""), list("policies", ""),
	}
}

// Every command works with objects that have odd names, in a virtual host that has one, and with no
// more rights than 'dlxctl rights' prints. At the end apply removes the objects.
func TestOddNames(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.OddVHost(t, "/a %#?é/%2F")
	before := listed(t, target)
	dir := t.TempDir()
	file, none, saved := filepath.Join(dir, "odd.yaml"), filepath.Join(dir, "none.yaml"), filepath.Join(dir, "plan.json")
	writeTo(t, file, oddFile())
	writeTo(t, none, "version: 1\nname: shop\n")
	users := map[string]brokertest.Target{}
	for _, g := range generate.Rights(compiled(t, oddFile())) {
		if g.Purpose == "plan and apply" || g.User == "processor" || g.User == "publisher" {
			users[g.User] = as(t, target, g)
		}
	}
	ci := users["ci"]
	must := func(user brokertest.Target, args ...string) {
		t.Helper()
		out := succeeds(t, user, args...)
		if strings.Contains(out, "\x1b") {
			t.Errorf("dlxctl %s prints control characters:\n%q", strings.Join(args, " "), out)
		}
	}
	must(ci, "validate", "-f", file)
	must(ci, "compile", "-f", file)
	must(ci, "compile", "-f", file, "-o", "json")
	must(ci, "rights", "-f", file)
	must(ci, "plan", "-f", file, "--verbose", "--save", saved)
	must(ci, "plan", "-f", file, "-o", "markdown")
	must(ci, "apply", "--yes", saved)
	must(ci, "plan", "--detailed-exitcode", "-f", file)
	must(ci, "status", "-f", file)
	must(ci, "status", "-f", file, "-o", "json")

	// Each message fails, waits, returns to its own queue alone, and fails for the last time.
	queues, exchanges := append(oddNames(), strings.Repeat("y", 254)), append(oddNames(), strings.Repeat("x", 255))
	ch, publisher := target.Channel(t), users["publisher"].Channel(t)
	for i, q := range queues {
		brokertest.PublishConfirmed(t, publisher, exchanges[i], q, amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	for round := range 2 {
		for i, q := range queues {
			d := brokertest.Take(t, ch, q)
			key := q
			if round > 0 && strings.HasPrefix(q, "@") {
				key = "@" + q // a key that looks like the address of a queue is not kept
			}
			if d.MessageId != fmt.Sprint(i) || d.RoutingKey != key || d.Reject(false) != nil {
				t.Fatalf("queue %q holds message %q with key %q", q, d.MessageId, d.RoutingKey)
			}
		}
		awaitReady(t, target, "shop.a.failed")
		must(users["processor"], "process", "--until-empty", "-f", file)
	}
	dead := map[string]bool{}
	brokertest.Eventually(t, "the dead letters", func() bool {
		d, ok, err := ch.Get("shop.dead", true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			dead[fmt.Sprint(d.Headers["retry-queue"])] = true
		}
		return len(dead) == len(queues)
	}, &dead)
	for _, q := range queues {
		if !dead[q] {
			t.Errorf("no dead letter has %q as its retry-queue", q)
		}
	}
	must(ci, "apply", "--yes", "--allow", "drops-routing", "--wait", "-f", none)
	if d := cmp.Diff(before, listed(t, target)); d != "" {
		t.Errorf("objects are left (-before +after):\n%s", d)
	}
}

// Legacy queues may have odd names, up to the longest that AMQP allows.
func TestMigrateOddNames(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.OddVHost(t, "/a %#?é/%2F")
	names := append(oddNames(), strings.Repeat("l", 255))
	file := legacyStage(t, target, "classic", names...)
	user := target.Tool(t, "policymaker") // all the names exceed what the permissions of 4.3 can hold
	out := succeeds(t, user, "migrate", "--yes", "--settle", "10ms", "--idle", "300ms", "-f", file)
	if strings.Contains(out, "\x1b") {
		t.Errorf("migrate prints control characters:\n%q", out)
	}
	migrated(t, target, names)
	if out := succeeds(t, user, "migrate", "status", "-f", file); !strings.Contains(out, "nothing to migrate") {
		t.Errorf("status prints:\n%s", out)
	}
}
