package page_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/browsertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// tab is a page of the desk in Chromium.
type tab struct {
	*browsertest.Tab

	t *testing.T
}

// browse opens Chromium.
func browse(t *testing.T) *tab {
	t.Helper()
	brokertest.OnNewestLine(t)
	return &tab{browsertest.Open(t), t}
}

// open opens a page of the desk, signed in.
func (b *tab) open(s *server, path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(s.URL(s.http.URL)), chromedp.WaitVisible(`#mode`), chromedp.WaitNotPresent(`.door`))
	b.run(chromedp.Navigate(s.http.URL + "/#" + path))
}

// The short names of what the tests do most.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) { b.t.Helper(); b.Run(actions...) }
func (b *tab) until(expression string)                       { b.t.Helper(); b.Until(expression) }
func (b *tab) do(script string)                              { b.t.Helper(); b.Do(script) }
func (b *tab) media(p emulation.SetEmulatedMediaParams)      { b.t.Helper(); b.Media(p) }
func (b *tab) size(width, height int64, scheme string)       { b.t.Helper(); b.Size(width, height, scheme) }
func (b *tab) shoot(name string)                             { b.t.Helper(); b.Shoot(name) }
func (b *tab) fits()                                         { b.t.Helper(); b.Fits() }
func (b *tab) silent()                                       { b.t.Helper(); b.Silent() }
func (b *tab) console() []string                             { return b.Console() }
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return browsertest.Eval[T](b.Tab, expression)
}

const rowsThere = `document.querySelectorAll(".row .cause").length > 5`

// The form of --token-file opens the page. A test that sends the form itself sends the origin that
// it expects; a browser sends what the headers of the page let it.
func TestTheFormOpensThePage(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const secret = "a-secret-of-more-than-32-characters"
	s := serveWith(t, &engine{views: orders(3)}, func(c *page.Config) { c.Access = page.Access{Secret: secret} })
	b := browse(t)
	b.run(chromedp.Navigate(s.URL(s.http.URL)), chromedp.WaitVisible(`#token`), chromedp.Focus(`#token`),
		chromedp.KeyEvent(secret+kb.Enter))
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
}

