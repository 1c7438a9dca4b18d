package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/oidctest"
)

const pageFile = `
version: 1
name: shop
backoff: {quick: {tiers: [10ms]}}
exchanges: [{name: events, type: topic}]
defaults: {backoff: none}
queues:
  - {name: billing, owner: team-billing, bindings: [{exchange: events, key: "order.*"}]}
`

// deadOrders applies the topology of the page tests, and has n orders rejected.
func deadOrders(t *testing.T, target brokertest.Target, n int) (file string) {
	t.Helper()
	file = writeTopology(t, pageFile)
	succeeds(t, target, "apply", "-f", file, "--yes")
	ch := target.Confirming(t)
	for i := range n {
		brokertest.PublishConfirmed(t, ch, "events", "order.placed", amqp091.Publishing{
			MessageId: fmt.Sprint("order-", i), ContentType: "application/json", Headers: amqp091.Table{"tenant": "eu-1"},
			Body: fmt.Appendf(nil, `{"order":%d,"country":%q,"card":"4111-secret","mail":"ann@example.com"}`, i, []string{"AT", "DE"}[i%2]),
		})
	}
	for range n {
		brokertest.Eventually(t, "a message in billing", func() bool {
			m, ok, err := ch.Get("billing", false)
			return err == nil && ok && m.Reject(false) == nil
		})
	}
	brokertest.Eventually(t, "the dead letters", func() bool {
		q, err := ch.QueueDeclarePassive("billing.dead", true, false, false, false, nil)
		return err == nil && q.Messages == n
	})
	return file
}

// browser is a client that is signed in to a page.
type browser struct {
	t                  *testing.T
	base, cookie, csrf string
	// seen is all that the page has answered.
	seen strings.Builder
}

// openPage opens the URL that a process has printed.
func openPage(t *testing.T, p *process) *browser {
	t.Helper()
	printed := regexp.MustCompile(`(http://[^/\s]+)/open\?token=\w+`)
	var found []string
	brokertest.Eventually(t, "the URL of the page", func() bool {
		found = printed.FindStringSubmatch(p.stdout.String())
		return found != nil
	}, &p.stdout, &p.stderr)
	b := &browser{t: t, base: found[1]}
	resp, err := http.Get(found[0]) //nolint:noctx // the process ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if len(resp.Cookies()) != 1 {
		t.Fatalf("the printed URL answers %s without a cookie", resp.Status)
	}
	b.cookie = resp.Cookies()[0].String()
	b.csrf, _ = b.call("GET", "/api/session", nil, 200)["csrf"].(string)
	return b
}

