package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/rogpeppe/go-internal/testscript"
	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// targetKey is the key of a script's brokertest.Target, testKey of its testing.TB, and
// servicesKey of its running services, by queue.
type (
	targetKey   struct{}
	testKey     struct{}
	servicesKey struct{}
)

// commands are the verbs that the scripts have in addition to those of testscript.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exits":    exits,
		"api":      api,
		"defined":  defined,
		"publish":  publish,
		"expect":   expect,
		"fail":     fail,
		"requeue":  requeue,
		"filled":   filled,
		"user":     user,
		"as":       asGranted,
		"tags":     tags,
		"hold":     hold,
		"waitfor":  waitfor,
		"cisteps":  ciSteps,
		"consume":  consume,
		"service":  service,
		"remember": remember,
	}
}

// exits runs a program and checks its exit code: exits 3 dlxctl apply --yes.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT]...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code is %d, not %d", got, want)
	}
}

// api calls the management API as the administrator: api PUT /api/queues/$VHOST/q
// [FILE]. The answer becomes the file "answer".
func api(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: api METHOD PATH [FILE]")
	}
	var body io.Reader = http.NoBody
	if len(args) == 3 {
		body = bytes.NewReader([]byte(ts.ReadFile(args[2])))
	}
	target, err := url.Parse(ts.Getenv("RABBITMQ_API_URL") + args[1])
	ts.Check(err)
	req, err := http.NewRequest(args[0], target.String(), body) //nolint:noctx // a script has no context
	ts.Check(err)
	admin, _ := ts.Value(targetKey{}).(brokertest.Target)
	req.SetBasicAuth(admin.Username, admin.Password)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // the broker may end an idle connection in the moment in which it is used again
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), answer, 0o600))
	if (resp.StatusCode >= http.StatusBadRequest) != neg {
		ts.Fatalf("%s %s: %s %s", args[0], args[1], resp.Status, answer)
	}
}

// defined writes what the virtual host has into FILE, a line each, in an order that
// does not change as the broker's own does: defined FILE.
func defined(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: defined FILE")
	}
	target, _ := ts.Value(targetKey{}).(brokertest.Target)
	tb, _ := ts.Value(testKey{}).(testing.TB)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(target.Definitions(tb), "\n")), 0o600))
}

// publish sends a persistent message, or several, and waits for the confirms. A body is JSON, and
// in it and in the id {n} is the number of the message, from 1:
// publish EXCHANGE KEY MESSAGE-ID [BODY [MESSAGES]].
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 5 {
		ts.Fatalf("usage: publish EXCHANGE KEY MESSAGE-ID [BODY [MESSAGES]]")
	}
	list := make([]amqp091.Publishing, 1)
	if len(args) == 5 {
		n, err := strconv.Atoi(args[4])
		ts.Check(err)
		list = make([]amqp091.Publishing, n)
	}
	for i := range list {
		number := func(s string) string { return strings.ReplaceAll(s, "{n}", strconv.Itoa(i+1)) }
		m := amqp091.Publishing{MessageId: number(args[2]), Body: []byte("body of " + args[2])}
		if len(args) > 3 {
			m.ContentType, m.Body = "application/json", []byte(number(args[3]))
		}
		list[i] = m
	}
	ts.Check(brokertest.Publish(context.Background(), channel(ts), args[0], args[1], list...))
}

// fail rejects a message each time it comes to QUEUE, TIMES times:
// fail QUEUE MESSAGE-ID TIMES.
func fail(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: fail QUEUE MESSAGE-ID TIMES")
	}
	rejectEach(ts, args, false)
}

// requeue rejects a message with requeue each time it comes to QUEUE, TIMES times:
// requeue QUEUE MESSAGE-ID TIMES.
func requeue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: requeue QUEUE MESSAGE-ID TIMES")
	}
	rejectEach(ts, args, true)
}

// rejectEach rejects a message each time it comes: queue, message-id and times are args.
func rejectEach(ts *testscript.TestScript, args []string, requeue bool) {
	times, err := strconv.Atoi(args[2])
	ts.Check(err)
	for range times {
		m := await(ts, channel(ts), args[0])
		if m.MessageId != args[1] {
			ts.Fatalf("%s delivered message %q, not %q", args[0], m.MessageId, args[1])
		}
		ts.Check(m.Reject(requeue))
	}
}