// A person opens the overview, a queue, a group and a message, with the keyboard alone.
func TestThePageWorksWithTheKeyboard(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := serve(t, &engine{views: orders(1204)})
	b := browse(t)
	b.open(s, "/")
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
	b.shoot("overview-light")
	b.run(chromedp.Focus(`.overview a`), chromedp.KeyEvent(kb.Enter))
	b.until(rowsThere)
	if got := eval[string](b, `document.querySelector("h1").textContent`); got != "billing.dead" {
		t.Errorf("Enter opened %q", got)
	}
	b.until(`document.activeElement.id === "list"`) // the keys of the list work after a look
	b.run(chromedp.KeyEvent("jjj"), chromedp.KeyEvent("k"))
	if got := eval[string](b, `document.getElementById("list").getAttribute("aria-activedescendant")`); got != "row-2" {
		t.Errorf("after jjjk the active row is %s", got)
	}
	b.run(chromedp.KeyEvent("x"))
	b.until(`document.querySelector(".scope").textContent.includes("1 chosen")`)
	b.until(`document.querySelector(".queue ~ div code").textContent.includes("--handle a1b2c3000002")`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector(".message pre.body")?.textContent.includes("100002")`)
	b.shoot("message-light")
	b.size(1400, 860, "light")
	b.shoot("desk")
	b.fits()
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until(`document.activeElement.id === "list" && !document.querySelector(".message")`)
	b.run(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.id === "where"`)
	b.do(`document.getElementById("where").value = ""`) // the driver types the / that the page prevents
	b.run(chromedp.KeyEvent("wrong" + kb.Enter))
	b.until(`document.getElementById("hint").textContent.includes("column 1")`)
	b.run(chromedp.Focus(`#list`), chromedp.KeyEvent(kb.End))
	b.until(`document.getElementById("row-1203")?.querySelector(".cause")`)
	b.run(chromedp.KeyEvent("?"))
	b.until(`document.getElementById("dialog").open`)
	b.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("r"))
	b.until(`location.hash === "#/runs"`)
	// What can be clicked can be reached, and shows that it is focused.
	b.run(chromedp.KeyEvent("g"))
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
	if got := eval[int](b, `[...document.querySelectorAll("a, button, input, select")].filter((e) => e.tabIndex < 0).length`); got > 0 {
		t.Errorf("%d controls cannot be reached with the keyboard", got)
	}
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`); got != "solid" {
		t.Errorf("the focus is not visible: outline-style is %s", got)
	}
	b.silentBut("400") // the wrong filter
}

// The address of the page has what was asked, the group and the message: Back undoes a step, a
// reload keeps the page, and another person sees the same by the link.
func TestTheAddressHasTheState(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(1204)}
	s := serve(t, e)
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	b.run(chromedp.SetValue(`#where`, `attempts == 4 && key != ""`), chromedp.SetValue(`#by`, "key"),
		chromedp.Click(`form button`))
	b.until(`document.querySelector(".groups h2").textContent === "By key" && location.hash.includes("by=key")`)
	b.do(`[...document.querySelectorAll(".groups button")].find((g) => g.title === "order.changed").click()`)
	group := `document.querySelector(".scope").textContent.includes("group of 301 messages")`
	b.until(group + ` && document.querySelectorAll(".row .cause").length > 5`)
	b.do(`document.querySelector("#row-1 .summary").click()`)
	message := `document.querySelector(".message h1")?.textContent === "a1b2c3000006"`
	b.until(message + ` && location.hash.includes("message=a1b2c3000006")`)
	link := eval[string](b, `location.hash`)
	b.do(`history.back()`)
	b.until(`!document.querySelector(".message") && ` + group)
	b.do(`history.back()`)
	b.until(`/all 1.204 messages that match/.test(document.querySelector(".scope").textContent)`)
	b.do(`history.back()`)
	b.until(`document.getElementById("where").value === "" && document.querySelector(".groups h2").textContent === "By error"`)
	b.do(`history.go(3)`)
	b.until(message + " && " + group)
	looks := e.looks
	b.run(chromedp.Reload())
	b.until(message + " && " + group + ` && document.getElementById("by").value === "key"`)
	if e.looks != looks {
		t.Errorf("a reload looked %d times at the queue again", e.looks-looks)
	}
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.http.URL+"/"+link))
	b.until(message + " && " + group)
	// What is not there any more is said, and the rest is shown.
	b.do(`location.hash = "#/queue/billing.dead?by=key&group=order.lost&message=000000000000"`)
	b.until(`document.getElementById("hint").textContent.includes("The group order.lost is not there any more")`)
	b.until(`document.querySelector(".message").textContent.includes("message 000000000000 is not in this list")`)
	b.silentBut("404")
}

