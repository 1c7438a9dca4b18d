package management_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

const secret = "s3cr3t-word"

// checkError checks that err is of a kind and has exactly this text, in one line and without a
// password.
func checkError(t *testing.T, err, kind error, text string, passwords ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error is not %q: %v", kind, err)
	}
	if err == nil {
		return
	}
	if err.Error() != text {
		t.Errorf("error\n got %s\nwant %s", err, text)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error has several lines: %q", err)
	}
	for _, p := range append(passwords, secret) {
		if strings.Contains(err.Error(), p) {
			t.Errorf("error holds the password: %s", err)
		}
	}
}

// withSecret returns a URL with another user, and secret as the password.
func withSecret(t *testing.T, text, user string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, secret)
	return u.String()
}

// TestInspectExplainsConnectionErrors runs against a real broker. Placeholders in the expected
// texts: <api>, <vhost>, <user>.
func TestInspectExplainsConnectionErrors(t *testing.T) {
	t.Parallel()
	base := brokertest.VHost(t)
	other := brokertest.VHost(t) // where the users of base have no permissions
	// The version decides where the broker distinguishes this from a vhost that does not exist.
	noPermissions := `user "<user>" has no permissions on vhost "<vhost>"; run 'dlxctl rights' and add what it prints to the permissions of <user>, or for plan only: rabbitmqctl set_permissions -p <vhost> <user> '^$' '^$' '^$'`
	if base.AtLeast("4.3") {
		noPermissions = `user "<user>" has no permissions on vhost "<vhost>", or the vhost does not exist on <api>; run 'dlxctl rights' and add what it prints to the permissions of <user>, or for plan only: rabbitmqctl set_permissions -p <vhost> <user> '^$' '^$' '^$'`
	}
	for name, tc := range map[string]struct {
		config func(t *testing.T) (broker.Config, string, string) // and user, vhost
		kind   error
		text   string
	}{
		"wrong password": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				user := base.User(t, "management", ".*", ".*", ".*")
				return broker.Config{URL: withSecret(t, base.URL, user.Username), API: base.API}, user.Username, base.VHost
			},
			broker.ErrUnauthorized,
			`user "<user>" is refused by <api> (401); check user and password in RABBITMQ_URL, --url or --api, or --password-file`,
		},
		"unknown user": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				return broker.Config{URL: withSecret(t, base.URL, "no body"), API: base.API}, "no body", base.VHost
			},
			broker.ErrUnauthorized,
			`user "<user>" is refused by <api> (401); check user and password in RABBITMQ_URL, --url or --api, or --password-file`,
		},
		"no tag": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				user := base.User(t, "", ".*", ".*", ".*")
				return broker.Config{URL: user.URL, API: base.API}, user.Username, base.VHost
			},
			broker.ErrForbidden,
			`user "<user>" lacks the tag management on <api>; run rabbitmqctl set_user_tags <user> management`,
		},
		"no permissions on the vhost": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				user := base.User(t, "management", ".*", ".*", ".*")
				return broker.Config{URL: user.URL, API: base.API, VHost: other.VHost}, user.Username, other.VHost
			},
			broker.ErrForbidden, noPermissions,
		},
		"no such vhost": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				user := base.User(t, "management", ".*", ".*", ".*")
				return broker.Config{URL: user.URL, API: base.API, VHost: "it's not/there"}, user.Username, "it's not/there"
			},
			broker.ErrNoVHost,
			`vhost "<vhost>" does not exist on <api>; run rabbitmqctl add_vhost 'it'\''s not/there'`,
		},
		"no such vhost, as administrator": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				return broker.Config{URL: base.URL, API: base.API, VHost: "nowhere"}, base.Username, "nowhere"
			},
			broker.ErrNoVHost,
			`vhost "<vhost>" does not exist on <api>; run rabbitmqctl add_vhost nowhere`,
		},
		"https where http is spoken": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				return broker.Config{URL: withSecret(t, base.URL, "u"), API: strings.Replace(base.API, "http:", "https:", 1)}, "u",
					base.VHost
			},
			broker.ErrUnreachable,
			strings.Replace(base.API, "http:", "https:", 1) + ` does not speak TLS; use http:// in --api or RABBITMQ_API_URL`,
		},
		"the AMQP port": {
			func(t *testing.T) (broker.Config, string, string) {
				t.Helper()
				return broker.Config{URL: withSecret(t, base.URL, "u"), API: "http://" + amqpHost(t, base)}, "u", base.VHost
			},
			broker.ErrUnreachable,
			`what answers at http://` + amqpHost(t, base) +
				` does not speak HTTP; set the URL of the management API with --api or RABBITMQ_API_URL (https:// if it uses TLS, port usually 15672 or 15671)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, user, vhost := tc.config(t)
			u, err := url.Parse(c.URL)
			if err != nil {
				t.Fatal(err)
			}
			password, _ := u.User.Password()
			passwords := []string{}
			if password != "guest" { // the user's name as well
				passwords = append(passwords, password)
			}
			text := strings.NewReplacer("<api>", base.API, "<vhost>", vhost, "<user>", user).Replace(tc.text)
			m := resolve(t, c)
			_, err = m.Inspect(t.Context())
			checkError(t, err, tc.kind, text, passwords...)
		})
	}
}

func amqpHost(t *testing.T, target brokertest.Target) string {
	t.Helper()
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestApplyExplainsRefusals runs against a real broker.
func TestApplyExplainsRefusals(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	admin := manage(t, target)
	mine := topology.Queue{
		Name: "q", Durable: true,
		Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
	}
	events := topology.Exchange{Name: "events", Type: topology.Topic, Durable: true}
	apply(t, admin, mine, events)
	other := mine
	other.Arguments = mine.Arguments.With(topology.ArgMessageTTL, int64(1000))
	direct := events
	direct.Type = topology.Direct
	user := target.User(t, "management", "^allowed", "^allowed", ".*")
	denied := `user "` + user.Username + `" lacks a permission (configure, write or read) for this in vhost "` +
		target.VHost +
		`"; run 'dlxctl rights' and add what it prints to the permissions of ` + user.Username
	toQueue := func(source, destination string) topology.Binding {
		return topology.Binding{Source: source, Destination: destination, DestinationType: topology.ToQueue, Key: "k"}
	}
	for name, tc := range map[string]struct {
		m      *management.Client
		object topology.Object
		kind   error
		text   string
	}{
		"queue with other arguments": {
			admin, other, broker.ErrInequivalent,
			`it exists and differs: inequivalent arg 'x-message-ttl' for queue 'q' in vhost '` + target.VHost +
				`': received the value '1000' of type 'long' but current is none`,
		},
		"exchange of another type": {
			admin, direct, broker.ErrInequivalent,
			`it exists and differs: inequivalent arg 'type' for exchange 'events' in vhost '` + target.VHost +
				`': received 'direct' but current is 'topic'`,
		},
		"exchange type of a plugin that is off": {
			admin,
			topology.Exchange{Name: "x", Type: "x-consistent", Durable: true},
			broker.ErrRefused, `the broker refuses it: unknown exchange type 'x-consistent'`,
		},
		"binding to no queue": {
			admin, toQueue("events", "nowhere"), broker.ErrNotFound, `no queue 'nowhere' in vhost '` + target.VHost + `'`,
		},
		"binding from no exchange": {
			admin, toQueue("nowhere", "q"), broker.ErrNotFound, `no exchange 'nowhere' in vhost '` + target.VHost + `'`,
		},
		"policy with a key that is none": {
			admin,
			topology.Policy{
				Name: "p", Pattern: ".*", ApplyTo: "queues",
				Definition: topology.Arguments{"max-lengthh": int64(1)},
			},
			broker.ErrRefused, `the broker refuses it: Validation failed [{<<"max-lengthh">>,10}] are not recognised policy settings`,
		},
		"name that HTTP cannot carry": {
			admin,
			topology.Exchange{Name: "..", Type: topology.Direct, Durable: true},
			broker.ErrRefused, `the management API cannot address a name that is ".."`,
		},
		"queue without permission": {
			manage(t, user),
			topology.Queue{Name: "no", Durable: true},
			broker.ErrForbidden,
			denied,
		},
		"exchange without permission": {
			manage(t, user),
			topology.Exchange{Name: "no", Type: topology.Direct, Durable: true},
			broker.ErrForbidden, denied,
		},
		"binding without permission": {manage(t, user), toQueue("events", "q"), broker.ErrForbidden, denied},
		"policy without the tag": {
			manage(t, user),
			topology.Policy{Name: "p", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{"max-length": int64(1)}},
			broker.ErrForbidden,
			`user "` + user.Username + `" may not change policies; run rabbitmqctl set_user_tags ` + user.Username +
				` policymaker with its other tags, which the command replaces`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.m.Apply(t.Context(), plan.Change{Action: plan.Create, After: tc.object})
			checkError(t, err, tc.kind, strings.Replace(tc.text, ",10}", ",1}", 1), user.Password)
		})
	}
}

