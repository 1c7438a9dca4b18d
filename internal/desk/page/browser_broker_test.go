package page_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

// brokerFile is the topology of the page on a real broker.
const brokerFile = `
version: 1
name: shop
defaults: {backoff: none}
exchanges: [{name: events, type: topic}]
queues:
  - {name: billing, owner: team-billing, bindings: [{exchange: events, key: "order.*"}]}
`

// realDesk applies the topology to a virtual host, and returns a desk for it.
func realDesk(t *testing.T, target brokertest.Target) *desk.Desk {
	t.Helper()
	return realDeskOf(t, target, brokerFile)
}

// realDeskOf does so for another topology file.
func realDeskOf(t *testing.T, target brokertest.Target, file string) *desk.Desk {
	t.Helper()
	c, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(file)}},
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	e := managementtest.Endpoint(t, target)
	m := managementtest.Client(t, target)
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Make(c, state, plan.Options{})
	if err := apply.ExecuteWithReroutes(t.Context(), m, c, p, 0, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
	d := &desk.Desk{
		Endpoint: e, Management: m, Topology: c, By: "ann@laptop",
		Reader: &deadletter.Reader{Known: deadletter.Knows(c)},
	}
	d.Reader.Known.Route = d.Route
	return d
}

// The overview shows what waits for a delay, without a look at any queue.
func TestTheOverviewShowsDelays(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	d := realDeskOf(t, target, `
version: 1
name: shop
exchanges: [{name: events}]
delays: [{name: shop.later, to: events, max: 1h}, {name: shop.soon, to: events, max: 1s}]
queues: [{name: work, backoff: none, bindings: [{exchange: events, key: "#"}]}]
`)
	s := serveWith(t, &engine{}, func(c *page.Config) { c.For(d) }).signIn(t)
	ch := target.Confirming(t)
	for _, role := range []string{"in", "level.17m4s", "level.17m4s"} {
		brokertest.PublishConfirmed(t, ch, "", "shop.delay."+role+".shop.later", amqp091.Publishing{})
	}
	want := []any{
		map[string]any{"name": "shop.later", "to": "events", "messages": 3.0, "waitingIn": "17m4s: 2"},
		map[string]any{"name": "shop.soon", "to": "events", "messages": 0.0, "waitingIn": ""},
	}
	var got any
	brokertest.Eventually(t, "the page to show what waits", func() bool {
		got = s.get(t, http.StatusOK, "/api/queues")["delays"]
		return cmp.Equal(want, got)
	}, &got)
}

// compressed returns a body of JSON as a publisher compresses it.
func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// buryOrders puts three declined orders, and one of an unknown customer, into the dead-letter
// queue, as a processor writes them. Their bodies are compressed.
func buryOrders(t *testing.T, ch *amqp091.Channel) {
	t.Helper()
	for i, why := range []string{"card declined", "card declined", "customer 91 is unknown", "card declined"} {
		died := time.Now().UTC().Add(time.Duration(i-30) * time.Minute)
		brokertest.PublishConfirmed(t, ch, "shop.dead", "order.placed", amqp091.Publishing{
			MessageId: fmt.Sprint("order-", i), ContentType: "application/json", ContentEncoding: "gzip",
			Type: "OrderPlaced", DeliveryMode: amqp091.Persistent, Timestamp: died.Add(-time.Minute),
			Body: compressed(t, fmt.Sprintf(`{"order":%d,"customer":{"country":"AT"}}`, i)),
			Headers: amqp091.Table{
				"retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
				"retry-attempts": int64(1), "retry-reason": "rejected", "retry-error": why, "CC": []any{"@billing"},
				"retry-first-failed-at": died.Add(-time.Minute).Format("2006-01-02T15:04:05.000Z"),
				"retry-last-failed-at":  died.Format("2006-01-02T15:04:05.000Z"), "count": int32(-1), "tenant": "eu-1",
			},
		})
	}
}

// orderService consumes billing. It rejects every message until it is mended. handled names the
// messages that it has acknowledged.
func orderService(t *testing.T, target brokertest.Target) (mended *atomic.Bool, handled func() []string) {
	t.Helper()
	mended = &atomic.Bool{}
	deliveries := brokertest.Consume(t, target.Channel(t), "billing", 0)
	done := make(chan string, 10)
	go func() {
		for d := range deliveries {
			if !mended.Load() {
				_ = d.Reject(false) // fails only when the test is over
				continue
			}
			_ = d.Ack(false)
			done <- d.MessageId + " " + d.RoutingKey
		}
	}()
	var all []string
	return mended, func() []string {
		for len(done) > 0 {
			all = append(all, <-done)
		}
		return slices.Sorted(slices.Values(all))
	}
}

