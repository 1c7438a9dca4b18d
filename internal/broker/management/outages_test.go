package management_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A user with no right but the tag monitoring reads the earliest time that processors tell, and a
// user with the tag management reads what its own connections tell. What is not a table of times
// says nothing, and so does a user that consumes no failed queue. A queue that does not exist is no
// error.
func TestInOutage(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	at := func(minute int) string {
		return time.Date(2026, 11, 27, 2, minute, 0, 0, time.UTC).Format(time.RFC3339)
	}
	began := func(minute int, atLeast bool) topology.Began {
		return topology.Began{At: time.Date(2026, 11, 27, 2, minute, 0, 0, time.UTC), AtLeast: atLeast}
	}
	tell := func(as brokertest.Target, name string, table any) {
		e := endpoint(t, as)
		e.Properties = map[string]any{name: table}
		conn, err := amqp.Dial(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // the test is over
	}
	since, before := topology.PropertyInOutageSince, topology.PropertyInOutageSinceBefore
	first, second := target.User(t, "management", "^$", "^$", "failed$"), target.User(t, "", "^$", "^$", "failed$")
	service := target.User(t, "", "^$", "^$", "^billing$")
	for _, queue := range []string{"a.failed", "b.failed", "billing"} {
		typ := "quorum"
		if queue == "b.failed" {
			typ = "classic"
		}
		_, err := target.Channel(t).QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-queue-type": typ})
		if err != nil {
			t.Fatal(err)
		}
	}
	for queue, as := range map[string]brokertest.Target{"a.failed": first, "b.failed": second, "billing": service} {
		brokertest.Consume(t, as.Channel(t), queue, 0)
	}
	tell(first, since, amqp091.Table{"billing": at(20), "mail": at(30)})
	tell(second, since, amqp091.Table{"billing": at(10)})
	tell(second, before, amqp091.Table{"billing": at(10), "mail": at(20)})
	for _, table := range []any{
		"billing", int64(3),
		amqp091.Table{"billing": "0000-01-01T00:00:00+23:59"},
		[]any{at(1)},
		amqp091.Table{"billing": int64(1), "mail": "yesterday", "stock": amqp091.Table{"x": at(1)}},
	} {
		tell(second, since, table)
	}
	tell(second, before, amqp091.Table{"audit": at(40)})
	tell(service, since, amqp091.Table{"billing": at(1), "mail": at(1)})

	for tag, tc := range map[string]struct {
		as   brokertest.Target
		want map[string]topology.Began
	}{
		"monitoring": {target.User(t, "monitoring", "^$", "^$", "^$"), map[string]topology.Began{
			"billing": began(10, false), "mail": began(20, true), "audit": began(40, true),
		}},
		"management, of a processor": {first, map[string]topology.Began{
			"billing": began(20, false), "mail": began(30, false),
		}},
		"management": {target.User(t, "management", "^$", "^$", "^$"), map[string]topology.Began{}},
	} {
		m, d := manage(t, tc.as), ""
		brokertest.Eventually(t, "what the processors tell", func() bool {
			got, err := m.InOutage(t.Context(), []string{"a.failed", "gone.failed", "b.failed"})
			if err != nil {
				t.Fatal(tag, err)
			}
			d = cmp.Diff(tc.want, got)
			return d == "" && got != nil // nil: the statistics lack consumers yet
		}, func() string { return tag + d })
	}
}
