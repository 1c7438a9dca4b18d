package page_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// signIn signs a person in, from the page that asks for it.
func (b *tab) signIn(name string) {
	b.t.Helper()
	b.run(chromedp.WaitVisible(`#sign-in`), chromedp.Click(`#sign-in`), chromedp.WaitVisible(`#username`),
		chromedp.SetValue(`#username`, name), chromedp.SetValue(`#password`, "secret"),
		chromedp.Click(`button[type=submit]`), chromedp.WaitVisible(`#sign-out`))
}

// In a browser, on a real broker, with a real provider of OpenID Connect: a reader looks, and may
// do no more. An operator replays, and the run has the operator's name. A session that has expired
// leads to the sign-in, and back to what was open. One that has not expired needs no provider.
func TestATeamUsesThePage(t *testing.T) {
	t.Parallel()
	b := browse(t)
	target := brokertest.VHost(t)
	d := realDesk(t, target)
	buryOrders(t, target.Confirming(t))
	orderService(t, target) // rejects all
	var later atomic.Int64
	s := serveTeam(t, &engine{}, func(c *page.Config) {
		c.For(d)
		c.Engine = hurried{d}
		c.As = func(by string) page.Engine { return hurried{d.As(by)} }
		c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	b.size(1400, 900, "light")
	b.run(chromedp.Navigate(s.http.URL + "/#/queue/billing.dead"))
	b.until(`document.body.innerText.includes("Sign in with localhost:")`)
	b.shoot("team-door")
	b.signIn("rita")
	b.reads()
	b.run(chromedp.Click(`#sign-out`))
	b.signIn("otto")
	b.replaysAs("otto@example.com")
	runs, err := d.Runs(t.Context())
	if err != nil || len(runs) != 1 || runs[0].By != "otto@example.com" {
		t.Errorf("the runs are %+v (%v)", runs, err)
	}
	later.Store(int64(9 * time.Hour))
	b.until(`document.getElementById("ended").innerText.includes("Your session has ended")`)
	b.until(`document.querySelector(".run")`) // what was open is still there
	b.shoot("team-ended")
	b.size(360, 800, "dark")
	b.fits()
	b.shoot("team-ended-phone")
	b.size(1400, 900, "light")
	b.signIn("otto")
	b.until(`location.hash === "#/runs" && document.querySelector(".run .state")?.textContent.includes("stopped")`)
	s.provider.Stop()
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.http.URL+"/#/runs"))
	b.until(`document.querySelector(".run [data-do=return]")`)
	b.run(chromedp.Click(`.run [data-do=return]`))
	b.until(`document.querySelector(".run .state").textContent === "done"`)
	for _, found := range b.console() {
		// Of the page 401 and 403, which the test provokes, and 404 of the provider's icon.
		if !strings.Contains(found, "status of 401") && !strings.Contains(found, "status of 403") &&
			!strings.Contains(found, "status of 404") {
			t.Errorf("the console says: %s", found)
		}
	}
}

// reads checks that the page lets a reader look and do nothing else, and so does the server.
func (b *tab) reads() {
	b.t.Helper()
	b.until(`location.hash === "#/queue/billing.dead" && document.querySelectorAll(".row .cause").length === 4`)
	b.do(`document.querySelector("#row-1 .summary").click()`)
	b.until(`document.querySelector(".message pre.body")?.textContent.includes('"country": "AT"')`)
	b.until(`document.getElementById("mode").textContent === "reader"`)
	if got := eval[int](b, `document.querySelectorAll("[data-action], .message .acts button").length`); got > 0 {
		b.t.Errorf("a reader has %d buttons", got)
	}
	b.shoot("team-reader")
	for path, ask := range map[string]string{
		"propose": `{action: "replay", queue: "billing.dead"}`, "execute": `{proposal: "x", expect: 1}`,
		"runs/cancel": `{run: "x"}`, "source": `{snapshot: "x", row: 0}`,
	} {
		b.do(fmt.Sprintf(`window.answered = ""; fetch("./api/session").then((r) => r.json()).then((s) => fetch("./api/%s", {
			method: "POST", headers: { "X-Csrf-Token": s.csrf, "Content-Type": "application/json" },
			body: JSON.stringify(%s) })).then(async (r) => { window.answered = r.status + " " + (await r.json()).error; })`,
			path, ask))
		b.until(`window.answered`)
		if got := eval[string](b, `window.answered`); !strings.HasPrefix(got, "403 your role, reader, may not") {
			b.t.Errorf("%s answers %s", path, got)
		}
	}
}

// replaysAs replays a group, whose first message fails again, and checks whose run it is.
func (b *tab) replaysAs(name string) {
	b.t.Helper()
	b.until(`document.querySelectorAll(".row .cause").length === 4`)
	if got := eval[string](b, `[...document.querySelectorAll("[data-action]")].map((e) => e.dataset.action).join()`); got != "replay,park" {
		b.t.Errorf("an operator has the buttons %s", got)
	}
	b.until(`document.getElementById("mode").title === "may park, replay, restore"`)
	b.until(fmt.Sprintf(`document.getElementById("place").textContent.includes(%q)`, name))
	b.shoot("team-operator")
	b.run(chromedp.Click(`.groups button`))
	b.until(`document.querySelector(".scope").innerText.includes("group of 3 messages")`)
	b.run(chromedp.Click(`[data-action=replay]`), chromedp.WaitVisible(`#o-rate`),
		chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`), chromedp.Click(`#go`))
	b.until(`document.querySelector(".run .state")?.textContent === "stopped"`)
	b.until(fmt.Sprintf(`document.querySelector(".run").innerText.includes("by %s")`, name))
	b.shoot("team-run")
}
