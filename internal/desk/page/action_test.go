package page_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// look looks at a queue and returns the snapshot.
func (s *server) look(t *testing.T, ask map[string]any) map[string]any {
	t.Helper()
	ask["queue"] = "billing.dead"
	return s.post(t, http.StatusOK, "/api/look", ask)
}

// A page without --allow shows everything and does nothing.
func TestAPageIsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3), runs: []desk.Run{{ID: "k3f9", Action: desk.Replay, Queue: "billing.dead"}}}
	s := serve(t, e).signIn(t)
	snapshot := s.look(t, map[string]any{})
	for _, action := range []string{"replay", "discard", "edit", "park", "restore"} {
		got := s.post(t, http.StatusForbidden, "/api/propose", map[string]any{"action": action, "queue": "billing.dead"})
		if text := fmt.Sprint(got["error"]); !strings.Contains(text, "desk serve --allow") {
			t.Errorf("%s is refused without the fix: %s", action, text)
		}
	}
	for _, do := range []string{"resume", "return", "cancel"} {
		s.post(t, http.StatusForbidden, "/api/runs/"+do, map[string]any{"run": "k3f9"})
	}
	s.post(t, http.StatusForbidden, "/api/source", map[string]any{"snapshot": snapshot["id"], "row": 0})
	s.post(t, http.StatusGone, "/api/execute", map[string]any{"proposal": "guessed", "expect": 37})
	if e.executed+len(e.resumed)+len(e.returned)+len(e.canceled) > 0 || e.proposed.Queue != "" {
		t.Errorf("the engine was asked: %+v", e)
	}
	ask := map[string]any{"action": "replay", "queue": "billing.dead", "since": "6h"}
	line := s.post(t, http.StatusOK, "/api/command", ask)
	if want := "dlxctl -f shop.yaml desk replay billing.dead --since 6h"; line["command"] != want {
		t.Errorf("the command line is %q, not %q", line["command"], want)
	}
}

// A page does only the actions of --allow, and works on runs of these actions only.
func TestAPageDoesOnlyWhatIsAllowed(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3), runs: []desk.Run{
		{ID: "k3f9", Action: desk.Replay, Queue: "billing.dead"}, {ID: "m2p4", Action: desk.Park, Queue: "billing.dead"},
	}}
	s := serve(t, e, "park").signIn(t)
	for action, status := range map[string]int{
		"replay": 403, "discard": 403, "edit": 403, "park": 200, "restore": 200, "drop": 403,
	} {
		s.post(t, status, "/api/propose", map[string]any{"action": action, "queue": "billing.dead"})
	}
	for run, status := range map[string]int{"k3f9": 403, "m2p4": 200, "none": 404} {
		s.post(t, status, "/api/runs/cancel", map[string]any{"run": run})
	}
	s.post(t, http.StatusNotFound, "/api/runs/delete", map[string]any{"run": "m2p4"})
	if !slices.Equal(e.canceled, []string{"m2p4"}) {
		t.Errorf("canceled are %v", e.canceled)
	}
}

// The page looks only at the queues of the topology that hold dead letters.
func TestOtherQueuesAreNotLookedAt(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3)}
	s := serve(t, e, "replay").signIn(t)
	s.post(t, http.StatusNotFound, "/api/look", map[string]any{"queue": "billing"})
	s.post(t, http.StatusNotFound, "/api/propose", map[string]any{"queue": "billing", "action": "replay"})
	got := s.post(t, http.StatusConflict, "/api/look", map[string]any{"queue": "drop.dead"})
	if !strings.Contains(fmt.Sprint(got["error"]), "drop-head") {
		t.Errorf("a refused look is answered with %v", got)
	}
	got = s.post(t, http.StatusBadRequest, "/api/look", map[string]any{"queue": "billing.dead", "where": "wrong"})
	if !strings.Contains(fmt.Sprint(got["error"]), "column 1") {
		t.Errorf("a wrong filter is answered with %v", got)
	}
}