// TestAnswersOfOtherServers uses servers of its own: no broker answers like them.
func TestAnswersOfOtherServers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		header http.Header
		body   string
		text   string // <api> stands for the server's URL
	}{
		"a web page": {
			http.StatusOK,
			http.Header{"Content-Type": {"text/html"}},
			"<html><p>hello",
			"what answers at <api> is not RabbitMQ's management API (its answer to /api/overview has an unexpected form); set its URL with --api or RABBITMQ_API_URL",
		},
		"a page that is not there": {
			http.StatusNotFound, nil, "<html>404",
			"what answers at <api> is not RabbitMQ's management API (it answers 404 Not Found); set its URL with --api or RABBITMQ_API_URL",
		},
		"another service's JSON": {
			http.StatusOK, nil, `{"cluster_name":"docker-cluster","version":{"number":"8"}}`,
			"what answers at <api> is not RabbitMQ's management API (it reports no version of RabbitMQ); set its URL with --api or RABBITMQ_API_URL",
		},
		"a login page somewhere else": {
			http.StatusFound,
			http.Header{"Location": {"http://127.0.0.1:1/login"}},
			"",
			"what answers at <api> is not RabbitMQ's management API (it answers 302 Found); set its URL with --api or RABBITMQ_API_URL",
		},
		"a proxy without a broker behind it": {
			http.StatusBadGateway, nil, "<html>bad gateway", "<api> answers 502 Bad Gateway",
		},
		"an internal error": {
			http.StatusInternalServerError, nil, `{"error":"internal_server_error","reason":"{badmatch,\n  x}"}`,
			"<api> answers 500 Internal Server Error: {badmatch, x}",
		},
		"a proxy that wants a password": {
			http.StatusUnauthorized, nil, "<html>who are you",
			`user "u" is refused by <api> (401); check user and password in RABBITMQ_URL, --url or --api, or --password-file`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				maps.Copy(w.Header(), tc.header)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			t.Cleanup(s.Close)
			m := resolve(t, broker.Config{URL: "amqp://u:" + secret + "@127.0.0.1:1/", API: s.URL})
			_, err := m.Inspect(t.Context())
			kind := broker.ErrUnreachable
			if tc.status == http.StatusUnauthorized {
				kind = broker.ErrUnauthorized
			}
			checkError(t, err, kind, strings.Replace(tc.text, "<api>", s.URL, 1))
		})
	}
}

