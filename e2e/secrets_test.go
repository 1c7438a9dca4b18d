package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const secretsFile = `
version: 1
name: shop
defaults: {backoff: a, type: classic}
backoff: {a: {tiers: [10ms]}}
exchanges: [{name: events}]
queues:
  - {name: q, bindings: [{exchange: events, key: k}]}
  - {name: mail, deadLetterBy: policy}
  - {name: new, replaces: old, bindings: [{exchange: events, key: o}]}
`

// connection is a connection as the management API lists it.
type connection struct {
	Name, User string
	Since      int64 `json:"connected_at"` // milliseconds of Unix time
}

// From init to the end of a migration, with errors on the way: nothing that dlxctl prints, logs,
// saves, sends to the broker as its properties, or shows in the list of processes contains the
// password, in any of its forms, or the body of a message.
//
//nolint:paralleltest // the list of connections must not contain those of other tests
func TestNothingRevealsSecrets(t *testing.T) {
	brokertest.OnNewestLine(t)
	const password, body = "s3cr3t: p@ss/w#rd?%ü", "b0dy of a message"
	target := brokertest.VHost(t)
	user := target.User(t, "administrator", ".*", ".*", ".*")
	target.Call(t, "PUT", "users/"+user.Username, map[string]any{"password": password, "tags": "administrator"})
	dir := t.TempDir()
	writeTo(t, filepath.Join(dir, "topology.yaml"), secretsFile)
	passwordFile := filepath.Join(t.TempDir(), "password") // outside dir, which is searched
	writeTo(t, passwordFile, password+"\n")
	own, err := url.Parse(user.URL)
	if err != nil {
		t.Fatal(err)
	}
	own.User = url.UserPassword(user.Username, password)
	with := func(edit func(*url.URL)) string {
		u := *own
		edit(&u)
		return u.String()
	}
	putQueue(t, target, "old", nil)

	forms := []string{password, "s3cr3t", "p@ss", body, "b0dy", url.QueryEscape(password), url.PathEscape(password)}
	for _, secret := range []string{user.Username + ":" + password, password, body} {
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	search := func(where, text string) {
		t.Helper()
		for _, f := range forms {
			if strings.Contains(text, f) {
				t.Errorf("%s contains %q:\n%s", where, f, text)
			}
		}
	}
	commandLine := func(p *process) {
		t.Helper()
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "cmdline"))
		if err == nil { // it may have ended, and not every system has it
			search("the command line of "+strings.Join(p.Args, " "), string(line))
		}
	}
	run := func(code int, brokerURL string, args ...string) string {
		t.Helper()
		p := startIn(t, dir, brokertest.Target{URL: brokerURL, API: user.API}, args...)
		commandLine(p)
		p.exits(t, code)
		out := p.stdout.String() + p.stderr.String()
		search("the output of dlxctl "+strings.Join(args, " "), out)
		return out
	}
	reject := func(queue string) {
		t.Helper()
		awaitReady(t, target, queue)
		ch := target.Channel(t)
		d, ok, err := ch.Get(queue, false)
		if err != nil || !ok || string(d.Body) != body || d.Reject(false) != nil {
			t.Fatalf("%s: %v, %v", queue, ok, err)
		}
	}
	publish := func(exchange, key string) {
		t.Helper()
		ch := target.Confirming(t)
		m := amqp091.Publishing{MessageId: "m", Body: []byte(body), Headers: amqp091.Table{"h": body}}
		brokertest.PublishConfirmed(t, ch, exchange, key, m)
	}
	debug := []string{"--log-level", "debug"}

	run(0, own.String(), "init", "starter.yaml")
	run(0, own.String(), "validate")
	run(0, own.String(), "compile")
	run(0, own.String(), "rights")
	run(0, own.String(), "plan", "--save", "plan.json", "--verbose")
	run(0, own.String(), append(debug, "apply", "--yes", "plan.json")...)
	run(0, own.String(), "plan", "-o", "json")
	run(0, own.String(), "plan", "-o", "markdown")
	publish("events", "k")
	publish("", "old")
	for range 2 {
		reject("q")
		awaitReady(t, target, "shop.a.failed")
		out := run(0, own.String(), append(debug, "process", "--until-empty", "--log-format", "json")...)
		if !strings.Contains(out, `"level":"INFO"`) {
			t.Errorf("the processor does not log:\n%s", out)
		}
	}
	publish("", "shop.a.failed") // its key is not the address of a queue
	awaitReady(t, target, "shop.a.failed")
	run(0, own.String(), append(debug, "process", "--until-empty")...)
	run(0, own.String(), "status")
	run(0, own.String(), "status", "-o", "json")
	awaitReady(t, target, "q.dead")
	awaitReady(t, target, "shop.unroutable")
	run(0, own.String(), append(debug, "migrate", "--yes", "--settle", "10ms", "--idle", "500ms",
		"--allow", "drops-routing=old")...)
	awaitReady(t, target, "new")

	for name, wrong := range map[string]string{
		"another password": with(func(u *url.URL) { u.User = url.UserPassword(user.Username, password+"!") }),
		"another user":     with(func(u *url.URL) { u.User = url.UserPassword("unknown", password) }),
		"no broker":        with(func(u *url.URL) { u.Host = "127.0.0.1:1" }),
		"no host":          with(func(u *url.URL) { u.Host = "no.such.host.invalid" }),
		"TLS":              with(func(u *url.URL) { u.Scheme = "amqps" }),
		"another scheme":   with(func(u *url.URL) { u.Scheme = "mqtt" }),
		"another vhost":    with(func(u *url.URL) { u.Path, u.RawPath = "/nowhere", "" }),
		"not escaped":      "amqp://" + user.Username + ":" + password + "@" + own.Host + "/",
		"a wrong port":     "amqp://" + user.Username + ":" + url.QueryEscape(password) + "@h:99999/",
		"a wrong query":    own.String() + "?heartbeat=" + url.QueryEscape(password),
	} {
		api := user.API
		if name == "no broker" || name == "no host" {
			user.API = strings.Replace(api, "127.0.0.1", "127.0.0.2", 1)
		}
		for _, args := range [][]string{
			{"process", "--until-empty"}, {"plan"}, {"apply", "--yes"}, {"status"}, {"migrate", "--dry-run"},
		} {
			code := 1
			if slices.Contains([]string{"another scheme", "not escaped", "a wrong port", "a wrong query"}, name) {
				code = 64 // it is not the URL of a broker
			}
			if args[0] != "process" && args[0] != "apply" && (name == "TLS" || name == "a wrong port") {
				continue // they do not connect to that port
			}
			run(code, wrong, append(debug, args...)...)
		}
		user.API = api
	}
	// dlxctl prints the name of a file that contains a password, and not its content.
	withoutPassword := with(func(u *url.URL) { u.User = url.User(user.Username) })
	run(0, withoutPassword, append(debug, "plan", "--password-file", passwordFile)...)
	run(1, own.String(), "plan", "--ca-file", passwordFile)

	// A processor that keeps running, and whose connection the broker closes: its properties on the
	// broker and its log.
	began := time.Now()
	p := startIn(t, dir, brokertest.Target{URL: own.String(), API: user.API}, append(debug, "process")...)
	var connections string
	var list []connection
	brokertest.Eventually(t, "the processor's connections", func() bool {
		connections = string(target.Call(t, "GET", "vhosts/"+url.PathEscape(target.VHost)+"/connections", nil))
		if err := json.Unmarshal([]byte(connections), &list); err != nil {
			t.Fatal(err)
		}
		list = slices.DeleteFunc(list, func(c connection) bool {
			return c.User != user.Username || c.Since < began.UnixMilli()
		})
		return len(list) > 0
	}, &connections, &p.stderr)
	search("the list of connections", connections)
	commandLine(p)
	target.Call(t, "DELETE", "connections/"+url.PathEscape(list[0].Name), nil)
	p.logs(t, "level=WARN") // the end of the connection
	p.signal(t, syscall.SIGINT)
	p.exits(t, 0)
	search("the output of the processor", p.stdout.String()+p.stderr.String())

	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		search("the file "+path, string(data))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
