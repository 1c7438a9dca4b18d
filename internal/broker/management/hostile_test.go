package management_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// impostor answers as a broker would, and answers some requests differently. It does not replace a
// broker: what a broker does is tested on one. It is a server that could run at the address of a
// broker, or a broker that is half down.
type impostor struct {
	mu      sync.Mutex
	answers map[string]string // by the part of the path behind /api/
	deleted []string
}

func (s *impostor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/get"):
		path = "get"
	case path == "queues" && strings.Contains(r.URL.Query().Get("columns"), "consumers"):
		path = "statistics"
	case path == "queues" && strings.HasSuffix(r.URL.Path, "/q"):
		path = "queue"
	}
	if r.Method == http.MethodDelete {
		s.deleted = append(s.deleted, r.URL.Path)
		return
	}
	answer, odd := s.answers[path]
	switch {
	case odd:
	case path == "overview":
		answer = `{"rabbitmq_version":"4.3.6","cluster_name":"c","exchange_types":[{"name":"topic"}]}`
	case path == "health":
		answer = `{"status":"ok"}`
	case path == "queue":
		answer = `{"members":["a","b"],"online":["a","b"]}`
	default:
		answer = `[]`
	}
	_, _ = io.WriteString(w, answer)
}

func (s *impostor) start(tb testing.TB) *management.Client {
	tb.Helper()
	return s.startNextTo(tb, "amqp://u:"+secret+"@127.0.0.1:1/")
}

// startNextTo starts s in place of the management API of a broker with this AMQP URL.
func (s *impostor) startNextTo(tb testing.TB, amqpURL string) *management.Client {
	tb.Helper()
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	return resolve(tb, broker.Config{URL: amqpURL, API: server.URL})
}

// An answer that no broker gives is an error in one line. None of them may count as an empty list:
// then a queue would look empty, or unused.
func TestMalformedAnswersAreErrors(t *testing.T) {
	t.Parallel()
	form := func(path string) string { return "its answer to /api/" + path + " has an unexpected form" }
	for name, tc := range map[string]struct{ path, answer, text string }{
		"nothing for queues":   {"queues", ``, form("queues/%2F")},
		"null for queues":      {"queues", `null`, form("queues/%2F")},
		"an object for queues": {"queues", `{}`, form("queues/%2F")},
		"a list of null":       {"queues", `[null]`, "it lists a queue without a name"},
		"a list of lists":      {"queues", `[[]]`, form("queues/%2F")},
		"a queue without a name": {
			"queues", `[{"type":"classic","arguments":{}}]`,
			"it lists a queue without a name",
		},
		"a name that is a number": {"queues", `[{"name":1}]`, form("queues/%2F")},
		"less than no messages": {
			"queues", `[{"name":"q","messages":-1}]`,
			"it lists a queue with a negative number of messages",
		},
		"half a message":            {"queues", `[{"name":"q","messages":0.5}]`, form("queues/%2F")},
		"more messages than can be": {"queues", `[{"name":"q","messages":1e30}]`, form("queues/%2F")},
		"a text for messages":       {"queues", `[{"name":"q","messages":"0"}]`, form("queues/%2F")},
		"null for statistics":       {"statistics", `null`, form("queues/%2F")},
		"statistics of nothing":     {"statistics", `[{}]`, "it lists the statistics of a queue without a name"},
		"statistics of a list":      {"statistics", `[{"name":[]}]`, form("queues/%2F")},
		"less than no consumers": {
			"statistics", `[{"name":"q","consumers":-1}]`,
			"it lists a queue with a negative number of consumers",
		},
		"a text for consumers":        {"statistics", `[{"name":"q","consumers":"0"}]`, form("queues/%2F")},
		"null for bindings":           {"bindings", `null`, form("bindings/%2F")},
		"a binding to nowhere":        {"bindings", `[{"source":"a"}]`, "it lists a binding without a destination"},
		"null for exchanges":          {"exchanges", `null`, form("exchanges/%2F")},
		"an exchange without a type":  {"exchanges", `[{"name":"e"}]`, "it lists an exchange without a type"},
		"null for policies":           {"policies", `null`, form("policies/%2F")},
		"a policy without a name":     {"policies", `[{}]`, "it lists a policy without a name"},
		"a list for the overview":     {"overview", `[]`, form("overview")},
		"an overview of nothing":      {"overview", `{}`, "it reports no version of RabbitMQ"},
		"null for the overview":       {"overview", `null`, "it reports no version of RabbitMQ"},
		"an answer that does not end": {"queues", `[{"name":"q"}`, form("queues/%2F")},
		"nesting without end":         {"queues", strings.Repeat("[", 1_000_000), form("queues/%2F")},
		"arguments nested without end": {
			"queues", `[{"name":"q","arguments":` + strings.Repeat(`{"a":`, 100_000),
			form("queues/%2F"),
		},
		"the page of another server":     {"queues", `<html>`, form("queues/%2F")},
		"another operator policy's form": {"operator-policies", `{"a":1}`, form("operator-policies/%2F")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := (&impostor{answers: map[string]string{tc.path: tc.answer}}).start(t)
			_, err := m.Inspect(t.Context())
			if err == nil || !errors.Is(err, broker.ErrUnreachable) {
				t.Fatalf("it is taken: %v", err)
			}
			text := regexp.MustCompile(`http://[0-9.:]+`).ReplaceAllString(err.Error(), "<api>")
			if want := "what answers at <api> is not RabbitMQ's management API (" + tc.text +
				"); set its URL with --api or RABBITMQ_API_URL"; text != want {
				t.Errorf("error\n got %s\nwant %s", text, want)
			}
		})
	}
}