// What is executed is what was proposed and shown: once, and only with the number that was shown.
func TestOnlyWhatWasShownIsExecuted(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3)}
	s := serve(t, e, "replay").signIn(t)
	begin(t, s.Page)
	ask := map[string]any{
		"action": "replay", "queue": "billing.dead", "where": `cause == "it's"`, "since": "6h", "to": "original",
		"rate": "10/s", "ramp": "1,10", "stopOn": "3", "again": true, "reason": "fixed in 4.2",
		"handles": []string{"a1b2c3000000", "a1b2c3000000#2"},
	}
	shown := s.post(t, http.StatusOK, "/api/propose", ask)
	want := `dlxctl -f shop.yaml desk replay billing.dead --where 'cause == "it'\''s"' --since 6h --handle a1b2c3000000 ` +
		`--handle 'a1b2c3000000#2' --again --to original --rate 10/s --ramp 1,10 --stop-on 3 --reason 'fixed in 4.2' --yes --expect 2`
	if shown["command"] != want {
		t.Errorf("the command line is\n%s, not\n%s", shown["command"], want)
	}
	if r := e.proposed; r.Reason != "fixed in 4.2" || !r.Target.Original || !r.Again || len(r.Handles) != 2 {
		t.Errorf("the engine was asked for %+v", r)
	}
	s.post(t, http.StatusConflict, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 3})
	shown = s.post(t, http.StatusOK, "/api/propose", ask)
	s.post(t, http.StatusOK, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 2})
	s.post(t, http.StatusGone, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 2})
	e.refusals = []string{"the origin of 2 messages is in doubt"}
	shown = s.post(t, http.StatusOK, "/api/propose", ask)
	s.post(t, http.StatusConflict, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 2})
	if e.executed != 1 {
		t.Errorf("%d runs were executed", e.executed)
	}
}

// What others ask for takes no proposal away from a person who was shown it a moment ago: the
// oldest goes.
func TestOthersTakeNoProposalAway(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3)}
	var later atomic.Int64
	s := serveWith(t, e, func(c *page.Config) {
		c.Now = func() time.Time { return now().Add(time.Duration(later.Load())) }
	}, "replay").signIn(t)
	begin(t, s.Page)
	shown := func() any {
		later.Add(int64(time.Second))
		ask := map[string]any{"action": "replay", "queue": "billing.dead"}
		return s.post(t, http.StatusOK, "/api/propose", ask)["id"]
	}
	execute := func(id any) map[string]any { return map[string]any{"proposal": id, "expect": 37} }
	first := shown()
	for range 18 {
		shown()
	}
	last := shown() // the 20th
	shown()
	s.post(t, http.StatusOK, "/api/execute", execute(last))
	got := s.post(t, http.StatusGone, "/api/execute", execute(first))["error"]
	if !strings.Contains(fmt.Sprint(got), "or many others were shown since") {
		t.Errorf("the oldest proposal: %v", got)
	}
}

// begin serves a page on a listener of its own, and returns how the server ends.
func begin(t *testing.T, p *page.Page) (stop func() []page.Stopped) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return beginOn(t, p, listener)
}

// beginOn has a page served on a listener.
func beginOn(t *testing.T, p *page.Page, listener net.Listener) (stop func() []page.Stopped) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, began := make(chan []page.Stopped, 1), make(chan struct{})
	go func() {
		close(began)
		stopped, err := p.Serve(ctx, listener)
		if err != nil {
			t.Error(err)
		}
		ended <- stopped
	}()
	<-began
	resp, err := http.Get("http://" + listener.Addr().String() + "/style.css") //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	stop = func() []page.Stopped { cancel(); return <-ended }
	t.Cleanup(func() { cancel() })
	return stop
}

// The page forgets the oldest of the runs that have ended, and no more than it must.
func TestThePageRemembersItsRuns(t *testing.T) {
	t.Parallel()
	got := page.JobsAfter(t.Context(), 60)
	if len(got) != 50 || got[0] != "60" || got[48] != "12" || got[49] != "first" {
		t.Errorf("it remembers %v", got)
	}
}

// Who waits while a colleague looks has the whole time for the look that follows.
func TestALookHasItsTimeFromItsTurnOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if left, err := page.TurnAfter(t.Context(), 9*time.Minute); left != 10*time.Minute || err != nil {
			t.Errorf("%s are left: %v", left, err)
		}
	})
}