func TestNoServerAnswers(t *testing.T) {
	t.Parallel()
	// A port that was free a moment ago.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ api, text string }{
		"no plugin": {
			closed,
			"nothing listens at " + closed +
				"; check that the broker is running with the management plugin (rabbitmq-plugins enable rabbitmq_management), or set its URL with --api or RABBITMQ_API_URL",
		},
		"a host that is not known": {
			"http://broker.invalid:15672", `host "broker.invalid" is unknown; check it in RABBITMQ_URL, --url or --api`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := resolve(t, broker.Config{URL: "amqp://u:" + secret + "@127.0.0.1:1/", API: tc.api})
			_, err := m.Inspect(t.Context())
			checkError(t, err, broker.ErrUnreachable, tc.text)
		})
	}
}

// listen returns the address of a server that calls handle for each connection.
func listen(t *testing.T, handle func(net.Conn)) string {
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
				return // the test is over
			}
			handle(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

// TestAnswersThatFail hangs up as RabbitMQ does where TLS is expected, or does not answer at all.
func TestAnswersThatFail(t *testing.T) {
	t.Parallel()
	url := "amqp://u:" + secret + "@127.0.0.1:1/"
	closes := listen(t, func(c net.Conn) { _ = c.Close() })
	_, err := resolve(t, broker.Config{URL: url, API: closes}).Inspect(t.Context())
	checkError(t, err, broker.ErrUnreachable,
		"what answers at "+closes+
			" does not speak HTTP; set the URL of the management API with --api or RABBITMQ_API_URL (https:// if it uses TLS, port usually 15672 or 15671)")

	hangs := listen(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
	m := resolve(t, broker.Config{URL: url, API: hangs, RequestTime: 50 * time.Millisecond})
	_, err = m.Inspect(t.Context())
	checkError(t, err, broker.ErrUnreachable,
		hangs+" took the request, and has not answered it within 50ms: the broker is slow; run it again with a longer --timeout")
}

func TestAnInterruptedRequestReportsTheInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not see that the client is gone
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	m := resolve(t, broker.Config{API: s.URL})
	if err := m.Apply(ctx, plan.Change{Action: plan.Create, After: topology.Queue{Name: "q"}}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
}

func TestTemporaryFailuresAreRetried(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(http.ResponseWriter){
		"a proxy says 503": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"the connection breaks": func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		},
		"the connection breaks in the answer": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies atomic.Pointer[[]string]
			bodies.Store(&[]string{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				seen := append(*bodies.Load(), r.Method+" "+r.URL.EscapedPath()+" "+string(body))
				bodies.Store(&seen)
				if len(seen) < 3 {
					fail(w)
					return
				}
				w.WriteHeader(http.StatusCreated)
			}))
			t.Cleanup(s.Close)
			m := resolve(t, broker.Config{URL: "amqp://h/v%2Fw", API: s.URL})
			apply(t, m, topology.Binding{Source: "e", Destination: "q", DestinationType: topology.ToQueue, Key: "k"})
			seen := *bodies.Load()
			if len(seen) != 3 || seen[0] != seen[2] || !strings.HasPrefix(seen[2], "POST /api/bindings/v%2Fw/e/e/q/q {") {
				t.Errorf("requests: %q", seen)
			}
		})
	}
}