// null is no answer to any request, and the request ends with an error in one line.
func TestNullIsNoAnswer(t *testing.T) {
	t.Parallel()
	m := (&impostor{answers: map[string]string{"whoami": `null`, "vhosts": `null`, "queue": `null`}}).start(t)
	for path, read := range map[string]func() error{
		"whoami":     func() error { _, err := m.IsAdministrator(t.Context()); return err },
		"vhosts":     func() error { _, err := m.VHostsDescribed(t.Context(), "trial"); return err },
		"queues///q": func() error { _, err := m.Delivered(t.Context(), "q"); return err },
	} {
		if err := read(); !errors.Is(err, broker.ErrUnreachable) ||
			!strings.Contains(err.Error(), "(its answer to /api/"+path+" has an unexpected form)") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, held := m.Holder(t.Context(), "q"); held {
		t.Error("a connection holds the lock")
	}
}

// Names and arguments of any size are accepted as they are, and what does not fit is reported in a
// readable line.
func TestAnswersOfAnySize(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("é", 5<<20)
	m := (&impostor{answers: map[string]string{"queues": `[{"name":"` + huge +
		`","arguments":[],"messages":0}]`}}).start(t)
	state, err := m.Inspect(t.Context())
	if err != nil || len(state.Have.Queues) != 1 || state.Have.Queues[0].Name != huge {
		t.Errorf("a name of 10 MB: %v", err)
	}
	m = (&impostor{answers: map[string]string{"queues": `[{"name":"q","arguments":"` + huge + `"}]`}}).start(t)
	if _, err = m.Inspect(t.Context()); err == nil || len(err.Error()) > 2000 {
		t.Errorf("arguments that are a text of 10 MB: an error of %d bytes", len(err.Error()))
	}
	m = (&impostor{answers: map[string]string{"queues": `[{"name":"q","arguments":{"x-a":1e400,"x-b":123456789012345678901234567890}}]`}}).start(t)
	if _, err = m.Inspect(t.Context()); err == nil || len(err.Error()) > 2000 {
		t.Errorf("numbers beyond all bounds: %v", err)
	}
}

// A queue is not deleted unless the answers prove that it is empty and unused.
func TestAQueueIsDeletedOnlyIfProvedEmpty(t *testing.T) {
	t.Parallel()
	const empty = `[{"name":"q","type":"quorum","messages":0,"messages_ready":0,"messages_unacknowledged":0}]`
	const unused = `[{"name":"q","consumers":0}]`
	for name, tc := range map[string]struct {
		answers map[string]string
		deleted bool
	}{
		"empty": {map[string]string{"queues": empty, "statistics": unused}, true},
		"counts that are not there, as of a queue whose node is down": {
			map[string]string{"queues": `[{"name":"q","type":"quorum"}]`}, false,
		},
		"counts of null": {
			map[string]string{"queues": `[{"name":"q","type":"quorum","messages":null}]`},
			false,
		},
		"counts below zero":            {map[string]string{"queues": `[{"name":"q","type":"quorum","messages":-1}]`}, false},
		"ready but not in all":         {map[string]string{"queues": `[{"name":"q","type":"quorum","messages":0,"messages_ready":1}]`}, false},
		"null for queues":              {map[string]string{"queues": `null`}, false},
		"null for statistics":          {map[string]string{"queues": empty, "statistics": `null`}, false},
		"no statistics of it":          {map[string]string{"queues": empty, "statistics": `[]`}, false},
		"statistics without consumers": {map[string]string{"queues": empty, "statistics": `[{"name":"q"}]`}, false},
		"a consumer": {
			map[string]string{"queues": empty, "statistics": `[{"name":"q","consumers":1}]`},
			false,
		},
		"statistics of who knows what":  {map[string]string{"queues": empty, "statistics": `[{"consumers":0}]`}, false},
		"null for what is in the queue": {map[string]string{"queues": empty, "statistics": unused, "get": `null`}, false},
		"an object for it":              {map[string]string{"queues": empty, "statistics": unused, "get": `{}`}, false},
		"null is in it":                 {map[string]string{"queues": empty, "statistics": unused, "get": `[null]`}, false},
		"a list for the queue itself":   {map[string]string{"queues": empty, "statistics": unused, "queue": `[]`}, false},
		"a member is down": {map[string]string{
			"queues": empty, "statistics": unused, "queue": `{"members":["a","b"],"online":["a"]}`,
		}, false},
		"a member is down, and queues do not know their members": {map[string]string{
			"queues": empty, "statistics": unused, "queue": `{"members":["a","b"],"online":["a"]}`,
			"feature-flags": `[{"name":"track_qq_members_uids","state":"disabled"}]`,
		}, false},
		"a member is down, and queues know their members": {map[string]string{
			"queues": empty, "statistics": unused, "queue": `{"members":["a","b"],"online":["a"]}`,
			"feature-flags": `[{"name":"track_qq_members_uids","state":"enabled"}]`,
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &impostor{answers: tc.answers}
			target := brokertest.VHost(t)
			args := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
			brokertest.Declare(t, target.Channel(t), "q", args)
			err := s.startNextTo(t, target.URL).Apply(t.Context(), plan.Change{
				Action: plan.Delete, Kind: topology.KindQueue, Name: "q",
				Before: topology.Queue{
					Name: "q", Durable: true,
					Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum},
				},
			})
			if deleted := len(s.deleted) > 0; deleted != tc.deleted || deleted != (err == nil) {
				t.Errorf("deleted: %t, error %v", deleted, err)
			}
		})
	}
}

