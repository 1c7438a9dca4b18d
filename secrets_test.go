package main

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

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
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

// connection is one, as the management API tells of it.
type connection struct {
	Name, User string
	Since      int64 `json:"connected_at"` // milliseconds of Unix time
}

// A whole run, from init to the end of a migration, with what goes wrong on the
// way: nothing that dlxctl prints, logs, saves, tells the broker or shows in the
// list of processes holds the password, in any of its forms, or a message's body.
func TestNothingTellsSecrets(t *testing.T) { //nolint:paralleltest // other tests' connections are not to be read
	const password, body = "s3cr3t: p@ss/w#rd?%ü", "b0dy of a message"
	target := brokertest.VHost(t)
	user := target.User(t, "administrator", ".*", ".*", ".*")
	target.Call(t, "PUT", "users/"+user.Username, map[string]any{"password": password, "tags": "administrator"})
	dir := t.TempDir()
	writeTo(t, filepath.Join(dir, "topology.yaml"), secretsFile)
	passwordFile := filepath.Join(t.TempDir(), "password") // beside dir, which is searched
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
	target.Call(t, "PUT", "queues/"+url.PathEscape(target.VHost)+"/old", map[string]any{"durable": true, "auto_delete": false, "arguments": map[string]any{}})

	forms := []string{
		password, "s3cr3t", "p@ss", body, "b0dy", url.QueryEscape(password), url.PathEscape(password),
		base64.StdEncoding.EncodeToString([]byte(user.Username + ":" + password)), base64.StdEncoding.EncodeToString([]byte(body)), base64.StdEncoding.EncodeToString([]byte(password)),
	}
	search := func(where, text string) {
		t.Helper()
		for _, f := range forms {
			if strings.Contains(text, f) {
				t.Errorf("%s holds %q:\n%s", where, f, text)
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
		search("what dlxctl "+strings.Join(args, " ")+" prints", out)
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
		ch := target.Channel(t)
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{MessageId: "m", Body: []byte(body), Headers: amqp.Table{"h": body}})
		if err != nil || !c.Wait() {
			t.Fatalf("publish to %s: %v", exchange, err)
		}
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
		if out := run(0, own.String(), append(debug, "process", "--until-empty", "--log-format", "json")...); !strings.Contains(out, `"level":"INFO"`) {
			t.Errorf("no log:\n%s", out)
		}
	}
	publish("", "shop.a.failed") // its key is the address of no queue
	awaitReady(t, target, "shop.a.failed")
	run(0, own.String(), append(debug, "process", "--until-empty")...)
	run(0, own.String(), "status")
	run(0, own.String(), "status", "-o", "json")
	awaitReady(t, target, "q.dead")
	awaitReady(t, target, "shop.unroutable")
	run(0, own.String(), append(debug, "migrate", "--yes", "--settle", "10ms", "--idle", "500ms")...)
	awaitReady(t, target, "new")

	for name, wrong := range map[string]string{
		"another password": with(func(u *url.URL) { u.User = url.UserPassword(user.Username, password+"!") }),
		"another user":     with(func(u *url.URL) { u.User = url.UserPassword("nobody", password) }),
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
		for _, args := range [][]string{{"process", "--until-empty"}, {"plan"}, {"apply", "--yes"}, {"status"}, {"migrate", "--dry-run"}} {
			code := 1
			if slices.Contains([]string{"another scheme", "not escaped", "a wrong port", "a wrong query"}, name) {
				code = 64 // it is no URL of a broker
			}
			if args[0] != "process" && args[0] != "apply" && (name == "TLS" || name == "a wrong port") {
				continue // they do not use that door
			}
			run(code, wrong, append(debug, args...)...)
		}
		user.API = api
	}
	// Files that hold a password are named, and not shown.
	run(0, with(func(u *url.URL) { u.User = url.User(user.Username) }), append(debug, "plan", "--password-file", passwordFile)...)
	run(1, own.String(), "plan", "--ca-file", passwordFile)

	// A processor that goes on, and whose connection is closed: what it tells the
	// broker and what it says.
	began := time.Now()
	p := startIn(t, dir, brokertest.Target{URL: own.String(), API: user.API}, append(debug, "process")...)
	var connections string
	var list []connection
	eventually(t, "the processor's connections", func() bool {
		connections = string(target.Call(t, "GET", "vhosts/"+url.PathEscape(target.VHost)+"/connections", nil))
		if err := json.Unmarshal([]byte(connections), &list); err != nil {
			t.Fatal(err)
		}
		list = slices.DeleteFunc(list, func(c connection) bool { return c.User != user.Username || c.Since < began.UnixMilli() })
		return len(list) > 0
	})
	search("what the broker tells of the connections", connections)
	commandLine(p)
	target.Call(t, "DELETE", "connections/"+url.PathEscape(list[0].Name), nil)
	eventually(t, "the end of the connection", func() bool { return strings.Contains(p.stderr.String(), "level=WARN") })
	p.signal(t, syscall.SIGINT)
	p.exits(t, 0)
	search("what the processor prints", p.stdout.String()+p.stderr.String())

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
