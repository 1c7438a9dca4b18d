package desk_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// Without a backoff, no processor sees what a consumer says when it publishes its failure: the
// message in the dead-letter queue tells it, is grouped by it, and is replayed without it.
func TestDeadLettersAreGroupedByWhatTheConsumerSaid(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	for i, key := range []string{"order.placed", "order.placed", "order.paid"} {
		brokertest.PublishConfirmed(t, s.ch, "shop.failed", "@audit", amqp091.Publishing{
			MessageId: fmt.Sprint(i), DeliveryMode: amqp091.Persistent, Body: []byte("{}"),
			Headers: amqp091.Table{
				"retry-exchange": "events", "retry-routing-key": key, "retry-error": fmt.Sprintf("no answer in %d s", i),
				"retry-error-type": "PaymentTimeout", "retry-error-stack": "at pay()", "mine": "x",
			},
		})
	}
	s.awaitReady(t, "audit.dead", 3)
	ways, err := deadletter.NewWays("")
	if err != nil {
		t.Fatal(err)
	}
	found, picked, err := s.desk.GroupBy(t.Context(), desk.Request{Queue: "audit.dead"}, ways)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := desk.WriteApart(&out, found); err != nil {
		t.Fatal(err)
	}
	if found.By != "error" || len(found.Groups) != 1 || found.Groups[0].Value != "PaymentTimeout: no answer in <n> s" ||
		found.Groups[0].Count != 3 || picked.Looked.Looked != 3 ||
		out.String() != "by error, the 3 messages are one group; --by key makes 2 groups\n" {
		t.Errorf("groups %+v, after a look at %d: %s", found, picked.Looked.Looked, out.String())
	}
	out.Reset()
	list := desk.NewList(&out, "text", desk.Screen{})
	all := desk.Request{Queue: "audit.dead"}
	if _, err := s.desk.Pick(t.Context(), all, func(_ deadletter.Message, v deadletter.View) error {
		if v.WorkQueue != "audit" || v.Stack != "at pay()" || v.Exchange != "events" {
			t.Errorf("a dead letter tells %+v", v.Facts)
		}
		return list.Add(v)
	}); err != nil {
		t.Fatal(err)
	}
	if err := list.Close(); err != nil || !strings.Contains(out.String(), "PaymentTimeout: no answer in 2 s") ||
		strings.Count(out.String(), "rejected") != 3 {
		t.Errorf("the list is\n%s%v", out.String(), err)
	}
	s.execute(t, desk.Request{Action: desk.Replay, Queue: "audit.dead"})
	s.awaitReady(t, "audit", 3)
	for i, d := range s.drained(t, "audit") {
		said := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Headers)), func(name string) bool {
			return !strings.HasPrefix(name, topology.RetryPrefix) || name == "retry-exchange" || name == "retry-routing-key"
		})
		if len(said) > 0 || d.Headers["mine"] != "x" || i == 2 && d.RoutingKey != "order.paid" {
			t.Errorf("a replay has the key %s and the headers %v", d.RoutingKey, d.Headers)
		}
	}
}

func TestWriteMasked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, value := range []string{"AT", "[masked]"} {
		found := desk.Grouped{By: "body.email", Groups: []deadletter.Group{{Value: value, Count: 3}}}
		if err := desk.WriteMasked(&out, found); err != nil {
			t.Fatal(err)
		}
	}
	if want := "note: body.email is masked in 3 messages: those that differ in it are one group\n"; out.String() != want {
		t.Errorf("it says %q; want %q", out.String(), want)
	}
}
