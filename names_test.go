package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/generate"
)

// oddly are names that mean something to URLs, shells, YAML, regular expressions,
// terminals or AMQP, and must mean nothing here.
func oddly() []string {
	return []string{
		"a/b", "/", "50%", "%2F", "c#d", "what?", "with space", " before", "ünï-名前-🐇", "a+b&c=d;e", `"quoted"`, "it's", "<b>&amp;", `back\slash`,
		"$HOME", "${HOME}", "*", "#", "@at", "a.b.*", "^(.*)$", "[]", "{}", "-f", "--", "null", "~", "1", "1.0", "true", "a: b", "- a", "tab\there", "\x1b[2J", "...",
		strings.Repeat("n", 100) + strings.Repeat("é", 77),
	}
}

// quoted gives a name as YAML, with nothing that is expanded.
func quoted(name string) string {
	return fmt.Sprintf("%q", strings.ReplaceAll(name, "${", "$${"))
}

// oddFile declares an exchange, a queue with a binding and one that replaces a
// legacy queue, for each of these names.
func oddFile() string {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\ndefaults: {backoff: a, type: classic}\nbackoff: {a: {tiers: [50ms]}}\nexchanges:\n")
	long := strings.Repeat("x", 255)
	for _, name := range append(oddly(), long) {
		fmt.Fprintf(&b, "  - {name: %s, type: direct}\n", quoted(name))
	}
	b.WriteString("queues:\n")
	for i, name := range append(oddly(), strings.Repeat("y", 254)) {
		fmt.Fprintf(&b, "  - {name: %s, dead: shared, owner: %s, bindings: [{exchange: %s, keys: [%s, %s]}]}\n", quoted(name), quoted(name), quoted(append(oddly(), long)[i]), quoted(name), quoted(long))
	}
	return b.String()
}

// oddVHost gives a virtual host with an odd name.
func oddVHost(t *testing.T) brokertest.Target {
	t.Helper()
	target := brokertest.VHost(t)
	target.VHost += "/a %#?é/%2F"
	escaped := url.PathEscape(target.VHost)
	target.Call(t, "PUT", "vhosts/"+escaped, map[string]any{})
	t.Cleanup(func() { target.Call(t, "DELETE", "vhosts/"+escaped, nil) })
	target.Call(t, "PUT", "permissions/"+escaped+"/"+url.PathEscape(target.Username), map[string]string{"configure": ".*", "write": ".*", "read": ".*"})
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path, u.RawPath = "/"+target.VHost, "/"+escaped
	target.URL = u.String()
	return target
}

// listed gives the lists of all objects. The definitions it cannot be: 4.3.6 cuts
// them short for a virtual host whose name is not ASCII.
func listed(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	vhost := url.PathEscape(target.VHost)
	return []string{
		string(target.Call(t, "GET", "exchanges/"+vhost+"?columns=name,type", nil)), string(target.Call(t, "GET", "queues/"+vhost+"?columns=name", nil)),
		string(target.Call(t, "GET", "bindings/"+vhost, nil)), string(target.Call(t, "GET", "policies/"+vhost, nil)),
	}
}

// Objects with the oddest names, in a virtual host with such a name, go through
// every command, with no more rights than 'dlxctl rights' prints, and are gone at
// the end.
func TestOddNames(t *testing.T) {
	t.Parallel()
	target := oddVHost(t)
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
	must := func(user brokertest.Target, args ...string) string {
		t.Helper()
		code, out := dlxctl(user, args...)
		if code != 0 {
			t.Fatalf("dlxctl %s exits with %d:\n%s", strings.Join(args, " "), code, out)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("dlxctl %s prints what is for the terminal:\n%q", strings.Join(args, " "), out)
		}
		return out
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

	// Each message fails, waits, comes back to its own queue alone, and fails for good.
	queues, exchanges := append(oddly(), strings.Repeat("y", 254)), append(oddly(), strings.Repeat("x", 255))
	ch, publisher := target.Channel(t), users["publisher"].Channel(t)
	if err := publisher.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for i, q := range queues {
		c, err := publisher.PublishWithDeferredConfirm(exchanges[i], q, true, false, amqp.Publishing{MessageId: fmt.Sprint(i), DeliveryMode: amqp.Persistent})
		if err != nil || !c.Wait() {
			t.Fatalf("publish to %q: %v", exchanges[i], err)
		}
	}
	for round := range 2 {
		for i, q := range queues {
			var d amqp.Delivery
			eventually(t, "a message in "+q, func() bool {
				var ok bool
				var err error
				if d, ok, err = ch.Get(q, false); err != nil {
					t.Fatal(err)
				}
				return ok
			})
			key := q
			if round > 0 && strings.HasPrefix(q, "@") {
				key = "@" + q // a key that looks like an address is not kept
			}
			if d.MessageId != fmt.Sprint(i) || d.RoutingKey != key || d.Reject(false) != nil {
				t.Fatalf("queue %q has message %q by %q", q, d.MessageId, d.RoutingKey)
			}
		}
		awaitReady(t, target, "shop.a.failed")
		must(users["processor"], "process", "--until-empty", "-f", file)
	}
	dead := map[string]bool{}
	eventually(t, "the dead letters", func() bool {
		d, ok, err := ch.Get("shop.dead", true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			dead[fmt.Sprint(d.Headers["retry-queue"])] = true
		}
		return len(dead) == len(queues)
	})
	for _, q := range queues {
		if !dead[q] {
			t.Errorf("no dead letter says that it is of %q", q)
		}
	}
	must(ci, "apply", "--yes", "--allow", "drops-routing", "--wait", "-f", none)
	if d := cmp.Diff(before, listed(t, target)); d != "" {
		t.Errorf("something is left (-before +after):\n%s", d)
	}
}
