package brokertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// requestTimeout is how long one request to the management API may take on a
// busy machine.
const requestTimeout = 3 * time.Minute

// errServer is an answer that says that the broker failed, and not the request.
var errServer = errors.New("the broker failed")

// Target is a virtual host on a real broker, and a user with permissions in it.
type Target struct {
	URL      string // AMQP URL with credentials and the vhost, percent-encoded
	API      string // URL of the management API, without credentials and without a slash at the end
	VHost    string // name of the virtual host, as it is
	Version  string // of the broker, as 4.0.5
	Username string // the user in URL
	Password string // of that user

	admin *url.Userinfo // who creates and deletes
}

// VHost creates a virtual host of the test's own on the shared node. It is deleted,
// with everything in it, when the test ends; before 4.0 a while later.
func VHost(tb testing.TB) Target {
	tb.Helper()
	return OddVHost(tb, "")
}

// OddVHost is [VHost] with something at the end of the name.
func OddVHost(tb testing.TB, ending string) Target {
	tb.Helper()
	x := shared(tb).vhost(tb, ending)
	tb.Cleanup(func() {
		if err := x.leave(); err != nil {
			tb.Errorf("brokertest: %v", err)
		}
	})
	return x
}

// AtLeast reports whether the broker has this version or a later one. It compares
// the major and the minor number, as in "4.0".
func (x Target) AtLeast(version string) bool {
	gotMajor, gotMinor := majorMinor(x.Version)
	major, minor := majorMinor(version)
	if gotMajor != major {
		return gotMajor > major
	}
	return gotMinor >= minor
}

// majorMinor returns the first two numbers of a version, 0 for what is not a number.
func majorMinor(version string) (major, minor int) {
	parts := append(strings.SplitN(version, ".", 3), "", "")
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}

// User returns the same virtual host for a new user with these tags (comma
// separated, may be empty) and permissions (regular expressions; "" permits
// nothing, ".*" everything). The user is deleted when the test ends.
func (x Target) User(tb testing.TB, tags, configure, write, read string) Target {
	tb.Helper()
	name, password := unique(tb, "user"), rand.Text()
	x.call(tb, http.MethodPut, "users/"+url.PathEscape(name), map[string]any{"password": password, "tags": tags})
	tb.Cleanup(func() { x.call(tb, http.MethodDelete, "users/"+url.PathEscape(name), nil) })
	x.permit(tb, name, configure, write, read)
	return x.as(name, password)
}

// Tool returns the same virtual host for a user of dlxctl: not the administrator, who
// sees more than other users, but one with the tag management, the given tags, and all
// permissions. A target of [Target.User] is returned as it is.
func (x Target) Tool(tb testing.TB, tags ...string) Target {
	tb.Helper()
	if x.Username != x.admin.Username() {
		return x
	}
	return x.User(tb, strings.Join(append([]string{"management"}, tags...), ","), ".*", ".*", ".*")
}

// Call sends a request to the management API as the administrator and returns the
// body of the answer. The path is the part after /api/, percent-encoded. A body that
// is not nil is sent as JSON. An answer of 400 or more fails the test.
func (x Target) Call(tb testing.TB, method, path string, body any) []byte {
	tb.Helper()
	return x.call(tb, method, path, body)
}

// Queue returns the management API's description of a queue, as the administrator.
// Its counts lag behind by up to 5 seconds.
func (x Target) Queue(tb testing.TB, name string) map[string]any {
	tb.Helper()
	var queue map[string]any
	path := "queues/" + url.PathEscape(x.VHost) + "/" + url.PathEscape(name)
	if err := json.Unmarshal(x.call(tb, http.MethodGet, path, nil), &queue); err != nil {
		tb.Fatalf("queue %q: %v", name, err)
	}
	return queue
}

// Definitions returns the broker's own export of exchanges, queues, bindings and
// policies, one entry each, sorted, because the broker's order varies.
func (x Target) Definitions(tb testing.TB) []string {
	tb.Helper()
	var definitions map[string]json.RawMessage
	export := x.call(tb, http.MethodGet, "definitions/"+url.PathEscape(x.VHost), nil)
	if err := json.Unmarshal(export, &definitions); err != nil {
		tb.Fatalf("definitions of %s: %v", x.VHost, err)
	}
	var out []string
	for _, kind := range []string{"exchanges", "queues", "bindings", "policies"} {
		var list []json.RawMessage
		if err := json.Unmarshal(definitions[kind], &list); err != nil {
			tb.Fatalf("definitions of %s: %s: %v", x.VHost, kind, err)
		}
		for _, o := range list {
			out = append(out, kind+" "+string(o))
		}
	}
	slices.Sort(out)
	return out
}