// filled waits until QUEUE holds NUMBER messages, or one, which it leaves there:
// filled QUEUE [NUMBER].
func filled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: filled QUEUE [NUMBER]")
	}
	wanted := 1
	if len(args) == 2 {
		var err error
		wanted, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	ch := channel(ts)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		q, err := ch.QueueDeclarePassive(args[0], true, false, false, false, nil)
		ts.Check(err)
		if q.Messages >= wanted {
			return
		}
	}
	ts.Fatalf("%d messages did not come to %s", wanted, args[0])
}

// expect waits for a message in QUEUE and checks its headers, then removes it:
// expect QUEUE MESSAGE-ID [HEADER=VALUE]...
func expect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: expect QUEUE MESSAGE-ID [HEADER=VALUE]...")
	}
	m := await(ts, channel(ts), args[0])
	if m.MessageId != args[1] {
		ts.Fatalf("%s holds message %q, not %q", args[0], m.MessageId, args[1])
	}
	for _, a := range args[2:] {
		name, want, _ := strings.Cut(a, "=")
		got, err := json.Marshal(m.Headers[name])
		ts.Check(err)
		if text, ok := m.Headers[name].(string); ok {
			got = []byte(text)
		}
		if string(got) != want {
			ts.Fatalf("header %s is %s, not %s", name, got, want)
		}
	}
	ts.Check(m.Ack(false)) // the test has seen what it wanted
}

// await polls for a message for a limited time.
func await(ts *testscript.TestScript, ch *amqp091.Channel, queue string) amqp091.Delivery {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		m, ok, err := ch.Get(queue, false)
		ts.Check(err)
		if ok {
			return m
		}
	}
	ts.Fatalf("no message came to %s", queue)
	return amqp091.Delivery{}
}

// user makes a user with tags and permissions (a dash is none), as whom the
// script goes on: user TAGS CONFIGURE WRITE READ.
func user(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: user TAGS CONFIGURE WRITE READ")
	}
	for i, a := range args {
		args[i] = strings.TrimPrefix(a, "-")
	}
	target, _ := ts.Value(targetKey{}).(brokertest.Target)
	tb, _ := ts.Value(testKey{}).(testing.TB)
	ts.Setenv("RABBITMQ_URL", target.User(tb, args[0], args[1], args[2], args[3]).URL)
}

// asGranted makes a user with the rights that 'dlxctl rights' prints for NAME and the topology.yaml
// of the script, as whom the script goes on: as desk. Without topology.yaml they are those that the
// last program has printed as JSON.
func asGranted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: as NAME")
	}
	target, _ := ts.Value(targetKey{}).(brokertest.Target)
	if _, err := os.Stat(ts.MkAbs("topology.yaml")); err != nil {
		tb, _ := ts.Value(testKey{}).(testing.TB)
		var printed struct {
			Grants []struct {
				User, Configure, Write, Read string
				Tags                         []string
			}
		}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &printed))
		for _, g := range printed.Grants {
			if g.User == args[0] {
				ts.Setenv("RABBITMQ_URL", target.User(tb, strings.Join(g.Tags, ","), g.Configure, g.Write, g.Read).URL)
			}
		}
		return
	}
	t, _ := ts.Value(testKey{}).(*testing.T)
	ts.Setenv("RABBITMQ_URL", as(t, target, grant(t, ts.ReadFile("topology.yaml"), args[0])).URL)
}

// tags makes a user with the tag management, these tags and all permissions, as whom
// the script goes on: tags policymaker.
func tags(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: tags TAG...")
	}
	target, _ := ts.Value(targetKey{}).(brokertest.Target)
	tb, _ := ts.Value(testKey{}).(testing.TB)
	ts.Setenv("RABBITMQ_URL", target.Tool(tb, args...).URL)
}

// waitfor runs a program until it prints TEXT, or with ! until it does not, whatever its exit code:
// waitfor TEXT PROGRAM [ARGUMENT]...
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: waitfor TEXT PROGRAM [ARGUMENT]...")
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			_, exited := errors.AsType[*exec.ExitError](err)
			if !exited {
				ts.Check(err)
			}
		}
		if strings.Contains(ts.ReadFile("stdout"), args[0]) != neg {
			return
		}
	}
	ts.Fatalf("what %s prints did not change: %q", args[1], args[0])
}

