package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
)

// engine is a desk without a broker. Its messages are views.
type engine struct {
	unknown  string // a queue without messages of which the broker does not tell that
	mu       sync.Mutex
	views    []deadletter.View
	bodies   map[int]string // as they were published, where they are not what is shown
	runs     []desk.Run
	looks    int
	proposed desk.Request
	executed int
	resumed  []string
	canceled []string
	returned []string
	refusals []string
	comments []desk.Comment
	notes    []string // of a look
	// step lets a run send one message more; nil sends all at once.
	step chan struct{}
	// direct: a run has no hold, and failure is the error with which it ends if it is stopped.
	direct  bool
	failure error
}

func (e *engine) Pick(
	ctx context.Context, r desk.Request, visit func(deadletter.Message, deadletter.View) error,
) (desk.Picked, error) {
	e.mu.Lock()
	e.looks++
	e.mu.Unlock()
	if r.Queue == "drop.dead" {
		return desk.Picked{}, fmt.Errorf("%w: drop.dead has a length limit with drop-head, and a look would lose messages", desk.ErrRefused)
	}
	found := desk.Picked{Looked: desk.Looked{
		Queue: r.Queue, Type: "quorum", Messages: len(e.views), Took: jsondoc.Seconds(230 * time.Millisecond),
		Cost: "the messages are marked as redelivered",
	}, Notes: e.notes}
	for i, v := range e.views {
		if r.Look.Messages > 0 && i == r.Look.Messages {
			break
		}
		found.Looked.Looked++
		v.Queue, v.Position = r.Queue, i
		m := deadletter.Message{Queue: r.Queue, Position: i, Handle: v.Handle, Copy: v.Copy}
		m.Delivery.Body = []byte(v.Body.Text)
		if body, ok := e.bodies[i]; ok {
			m.Delivery.Body = []byte(body)
		}
		chosen := len(r.Handles) == 0 || slices.Contains(r.Handles, v.Name()) ||
			slices.Contains(r.Handles, v.Name()+"#1") // it is equal for deadletter.ParseHandle
		if r.Filter != nil && chosen {
			match, err := r.Filter.Matches(v)
			if err != nil {
				return found, err
			}
			chosen = match
		}
		if !chosen || v.LastFailed.Before(r.Since) {
			continue
		}
		if err := errors.Join(ctx.Err(), visit(m, v)); err != nil {
			return found, err
		}
	}
	return found, nil
}

// Draft and FromDraft are those of a reader that masks nothing.
func (e *engine) Draft(m deadletter.Message) ([]byte, error) { return new(deadletter.Reader).Draft(m) }

func (e *engine) FromDraft(m deadletter.Message, draft []byte) (deadletter.Edited, error) {
	return new(deadletter.Reader).FromDraft(m, draft)
}

func (e *engine) Propose(_ context.Context, r desk.Request) (desk.Proposal, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proposed = r
	p := desk.Proposal{
		Request: r, Looked: desk.Looked{Queue: r.Queue, Messages: len(e.views), Looked: len(e.views)}, Chosen: 37,
		ReplayedBefore: 2, Copies: 3, Refusals: e.refusals, First: now().Add(-6 * time.Hour), Last: now().Add(-time.Hour),
		Groups:  []deadletter.Group{{Value: "rejected, order.placed, billing", Count: 37}},
		Reaches: []desk.Reach{{Queue: "billing", Exchange: "shop.return", Key: "order.placed", Messages: 37, Consumers: 2}},
	}
	if len(r.Handles) > 0 {
		p.Chosen = len(r.Handles)
	}
	return p, nil
}

// execute is a run: it sends until its context ends.
func (e *engine) execute(
	ctx context.Context, id string, chosen int, progress func(desk.Progress),
) (desk.Result, error) {
	begin := desk.Progress{Run: id, Phase: desk.Sending, Chosen: chosen, Batch: 2, Rate: 10}
	progress(begin)
	for done := range chosen {
		if e.step != nil {
			select {
			case <-e.step:
			case <-ctx.Done():
				r := desk.Result{Run: id, Moved: done, Left: chosen - done, Stopped: "it was asked to stop"}
				if e.direct {
					r.Ended, r.Direct, r.Left, r.LeftInQueue = true, true, 0, chosen-done
				}
				return r, e.failure
			}
		}
		begin.Done = done + 1
		if done > 10 {
			begin.FailedAgain, begin.LastFailure, begin.LastFailureKey = 1, "card declined", "order.placed"
		}
		progress(begin)
	}
	return desk.Result{Run: id, Moved: chosen}, nil
}