// Dial opens a connection, which is closed when the test ends.
func (x Target) Dial(tb testing.TB) *amqp091.Connection {
	tb.Helper()
	conn, err := amqp091.Dial(x.URL)
	if err != nil {
		tb.Fatalf("connect to %s: %v", x.VHost, err)
	}
	// An error here means that the test or the broker closed it already.
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Channel opens a channel on a connection of its own, which is closed when the test ends.
func (x Target) Channel(tb testing.TB) *amqp091.Channel {
	tb.Helper()
	ch, err := x.Dial(tb).Channel()
	if err != nil {
		tb.Fatalf("open a channel in %s: %v", x.VHost, err)
	}
	return ch
}

// vhost creates a virtual host on the broker of x, for its administrator.
func (x Target) vhost(tb testing.TB, ending string) Target {
	tb.Helper()
	x.VHost = unique(tb, "test") + ending
	password, _ := x.admin.Password()
	x = x.as(x.admin.Username(), password)
	x.create(tb)
	return x
}

// create creates the virtual host. A busy 3.10.8 that still deletes one of the same name answers
// 500: the request is made again once that is gone.
func (x Target) create(tb testing.TB) {
	tb.Helper()
	path := "vhosts/" + url.PathEscape(x.VHost)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), requestTimeout)
	defer cancel()
	_, err := x.request(ctx, http.MethodPut, path, map[string]any{})
	for tries := 1; err != nil && tries < 4; tries++ {
		if err := x.deleteVHost(); err != nil {
			tb.Fatalf("brokertest: %v", err)
		}
		_, err = x.request(ctx, http.MethodPut, path, map[string]any{})
	}
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	x.permit(tb, x.admin.Username(), ".*", ".*", ".*")
}

// Empty removes everything from the virtual host: it deletes it and creates it again,
// with the administrator as its only user.
func (x Target) Empty(tb testing.TB) {
	tb.Helper()
	x.call(tb, http.MethodDelete, "vhosts/"+url.PathEscape(x.VHost), nil)
	x.create(tb)
}

// as returns x with another user.
func (x Target) as(username, password string) Target {
	u, err := url.Parse(x.URL)
	if err != nil {
		panic(err) // it was parsed when x was created
	}
	u.User = url.UserPassword(username, password)
	u.Path, u.RawPath = "/"+x.VHost, "/"+url.PathEscape(x.VHost)
	x.URL, x.Username, x.Password = u.String(), username, password
	return x
}

func (x Target) permit(tb testing.TB, username, configure, write, read string) {
	tb.Helper()
	path := "permissions/" + url.PathEscape(x.VHost) + "/" + url.PathEscape(username)
	x.call(tb, http.MethodPut, path, map[string]string{"configure": configure, "write": write, "read": read})
}

func (x Target) call(tb testing.TB, method, path string, body any) []byte {
	tb.Helper()
	// Cleanups run after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), requestTimeout)
	defer cancel()
	answer, err := x.request(ctx, method, path, body)
	// RabbitMQ 3.10 answers 500 to a list of queues while one of them is being made or deleted.
	for method == http.MethodGet && errors.Is(err, errServer) && pauseBeforeRetry(ctx) {
		answer, err = x.request(ctx, method, path, body)
	}
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	return answer
}

// pauseBeforeRetry waits, and reports whether there is time for another request.
func pauseBeforeRetry(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(longPause):
		return true
	}
}

// request sends one request to the management API as the administrator.
func (x Target) request(ctx context.Context, method, path string, body any) ([]byte, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("body of %s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, x.API+"/api/"+path, reader)
	if err != nil {
		return nil, err
	}
	password, _ := x.admin.Password()
	req.SetBasicAuth(x.admin.Username(), password)
	req.Header.Set("Content-Type", "application/json")
	// One connection per request: none is left for a test that counts goroutines.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return nil, fmt.Errorf("%s %s: %w: %s: %s", method, path, errServer, resp.Status, answer)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, nil
}

// unique returns a name that contains the name of the test and that no other test has.
func unique(tb testing.TB, kind string) string {
	tb.Helper()
	words := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(tb.Name(), "-")
	return fmt.Sprintf("%s-%.60s-%s", kind, words, rand.Text()[:8])
}
