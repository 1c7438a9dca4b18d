package notify

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notice"
)

// Of messages that failed alike, the first has a notice at once, and those of the time after it
// share one, with their number and the command of the desk. No message is left out.
func TestNoticesAreGrouped(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	n, c, _, end := running(t, h.URL, false)
	n.window = time.Hour // only the end flushes
	say := func(id, queue, alike, severity string) {
		about := deadLetter(id)
		about.Queue, about.Severity = queue, severity
		n.NotifyShown(about, Message{Alike: alike}, nil)
	}
	for range 100 {
		say("m", "billing", "no answer", "page")
	}
	say("another error", "billing", "bad row <n>", "page")
	say("another queue", "reports", "no answer", "page")
	say("another severity", "billing", "no answer", "info")
	n.Notify(Notice{Event: "outage", Topology: "shop", Queue: "billing"}, nil)
	n.Notify(Notice{Event: "outage", Topology: "shop", Queue: "billing"}, nil)
	brokertest.Eventually(t, "the first of each group, and outages", func() bool { return c.of("") == 6 })
	end()
	if c.of("") != 105 {
		t.Errorf("notices of %d messages and outages were sent, not of 105", c.of(""))
	}
	posts := h.payloads()
	last := posts[len(posts)-1]
	if len(last.Notices) != 1 || last.Notices[0].Messages != 99 || !strings.HasPrefix(last.Text,
		"[shop] 99 dead letters of billing (page, team-billing) within a minute: moved to billing.dead, rejected; "+
			"the first is message m; `dlxctl desk list @billing`") {
		t.Errorf("the last post is %+v", last)
	}
}

// Once a minute is over, what was held is sent, and then the next message has a notice at once
// again.
func TestAGroupEndsWithItsMinute(t *testing.T) {
	t.Parallel()
	h := newHook(t, always(200))
	n, c, _, _ := running(t, h.URL, false)
	n.mu.Lock()
	n.window = 50 * time.Millisecond
	n.mu.Unlock()
	for range 3 {
		n.Notify(deadLetter("m"), nil)
	}
	brokertest.Eventually(t, "both notices", func() bool { return c.of("") == 3 })
	brokertest.Eventually(t, "the end of the group", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.groups) == 0
	})
}

// A target gets the notices of its severities and owners, with the text of its template, and those
// of messages that are of no work queue, which would reach nothing else.
func TestATargetChoosesAndWords(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	slack := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(data))
	}))
	defer slack.Close()
	target := to(t, "slack+"+slack.URL+"/services/T0/s3cret")
	target.Severities, target.Owners = []string{"page", "ticket"}, []string{"team-billing"}
	var err error
	if target.Template, err = notice.ParseTemplate("<!here> {{.Queue}}: {{.Error}} ({{.Messages}})"); err != nil {
		t.Fatal(err)
	}
	c := &counts{}
	n := New([]Target{target}, true, slog.New(slog.DiscardHandler), func(string) Counter { return c })
	for _, about := range []Notice{
		{Event: "dead_letter", Severity: "info", Owner: "team-billing", Queue: "q1", Messages: 1},
		{Event: "dead_letter", Severity: "page", Owner: "team-crm", Queue: "q2", Messages: 1},
		{Event: "dead_letter", Severity: "page", Owner: "team-billing", Queue: "q3", Messages: 1, Error: "<!channel>\nx"},
		{Event: "unroutable", Severity: "ticket", Queue: "q4", Messages: 1}, // of a queue without an owner
		{Event: "unroutable", Queue: "gone", Messages: 1, Error: "no such queue"},
	} {
		n.Notify(about, []byte("a body"))
	}
	end := runs(t, n)
	end()
	var post map[string]string
	if len(got) != 1 || json.Unmarshal([]byte(got[0]), &post) != nil || len(post) != 1 ||
		post["text"] != "<!here> q3: &lt;!channel&gt; (1)\n<!here> gone: no such queue (1)" || c.of("") != 2 {
		t.Errorf("posted %q", got)
	}
}