func (e *engine) Execute(ctx context.Context, p desk.Proposal, progress func(desk.Progress)) (desk.Result, error) {
	e.mu.Lock()
	e.executed++
	e.runs = append(e.runs, desk.Run{
		ID: "k3f9", Action: p.Request.Action, Queue: p.Request.Queue, Phase: desk.Sending, By: "ann@laptop",
		Chosen: p.Chosen, Holds: p.Chosen, Active: true, Started: now(),
	})
	e.mu.Unlock()
	result, err := e.execute(ctx, "k3f9", p.Chosen, progress)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[len(e.runs)-1].Active, e.runs[len(e.runs)-1].Holds = false, result.Left
	if result.Left == 0 {
		e.runs = e.runs[:len(e.runs)-1]
	}
	return result, err
}

func (e *engine) Runs(context.Context) ([]desk.Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]desk.Run{}, e.runs...), nil
}

// EndedRuns has one run more than the page shows.
func (e *engine) EndedRuns(context.Context) (ended desk.Ended, err error) {
	for i := range 101 {
		ended.Runs = append(ended.Runs, desk.EndedRun{
			Result: desk.Result{
				Run: fmt.Sprintf("run-%d", i), Action: desk.Replay, Queue: "billing.dead", Chosen: 40, Moved: 12, FailedAgain: 3,
				By: "ann@laptop", Reason: "<b>ticket</b> 4711",
			},
			EndedAt: now().Add(-time.Hour), ChosenBy: desk.Criteria{Where: `cause == "rejected"`}, Returned: i == 0,
		})
	}
	ended.Unreadable = 1
	return ended, nil
}

func (e *engine) Resume(
	ctx context.Context, id string, _ *desk.SendOptions, progress func(desk.Progress),
) (desk.Result, error) {
	e.mu.Lock()
	e.resumed = append(e.resumed, id)
	e.mu.Unlock()
	return e.execute(ctx, id, 12, progress)
}

func (e *engine) Return(_ context.Context, id string, _ func(desk.Progress)) (desk.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returned = append(e.returned, id)
	return desk.Result{Run: id, Moved: 5}, nil
}

// Comment keeps the last comment, as of ann@laptop.
func (e *engine) Comment(_ context.Context, c desk.Comment) (desk.Comment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.Author, c.At = "ann@laptop", now()
	e.comments = append(e.comments, c)
	return c, nil
}

func (e *engine) Comments(_ context.Context, queue string) (desk.Comments, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return desk.CommentsOn(queue, e.comments), nil
}

func (e *engine) Cancel(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.canceled = append(e.canceled, id)
	return nil
}

// View makes the fixture the reader that masks nothing.
func (e *engine) View(m deadletter.Message) deadletter.View {
	v := e.views[m.Position]
	v.Queue, v.Position = m.Queue, m.Position
	return v
}

// now is the time of the fixture.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// orders returns n dead letters of a shop.
func orders(n int) []deadletter.View {
	causes := []string{"rejected", "rejected", "rejected", "expired", "delivery_limit"}
	problems := []string{
		"card declined: issuer 4711 does not answer", "customer 91 is unknown",
		"json: cannot unmarshal string into Go struct field Order.amount of type int64", "", "timeout after 30 s\n  at billing.charge",
	}
	keys := []string{"order.placed", "order.placed", "order.changed", "order.canceled"}
	views := make([]deadletter.View, n)
	for i := range views {
		body := fmt.Sprintf(`{
  "order": %d,
  "customer": {
    "country": %q,
    "email": "[masked]"
  },
  "amount": %d.50
}`, 100000+i, []string{"AT", "DE", "CH"}[i%3], 10+i%90)
		last := now().Add(-time.Duration(i)*13*time.Second - 5*time.Minute)
		views[i] = deadletter.View{
			Handle: deadletter.Handle(fmt.Sprintf("%012x", 0xa1b2c3000000+i)), Copy: 1, Bytes: len(body) - 30,
			Properties: deadletter.Properties{
				MessageID: fmt.Sprintf("order-%d", i), Type: "OrderPlaced", ContentType: "application/json",
				Published: last.Add(-12 * time.Minute),
			},
			Facts: deadletter.Facts{
				Cause: causes[i%5], Error: problems[i%5], Attempts: 4, WorkQueue: []string{"billing", "shipping"}[i%7/5],
				Exchange: "events", Key: keys[i%4], FirstFailed: last.Add(-11 * time.Minute), LastFailed: last,
				Replays: i % 11 / 10, Hops: hops(keys[i%4], causes[i%5], last),
			},
			Headers: map[string]any{
				"tenant": "eu-1", "trace-id": "4bf92f3577b34da6a3ce929d0e0e4736", "authorization": "[masked]",
				"attempt": int64(4), "retry-count": int64(-1), "retry-error": problems[i%5], "x-delivery-count": int64(1),
				"x-first-death-queue": "billing",
			},
			Body: decode.Document{Format: decode.JSON, Tree: true, Text: body, Value: map[string]any{
				"order":    int64(100000 + i),
				"customer": map[string]any{"country": []string{"AT", "DE", "CH"}[i%3], "email": "[masked]"},
			}},
		}
	}
	return views
}

