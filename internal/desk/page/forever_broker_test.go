package page_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// The page deletes nothing at once: a run that does, and that was stopped on the command line, it
// returns and does not resume. Lists of runs say that it deletes.
func TestThePageResumesNoRunThatDeletes(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	d := realDesk(t, target)
	const n = 101 // more than a run without a hold takes
	messages := make([]amqp091.Publishing, n)
	for i := range messages {
		messages[i] = amqp091.Publishing{MessageId: fmt.Sprint(i), DeliveryMode: amqp091.Persistent}
	}
	ch := target.Confirming(t)
	brokertest.PublishConfirmed(t, ch, "", "billing.dead", messages...)
	p, err := d.Propose(t.Context(), desk.Request{Action: desk.Discard, Queue: "billing.dead", Forever: true})
	if err != nil || p.Chosen != n || len(p.Refusals) > 0 {
		t.Fatalf("%d chosen, %q, %v", p.Chosen, p.Refusals, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r, err := d.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == n {
			cancel()
		}
	}); err != nil || r.Left != n {
		t.Fatalf("%+v, %v", r, err)
	}
	s := serveWith(t, &engine{}, func(c *page.Config) { c.For(d) }, "discard").signIn(t)
	begin(t, s.Page)
	runs, err := d.Runs(t.Context())
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
	run := map[string]any{"run": runs[0].ID}
	got := s.post(t, http.StatusForbidden, "/api/runs/resume", run)["error"]
	want := "the run " + runs[0].ID + " deletes its messages at once, and the page deletes none; return it, or " +
		"continue it with 'dlxctl -f shop.yaml desk run resume " + runs[0].ID + " --yes --expect 101'"
	if got != want {
		t.Errorf("resume: %v\nwant %s", got, want)
	}
	var table bytes.Buffer
	err = desk.WriteRuns(&table, runs, desk.Screen{})
	if err != nil || !strings.Contains(table.String(), "discard forever") {
		t.Errorf("the table says %s (%v)", table.String(), err)
	}
	if got := fmt.Sprint(s.get(t, http.StatusOK, "/api/runs")["runs"]); !strings.Contains(got, "forever:true") {
		t.Errorf("the page says %s", got)
	}
	s.post(t, http.StatusOK, "/api/runs/return", run)
	ready := 0
	brokertest.Eventually(t, "the messages to be back", func() bool {
		q, err := ch.QueueDeclarePassive("billing.dead", true, false, false, false, nil)
		ready = q.Messages
		return err == nil && ready == n
	}, &ready)
}
