package e2e_test

import (
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// patient brings about the troubles of docs/troubleshooting.md, and collects what dlxctl and the
// broker say about them.
type patient struct {
	reader
	file  string
	heard strings.Builder
}

// says runs dlxctl, as the user of a target, and collects its output.
func (p *patient) says(target brokertest.Target, args ...string) {
	p.Helper()
	_, out := dlxctl(target, args...)
	p.heard.WriteString(out)
}

// with returns a topology file in which one text of the file is another one.
func (p *patient) with(from, to string) string {
	p.Helper()
	text := strings.ReplaceAll(readFile(p.T, p.file), from, to)
	if text == readFile(p.T, p.file) {
		p.Fatalf("the file has no %q", from)
	}
	return writeTopology(p.T, text)
}

const troubledFile = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s, 1m]}}
exchanges: [{name: events}]
queues:
  - {name: billing, bindings: [{exchange: events, key: "order.*"}]}
  - {name: mail, bindings: [{exchange: events, key: mail}]}
`

// beforeApply has the troubles of the first minutes.
func (p *patient) beforeApply() {
	p.Helper()
	nowhere := p.target
	nowhere.URL, nowhere.API = "amqp://guest:guest@localhost:1/", "http://localhost:1"
	p.says(p.target, "plan", "-f", "topology.yaml")
	p.says(nowhere, "plan", "-f", p.file)
	p.says(nowhere, "process", "--until-empty", "-f", p.file)
	p.says(p.target, "apply", "-f", p.file)
	p.says(p.target, "process", "--until-empty", "-f", p.file)
	p.says(p.target, "plan", "-f", p.with("name: shop", "name: shop\ncluster: production"))
	p.says(p.target.User(p.T, "", ".*", ".*", ".*"), "plan", "-f", p.file)
	p.says(p.target.User(p.T, "management", "", "", ""), "apply", "--yes", "-f", p.file)
	p.says(p.target.User(p.T, "management", `^shop\.lock$`, "", ""), "apply", "--yes", "-f", p.file)
	silent := p.target
	silent.API = silence(p.T)
	p.says(silent, "plan", "--timeout", "1s", "-f", p.file)
	p.says(p.target, "validate", "-f", p.with("{name: mail,", "{name: mail, arguments: {x-max-length: 10},"))
}

// silence returns the URL of something that takes each request and answers none.
func silence(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return "http://" + l.Addr().String()
}

// afterApply has the troubles of later.
func (p *patient) afterApply() {
	p.Helper()
	saved := filepath.Join(p.dir, "plan.json")
	p.says(p.target, "plan", "--save", saved, "-f", p.file)
	p.says(p.target, "apply", "--yes", "-f", p.file)
	p.says(p.target, "apply", "--yes", saved)
	service := p.target.Channel(p.T)
	_, err := service.QueueDeclare("billing", true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
	p.heard.WriteString(err.Error() + "\n")
	ch := p.target.Confirming(p.T)
	brokertest.PublishConfirmed(p.T, ch, "", "shop.standard.failed", amqp091.Publishing{MessageId: "m-1"})
	p.says(p.target, "process", "--until-empty", "-f", p.file)
	p.says(p.target, "apply", "--yes", "-f", p.with("  - {name: billing,", "  - {name: billing, type: classic,"))
	p.says(p.target, "apply", "--yes", "-f", p.with("\n  - {name: mail, bindings: [{exchange: events, key: mail}]}", ""))
	brokertest.Declare(p, ch, "invoices", nil)
	p.says(p.target, "apply", "--yes", "-f", p.with("{name: mail,", "{name: invoices,"))
	p.says(p.target, "apply", "--yes", "-f", p.with("queues:", "queues: [{name: orders}]\nx-none:"))
	if _, err := ch.QueueDeclare("shop.lock", false, false, true, false, nil); err != nil {
		p.Fatal(err)
	}
	p.says(p.target, "apply", "--yes", "-f", p.with("1m]", "2m]"))
	p.target.Call(p.T, "PUT", "policies/"+p.target.VHost+"/limit", map[string]any{
		"pattern": "^mail$", "definition": map[string]any{"max-length": 10}, "apply-to": "queues",
	})
	p.says(p.target, "plan", "-f", p.file)
	brokertest.PublishConfirmed(p.T, ch, "", "shop.standard.failed", amqp091.Publishing{MessageId: "m-2"})
	var out string
	brokertest.Eventually(p.T, "status to see both messages", func() bool {
		_, out = dlxctl(p.target, "status", "-f", p.file)
		return strings.Contains(out, "unroutable:") && strings.Contains(out, "shop.standard.failed, where 1 message waits")
	}, &out)
	p.heard.WriteString(out)
}

// Each entry of the troubleshooting page begins with the messages that a person would search for.
// dlxctl, or the broker, prints each of them when the trouble is there. A "..." in the page is any
// text.
func TestMessagesOfTroubleshooting(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	p := &patient{reader: reader{t, brokertest.VHost(t), t.TempDir()}, file: writeTopology(t, troubledFile)}
	p.beforeApply()
	p.afterApply()
	heard := p.heard.String()
	heard = regexp.MustCompile(`/\S*/(\w+\.yaml)`).ReplaceAllString(heard, "$1")
	heard = regexp.MustCompile(`user-Test[\w-]+`).ReplaceAllString(heard, "ci")
	heard = strings.ReplaceAll(heard, p.target.VHost, "/")
	const page = "../docs/troubleshooting.md"
	entries := strings.Split(readFile(t, page), "\n## ")[1:]
	for _, entry := range entries {
		if !regexp.MustCompile("^.*\n\n```text\n").MatchString(entry) {
			name, _, _ := strings.Cut(entry, "\n")
			t.Errorf("the entry %q does not begin with a message", name)
		}
	}
	for _, b := range blocks(t, page, "text") {
		for _, message := range b.lines {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(message), `\.\.\.`, `.*`)
			if !regexp.MustCompile(pattern).MatchString(heard) {
				t.Errorf("neither dlxctl nor the broker prints %q", message)
			}
		}
	}
	if t.Failed() {
		t.Logf("they print:\n%s", heard)
	}
}
