package page_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// routes is the least role of each request that a browser may make. Empty: it needs none.
var routes = map[string]string{ //nolint:gochecknoglobals // a constant table
	"GET /open": "", "POST /open": "", "GET /sign-in": "", "GET /signed-in": "",
	"GET /style.css": "", "GET /icon.svg": "", "GET /door.js": "",
	"GET /": "reader", "GET /api/session": "reader", "GET /api/queues": "reader", "GET /api/rows": "reader",
	"GET /api/runs": "reader", "POST /api/look": "reader", "POST /api/message": "reader", "POST /api/command": "reader",
	"POST /api/sign-out": "reader", "POST /api/ended": "reader",
	"POST /api/comment": "operator",
	"POST /api/propose": "operator", "POST /api/execute": "operator", "POST /api/runs/{do}": "operator",
	"POST /api/source": "editor",
}

// as makes the requests of a server those of a person with a role. Empty: not signed in.
func (s *server) as(t *testing.T, role string) {
	t.Helper()
	s.client.Transport, s.csrf = nil, ""
	if role == "" {
		return
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(s.http.URL, "http://"), ":")
	cookie := "dlxctl-desk-" + port + "=" + s.SignInAs(role+"@example.com", role, time.Hour)
	s.client.Transport = withHeader{"Cookie", cookie}
	session := s.get(t, http.StatusOK, "/api/session")
	s.csrf, _ = session["csrf"].(string)
	if session["role"] != role || session["by"] != role+"@example.com" {
		t.Fatalf("the session is %v", session)
	}
}

// Each route lets in those who have the role that it needs, and no other person.
func TestEachRouteNeedsItsRole(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(3)}, page.Allowable()...) // what --allow says does not matter
	if got := s.Routes(); !maps.Equal(got, routes) {
		t.Fatalf("the routes are %v", got)
	}
	ranks := []string{"", "reader", "operator", "editor"}
	for rank, role := range ranks {
		for route, least := range routes {
			s.as(t, role)
			method, path, _ := strings.Cut(strings.ReplaceAll(route, "{do}", "resume"), " ")
			var body any
			if method == "POST" {
				body = map[string]any{}
			}
			if path == "/api/propose" {
				body = map[string]any{"action": "replay", "queue": "billing.dead"}
			}
			resp, text := s.do(t, method, path, body, nil)
			want := "passes"
			switch {
			case least == "" && role == "": // the page that asks to sign in answers 401, too
				continue
			case rank == 0:
				want = "401"
			case rank < slices.Index(ranks, least):
				want = "403"
			}
			got := fmt.Sprint(resp.StatusCode)
			if refused := got == "401" && least != "" || got == "403"; !refused {
				got = "passes"
			}
			if got != want {
				t.Errorf("%q: %s is answered with %d, want %s: %.200s", role, route, resp.StatusCode, want, text)
			}
			says := fmt.Sprintf("your role, %s, may not do this; it needs the role %s", role, least)
			if want == "403" && !strings.Contains(text, says) {
				t.Errorf("%q: %s says %s", role, route, text)
			}
		}
	}
}

// What a person may do with messages, and with runs of others, is what the role says.
func TestEachActionNeedsItsRole(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3)}
	for i, action := range []desk.Action{desk.Replay, desk.Park, desk.Restore, desk.Discard, desk.Edit} {
		e.runs = append(e.runs, desk.Run{ID: string(action), Action: action, Queue: "billing.dead", Chosen: i})
	}
	s := serve(t, e)
	begin(t, s.Page)
	may := map[string][]string{
		"reader": nil, "operator": {"replay", "park", "restore"},
		"editor": {"replay", "park", "restore", "discard", "edit"},
	}
	for role, actions := range may {
		for _, run := range e.runs {
			action := string(run.Action)
			s.as(t, role)
			allowed := slices.Contains(actions, action)
			ask := map[string]any{"queue": "billing.dead", "action": action}
			if action == "edit" {
				ask["handles"], ask["body"] = []string{"a1b2c3000001"}, "{}"
			}
			run := map[string]any{"run": action}
			for path, body := range map[string]any{
				"/api/propose": ask, "/api/runs/cancel": run, "/api/runs/return": run,
			} {
				resp, text := s.do(t, "POST", path, body, nil)
				if passed := resp.StatusCode != http.StatusForbidden; passed != allowed {
					t.Errorf("%s: %s of %s is answered with %d: %s", role, path, action, resp.StatusCode, text)
				}
			}
		}
	}
	s.as(t, "operator")
	ask := map[string]any{"queue": "billing.dead", "action": "discard"}
	got := s.post(t, http.StatusForbidden, "/api/propose", ask)["error"]
	if got != "your role, operator, may not discard; it needs the role editor, which the groups of --role give" {
		t.Errorf("an operator who discards reads: %v", got)
	}
}