// A person says what is known about a group, and another who opens the queue reads it. A read-only
// page shows it too.
func TestAGroupHasAComment(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(40)}
	s := serve(t, e, "park")
	b := browse(t)
	b.open(s, "/queue/billing.dead?by=cause&group=expired")
	b.until(`document.querySelector(".scope")?.textContent.includes("group of 8 messages")`)
	b.run(chromedp.Click(`[data-action=comment]`), chromedp.WaitVisible(`#o-text`))
	b.until(`document.activeElement.id === "o-text"`)
	b.run(chromedp.KeyEvent("known, <b>ticket</b> 4711" + kb.Enter))
	shown := `document.querySelector(".groups .comment")?.textContent === "known, <b>ticket</b> 4711 (ann@laptop)"`
	b.until(shown + ` && !document.getElementById("dialog").open`)
	b.shoot("comment-light")
	// What is chosen for an action may be more than the group.
	b.run(chromedp.Click(`[data-action=park]`), chromedp.WaitVisible(`dialog button.primary`),
		chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`))
	b.until(`document.getElementById("dialog").innerText.includes("has 8 messages in this group, and its expression chooses more")`)
	want := desk.Comment{Queue: "billing.dead", By: "cause", Value: "expired", Text: "known, <b>ticket</b> 4711"}
	got := e.comments[0]
	got.Author, got.At = "", time.Time{}
	if len(e.comments) != 1 || got != want {
		t.Errorf("the comments are %+v, want %+v", e.comments, want)
	}
	b.run(chromedp.Reload())
	b.until(shown)
	b.silent()
	reads := serve(t, e).signIn(t)
	snapshot := reads.look(t, map[string]any{"by": "cause"})
	if text := fmt.Sprint(snapshot["groups"]); !strings.Contains(text, "4711") {
		t.Errorf("a read-only page shows the groups %s", text)
	}
	ask := map[string]any{"snapshot": snapshot["id"], "group": 0, "text": "mine"}
	if says := reads.post(t, 403, "/api/comment", ask)["error"]; says != "this page is read-only; start it with --allow, or use 'dlxctl desk comment'" {
		t.Errorf("a read-only page says %q", says)
	}
}

// silentBut checks the console, except for answers with a status that the test provokes.
func (b *tab) silentBut(status string) {
	b.t.Helper()
	for _, found := range b.console() {
		if !strings.Contains(found, "the server responded with a status of "+status) {
			b.t.Errorf("the console says: %s", found)
		}
	}
}

// The list shows 200,000 messages with few elements, and scrolls to any of them.
func TestTheListScrollsThrough200000Messages(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := serve(t, &engine{views: orders(200_000)})
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	for _, n := range []int{100_000, 199_999, 50_000} {
		b.do(fmt.Sprintf(`document.getElementById("list").scrollTop = %d * 30`, n))
		b.until(fmt.Sprintf(`document.getElementById("row-%d")?.querySelector(".cause")`, n))
		if got := eval[int](b, `document.querySelectorAll(".row").length`); got > 80 {
			t.Errorf("%d rows exist in the page", got)
		}
	}
	if got := eval[string](b, `document.getElementById("list").getAttribute("aria-rowcount")`); got != "200001" {
		t.Errorf("aria-rowcount is %s", got)
	}
	b.shoot("list-200000")
	b.silent()
}

// Bodies, headers and errors that attack the page are shown as text, and as nothing else.
func TestHostileMessagesAreShownAsText(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := serve(t, &engine{views: hostile()})
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(`document.querySelectorAll(".row .cause").length === 4`)
	for n := range 4 {
		b.do(fmt.Sprintf(`document.querySelector("#row-%d .summary").click()`, n))
		b.until(fmt.Sprintf(`document.querySelector(".message h1")?.textContent === "%012x"`, 0xa1b2c3000000+n))
		if n < 3 {
			b.shoot(fmt.Sprintf("hostile-%d", n))
		}
		b.fits()
		if n == 2 {
			text := eval[string](b, `document.querySelector(".message").textContent`)
			for _, code := range []string{"⟨U+202E⟩", "⟨U+2066⟩", "⟨U+200B⟩", "⟨U+001B⟩", "⟨U+0007⟩"} {
				if !strings.Contains(text, code) {
					t.Errorf("%s is not shown as a code", code)
				}
			}
			if strings.ContainsAny(text, "\u202e\u2066\x1b\x07") {
				t.Error("a character that acts on the text is on the page")
			}
		}
		if n == 1 && !eval[bool](b, `document.querySelector(".notice.warn").textContent.includes("9.8 MiB more are not shown")`) {
			t.Error("the page does not say that the body is cut")
		}
	}
	if got := eval[string](b, `String(window.pwned)`); got != "undefined" {
		t.Errorf("a message ran a script: %s", got)
	}
	if got := eval[int](b, `document.querySelectorAll("main script, main img, main a[href^=javascript]").length`); got > 0 {
		t.Errorf("a message made %d elements", got)
	}
	b.silent()
}

// An action shows what it would do, does it, and can be stopped: the run says what is left.
func TestAReplayIsShownStartedAndStopped(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(60), step: make(chan struct{})}
	s := serve(t, e, "replay", "park", "discard", "edit")
	begin(t, s.Page)
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	b.run(chromedp.Click(`[data-action=replay]`), chromedp.WaitVisible(`#o-rate`))
	// A dialog is about the queue under it: its title names the queue, and it closes with its page.
	b.until(`document.getElementById("dialog-title").textContent === "Replay all 60 messages of billing.dead"`)
	b.do(`location.hash = "#/"`)
	b.until(`!document.getElementById("dialog").open`)
	b.do(`location.hash = "#/queue/billing.dead"`)
	b.until(rowsThere)
	b.run(chromedp.Click(`[data-action=replay]`), chromedp.WaitVisible(`#o-rate`))
	b.until(`document.getElementById("o-place").offsetParent === null`)
	b.do(`const to = document.getElementById("o-to"); to.value = "exchange:"; to.dispatchEvent(new Event("change"));
		document.getElementById("o-place").value = "fixed"; document.getElementById("o-key").value = "order.placed"`)
	b.until(`document.getElementById("o-place").offsetParent !== null`)
	b.shoot("replay-options")
	b.run(chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`))
	b.until(`document.getElementById("go").textContent === "Replay 37 messages"`)
	b.until(`document.getElementById("dialog-title").textContent === "Replay 37 messages of billing.dead"`)
	b.until(`document.getElementById("dialog").innerText.includes("--to exchange:fixed --key order.placed")`)
	b.shoot("replay-proposal")
	b.fits()
	b.run(chromedp.Click(`#go`))
	b.until(`location.hash === "#/runs" && document.querySelector(".run")`)
	for range 15 {
		e.step <- struct{}{}
	}
	b.until(`document.querySelector(".run .numbers").textContent.includes("15 of 37")`)
	b.until(`document.querySelector(".run .brake").textContent.includes("1 failed again, stops at 3")`)
	b.until(`document.getElementById("run-count").textContent === "1" || true`)
	b.shoot("run-in-progress")
	b.run(chromedp.Click(`[data-do=cancel]`))
	b.until(`document.querySelector(".run .state").textContent === "stopped"`)
	b.until(`document.querySelector("[data-do=resume]")`)
	b.shoot("run-stopped")
	b.run(chromedp.Click(`.past summary`))
	b.until(`document.querySelectorAll(".past li").length === 100`)
	b.until(`document.querySelector(".past").innerText.includes("The newest 100 of 101")`)
	b.until(`document.querySelector(".past").innerText.includes("1 record cannot be read")`)
	b.until(`document.querySelector(".past li").innerText.startsWith("replay, returned run-0 · billing.dead · restored 12 of 40; 3 failed again")`)
	b.until(`document.querySelector(".past li").innerText.includes("<b>ticket</b> 4711")`)
	b.until(`document.querySelector(".past").innerText.includes("desk run list --ended")`)
	b.shoot("runs-ended")
	b.fits()
	b.silent()
}

// A run without a hold that stops says what is still in the queue, and has nothing to resume.
func TestARunWithoutAHoldIsStopped(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(9), step: make(chan struct{}), direct: true, failure: errors.New("the connection ended")}
	s := serve(t, e, "park")
	begin(t, s.Page)
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	b.run(chromedp.Click(`[data-action=park]`), chromedp.WaitVisible(`dialog button.primary`),
		chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`), chromedp.Click(`#go`))
	e.step <- struct{}{}
	b.run(chromedp.Click(`[data-do=cancel]`))
	b.until(`document.querySelector(".run .numbers").textContent.includes("36 still in the queue")`)
	if n := eval[int](b, `document.querySelectorAll(".run [data-do]").length`); n > 0 {
		t.Errorf("the run has %d buttons", n)
	}
	b.until(`document.querySelector(".run details").hidden`)
	b.silent()
}

// A message is edited: the text of its body, and then what the edit would do.
func TestAMessageIsEdited(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(6)}
	s := serve(t, e, "edit")
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	b.run(chromedp.Focus(`#list`), chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter))
	b.run(chromedp.WaitVisible(`.message .acts button`), chromedp.Click(`.message .acts button`),
		chromedp.WaitVisible(`dialog textarea.source`))
	b.shoot("edit")
	b.run(chromedp.SetValue(`dialog textarea.source`, `{"order": 7}`), chromedp.Click(`dialog button.primary`),
		chromedp.WaitVisible(`#go`))
	e.mu.Lock()
	defer e.mu.Unlock()
	body := string(e.proposed.Edited.Body) // in the style of the message
	if e.proposed.Action != desk.Edit || body != "{\n  \"order\": 7\n}" || len(e.proposed.Handles) != 1 {
		t.Errorf("the engine was asked for %+v", e.proposed)
	}
	b.silent()
}

