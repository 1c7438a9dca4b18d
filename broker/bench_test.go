package broker_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	benchQueues   = 1000
	benchParallel = 32
)

// large gives 1,000 queues with two bindings each, in the order of an apply.
func large() [][]any {
	var queues, bindings []any
	for i := range benchQueues {
		name := fmt.Sprintf("queue-%04d", i)
		queues = append(queues, topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{
			topology.ArgQueueType: topology.Classic, topology.ArgDeadLetterExchange: "shop.standard.failed",
			topology.ArgDeadLetterRoutingKey: topology.AddressKey(name), topology.ArgManagedBy: topology.Mark("shop"),
		}})
		for _, key := range []string{name, topology.AddressKey(name)} {
			bindings = append(bindings, topology.Binding{
				Source: "amq.direct", Destination: name, DestinationType: topology.ToQueue, Key: key,
				Arguments: topology.Arguments{topology.ArgManagedBy: topology.Mark("shop")},
			})
		}
	}
	return [][]any{queues, bindings}
}

// applyLarge creates them, so many at a time.
func applyLarge(b *testing.B, m *broker.Management) {
	b.Helper()
	for _, rank := range large() {
		g, ctx := errgroup.WithContext(b.Context())
		g.SetLimit(benchParallel)
		for _, o := range rank {
			g.Go(func() error { return m.Apply(ctx, plan.Change{Action: plan.Create, After: o}) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInspect compares Inspect with the bare requests it makes, sent at the
// same time and their answers thrown away. The ratio is the price of decoding.
func BenchmarkInspect(b *testing.B) {
	target := brokertest.VHost(b)
	m := manage(b, target)
	applyLarge(b, m)
	var bare, inspected time.Duration
	for b.Loop() {
		start := time.Now()
		bareGets(b, target)
		bare += time.Since(start)
		start = time.Now()
		if _, err := m.Inspect(b.Context()); err != nil {
			b.Fatal(err)
		}
		inspected += time.Since(start)
	}
	b.ReportMetric(float64(bare.Milliseconds())/float64(b.N), "bare-ms/op")
	b.ReportMetric(float64(inspected.Milliseconds())/float64(b.N), "inspect-ms/op")
	b.ReportMetric(float64(inspected)/float64(bare), "ratio")
}

// bareGets reads what Inspect reads.
func bareGets(b *testing.B, target brokertest.Target) {
	b.Helper()
	vhost := url.PathEscape(target.VHost)
	var wg sync.WaitGroup
	for _, path := range []string{
		"overview?columns=rabbitmq_version,cluster_name,exchange_types", "exchanges/" + vhost + "?disable_stats=true",
		"queues/" + vhost + "?disable_stats=true&enable_queue_totals=true", "bindings/" + vhost, "policies/" + vhost, "consumers/" + vhost,
		"operator-policies/" + vhost, "feature-flags?columns=name,state", "health/checks/alarms",
	} {
		wg.Go(func() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, target.API+"/api/"+path, http.NoBody)
			if err != nil {
				b.Error(err)
				return
			}
			r.SetBasicAuth(target.Username, target.Password)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// BenchmarkApply creates 1,000 queues and 2,000 bindings, 32 at a time, then
// finds them made.
func BenchmarkApply(b *testing.B) {
	for b.Loop() {
		m := manage(b, brokertest.VHost(b))
		start := time.Now()
		applyLarge(b, m)
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "create-ms")
		start = time.Now()
		applyLarge(b, m)
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "again-ms")
	}
}