// call sends a request as the page does, and checks the status of the answer.
func (b *browser) call(method, path string, body any, status int) map[string]any {
	b.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Cookie", strings.Split(b.cookie, ";")[0])
	if method == "POST" {
		r.Header.Set("X-Csrf-Token", b.csrf)
		r.Header.Set("Origin", b.base)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	b.seen.Write(text)
	if resp.StatusCode != status {
		b.t.Fatalf("%s %s answers %d, not %d: %s", method, path, resp.StatusCode, status, text)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		b.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
	return out
}

// The page shows the dead letters of a real broker, read-only and without what is masked, and ends
// with the first signal.
func TestThePageShowsDeadLetters(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	file := deadOrders(t, target, 40)
	p := start(t, target, "desk", "serve", "-f", file, "--listen", "127.0.0.1:0",
		"--redact", "body.card", "--redact", "email")
	b := openPage(t, p)
	queues := b.call("GET", "/api/queues", nil, 200)["queues"].([]any)
	if first := queues[0].(map[string]any); first["name"] != "billing.dead" || first["owner"] != "team-billing" {
		t.Errorf("the queues are %v", queues)
	}
	look := map[string]any{"queue": "billing.dead", "where": `body.country == "AT"`, "by": "key"}
	snapshot := b.call("POST", "/api/look", look, 200)
	if snapshot["matched"] != 20.0 {
		t.Errorf("%v messages match: %v", snapshot["matched"], snapshot)
	}
	rows := b.call("GET", fmt.Sprintf("/api/rows?snapshot=%v", snapshot["id"]), nil, 200)["rows"].([]any)
	if len(rows) != 20 || rows[1].(map[string]any)["position"] != 2.0 || rows[0].(map[string]any)["cause"] != "rejected" {
		t.Errorf("the rows are %v", rows)
	}
	message := b.call("POST", "/api/message", map[string]any{"snapshot": snapshot["id"], "row": 3}, 200)
	if message["id"] != "order-6" || message["queue"] != "billing" || message["key"] != "order.placed" {
		t.Errorf("the message is %v", message)
	}
	for _, masked := range []string{"4111-secret", "ann@"} {
		if strings.Contains(b.seen.String(), masked) {
			t.Errorf("the page has answered with %q:\n%s", masked, b.seen.String())
		}
	}
	look = map[string]any{"queue": "billing.dead", "where": `body.card == "4111-secret"`}
	if found := b.call("POST", "/api/look", look, 200)["matched"]; found != 0.0 {
		t.Errorf("%v messages were found by a masked value", found)
	}
	b.call("POST", "/api/look", map[string]any{"queue": "billing"}, 404)
	b.call("POST", "/api/propose", map[string]any{"queue": "billing.dead", "action": "replay"}, 403)
	p.signal(t, syscall.SIGINT)
	p.exits(t, 0)
}

// Without a topology file the page shows the dead-letter queues of a virtual host that dlxctl did
// not make, also one that comes later, and replays. Its command lines work without a file, too.
func TestThePageWithoutAFile(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	die := func(work, dead string) {
		t.Helper()
		for queue, args := range map[string]amqp091.Table{
			dead: nil, work: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
		} {
			brokertest.Declare(t, ch, queue, args)
		}
		body := []byte(`{"city":"Graz"}`)
		brokertest.PublishConfirmed(t, ch, "", work, amqp091.Publishing{ContentType: "application/json", Body: body})
		brokertest.Eventually(t, "the message", func() bool {
			m, ok, err := ch.Get(work, false)
			return err == nil && ok && m.Reject(false) == nil
		})
		brokertest.Eventually(t, "the dead letter", func() bool { return brokertest.Ready(t, ch, dead) == 1 })
	}
	die("shipping", "shipping.dlq")
	p := startIn(t, t.TempDir(), target, "desk", "serve", "--listen", "127.0.0.1:0", "--allow", "replay")
	b := openPage(t, p)
	listed := func() (names []string) {
		for _, q := range b.call("GET", "/api/queues", nil, 200)["queues"].([]any) {
			names = append(names, q.(map[string]any)["name"].(string))
		}
		return names
	}
	if got := listed(); !slices.Equal(got, []string{"shipping.dlq"}) {
		t.Errorf("the queues are %v", got)
	}
	b.call("POST", "/api/look", map[string]any{"queue": "later.dlq"}, 404)
	die("later", "later.dlq")
	brokertest.Eventually(t, "a queue that came later", func() bool { return slices.Contains(listed(), "later.dlq") })
	snapshot := b.call("POST", "/api/look", map[string]any{"queue": "later.dlq"}, 200)
	message := b.call("POST", "/api/message", map[string]any{"snapshot": snapshot["id"], "row": 0}, 200)
	if message["queue"] != "later" || strings.Contains(b.seen.String(), "Graz") {
		t.Errorf("the message is %v, and what must be masked is not known:\n%s", message, &b.seen)
	}
	comment := map[string]any{"snapshot": snapshot["id"], "group": 0, "text": "known"}
	if says := b.call("POST", "/api/comment", comment, 409)["error"]; says != "comments need a topology file that manages dead letters; name one with -f" {
		t.Errorf("a comment without a file is answered with %q", says)
	}
	ask := map[string]any{"queue": "later.dlq", "action": "replay", "rate": "none", "ramp": "none", "stopOn": "never"}
	shown := b.call("POST", "/api/propose", ask, 200)
	b.call("POST", "/api/execute", map[string]any{"proposal": shown["id"], "expect": 1}, 200)
	brokertest.Eventually(t, "the replay", func() bool { return brokertest.Ready(t, ch, "later") == 1 })
	line := strings.Fields(message["command"].(string))
	again := startIn(t, t.TempDir(), target, line[1:]...)
	again.exits(t, 1) // the message has gone
	says := fmt.Sprint("no message has the handle ", message["handle"])
	if !strings.Contains(again.stderr.String(), says) {
		t.Errorf("%q does not say %q:\n%s", line, says, &again.stderr)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// The address of the page, and what it may do, are checked before anything is read.
func TestThePageRefusesUnsafeFlags(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	file := writeTopology(t, pageFile)
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"an address of others": {[]string{"--listen", "0.0.0.0:0"}, "--tls-key and --token-file or --oidc-issuer"},
		"any address":          {[]string{"--listen", ":0"}, "other machines can reach this address"},
		"no key":               {[]string{"--tls-cert", "c.pem"}, "pass both"},
		"an unknown action":    {[]string{"--allow", "replay,purge"}, `"purge"`},
	} {
		code, out := run(append([]string{"desk", "serve", "-f", file}, c.flags...)...)
		if code != 64 || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d:\n%s", name, code, out)
		}
	}
}

// A replay on the page is the replay of the command line that the page shows.
func TestThePageReplays(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	file := deadOrders(t, target, 12)
	p := start(t, target, "desk", "serve", "-f", file, "--listen", "127.0.0.1:0", "--allow", "replay")
	b := openPage(t, p)
	ask := map[string]any{
		"queue": "billing.dead", "action": "replay", "where": `body.country == "AT"`, "rate": "none",
		"ramp": "none", "stopOn": "never",
	}
	shown := b.call("POST", "/api/propose", ask, 200)
	if shown["chosen"] != 6.0 || len(shown["refusals"].([]any)) > 0 {
		t.Fatalf("proposed is %v", shown)
	}
	b.call("POST", "/api/execute", map[string]any{"proposal": shown["id"], "expect": 6}, 200)
	var runs any
	brokertest.Eventually(t, "the end of the run", func() bool {
		runs = b.call("GET", "/api/runs", nil, 200)["runs"]
		run := runs.([]any)[0].(map[string]any)
		return run["ended"] != nil && run["result"].(map[string]any)["moved"] == 6.0
	}, &runs)
	ask = map[string]any{"queue": "billing.dead", "action": "replay", "to": "exchange:events", "key": "order.again"}
	shown = b.call("POST", "/api/propose", ask, 200)
	if !strings.Contains(fmt.Sprint(shown["command"]), "--to exchange:events --key order.again") ||
		!strings.Contains(fmt.Sprint(shown["reaches"]), "queue:billing") {
		t.Errorf("a replay to an exchange is shown as %v", shown)
	}
	b.call("POST", "/api/propose", map[string]any{"queue": "billing.dead", "action": "replay", "to": "exchange:"}, 400)
	ch := target.Channel(t)
	for _, queue := range []string{"billing", "billing.dead"} {
		if n := brokertest.Ready(t, ch, queue); n != 6 {
			t.Errorf("%s has %d messages", queue, n)
		}
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// A page that ends with a run in progress stops the run, names it, and loses nothing.
func TestThePageNamesTheRunsThatItStops(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	file := deadOrders(t, target, 12)
	p := start(t, target, "desk", "serve", "-f", file, "--listen", "127.0.0.1:0", "--allow", "replay")
	b := openPage(t, p)
	// The first batch is one message, and no consumer reads it: the run waits.
	shown := b.call("POST", "/api/propose", map[string]any{"queue": "billing.dead", "action": "replay", "ramp": "1"}, 200)
	b.call("POST", "/api/execute", map[string]any{"proposal": shown["id"], "expect": 12}, 200)
	var run map[string]any
	brokertest.Eventually(t, "the first message to be sent", func() bool {
		run = b.call("GET", "/api/runs", nil, 200)["runs"].([]any)[0].(map[string]any)
		return run["progress"].(map[string]any)["done"] == 1.0
	}, &run)
	p.signal(t, syscall.SIGINT)
	p.exits(t, 2)
	for _, says := range []string{
		fmt.Sprint("run ", run["run"], ": moved 1, 11 left"), fmt.Sprint("dlxctl desk run resume ", run["run"]),
	} {
		if !strings.Contains(p.stderr.String(), says) {
			t.Errorf("stderr does not say %q:\n%s", says, &p.stderr)
		}
	}
	ch := target.Channel(t)
	if n := brokertest.Ready(t, ch, "billing"); n != 1 {
		t.Errorf("billing has %d messages", n)
	}
	succeeds(t, target, "desk", "run", "return", fmt.Sprint(run["run"]), "-f", file, "--yes")
	brokertest.Eventually(t, "the rest to be back", func() bool {
		q, err := ch.QueueDeclarePassive("billing.dead", true, false, false, false, nil)
		return err == nil && q.Messages == 11
	})
}

// A team signs in with a provider. Each may do what the role says, and what a person does is logged
// with the name.
func TestATeamSignsIn(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	file := deadOrders(t, target, 12)
	provider := oidctest.Start(t, "http://127.0.0.1/signed-in")
	p := start(t, target, "desk", "serve", "-f", file, "--listen", "127.0.0.1:0", "--oidc-issuer", provider.Issuer,
		"--oidc-client", "public", "--role", "reader="+oidctest.Support, "--role", "operator="+oidctest.OnCall)
	printed := regexp.MustCompile(`The desk of shop: (http://[^/\s]+)/\n`)
	brokertest.Eventually(t, "the URL of the page", func() bool { return printed.MatchString(p.stdout.String()) },
		&p.stdout, &p.stderr)
	base := printed.FindStringSubmatch(p.stdout.String())[1]
	said := "People sign in with " + provider.Issuer + ", which must know the redirect URL " + base + "/signed-in."
	if !strings.Contains(p.stdout.String(), said) {
		t.Errorf("it prints\n%s", p.stdout.String())
	}
	signIn := func(name string) *browser {
		t.Helper()
		c := oidctest.Client(t, base)
		resp, text := oidctest.Fetch(t, c, "GET", oidctest.Back(t, c, base+"/sign-in", name), nil)
		b := &browser{t: t, base: base}
		for _, cookie := range resp.Cookies() {
			if cookie.Value != "" {
				b.cookie = cookie.String()
			}
		}
		if b.cookie == "" {
			t.Fatalf("%s is answered with %s", name, text)
		}
		b.csrf, _ = b.call("GET", "/api/session", nil, 200)["csrf"].(string)
		return b
	}
	ask := map[string]any{
		"queue": "billing.dead", "action": "replay", "where": `body.country == "AT"`, "rate": "none", "ramp": "none",
	}
	rita, otto := signIn("rita"), signIn("otto")
	rita.call("POST", "/api/look", map[string]any{"queue": "billing.dead"}, 200)
	rita.call("POST", "/api/propose", ask, 403)
	shown := otto.call("POST", "/api/propose", ask, 200)
	otto.call("POST", "/api/execute", map[string]any{"proposal": shown["id"], "expect": 6}, 200)
	brokertest.Eventually(t, "the end of the run", func() bool {
		run := rita.call("GET", "/api/runs", nil, 200)["runs"].([]any)[0].(map[string]any)
		return run["ended"] != nil && run["by"] == "otto@example.com" && run["result"].(map[string]any)["moved"] == 6.0
	})
	log := p.stderr.String()
	if !strings.Contains(log, `msg="run started"`) || !strings.Contains(log, "by=otto@example.com") {
		t.Errorf("the log is\n%s", log)
	}
	p.signal(t, syscall.SIGINT)
	p.exits(t, 0)
}
