package notify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		code = 1
	}
	os.Exit(code)
}

// hook is a webhook that answers as the test says, and keeps what it took.
type hook struct {
	*httptest.Server
	answer func(post int) int // the status of a post, counted from 1; 0: it hangs

	posts atomic.Int64
	mu    sync.Mutex
	took  []Post
	hang  chan struct{} // closed at the end
}

func newHook(t *testing.T, answer func(int) int) *hook {
	t.Helper()
	h := &hook{answer: answer, hang: make(chan struct{})}
	h.Server = httptest.NewServer(h)
	t.Cleanup(func() { close(h.hang); h.Close() })
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p Post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := h.answer(int(h.posts.Add(1)))
	if status == 0 {
		<-h.hang
		return
	}
	if status == http.StatusFound {
		http.Redirect(w, r, "/elsewhere", status)
		return
	}
	if status == http.StatusOK {
		h.mu.Lock()
		h.took = append(h.took, p)
		h.mu.Unlock()
	}
	w.WriteHeader(status)
}

func (h *hook) payloads() []Post {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.took
}

// counts counts notices.
type counts struct {
	mu      sync.Mutex
	sent    int
	dropped map[string]int
}

func (c *counts) Sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += n
}

func (c *counts) Dropped(n int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == nil {
		c.dropped = map[string]int{}
	}
	c.dropped[reason] += n
}

func (c *counts) of(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason == "" {
		return c.sent
	}
	return c.dropped[reason]
}

// secret is the part of a webhook's URL that must not be logged.
const secret = "/services/T0/s3cret"

// running runs a notifier, quicker than in earnest, and gives what ends it and
// waits for that.
func running(t *testing.T, url string, bodies bool) (n *Notifier, c *counts, logged *bytes.Buffer, end func()) {
	t.Helper()
	c, logged = &counts{}, &bytes.Buffer{}
	n = single(t, url+secret, bodies, slog.New(slog.NewTextHandler(logged, nil)), c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		<-ended
		if strings.Contains(logged.String(), "s3cret") {
			t.Errorf("the log holds the secret of the URL:\n%s", logged)
		}
	})
	t.Cleanup(end)
	return n, c, logged, end
}

// single returns a notifier for one webhook, quicker than in earnest.
func single(t *testing.T, url string, bodies bool, log *slog.Logger, c Counter) *Notifier {
	t.Helper()
	target, err := ParseWebhook(url)
	if err != nil {
		t.Fatal(err)
	}
	n := New([]Target{target}, bodies, log, func(string) Counter { return c })
	n.targets[0].every, n.targets[0].pause, n.look = time.Millisecond, time.Millisecond, time.Millisecond
	return n
}

func always(status int) func(int) int { return func(int) int { return status } }

func deadLetter(id string) Notice {
	return Notice{
		Event: "dead_letter", Topology: "shop", Queue: "billing", MovedTo: "billing.dead",
		MessageID: id, Messages: 1, Reason: "rejected", Attempts: 4,
		FirstFailure: "2026-01-02T03:04:05.678Z", Owner: "team-billing", Severity: "page",
	}
}

// of returns the notice of a dead letter of a queue.
func of(queue string) Notice {
	n := deadLetter("1")
	n.Queue = queue
	return n
}

func TestANoticeSaysWhatHappened(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	n, c, _, _ := running(t, h.URL, false)
	n.Notify(deadLetter("<!channel>"), []byte("the body is not told"))
	brokertest.Eventually(t, "the notice", func() bool { return c.of("") == 1 })
	p := h.payloads()[0]
	want := "[shop] dead letter of billing (page, team-billing): message &lt;!channel&gt; moved to billing.dead after 4 attempts, the last rejected; first failure 2026-01-02T03:04:05.678Z; `dlxctl desk list @billing`"
	if p.Text != want {
		t.Errorf("the text is\n%s\nand should be\n%s", p.Text, want)
	}
	if len(p.Notices) != 1 || p.Notices[0] != deadLetter("<!channel>") || p.Version != 1 {
		t.Errorf("the notice is %+v", p)
	}
}

// A notice says what the consumer said, on one line, and carries little of a long error.
func TestANoticeSaysWhatTheConsumerSaid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<20)
	for name, tc := range map[string]struct{ problem, kind, want string }{
		"both":               {"no answer\nat pay()", "PaymentTimeout", " (PaymentTimeout: no answer); first"},
		"a type in the text": {"PaymentTimeout: no answer", "PaymentTimeout", " (PaymentTimeout: no answer); first"},
		"only the type":      {"", "PaymentTimeout", " (PaymentTimeout); first"},
		"only the text":      {"no answer", "", " (no answer); first"},
		"nothing":            {"", "", "; first"},
		"marks":              {"<!here>\x1b[2J\u202E\xff", "a\rb", " (a b: <!here>\uFFFD[2J\uFFFD\uFFFD); first"},
		"a megabyte":         {long, long, " (" + strings.Repeat("ü", 100) + "…); first"},
	} {
		notice := deadLetter("1")
		notice.Error, notice.ErrorType = tc.problem, tc.kind
		if got := notice.Line(nil); !strings.Contains(got, "the last rejected"+tc.want) {
			t.Errorf("%s: %.500s", name, got)
		}
		n := single(t, "http://localhost", false, slog.New(slog.DiscardHandler), &counts{})
		n.Notify(notice, nil)
		kept := <-n.targets[0].notices
		if len(kept.Error) > 1<<10 || len(kept.ErrorType) > 1<<10 || kept.Error != tc.problem[:len(kept.Error)] {
			t.Errorf("%s: the notice has %d bytes of the error and %d of its type",
				name, len(kept.Error), len(kept.ErrorType))
		}
	}
}