// A proposal of a person with a higher role is not executed for one with a lower one.
func TestAProposalIsNotABorrowedRole(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3)}
	s := serve(t, e)
	s.as(t, "editor")
	id := s.post(t, 200, "/api/propose", map[string]any{"queue": "billing.dead", "action": "discard"})["id"]
	s.as(t, "operator")
	s.post(t, http.StatusForbidden, "/api/execute", map[string]any{"proposal": id, "expect": 37})
	if e.executed > 0 {
		t.Error("the proposal was executed")
	}
}

// A run is begun, resumed, returned and stopped in the name of the person who does it.
func TestARunHasTheNameOfThePerson(t *testing.T) {
	t.Parallel()
	does := []string{"cancel", "return", "resume"}
	e := &engine{views: orders(3)}
	for _, do := range does {
		e.runs = append(e.runs, desk.Run{ID: do, Action: desk.Replay, Queue: "billing.dead"})
	}
	names := make(chan string, 10)
	s := serveWith(t, e, func(c *page.Config) {
		c.As = func(by string) page.Engine { names <- by; return e }
	})
	begin(t, s.Page)
	s.as(t, "operator")
	id := s.post(t, 200, "/api/propose", map[string]any{"queue": "billing.dead", "action": "replay"})["id"]
	s.post(t, 200, "/api/execute", map[string]any{"proposal": id, "expect": 37})
	for _, do := range does {
		s.post(t, 200, "/api/runs/"+do, map[string]any{"run": do})
	}
	for range 4 {
		if by := <-names; by != "operator@example.com" {
			t.Errorf("a run is of %q", by)
		}
	}
}

// The session of a person ends by itself; a person has few of them, and none ends those of others.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	var late time.Duration
	s := serveWith(t, &engine{}, func(c *page.Config) {
		c.Now = func() time.Time { late += time.Second; return now().Add(late) }
	})
	s.as(t, "reader")
	for range 50 {
		s.SignInAs("otto", "operator", time.Hour)
	}
	s.get(t, http.StatusOK, "/api/session")
	if got := s.Sessions(); got != 21 {
		t.Errorf("there are %d sessions, want 1 and 20", got)
	}
	for n := range 1500 {
		s.SignInAs(fmt.Sprint(n), "reader", time.Hour)
	}
	if got := s.Sessions(); got != 1000 {
		t.Errorf("there are %d sessions, want 1000", got)
	}
	s.as(t, "reader")
	late += time.Hour
	s.get(t, http.StatusUnauthorized, "/api/session")
}

// A group may have any name. The highest role of a person counts.
func TestGroupsGiveRoles(t *testing.T) {
	t.Parallel()
	grants, err := page.ParseGrants([]string{"reader=all", "editor=cn=owners,dc=example", "operator=on call"})
	if err != nil {
		t.Fatal(err)
	}
	type claims map[string]any
	const ann = "ann@example.com"
	for _, c := range []struct {
		claims     claims
		name, role string
	}{
		{claims{"groups": []any{"all", "on call"}, "email": ann, "email_verified": true}, ann, "operator"},
		{claims{"groups": []any{"all", "cn=owners,dc=example"}, "preferred_username": "ann"}, "ann", "editor"},
		{claims{"groups": "all", "email": ann, "email_verified": "true"}, ann, "reader"},
		{claims{"groups": "all", "email": ann, "email_verified": false, "preferred_username": "ann"}, "ann", "reader"},
		{claims{"groups": "all", "email": ann}, "1234", "reader"},
		{claims{"groups": []any{"All", 7, "al"}, "preferred_username": "a\nb"}, `a\nb`, ""},
		{claims{"groups": map[string]any{"all": true}}, "1234", ""},
		{claims{"roles": []any{"all"}}, "1234", ""},
	} {
		name, role := page.Who(c.claims, "groups", grants)
		if role != c.role || name != c.name {
			t.Errorf("%v is %q with the role %q, want %q with %q", c.claims, name, role, c.name, c.role)
		}
	}
	for _, value := range []string{"admin=x", "reader", "reader=", "=x", "Reader=x", ""} {
		if _, err := page.ParseGrants([]string{value}); err == nil || !strings.Contains(err.Error(), "write reader=GROUP") {
			t.Errorf("--role %q: %v", value, err)
		}
	}
}

// A sign-in leads back to a part of this page, and nowhere else.
func TestASignInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, to := range []string{
		"", "/", "//evil.example.com", "https://evil.example.com", `\evil`, "#", "/#/runs", "#//\nx",
		"#/" + strings.Repeat("x", 1000),
	} {
		if got := page.Part(to); got != "#/" {
			t.Errorf("%q leads to %q", to, got)
		}
	}
	if got := page.Part("#/queue/billing.dead"); got != "#/queue/billing.dead" {
		t.Errorf("a queue leads to %q", got)
	}
}
