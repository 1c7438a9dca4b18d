package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/notify"
)

const notifyFile = `
version: 1
name: shop
defaults: {backoff: direct}
backoff: {direct: {tiers: []}}
queues:
  - {name: billing, owner: team-billing, severity: page}
  - {name: mail, owner: team-mail, severity: info}
notify:
  - {to: "${HOOK}/services/s3cret", owner: team-billing}
  - {to: "slack+${HOOK}/slack/${TOKEN}", severity: [page, info], template: "{{.Queue}} {{.Messages}}"}
  - {to: "smtp://alerts:${PASSWORD}@127.0.0.1:${PORT}/?from=dlxctl@example.com&to=shop@example.com", severity: page}
  - {to: "${HOOK}/hangs/s3cret"}
`

// notices are posts, by the first part of their path.
type notices struct {
	mu    sync.Mutex
	posts map[string][]string
	over  chan struct{}
}

func (n *notices) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if first == "hangs" {
		<-n.over
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.posts[first] = append(n.posts[first], string(data))
}

// Notices go to the targets of the topology file: a webhook, a chat and a mailbox. A target that
// hangs holds up nothing. Commands that send none need no secrets, and none shows them.
func TestNotifyInTheTopologyFile(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	port, mails := brokertest.MailServer(t, "SMTP_USER=alerts", "SMTP_PASSWORD=s3cret-mail")
	got := &notices{posts: map[string][]string{}, over: make(chan struct{})}
	hook := httptest.NewServer(got)
	defer hook.Close()
	defer close(got.over)
	target := brokertest.VHost(t)
	path := writeTopology(t, notifyFile)
	env := []string{"HOOK=" + hook.URL, "TOKEN=s3cret", "PASSWORD=s3cret-mail", "PORT=" + port}
	all := ""
	dlxctl := func(args ...string) {
		t.Helper()
		for _, with := range [][]string{nil, env} {
			if args[0] == "process" && with == nil || args[0] == "apply" && with != nil {
				continue
			}
			p := command(t, target, append(args, "-f", path)...)
			p.Env = append(p.Env, with...)
			p.begin(t)
			p.exits(t, 0)
			all += p.stdout.String() + p.stderr.String()
		}
	}
	dlxctl("validate")
	dlxctl("plan", "--verbose")
	dlxctl("apply", "--yes")
	dlxctl("compile", "-o", "json")
	dlxctl("generate", "alerts")
	dlxctl("status")
	ch := target.Confirming(t)
	for _, queue := range []string{"billing", "billing", "billing", "mail"} {
		brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{MessageId: "m", Body: []byte("s3cret")})
		awaitReady(t, target, queue)
		d, ok, err := target.Channel(t).Get(queue, false)
		if err != nil || !ok || d.Reject(false) != nil {
			t.Fatal(ok, err)
		}
	}
	dlxctl("process", "--until-empty")
	if strings.Contains(all, "s3cret") || !strings.Contains(all, "notices are dropped") {
		t.Errorf("a command shows a secret, or does not say that notices are dropped:\n%s", all)
	}
	messages := int64(0)
	for _, post := range got.posts["services"] {
		var p notify.Post
		if err := json.Unmarshal([]byte(post), &p); err != nil {
			t.Fatal(err)
		}
		for _, n := range p.Notices {
			messages += n.Messages
			if n.Queue != "billing" {
				t.Errorf("the target of team-billing has a notice of %s", n.Queue)
			}
		}
	}
	if chat := strings.Join(got.posts["slack"], ""); messages != 3 || !strings.Contains(chat, "billing 2") ||
		!strings.Contains(chat, "mail 1") {
		t.Errorf("the webhook has notices of %d messages; the chat has %s", messages, chat)
	}
	mail, err := os.ReadFile(filepath.Join(mails, "1.eml"))
	if err != nil || !strings.Contains(string(mail), "dead letter of billing (page, team-billing)") {
		t.Errorf("%v: the mail is\n%s", err, mail)
	}
	p := command(t, target, "process", "--until-empty", "-f", path)
	p.begin(t)
	p.exits(t, 1)
	if said := p.stderr.String(); !strings.Contains(said, "to of notify: the environment variable HOOK is not set") {
		t.Errorf("without the variables: %s", said)
	}
}