// A body is carried up to a cap: as text without a rune that is cut in two, or in
// base64, so that no byte is changed.
func TestBodiesAreCarriedIfAskedForUpToACap(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	n, c, _, _ := running(t, h.URL, true)
	x := strings.Repeat("x", 3*BodyCap)
	protobuf := string([]byte{0x08, 0x96, 0x01})
	cases := []struct{ body, text, encoded string }{
		{x, x[:BodyCap], ""},
		{"", "", ""},
		{"a\x00b", "a\x00b", ""},
		{"a\xffb", "", "Yf9i"},
		{protobuf, "", "CJYB"},
		{x[:BodyCap-1] + "é", x[:BodyCap-1], ""},
		{x[:BodyCap-3] + "😀 and more", x[:BodyCap-3], ""},
		{x[:BodyCap-4] + "😀 and more", x[:BodyCap-4] + "😀", ""},
		{x[:BodyCap] + "\xff", x[:BodyCap], ""}, // what is not UTF-8 is beyond the cap
		{protobuf + x, "", base64.StdEncoding.EncodeToString([]byte(protobuf + x)[:BodyCap])},
		{x[:10] + "\xc3", "", base64.StdEncoding.EncodeToString([]byte(x[:10] + "\xc3"))}, // the body ends within this rune
	}
	for _, tc := range cases {
		n.Notify(of(fmt.Sprintf("%x", sha256.Sum256([]byte(tc.body)))), []byte(tc.body))
	}
	brokertest.Eventually(t, "the notices", func() bool { return c.of("") == len(cases) })
	var all []Notice
	for _, p := range h.payloads() {
		all = append(all, p.Notices...)
	}
	for i, tc := range cases {
		if got := all[i]; got.Body != tc.text || got.BodyBase64 != tc.encoded || got.BodyBytes != len(tc.body) {
			t.Errorf("%d: of a body of %d bytes: %d bytes of text, %d of base64 (%.20q), size %d", i, len(tc.body),
				len(got.Body), len(got.BodyBase64), got.BodyBase64, got.BodyBytes)
		}
	}
}

// Many that come at once are a few posts, and none is missing.
func TestNoticesAreBatched(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	c := &counts{}
	n := single(t, h.URL, false, slog.New(slog.DiscardHandler), c)
	const many = 3*batchSize + 1
	for i := range many {
		n.Notify(of(fmt.Sprint("q", i)), nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it posts what waits
	n.Run(ctx)
	if c.of("") != many || h.posts.Load() != 4 {
		t.Errorf("%d notices in %d posts, want %d in 4", c.of(""), h.posts.Load(), many)
	}
	if text := h.payloads()[0].Text; !strings.HasSuffix(text, "\n… and 40 more") || strings.Count(text, "\n") != lines {
		t.Errorf("the text is %q", text)
	}
}

func TestAPostIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"after a fault": 503, "after too many": 429, "after its time is over": 408} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, func(post int) int {
				if post < 4 {
					return status
				}
				return 200
			})
			n, c, _, _ := running(t, h.URL, false)
			n.Notify(deadLetter("1"), nil)
			brokertest.Eventually(t, "the notice", func() bool { return c.of("") == 1 })
		})
	}
}

func TestAPostThatIsNotWantedIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 400, 302} {
		h := newHook(t, always(status))
		n, c, logged, end := running(t, h.URL, false)
		n.Notify(deadLetter("1"), nil)
		brokertest.Eventually(t, "the notice to be dropped", func() bool { return c.of("refused") == 1 })
		end()
		if h.posts.Load() != 1 || !strings.Contains(logged.String(), http.StatusText(status)) {
			t.Errorf("%d posts; the log says %s", h.posts.Load(), logged)
		}
	}
}

func TestAWebhookThatIsAwayIsGivenUp(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	url := h.URL
	h.Close()
	n, c, logged, end := running(t, url, false)
	n.Notify(deadLetter("1"), nil)
	brokertest.Eventually(t, "the notice to be dropped", func() bool { return c.of("failed") == 1 })
	end()
	if !strings.Contains(logged.String(), "connection refused") || !strings.Contains(logged.String(), "tries=8") {
		t.Errorf("the log says %s", logged)
	}
}

// However long a webhook hangs, a notice takes no time and little memory, and Run ends
// in time.
func TestAWebhookThatHangsBlocksNoCaller(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(0))
	n, c, _, end := running(t, h.URL, false)
	n.Notify(of("q"), nil)
	brokertest.Eventually(t, "the first post", func() bool { return h.posts.Load() == 1 })
	const many = 100_000
	for i := range many { // one that waited for the post would take minutes
		n.Notify(of(strconv.Itoa(i)), nil)
	}
	if got := c.of("full"); got != many-capacity {
		t.Errorf("%d notices dropped, want %d: only %d may wait", got, many-capacity, capacity)
	}
	begin := time.Now()
	end()
	if took := time.Since(begin); took > finalPosts+30*time.Second {
		t.Errorf("to end took %s", took)
	}
	if got := c.of("stopped"); got != capacity+1 {
		t.Errorf("%d notices dropped at the end, want %d", got, capacity+1)
	}
}

func TestTheURLIsChecked(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "s3cret", "ftp://host/s3cret", "http://", "http://h/s3cret\x7f", "https://%zz/s3cret",
	} {
		if _, err := ParseWebhook(url); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ParseWebhook(%q) gives %v", url, err)
		}
	}
}