// A server that ends stops its runs where nothing is lost, and names them.
func TestTheServerStopsItsRunsAndNamesThem(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(3), step: make(chan struct{})}
	s := serve(t, e, "replay").signIn(t)
	stop := begin(t, s.Page)
	shown := s.post(t, http.StatusOK, "/api/propose", map[string]any{"action": "replay", "queue": "billing.dead"})
	s.post(t, http.StatusOK, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 37})
	for range 12 {
		e.step <- struct{}{}
	}
	stopped := stop()
	want := []page.Stopped{{
		Run: "k3f9", Queue: "billing.dead", Moved: 12, Left: 25,
		Next: "to continue: dlxctl -f shop.yaml desk run resume k3f9 --yes",
	}}
	if !slices.Equal(stopped, want) {
		t.Errorf("stopped are %+v, not %+v", stopped, want)
	}
	shown = s.post(t, http.StatusOK, "/api/propose", map[string]any{"action": "replay", "queue": "billing.dead"})
	got := s.post(t, http.StatusConflict, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 37})
	if !strings.Contains(fmt.Sprint(got["error"]), "stopping") {
		t.Errorf("a run after the end is answered with %v", got)
	}
}

// A run without a hold leaves in the queue what it has not sent: there is nothing to resume.
func TestTheServerStopsARunWithoutAHold(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"stopped": nil, "failed": errors.New("the connection ended")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &engine{views: orders(3), step: make(chan struct{}), direct: true, failure: failure}
			s := serve(t, e, "park").signIn(t)
			stop := begin(t, s.Page)
			shown := s.post(t, http.StatusOK, "/api/propose", map[string]any{"action": "park", "queue": "billing.dead"})
			s.post(t, http.StatusOK, "/api/execute", map[string]any{"proposal": shown["id"], "expect": 37})
			for range 12 {
				e.step <- struct{}{}
			}
			want := page.Stopped{
				Run: "k3f9", Queue: "billing.dead", Moved: 12, LeftInQueue: 25,
				Next: "to see what is still in the queue: dlxctl -f shop.yaml desk list billing.dead",
			}
			if failure != nil {
				want.Error = failure.Error()
			}
			if stopped := stop(); !slices.Equal(stopped, []page.Stopped{want}) {
				t.Errorf("stopped are %+v, not %+v", stopped, want)
			}
		})
	}
}

// A body in which something is masked is not edited on the page, which would have to show it.
func TestMaskedBodiesAreNotEdited(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(2)}
	plain := &engine{views: orders(2)}
	plain.views[0].Body.Text = strings.ReplaceAll(plain.views[0].Body.Text, "[masked]", "ann@example.com")
	s := serveWith(t, e, func(c *page.Config) { c.Plain = plain }, "edit").signIn(t)
	snapshot := s.look(t, map[string]any{})
	got := s.post(t, http.StatusOK, "/api/source", map[string]any{"snapshot": snapshot["id"], "row": 0})
	if text := fmt.Sprint(got); !strings.Contains(text, "values of the body are masked") ||
		strings.Contains(text, "ann@") {
		t.Errorf("a masked body is answered with %s", text)
	}
	got = s.post(t, http.StatusOK, "/api/source", map[string]any{"snapshot": snapshot["id"], "row": 1})
	if text := fmt.Sprint(got["text"]); !strings.Contains(text, `"amount": 11.50`) {
		t.Errorf("the number was rewritten: %s", text)
	}
	body, wrong := `{"order": 1}`, "{"
	ask := map[string]any{
		"action": "edit", "queue": "billing.dead", "handles": []string{"a1b2c3000001"}, "format": "json", "body": wrong,
	}
	s.post(t, http.StatusBadRequest, "/api/propose", ask)
	ask["body"] = body
	ask["handles"] = []string{"a1b2c3000000"} // it was not shown for editing
	if got := s.post(t, http.StatusConflict, "/api/propose", ask); !strings.Contains(fmt.Sprint(got), "masked") {
		t.Errorf("an edit of a masked body is answered with %v", got)
	}
	ask["handles"] = []string{"a1b2c3000001"}
	s.post(t, http.StatusOK, "/api/propose", ask)
	if string(e.proposed.Edited.Body) != "{\n  \"order\": 1\n}" { // in the style of the message
		t.Errorf("the engine was given %q", e.proposed.Edited.Body)
	}
}