// hurried is a desk whose runs wait for little.
type hurried struct{ *desk.Desk }

func (h hurried) Propose(ctx context.Context, r desk.Request) (desk.Proposal, error) {
	r.Send = desk.SendOptions{Rate: 50, Ramp: []int{1}, StopFailures: 3, Settle: 300 * time.Millisecond}
	return h.Desk.Propose(ctx, r)
}

// In a browser, on a real broker: a person finds a group of dead letters and reads one, replays the
// group too early, so that the brake stops the run at the first message, and resumes it once the
// service is mended.
func TestThePageWorksOnABroker(t *testing.T) {
	t.Parallel()
	b := browse(t)
	target := brokertest.VHost(t)
	d := realDesk(t, target)
	ch := target.Confirming(t)
	buryOrders(t, ch)
	s := serveWith(t, &engine{}, func(c *page.Config) {
		c.For(d)
		c.Engine = hurried{d}
	}, "replay")
	begin(t, s.Page)
	mended, handled := orderService(t, target)
	b.size(1400, 900, "light")
	b.open(s, "/")
	b.until(`document.querySelector(".overview tbody tr")?.innerText.includes("team-billing")`)
	b.until(`/Counts were read at \d+-\d\d-\d\d .*Z, and were up to 5 seconds old/.test(document.querySelector(".heading").innerText)`)
	b.shoot("broker-overview")
	b.run(chromedp.Focus(`.overview a`), chromedp.Click(`.overview a`))
	b.until(`document.querySelectorAll(".row .cause").length === 4`)
	// Messages with an error are grouped by it, without being asked.
	b.until(`document.querySelector(".groups button")?.innerText.includes("card declined")`)
	b.run(chromedp.Click(`.groups button`))
	b.until(`document.querySelectorAll(".row .cause").length === 3 && document.querySelector(".scope").innerText.includes("group of 3 messages")`)
	b.do(`document.querySelector("#row-1 .summary").click()`)
	b.until(`document.querySelector(".message pre.body")?.textContent.includes('"country": "AT"')`)
	if shown := eval[string](b, `document.querySelector(".message").innerText`); !strings.Contains(shown, "after gzip") ||
		!strings.Contains(shown, "order-1") || !strings.Contains(shown, "rejected in billing") {
		t.Errorf("the message is shown as\n%s", shown)
	}
	if over := eval[int](b, `document.querySelector(".message").scrollWidth - document.querySelector(".message").clientWidth`); over > 0 {
		t.Errorf("the message is %d pixels wider than its panel", over)
	}
	b.shoot("broker-message")
	b.paper("broker-message")
	b.run(chromedp.Click(`[data-action=replay]`), chromedp.WaitVisible(`#o-rate`),
		chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`))
	b.until(`document.getElementById("go").textContent === "Replay 3 messages"`)
	b.until(`document.getElementById("dialog").innerText.includes("shop.return, key order.placed")`)
	b.shoot("broker-proposal")
	b.run(chromedp.Click(`#go`))
	b.stopsAndResumes(mended)
	want := []string{"order-1 order.placed", "order-3 order.placed"}
	if got := handled(); !slices.Equal(got, want) {
		t.Errorf("the service has handled %v, want %v", got, want)
	}
	if q, err := ch.QueueDeclarePassive("billing.dead", true, false, false, false, nil); err != nil || q.Messages != 2 {
		t.Errorf("billing.dead has %d messages, want the other one and the one that failed again (%v)", q.Messages, err)
	}
	b.silent()
}

// stopsAndResumes follows the run of the replay: the brake stops it after the first of three
// messages, and the button resumes it.
func (b *tab) stopsAndResumes(mended *atomic.Bool) {
	b.t.Helper()
	b.until(`location.hash === "#/runs" && document.querySelector(".run progress")`)
	b.until(`document.querySelector(".run .state").textContent === "stopped"`)
	for _, said := range []string{
		"1 of 3 messages", "2 in the hold", "Brake: 1 failed again", "1 of a batch of 1 failed again",
	} {
		b.until(fmt.Sprintf(`document.querySelector(".run").innerText.includes(%q)`, said))
	}
	b.shoot("broker-run-stopped")
	b.size(1400, 900, "dark")
	b.shoot("broker-run-stopped-dark")
	mended.Store(true)
	b.run(chromedp.Click(`[data-do=resume]`))
	b.until(`document.querySelector(".run .state").textContent === "done"`)
	b.until(`document.querySelector(".run").innerText.includes("2 of the rest of 3 messages")`)
	b.until(`document.querySelector(".run progress").value === 3`)
	b.shoot("broker-run-done")
	b.media(emulation.SetEmulatedMediaParams{})
}