// A digest goes to a chat, a mailbox and a webhook, and no output has the address.
func TestDigestIsSent(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	port, mails := brokertest.MailServer(t)
	got := &notices{posts: map[string][]string{}, over: make(chan struct{})}
	hook := httptest.NewServer(got)
	defer hook.Close()
	target := brokertest.VHost(t)
	path := writeTopology(t, notifyFile)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	// As a consumer that says why: the message is dead at once.
	brokertest.PublishConfirmed(t, target.Confirming(t), "shop.failed", "@billing", amqp091.Publishing{
		MessageId: "m", Headers: amqp091.Table{
			"retry-error": "no answer <!channel>", "retry-error-type": "PaymentTimeout",
		},
	})
	awaitReady(t, target, "shop.direct.failed")
	process := command(t, target, "process", "--until-empty", "-f", path)
	process.Env = append(process.Env, "HOOK="+hook.URL, "TOKEN=s3cret", "PASSWORD=p", "PORT="+port)
	close(got.over)
	process.begin(t)
	process.exits(t, 0)
	brokertest.Eventually(t, "the dead letter in the statistics", func() bool {
		return strings.Contains(succeeds(t, target, "desk", "digest", "-f", path), "PaymentTimeout: no answer")
	})
	got.posts = map[string][]string{}
	for _, to := range []string{
		hook.URL + "/webhook/s3cret", "slack+" + hook.URL + "/chat/s3cret",
		"smtp://127.0.0.1:" + port + "/?from=a@example.com&to=b@example.com",
	} {
		p := command(t, target, "desk", "digest", "--to", "${TO}", "-f", path)
		p.Env = append(p.Env, "TO="+to)
		p.begin(t)
		p.exits(t, 0)
		out := p.stdout.String() + p.stderr.String()
		if strings.Contains(out, "s3cret") || !strings.HasPrefix(out, "sent to ") {
			t.Errorf("the command says %s", out)
		}
	}
	var post struct {
		Text   string
		Digest desk.Digest
	}
	if err := json.Unmarshal([]byte(got.posts["webhook"][0]), &post); err != nil || post.Digest.Messages != 1 ||
		!strings.Contains(post.Text, "&lt;!channel&gt;") {
		t.Errorf("%v: the webhook has %+v", err, post)
	}
	if chat := got.posts["chat"]; len(chat) != 1 || strings.Contains(chat[0], "<!channel>") ||
		!strings.Contains(chat[0], "team-billing") {
		t.Errorf("the chat has %s", chat)
	}
	found, _ := filepath.Glob(filepath.Join(mails, "*.eml"))
	all := ""
	for _, name := range found {
		all += readFile(t, name)
	}
	if !strings.Contains(all, "Subject: shop: 1 message died since") || !strings.Contains(all, "PaymentTimeout") {
		t.Errorf("the mails are\n%s", all)
	}
}

// A target that is added to a watched file gets notices, without a restart.
func TestNotifyIsWatched(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	got := &notices{posts: map[string][]string{}, over: make(chan struct{})}
	hook := httptest.NewServer(got)
	defer hook.Close()
	target := brokertest.VHost(t)
	before, _, _ := strings.Cut(notifyFile, "notify:")
	path := writeTopology(t, before)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	p := start(t, target, "process", "--watch", "-f", path)
	p.logs(t, "connected")
	replace(t, path, before+"notify: [{to: '"+hook.URL+"/added/s3cret'}]\n")
	p.logs(t, "files changed and are in effect")
	brokertest.PublishConfirmed(t, target.Confirming(t), "shop.failed", "@billing", amqp091.Publishing{MessageId: "m"})
	brokertest.Eventually(t, "the notice", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return len(got.posts["added"]) > 0
	}, &p.stderr)
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
	if strings.Contains(p.stderr.String(), "s3cret") {
		t.Errorf("the log has the address:\n%s", &p.stderr)
	}
}

// smtps:// begins with TLS, and checks the certificate of the server.
func TestMailOverTLS(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	authority := brokertest.NewAuthority(t)
	pair := authority.Sign(t, time.Hour, "127.0.0.1")
	port, mails := brokertest.MailServer(t, "SMTP_CERT="+pair.CertFile, "SMTP_KEY="+pair.KeyFile, "SMTP_USER=u",
		"SMTP_PASSWORD=p")
	target := brokertest.VHost(t)
	path := writeTopology(t, notifyFile)
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	for _, trusted := range []bool{false, true} {
		p := command(t, target, "desk", "digest", "-f", path, "--to",
			"smtps://u:p@127.0.0.1:"+port+"/?from=a@example.com&to=b@example.com")
		code := 1
		if trusted {
			p.Env = append(p.Env, "SSL_CERT_FILE="+authority.File)
			code = 0
		}
		p.begin(t)
		p.exits(t, code)
	}
	if mail := readFile(t, filepath.Join(mails, "1.eml")); !strings.Contains(mail, "no message died") {
		t.Errorf("the mail is\n%s", mail)
	}
}