// Whatever answers, reading it ends in a state that a plan can be made from, or in a readable
// error.
func FuzzAnswers(f *testing.F) {
	for path, answer := range map[string]string{
		"queues":      `[{"name":"shop.dead","type":"quorum","durable":true,"auto_delete":"undefined","arguments":{"x-managed-by":"dlxctl/shop"},"messages":1,"messages_ready":1,"policy":"p"}]`,
		"exchanges":   `[{"name":"","type":"direct"},{"name":"e","type":"topic","durable":true,"internal":false,"arguments":[],"policy":null}]`,
		"bindings":    `[{"source":"e","destination":"q","destination_type":"queue","routing_key":"#","arguments":{},"properties_key":"%23"},{"source":"e","destination":"q","destination_type":"queue","arguments":null}]`,
		"policies":    `[{"name":"p","pattern":".*","apply-to":"all","priority":1,"definition":[]}]`,
		"statistics":  `[{"name":"shop.dead","consumers":1,"message_bytes":2}]`,
		"overview":    `{"rabbitmq_version":"4.3.6","cluster_name":"c","exchange_types":[{"name":"topic"},{}]}`,
		"health":      `{"status":"failed","reason":"<b>memory</b>"}`,
		"get":         `[{"payload":"x"}]`,
		"whoami":      `{"name":"u","tags":["management"]}`,
		"users":       `[{"vhost":"/","configure":"(","write":"","read":".*"}]`,
		"permissions": `[]`,
	} {
		f.Add(path, answer)
	}
	want := topology.Compiled{
		Name:       "shop",
		Topology:   topology.Topology{Queues: []topology.Queue{{Name: "q", Durable: true}}},
		WorkQueues: []topology.WorkQueue{{Name: "q", Backoff: "none"}},
	}
	s := &impostor{}
	m := s.start(f)
	f.Fuzz(func(t *testing.T, path, answer string) {
		s.mu.Lock()
		s.answers = map[string]string{path: answer, "whoami": `{"name":"u","tags":"management"}`}
		if path == "whoami" {
			s.answers[path] = answer
		}
		s.mu.Unlock()
		state, err := m.Inspect(t.Context())
		if err == nil {
			plan.Make(want, state, plan.Options{Prune: true})
			for _, q := range state.Have.Queues {
				if q.Name == "" {
					t.Error("a queue without a name")
				}
			}
		}
		_, err2 := m.Lacking(t.Context(), nil,
			[]plan.Right{{Permission: plan.Configure, Kind: topology.KindQueue, Name: "q"}, {Permission: plan.Policymaker}})
		for _, err := range []error{err, err2} {
			if err != nil && (len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\n\x1b") ||
				strings.Contains(err.Error(), secret)) {
				t.Errorf("this cannot be read: %q", err)
			}
		}
	})
}
