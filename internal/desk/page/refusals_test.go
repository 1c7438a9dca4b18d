package page_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Each answer that refuses a request says what is refused and, behind a semicolon, what to do next.
func TestThePageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3), runs: []desk.Run{{ID: "k3f9", Action: desk.Park, Queue: "billing.dead"}}}
	s := serve(t, e, "replay", "edit").signIn(t)
	type fields map[string]any
	dead := func(more fields) fields {
		out := fields{"queue": "billing.dead", "action": "replay"}
		maps.Copy(out, more)
		return out
	}
	snapshot := s.look(t, map[string]any{})
	proposal := s.post(t, 200, "/api/propose", dead(nil))["id"]
	broken := fields{"action": "edit", "handles": []string{"a1b2c3000001"}, "body": "{", "format": "json"}
	row := fields{"snapshot": snapshot["id"], "row": 9}
	for _, c := range []struct {
		path   string
		body   fields
		status int
		says   string
	}{
		{"/api/propose", dead(fields{"action": "drop"}), 403, `"drop" is not an action of the page; the page can replay, discard, edit, park`},
		{"/api/propose", dead(fields{"action": "park"}), 403, "this page may not park; start it with 'dlxctl desk serve --allow park', or use the command line"},
		{"/api/propose", dead(fields{"queue": "billing"}), 404, `"billing" is not one of the dead-letter queues that this page shows; 'dlxctl peek' reads any queue`},
		{"/api/propose", dead(fields{"handles": make([]string, 1001)}), 400, "1001 messages are chosen one by one, and the page accepts up to 1000; choose with a filter"},
		{"/api/propose", dead(fields{"action": "edit"}), 400, "an edit needs one message; open the message, and edit it there"},
		{"/api/propose", dead(fields{"body": "{}"}), 400, "only an edit has a new body and new headers; leave them out"},
		{"/api/propose", dead(broken), 400, "the new body is not valid JSON, and the message was JSON before; mend it, or use the command line with --body-file"},
		{"/api/execute", fields{"proposal": "guessed", "expect": 1}, 410, "this proposal was executed before, is older than 15 minutes, or many others were shown since; ask for it again"},
		{"/api/execute", fields{"proposal": proposal, "expect": 1}, 409, "expected 1, chosen 37; nothing was moved; ask again what it would do"},
		{"/api/runs/resume", fields{"run": "gone"}, 404, `no run "gone" is in progress: it has ended, or another page has ended it; reload the runs`},
		{"/api/runs/resume", fields{"run": "k3f9"}, 403, "this page may not park; start it with 'dlxctl desk serve --allow park', or use the command line"},
		{"/api/message", fields{"snapshot": "old", "row": 0}, 410, "later looks replaced this list; look again"},
		{"/api/source", row, 410, "later looks replaced this list; look again"},
	} {
		got := s.post(t, c.status, c.path, c.body)
		if got["error"] != c.says {
			t.Errorf("POST %s %.80s: %v\nwant %s", c.path, fmt.Sprint(c.body), got["error"], c.says)
		}
	}
	s.csrf = "wrong"
	const foreign = "the request is not from this page; reload the page"
	if got := s.post(t, 403, "/api/look", dead(nil))["error"]; got != foreign {
		t.Errorf("a wrong token: %v", got)
	}
	resp, body := s.do(t, "POST", "/api/look", dead(nil), func(r *http.Request) {
		r.Header.Set("Origin", "http://evil.example.com")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	})
	if want := "the request comes from another site; open the page itself, and do it there"; resp.StatusCode != 403 ||
		!strings.Contains(body, want) {
		t.Errorf("another site: %d %s", resp.StatusCode, body)
	}
	resp, body = s.do(t, "GET", "/api/queues", nil, func(r *http.Request) { r.Header.Set("Cookie", "none=1") })
	printed := regexp.MustCompile(`not signed in; open the URL that 'dlxctl desk serve' printed`)
	if resp.StatusCode != 401 || !printed.MatchString(body) {
		t.Errorf("not signed in: %d %s", resp.StatusCode, body)
	}
}