// hops is the way of a message that failed four times.
func hops(key, cause string, last time.Time) []deadletter.Hop {
	return []deadletter.Hop{
		{
			Queue: "billing", Reason: "rejected", Count: 1, Time: last.Add(-11 * time.Minute), Exchange: "events",
			Keys: []string{key},
		},
		{Queue: "shop.standard.retry.10s", Reason: "expired", Count: 1, Time: last.Add(-650 * time.Second)},
		{Queue: "shop.standard.retry.1m", Reason: "expired", Count: 2, Time: last.Add(-10 * time.Minute)},
		{Queue: "billing", Reason: cause, Count: 4, Time: last},
	}
}

// queues are the queues and delays of the fixture.
func (e *engine) queues(context.Context, time.Time) ([]page.Queue, []page.Delay, error) {
	queues := []page.Queue{
		{Name: "billing.dead", Role: "dead-letter", Type: "quorum", Owner: "team-billing", Messages: len(e.views)},
		{Name: "crm.inbox.dead", Role: "dead-letter", Type: "quorum", Owner: "team-crm", Messages: 12, Unacknowledged: 3},
		{Name: "drop.dead", Role: "dead-letter", Type: "classic", Messages: 1000},
		{Name: "shop.parked", Role: "parked", Type: "quorum"},
		{Name: "shop.unroutable", Role: "unroutable", Type: "quorum", Unknown: e.unknown == "shop.unroutable"},
	}
	return queues, []page.Delay{
		{Name: "shop.later", To: "events", Messages: 1500, WaitingIn: "timer: 1500, next due in 12m"},
		{Name: "shop.soon", To: "events"},
	}, nil
}

// line writes a command line.
func line(words ...string) string {
	out := "dlxctl -f shop.yaml"
	for _, w := range words {
		out += " " + text.ShellQuote(w)
	}
	return out
}

// server is a page that serves a fixture.
type server struct {
	*page.Page
	engine *engine
	http   *httptest.Server
	client *http.Client
	csrf   string
}

// serve serves a page on the fixture, with these actions.
func serve(t *testing.T, e *engine, allow ...string) *server {
	t.Helper()
	return serveWith(t, e, func(*page.Config) {}, allow...)
}

func serveWith(t *testing.T, e *engine, change func(*page.Config), allow ...string) *server {
	t.Helper()
	allowed, err := page.ParseAllowed(allow)
	if err != nil {
		t.Fatal(err)
	}
	c := page.Config{
		Source: page.Source{Engine: e, Plain: e, Queues: e.queues, Roles: map[string]string{
			"billing.dead": "dead-letter", "crm.inbox.dead": "dead-letter", "drop.dead": "dead-letter", "shop.parked": "parked",
			"shop.unroutable": "unroutable",
		}},
		Topology: "shop", VHost: "/", Broker: "rabbit.example.com", By: "ann@laptop", Allow: allowed, Line: line,
	}
	change(&c)
	p, err := page.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Page: p, engine: e, http: httptest.NewUnstartedServer(p)}
	s.http.Start()
	t.Cleanup(s.http.Close)
	s.client = &http.Client{Timeout: 5 * time.Minute}
	return s
}

// signIn opens the printed URL, and keeps the cookie.
func (s *server) signIn(t *testing.T) *server {
	t.Helper()
	resp, body := s.do(t, "GET", strings.TrimPrefix(s.URL(s.http.URL), s.http.URL), nil, nil)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("open answers %d: %s", resp.StatusCode, body)
	}
	cookie := resp.Cookies()[0]
	s.client.Transport = withHeader{"Cookie", cookie.Name + "=" + cookie.Value}
	_, body = s.do(t, "GET", "/api/session", nil, nil)
	s.csrf = regexp.MustCompile(`"csrf":"(\w+)"`).FindStringSubmatch(body)[1]
	return s
}

// withHeader adds a header to each request.
type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get(h.name) == "" {
		r.Header.Set(h.name, h.value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// do sends a request. change may change it.
func (s *server) do(t *testing.T, method, path string, body any, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	var data io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.http.URL+path, data)
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Origin", s.http.URL)
		r.Header.Set("X-Csrf-Token", s.csrf)
	}
	if change != nil {
		change(r)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// post sends a request of the page, checks its status and returns the answer.
func (s *server) post(t *testing.T, status int, path string, body any) map[string]any {
	t.Helper()
	resp, got := s.do(t, "POST", path, body, nil)
	if resp.StatusCode != status {
		t.Fatalf("POST %s answers %d, not %d: %s", path, resp.StatusCode, status, got)
	}
	return object(t, got)
}

func (s *server) get(t *testing.T, status int, path string) map[string]any {
	t.Helper()
	resp, got := s.do(t, "GET", path, nil, nil)
	if resp.StatusCode != status {
		t.Fatalf("GET %s answers %d, not %d: %s", path, resp.StatusCode, status, got)
	}
	return object(t, got)
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}