// The list of 200,000 messages is read in windows, from one look. The largest group is first.
func TestManyMessagesAreReadInWindows(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: orders(20_000)}).signIn(t)
	snapshot := s.look(t, map[string]any{"by": "cause"})
	groups := snapshot["groups"].([]any)
	first := groups[0].(map[string]any)
	if len(groups) != 3 || first["value"] != "rejected" || first["count"] != 12_000.0 ||
		first["where"] != `cause == "rejected"` {
		t.Errorf("the groups are %v", groups)
	}
	window := s.get(t, http.StatusOK, fmt.Sprintf("/api/rows?snapshot=%s&from=19990&count=100", snapshot["id"]))
	rows := window["rows"].([]any)
	if len(rows) != 10 || window["total"] != 20_000.0 || rows[9].(map[string]any)["position"] != 19_999.0 {
		t.Errorf("the last window has %d rows of %v: %v", len(rows), window["total"], rows)
	}
	window = s.get(t, http.StatusOK, fmt.Sprintf("/api/rows?snapshot=%s&group=1&from=3990&count=1000", snapshot["id"]))
	if rows = window["rows"].([]any); len(rows) != 10 || window["total"] != 4000.0 {
		t.Errorf("the last window of a group has %d rows of %v", len(rows), window["total"])
	}
	if s.engine.looks != 1 {
		t.Errorf("%d looks were made", s.engine.looks)
	}
	last := s.post(t, http.StatusOK, "/api/message", map[string]any{"snapshot": snapshot["id"], "row": 19_999})
	if last["handle"] != "a1b2c3004e1f" || last["position"] != 19_999.0 {
		t.Errorf("the last message is %v at %v", last["handle"], last["position"])
	}
	for range 10 {
		s.look(t, map[string]any{})
	}
	s.get(t, http.StatusGone, fmt.Sprintf("/api/rows?snapshot=%s", snapshot["id"]))
}

// The groups of the page are the largest, also if they come behind many others.
func TestTheLargestGroupsAreListed(t *testing.T) {
	t.Parallel()
	views := orders(1600)
	for i := range views {
		views[i].Error = "connection refused"
		if i < 600 {
			views[i].Error = fmt.Sprintf("user %c%c not found", 'a'+i/26, 'a'+i%26)
		}
	}
	s := serve(t, &engine{views: views}).signIn(t)
	snapshot := s.look(t, map[string]any{})
	groups := snapshot["groups"].([]any)
	first, last := groups[0].(map[string]any), groups[len(groups)-1].(map[string]any)
	if len(groups) != 500 || snapshot["others"] != 101.0 || first["count"] != 1000.0 ||
		first["where"] != `error == "connection refused"` || last["where"] != `error == "user te not found"` {
		t.Errorf("the page lists %d groups, from %v to %v, and has %v others", len(groups), first, last, snapshot["others"])
	}
	for group, want := range []float64{1000, 1} {
		window := s.get(t, http.StatusOK, fmt.Sprintf("/api/rows?snapshot=%s&group=%d", snapshot["id"], group))
		if window["total"] != want {
			t.Errorf("group %d has %v rows; want %v", group, window["total"], want)
		}
	}
}

// A list ends after --rows messages, and the answer says so.
func TestAListIsLimited(t *testing.T) {
	t.Parallel()
	s := serveWith(t, &engine{views: orders(50)}, func(c *page.Config) { c.Rows = 20 }).signIn(t)
	snapshot := s.look(t, map[string]any{})
	if snapshot["listed"] != 20.0 || snapshot["matched"] != 50.0 {
		t.Errorf("listed are %v of %v", snapshot["listed"], snapshot["matched"])
	}
}

// A snapshot of 200,000 messages with texts of their own fits the memory that the docs name.
//
//nolint:paralleltest // it measures the memory of the process
func TestASnapshotIsLight(t *testing.T) {
	views := orders(200_000)
	for i := range views {
		views[i].Error = fmt.Sprintf("order %d: the issuer of the card does not answer within 30 s, request %d", i, i*7919)
	}
	s := serve(t, &engine{views: views}).signIn(t)
	before := memory()
	snapshot := s.look(t, map[string]any{})
	used := float64(memory()-before) / (1 << 20)
	t.Logf("%v messages: %.0f MiB", snapshot["listed"], used)
	if used > 110 {
		t.Errorf("a snapshot of %v messages uses %.0f MiB; docs/desk-page.md says 100", snapshot["listed"], used)
	}
}