// ciSteps writes all shell commands of a job of a sample in templates/ci to steps.sh:
// cisteps SAMPLE JOB.
func ciSteps(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cisteps SAMPLE JOB")
	}
	data, err := os.ReadFile(ts.Getenv("CI_SAMPLES") + "/" + args[0])
	ts.Check(err)
	type job struct {
		Extends string
		Before  []string `yaml:"before_script"`
		Script  []string
		Steps   []struct{ Run string }
	}
	var file, jobs map[string]yaml.Node
	ts.Check(yaml.Unmarshal(data, &file))
	if node, ok := file["jobs"]; ok { // GitHub's are below a key, GitLab's are not
		ts.Check(node.Decode(&jobs))
	} else {
		jobs = file
	}
	read := func(name string) (found job) {
		node := jobs[name]
		ts.Check(node.Decode(&found))
		return found
	}
	found := read(args[1])
	var commands []string
	if found.Extends != "" {
		commands = read(found.Extends).Before
	}
	commands = append(commands, found.Script...)
	for _, s := range found.Steps {
		commands = append(commands, s.Run)
	}
	if len(commands) < 2 { // one installs dlxctl
		ts.Fatalf("%s has no job %s with commands", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs("steps.sh"), []byte(strings.Join(commands, "\n")+"\n"), 0o600))
}

// consume consumes from a queue until the script ends: consume QUEUE.
func consume(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: consume QUEUE")
	}
	_, err := channel(ts).Consume(args[0], "", false, false, false, false, nil)
	ts.Check(err)
}

// service consumes from a queue until the script ends, and acknowledges each message, or rejects
// the ones whose body has TEXT in it: service QUEUE [TEXT]. A later service takes over. With more
// arguments it publishes these messages, with all that they have and more headers, before it
// acknowledges them, as frameworks do: service QUEUE TEXT EXCHANGE KEY [HEADER=VALUE]...
// In a value, {exchange} and {key} are those with which the message came.
func service(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) == 3 {
		ts.Fatalf("usage: service QUEUE [TEXT [EXCHANGE KEY [HEADER=VALUE]...]]")
	}
	ch := channel(ts)
	_, err := ch.QueueDeclarePassive(args[0], true, false, false, false, nil)
	ts.Check(err)
	services, _ := ts.Value(servicesKey{}).(*sync.Map)
	if former, running := services.Swap(args[0], ch); running {
		ts.Check(former.(*amqp091.Channel).Close())
	}
	deliveries, err := ch.Consume(args[0], "", false, false, false, false, nil)
	ts.Check(err)
	go func() {
		for m := range deliveries {
			// The broker delivers a message again if one of these fails.
			switch fails := len(args) > 1 && bytes.Contains(m.Body, []byte(args[1])); {
			case !fails:
				_ = m.Ack(false)
			case len(args) == 2:
				_ = m.Reject(false)
			default:
				_ = brokertest.Publish(context.Background(), ch, args[2], args[3], asFailed(m, args[4:]))
				_ = m.Ack(false)
			}
		}
	}()
}

// asFailed returns a message as a framework publishes it to its error queue.
func asFailed(m amqp091.Delivery, headers []string) amqp091.Publishing {
	out := amqp091.Publishing{
		Headers: amqp091.Table{}, ContentType: m.ContentType, MessageId: m.MessageId, Timestamp: m.Timestamp,
		Type: m.Type, Body: m.Body,
	}
	maps.Copy(out.Headers, m.Headers)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		out.Headers[name] = strings.NewReplacer("{exchange}", m.Exchange, "{key}", m.RoutingKey).Replace(value)
	}
	return out
}

// remember sets a variable to what the parentheses of REGEXP match in the output of the last
// program: remember NAME REGEXP.
func remember(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: remember NAME REGEXP")
	}
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("the output has no match for %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// hold holds a lock until the script ends, as the user of the script: hold QUEUE.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold QUEUE")
	}
	_, err := channelAs(ts, ts.Getenv("RABBITMQ_URL")).QueueDeclare(args[0], false, false, true, false, nil)
	ts.Check(err)
}

// channel opens a connection of the administrator that ends with the script.
func channel(ts *testscript.TestScript) *amqp091.Channel {
	target, _ := ts.Value(targetKey{}).(brokertest.Target)
	return channelAs(ts, target.URL)
}

// channelAs opens a connection that ends with the script.
func channelAs(ts *testscript.TestScript, amqpURL string) *amqp091.Channel {
	conn, err := amqp091.Dial(amqpURL)
	ts.Check(err)
	ts.Defer(func() { conn.Close() })
	ch, err := conn.Channel()
	ts.Check(err)
	return ch
}