func TestRefusalsAreNotRetried(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"bad_request","reason":"no"}`)
	}))
	t.Cleanup(s.Close)
	m := resolve(t, broker.Config{API: s.URL})
	err := m.Apply(t.Context(), plan.Change{Action: plan.Create, After: topology.Queue{Name: "q"}})
	if !errors.Is(err, broker.ErrRefused) || requests.Load() != 1 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}
}

// A process of the broker that crashes while a queue is declared is a failure, and not a refusal:
// it may be tried again. The answer is one of 3.10.8, shortened.
func TestACrashIsNotARefusal(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"bad_request","reason":"Request to node r@h failed with {'EXIT', {exception, shutdown}}"}`)
	}))
	t.Cleanup(s.Close)
	m := resolve(t, broker.Config{API: s.URL})
	err := m.Apply(t.Context(), plan.Change{Action: plan.Create, After: topology.Queue{Name: "q"}})
	if !errors.Is(err, broker.ErrInternal) || errors.Is(err, broker.ErrRefused) {
		t.Errorf("error %v", err)
	}
}

// TestEmptyObjectsMayBeLists answers as RabbitMQ does where an object is empty.
func TestEmptyObjectsMayBeLists(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/api/overview":                 `{"rabbitmq_version":"4.0.5","cluster_name":"c"}`,
		"/api/exchanges/%2F/amq.direct": `{"name":"amq.direct"}`,
		"/api/exchanges/%2F":            `[{"name":"e","type":"topic","durable":true,"auto_delete":"undefined","internal":false,"arguments":[]}]`,
		"/api/queues/%2F":               `[{"name":"q","type":"classic","durable":true,"auto_delete":false,"exclusive":false,"arguments":[]}]`,
		"/api/bindings/%2F":             `[{"source":"e","destination":"q","destination_type":"queue","routing_key":"","arguments":null}]`,
		"/api/policies/%2F":             `[{"name":"p","pattern":"","apply-to":"all","priority":0,"definition":[]}]`,
		"/api/feature-flags":            `[{"name":"quorum_queue","state":"disabled"}]`,
		"/api/health/checks/alarms":     `{"status":"ok"}`,
		"/api/operator-policies/%2F":    `[{"name":"o","pattern":"","apply-to":"queues","priority":0,"definition":[]}]`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.URL.EscapedPath()])
	}))
	t.Cleanup(s.Close)
	got := inspect(t, resolve(t, broker.Config{API: s.URL}))
	if len(got.Exchanges)+len(got.Queues)+len(got.Bindings)+len(got.Policies) != 4 ||
		got.Exchanges[0].AutoDelete || got.Exchanges[0].Arguments != nil || got.Bindings[0].Arguments != nil ||
		got.Policies[0].Definition != nil || got.Queues[0].Type() != topology.Classic {
		t.Errorf("%+v", got)
	}
}

// A broker that accepts a declaration and fails to carry it out is not taken for one that refuses
// it, neither over HTTP, where it answers 400 as to a wrong request, nor over AMQP.
func TestTheBrokerFailsToDeclare(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	over := map[string]*management.Client{"HTTP": manage(t, target), "AMQP": manage(t, target)}
	over["AMQP"].UseAMQP(dial(t, target))
	// The server of the terms and votes does not answer, so no leader is elected.
	const meta = "Meta = maps:get(log_meta, maps:get(names, ra_system:fetch(quorum_queues))), "
	node.Eval(t, meta+"sys:suspend(Meta).")
	defer node.Eval(t, meta+"sys:resume(Meta).")
	for protocol, m := range over {
		q := topology.Queue{Name: "over " + protocol, Durable: true, Arguments: topology.Arguments{"x-queue-type": "quorum"}}
		err := m.Apply(t.Context(), plan.Change{Action: plan.Create, After: q})
		if !errors.Is(err, broker.ErrInternal) {
			t.Errorf("over %s: %v", protocol, err)
		}
		t.Logf("over %s: %v", protocol, err)
	}
}
