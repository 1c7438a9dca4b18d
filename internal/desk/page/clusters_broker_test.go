package page_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// dead returns the message-ids in the dead-letter queue, in their order, without taking them out.
func dead(t *testing.T, d *desk.Desk) (ids []string) {
	t.Helper()
	_, err := d.Look(t.Context(), "billing.dead", desk.LookOptions{}, func(m deadletter.Message) error {
		ids = append(ids, m.Delivery.MessageId)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// In a browser, on two real nodes with the same queues and messages: what a person does on the page
// of one touches the other one never. A node that is down says so, and hides no other.
func TestThePageShowsSeveralClusters(t *testing.T) {
	t.Parallel()
	b := browse(t)
	node := brokertest.Node(t)
	targets := []brokertest.Target{brokertest.VHost(t), node.VHost(t)}
	desks := []*desk.Desk{realDesk(t, targets[0]), realDesk(t, targets[1])}
	for _, target := range targets {
		buryOrders(t, target.Confirming(t))
	}
	all := []string{"order-0", "order-1", "order-2", "order-3"}
	nowhere, err := broker.Config{URL: "amqp://localhost:1/shop", API: "http://localhost:1"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s := serveWith(t, &engine{}, func(c *page.Config) {
		c.Source = page.Source{}
		for i, name := range []string{"prod", "test/2 <b>"} {
			one := page.Config{Cluster: name, VHost: desks[i].Endpoint.VHost, Broker: desks[i].Endpoint.AMQP.Host, Line: line}
			one.Later(func(context.Context) (*desk.Desk, error) { return desks[i], nil })
			c.Clusters = append(c.Clusters, one)
		}
		gone := page.Config{Cluster: "gone", VHost: "shop", Broker: "localhost:1", Line: line}
		gone.Later(func(ctx context.Context) (*desk.Desk, error) {
			m, err := management.New(nowhere)
			if err != nil {
				return nil, err
			}
			d := &desk.Desk{Endpoint: nowhere, Management: m}
			return d, d.Discover(ctx, "")
		})
		c.Clusters = append(c.Clusters, gone)
	}, "replay", "park")
	begin(t, s.Page)
	b.size(1400, 900, "light")
	b.open(s, "/")
	b.until(`document.querySelectorAll(".overview tbody tr").length === 2`)
	b.until(`document.querySelector("#main").innerText.includes("gone, vhost shop cannot be shown: ")`)
	b.until(`document.querySelector("#main .problem").innerText.includes("nothing listens at http://localhost:1")`)
	b.shoot("clusters-overview")
	b.size(360, 800, "dark")
	b.fits()
	b.shoot("clusters-overview-phone")
	b.size(1400, 900, "light")
	vhosts := []string{"prod, vhost " + targets[0].VHost, "test/2 <b>, vhost " + targets[1].VHost}

	// Park all in the second one.
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.http.URL+"/#/in/test%2F2%20%3Cb%3E/queue/billing.dead"))
	b.until(`document.querySelectorAll(".row .cause").length === 4`)
	b.until(fmt.Sprintf(`document.querySelector(".heading .at").textContent === %q`, vhosts[1]))
	b.run(chromedp.Click(`[data-action=park]`), chromedp.WaitVisible(`#o-reason`))
	const title = `document.getElementById("dialog-title").textContent`
	b.until(fmt.Sprintf(`%s === "Park all 4 messages of billing.dead in " + %q`, title, vhosts[1]))
	b.run(chromedp.Click(`dialog button.primary`), chromedp.WaitVisible(`#go`))
	b.until(fmt.Sprintf(`%s === "Park 4 messages of billing.dead in " + %q`, title, vhosts[1]))
	b.shoot("clusters-proposal")
	b.run(chromedp.Click(`#go`))
	b.until(`document.querySelector(".run .state")?.textContent === "done"`)
	b.until(fmt.Sprintf(`document.querySelector(".run").innerText.includes(%q)`, vhosts[1]))
	b.until(`document.getElementById("main").innerText.includes("The runs of gone, vhost shop cannot be shown: ")`)
	b.shoot("clusters-runs")
	if got := dead(t, desks[0]); !slices.Equal(got, all) {
		t.Errorf("the dead letters of the other cluster are %v", got)
	}
	if got := dead(t, desks[1]); len(got) > 0 {
		t.Errorf("the dead letters of the cluster are %v", got)
	}
	if n := brokertest.Ready(t, targets[1].Channel(t), "shop.parked"); n != 4 {
		t.Errorf("%d are parked", n)
	}

	// The address has the cluster: a message of the first one, after the second is gone.
	node.Kill(t)
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.http.URL+"/#/"))
	b.until(`document.querySelectorAll(".overview tbody tr").length === 1`)
	b.until(fmt.Sprintf(`[...document.querySelectorAll("#main .problem")].some((e) => e.innerText.startsWith(%q))`,
		vhosts[1]+" cannot be shown: "))
	b.shoot("clusters-down")
	b.run(chromedp.Click(`.overview a`))
	b.until(`location.hash === "#/in/prod/queue/billing.dead" && document.querySelectorAll(".row .cause").length === 4`)
	b.do(`document.querySelector("#row-1 .summary").click()`)
	b.until(`/^#.in.prod.queue.billing.dead\?message=/.test(location.hash) && document.querySelector(".message pre.body")`)
	b.do(`location.reload()`)
	b.until(`document.querySelector(".message pre.body")?.textContent.includes('"order": 1')`)
	b.run(chromedp.Click(`[data-action=replay]`), chromedp.WaitVisible(`#o-rate`), chromedp.Click(`dialog button.primary`))
	b.run(chromedp.WaitVisible(`#go`))
	b.until(fmt.Sprintf(`%s === "Replay 4 messages of billing.dead in " + %q`, title, vhosts[0]))
	node.Start(t)
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.http.URL+"/#/"))
	b.until(`document.querySelectorAll(".overview tbody tr").length === 2`)
	if n := brokertest.Ready(t, targets[0].Channel(t), "billing.dead"); n != 4 {
		t.Errorf("the first cluster has %d dead letters", n)
	}
}