// Ten people open a queue, in two ways: there are two looks, and each person gets the list that was
// asked for, also after the others have looked. A person who asks for a look gets one that begins
// after that.
func TestPeopleShareALook(t *testing.T) {
	t.Parallel()
	e := &engine{views: orders(1000)}
	s := serve(t, e).signIn(t)
	asks := []map[string]any{{"opens": true}, {"opens": true, "where": `cause == "expired"`}}
	var all sync.WaitGroup
	answers := make([]map[string]any, 10)
	for i := range answers {
		all.Go(func() { answers[i] = s.look(t, maps.Clone(asks[i%2])) })
	}
	all.Wait()
	for i, a := range answers {
		if got, want := a["matched"], []float64{1000, 200}[i%2]; got != want || a["id"] != answers[i%2]["id"] {
			t.Errorf("person %d got %v messages, want %v, of snapshot %v", i, got, want, a["id"])
		}
		s.get(t, 200, fmt.Sprintf("/api/rows?snapshot=%v", a["id"]))
	}
	if e.looks != 2 {
		t.Errorf("%d looks, want 2", e.looks)
	}
	again := s.look(t, map[string]any{})
	if e.looks != 3 || again["id"] == answers[0]["id"] {
		t.Errorf("%d looks: a person who asks for a look got that of before", e.looks)
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below the limit
}

// hostile returns messages that attack what shows them.
func hostile() []deadletter.View {
	v := orders(4)
	script := `<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><a href="javascript:window.pwned=3">x</a>`
	for i := range v {
		v[i].Error, v[i].Cause, v[i].Key, v[i].Type, v[i].WorkQueue = script, script, script, script, script
		v[i].ErrorType, v[i].Stack = script, script
		v[i].Headers = map[string]any{script: script, "list": []any{script}, "bytes": []byte{0xff, 0xfe, 0}}
		v[i].Hops = []deadletter.Hop{{Queue: script, Reason: script, Keys: []string{script}, Count: 2, Time: now()}}
	}
	v[0].Body = decode.Document{Format: decode.Text, Text: script, Note: script, Steps: []string{script}}
	v[1].Body = decode.Document{Format: decode.Text, Text: strings.Repeat("0123456789abcdef", 10<<20/16)}
	v[2].Body = decode.Document{Format: decode.Text, Text: "invalid: \xff\xfe\xc3( and \x1b[31mred\x1b[0m \x07"}
	v[2].ErrorType, v[2].Stack = "T\u202E\x1b[2J", strings.Repeat("x\u2066", 1<<20)
	v[2].Error = "user\u202Egpj.exe \u2066isolate\u2069 \u200Bzero \x1b[2J"
	v[3].Body = decode.Document{Format: decode.Binary, Text: "00000000  00 01 02 03"}
	return v
}

// Without a property to group by, the page groups by error where a message has one, and otherwise
// by cause. One group alone comes with what tells its messages apart.
func TestThePageGroupsByError(t *testing.T) {
	t.Parallel()
	views := orders(20)
	for i := range views {
		views[i].Error = ""
	}
	e := &engine{views: views}
	s := serve(t, e).signIn(t)
	by := func(ask map[string]any) any { return s.look(t, ask)["request"].(map[string]any)["by"] }
	if got := by(map[string]any{}); got != "cause" {
		t.Errorf("messages without an error are grouped by %v", got)
	}
	views[19].ErrorType = "PaymentTimeout"
	if got := by(map[string]any{}); got != "error" {
		t.Errorf("messages of which one has an error are grouped by %v", got)
	}
	if got := by(map[string]any{"by": "key"}); got != "key" {
		t.Errorf("messages to be grouped by key are grouped by %v", got)
	}
	for i := range views {
		views[i].Error, views[i].ErrorType = fmt.Sprintf("no answer in %d s", i), "PaymentTimeout"
	}
	snapshot := s.look(t, map[string]any{})
	apart := fmt.Sprint(snapshot["apart"])
	if want := "[map[by:key groups:3] map[by:queue groups:2] map[by:cause groups:3]]"; apart != want {
		t.Errorf("what tells the messages apart is %s; want %s", apart, want)
	}
	// The group is named by an expression that chooses its messages, whatever names the type.
	views[0].Error, views[1].Error, views[1].ErrorType = "", "", "Boom\u202E"
	views[2].Error, views[3].Error = "no answer in 2 s at all", "no answer in 3 s\nat pay()"
	for i, want := range []string{
		`errorType == "PaymentTimeout" && error matches "^no answer in \\d+(?:[.,:]\\d+)* s\\s*(?m:$)"`,
		`errorType == "PaymentTimeout" && error == ""`, `errorType == "Boom\u202e" && error == ""`,
	} {
		groups := s.look(t, map[string]any{})["groups"].([]any)
		group := groups[i].(map[string]any)
		if group["where"] != want {
			t.Errorf("the group %v is chosen by %v; want %s", group["value"], group["where"], want)
		}
		matched := s.look(t, map[string]any{"where": group["where"]})["matched"]
		if matched != group["count"] {
			t.Errorf("%s chooses %v messages of %v", group["where"], matched, group["count"])
		}
	}
}

// A number, an id of any form, a word with a number and an e-mail address at the same place of an
// error make four groups, and the expression of each chooses its own messages.
func TestGroupsOfNumbersAndIdsAreApart(t *testing.T) {
	t.Parallel()
	views := orders(10)
	for i := range views {
		id := []string{
			"%08d", "%07da", "0x%d", "3f2504e0-4f89-41d3-9a0c-0305e82c330%d", "%d,5", "k%dJ", "a%d@b.org", "abcd%03df",
		}[i%8]
		views[i].Error = fmt.Sprintf("order "+id+" rejected", i)
	}
	s := serve(t, &engine{views: views}).signIn(t)
	groups := s.look(t, map[string]any{})["groups"].([]any)
	if len(groups) != 4 {
		t.Errorf("the groups are %v", groups)
	}
	for _, g := range groups {
		group := g.(map[string]any)
		if matched := s.look(t, map[string]any{"where": group["where"]})["matched"]; matched != group["count"] {
			t.Errorf("%s chooses %v messages of %v", group["where"], matched, group["count"])
		}
	}
}

// A body of 10 MB is cut at a whole character, and the answer says how much is left.
func TestLargeBodiesAreCut(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{views: hostile()}).signIn(t)
	snapshot := s.look(t, map[string]any{"by": "error"})
	got := s.post(t, http.StatusOK, "/api/message", map[string]any{"snapshot": snapshot["id"], "row": 1})
	body := got["body"].(map[string]any)
	if n := len(body["text"].(string)); n != 256<<10 || body["left"] != float64(10<<20-n) {
		t.Errorf("%d bytes are shown and %v left out", n, body["left"])
	}
	if s.engine.looks != 2 {
		t.Errorf("%d looks were made: a large body is read again from the queue", s.engine.looks)
	}
}

// A command line can be pasted: it quotes what a message says, and control characters are codes.
func TestCommandLinesAreQuoted(t *testing.T) {
	t.Parallel()
	s := serve(t, &engine{}).signIn(t)
	for where, quoted := range map[string]string{
		`key == "a b"`:           `'key == "a b"'`,
		"$(reboot)`x`;|&":        "'$(reboot)`x`;|&'",
		"it's":                   `'it'\''s'`,
		"a\nreboot\x1b[2J":       `$'a\nreboot\x1b[2J'`,
		"\u202Eevil 'x' \\":      `$'\u202eevil \'x\' \\'`,
		"--yes":                  "--yes",
		"ü":                      "'ü'",
		`error == "a\tb" && !!x`: `'error == "a\tb" && !!x'`,
	} {
		got := s.post(t, http.StatusOK, "/api/command", map[string]any{"action": "park", "queue": "q", "where": where})
		if want := "dlxctl -f shop.yaml desk park q --where " + quoted; got["command"] != want {
			t.Errorf("%q is written as %s, not %s", where, got["command"], want)
		}
	}
}