// A form knows line feeds alone. The line ends of a message stay as they were: saved unchanged, it
// is refused as unchanged, and after an edit the other lines have their own. The page shows what
// changes.
func TestAnEditKeepsLineEnds(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(2)}
	reader, text := new(deadletter.Reader), "line one\r\nline two\nline three\r\n"
	e.views[1].Body = reader.View(deadletter.Message{Delivery: amqp091.Delivery{Body: []byte(text)}}).Body
	e.bodies = map[int]string{1: text}
	s := serveWith(t, e, func(c *page.Config) { c.Plain = reader }, "edit")
	b := browse(t)
	b.open(s, "/queue/billing.dead")
	b.until(`document.querySelectorAll(".row .cause").length > 1`)
	b.run(chromedp.Focus(`#list`), chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter))
	b.run(chromedp.WaitVisible(`.message .acts button`), chromedp.Click(`.message .acts button`),
		chromedp.WaitVisible(`dialog textarea.source`), chromedp.Click(`dialog button.primary`))
	b.until(`document.querySelector("dialog").textContent.includes("the message is unchanged")`)
	b.run(chromedp.SetValue(`dialog textarea.source`, "line one\nline 2\nline three\n"),
		chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`))
	b.until(`document.querySelector("dialog pre.diff").textContent.includes("-line two\n+line 2\n")`)
	b.shoot("edit-diff")
	e.mu.Lock()
	defer e.mu.Unlock()
	if got := string(e.proposed.Edited.Body); got != "line one\r\nline 2\nline three\r\n" {
		t.Errorf("the engine was asked for %q", got)
	}
}

// The page fits a phone, the dark, and paper.
func TestThePageFitsNarrowDarkAndPaper(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	e := &engine{views: orders(1204), runs: []desk.Run{
		{
			ID: "m2p4", Action: desk.Replay, Queue: "billing.dead", Phase: desk.Sending, By: "bob@desk-2",
			Reason: "fixed in 4.2", Chosen: 40, Holds: 28, Started: now(),
		},
	}}
	s := serve(t, e, "replay")
	b := browse(t)
	b.open(s, "/")
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
	for _, at := range []struct {
		name   string
		width  int64
		scheme string
	}{{"narrow", 360, "light"}, {"dark", 1400, "dark"}, {"middle", 1000, "light"}} {
		b.size(at.width, 800, at.scheme)
		for _, view := range []struct{ name, path, ready string }{
			{"overview", "/", `document.querySelectorAll(".overview tbody tr").length === 3`},
			{"queue", "/queue/billing.dead", rowsThere},
			{"runs", "/runs", `document.querySelector(".run [data-do=resume]")`},
		} {
			b.do(fmt.Sprintf(`location.hash = "#%s"`, view.path))
			b.until(view.ready)
			b.fits()
			b.shoot(view.name + "-" + at.name)
			if view.name == "queue" {
				b.do(`document.querySelector("#row-1 .summary").click()`)
				b.until(`document.querySelector(".message pre.body")`)
				b.fits()
				b.shoot("message-" + at.name)
			}
		}
	}
	b.size(1400, 900, "light")
	b.do(`location.hash = "#/"`)
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
	b.paper("overview")
	b.do(`location.hash = "#/runs"`)
	b.until(`document.querySelector(".run [data-do=resume]")`)
	b.paper("runs")
	b.do(`location.hash = "#/queue/billing.dead"`)
	b.until(rowsThere)
	b.paper("queue")
	b.do(`document.querySelector("#row-1 .summary").click()`)
	b.until(`document.querySelector(".message pre.body")`)
	b.paper("message")
	b.silent()
}

// paper prints the page, and checks that buttons are not printed.
func (b *tab) paper(name string) {
	b.t.Helper()
	b.media(emulation.SetEmulatedMediaParams{Media: "print"})
	if got := eval[int](b, `[...document.querySelectorAll("main button")].filter((e) => e.offsetParent && !e.closest(".groups")).length`); got > 0 {
		b.t.Errorf("%d buttons are printed", got)
	}
	paper, err := chromedp.Run(b.Context, chromedp.PrintToPDF())
	if err != nil {
		b.t.Fatal(err)
	}
	if folder := os.Getenv("DLXCTL_TEST_SHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".pdf"), paper, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	b.media(emulation.SetEmulatedMediaParams{})
}

// Nothing moves on the page after it was drawn.
func TestTheLayoutDoesNotShift(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := serve(t, &engine{views: orders(500)})
	b := browse(t)
	b.open(s, "/")
	b.until(`document.querySelectorAll(".overview tbody tr").length === 3`)
	b.do(`window.shift = 0; new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) window.shift += e.value; }).observe({ type: "layout-shift" }); location.hash = "#/queue/billing.dead"`)
	b.until(rowsThere)
	b.until(`document.querySelector(".queue ~ div code").textContent.includes("desk replay")`)
	if got := eval[float64](b, `window.shift`); got > 0.05 {
		t.Errorf("the layout shifted by %.3f", got)
	}
}

// The overview begins with the queue that has most messages, and has one line for the empty ones.
// No column has the same in all rows: nothing was looked at. A queue is not empty of which the
// broker does not tell how many messages it holds.
func TestTheOverviewBeginsWithTheFullestQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	views := orders(60)
	views[7].LastFailed = time.Time{}
	s := serve(t, &engine{views: views, unknown: "shop.unroutable"})
	b := browse(t)
	b.size(390, 844, "light")
	b.open(s, "/")
	b.until(`[...document.querySelectorAll(".overview a")].map((e) => e.textContent).join() ===
		"drop.dead,billing.dead,crm.inbox.dead,shop.unroutable"`)
	b.until(`document.querySelector(".overview tbody tr:last-child").textContent.includes("?")`)
	b.until(`document.querySelector(".empty summary").textContent === "1 more queue is empty" && !document.querySelector(".empty").open`)
	if got := eval[string](b, `[...document.querySelectorAll(".overview th")].map((e) => e.textContent).join()`); got != "Queue,Messages,For,Owner" {
		t.Errorf("the columns are %s", got)
	}
	const delayed = `[...document.querySelectorAll(".delays td")].map((e) => e.textContent).join()`
	if got := eval[string](b, delayed); got != "shop.later,1,500,timer: 1500, next due in 12m,events,shop.soon,0,–,events" {
		t.Errorf("the delays are %s", got)
	}
	b.shoot("overview-phone")
	b.do(`location.hash = "#/queue/billing.dead"`)
	b.until(rowsThere)
	b.do(`location.hash = "#/"`)
	b.until(`[...document.querySelectorAll(".overview th")].map((e) => e.textContent).includes("Top cause")`)
	b.until(`document.querySelector(".overview").textContent.includes("59 or more")`) // one does not tell when it failed
	b.run(chromedp.Click(`.empty summary`))
	b.until(`document.querySelector(".empty a").innerText === "shop.parked"`)
	b.fits()
	b.silent()
}

// A list has columns only for that in which its messages differ, and says the rest once. What a
// look leaves out is said above it.
func TestTheListSaysOnceWhatIsTheSame(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	views := orders(60)
	for i := range views {
		views[i].WorkQueue, views[i].Cause = "billing", "rejected"
	}
	note := "500 messages of billing.dead do not tell when they failed and are left out"
	s := serve(t, &engine{views: views, notes: []string{note}})
	b := browse(t)
	b.size(1400, 900, "light")
	b.open(s, "/queue/billing.dead")
	b.until(rowsThere)
	b.until(fmt.Sprintf(`document.querySelector(".hint + div .warn").textContent === %q`, note))
	b.until(`document.querySelector(".foot").textContent.includes("the same in all: cause rejected, work queue billing, attempts 4")`)
	const shown = `[...document.querySelectorAll(".head > span")].filter((e) => e.offsetParent).map((e) => e.textContent).join()`
	if got := eval[string](b, shown); got != "Chosen,Age,Key,Rep.,Error or body" {
		t.Errorf("the columns are %s", got)
	}
	// The error has the room of what is left out, and each cell is under its heading.
	if got := eval[bool](b, `["key", "replays", "summary"].every((c) => Math.abs(document.querySelector(".head ." + c).getBoundingClientRect().left - document.querySelector("#row-1 ." + c).getBoundingClientRect().left) < 2)`); !got {
		t.Error("the cells are not under their headings")
	}
	if got := eval[int](b, `document.querySelector("#row-1 .summary").offsetWidth`); got < 600 {
		t.Errorf("the error has %d pixels", got)
	}
	b.until(`!document.querySelector(".heading").innerText.includes("redelivered")`) // that costs nothing
	b.shoot("list-same")
	b.size(390, 844, "light")
	b.fits()
	b.shoot("list-same-phone")
	b.silent()
}
