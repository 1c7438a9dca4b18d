package processor_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// elsewhere returns a topology for a cluster that no test broker belongs to.
func elsewhere() topology.Compiled { return topology.Compiled{Cluster: "elsewhere"} }

// A processor whose topology is for another cluster ends at its first connection.
func TestAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	p := s.processor(t)
	p.Endpoint.Accept = func(version, cluster string) error { return plan.Guard(elsewhere(), version, cluster) }
	if err := p.Run(t.Context()); !errors.Is(err, plan.ErrBroker) {
		t.Errorf("it ends with %v", err)
	}
	if err := p.Check(t.Context()); !errors.Is(err, plan.ErrBroker) {
		t.Errorf("Check says %v", err)
	}
}

// One that comes to another cluster when it reconnects, as a name may have got
// another address, touches nothing there, and goes on when it is back.
func TestAnotherClusterLaterIsNotTouched(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	through, proxy := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, through)
	var moved atomic.Bool
	var refused atomic.Int64
	p.Endpoint.Accept = func(version, cluster string) error {
		want := topology.Compiled{Cluster: cluster}
		if moved.Load() {
			want = elsewhere()
			refused.Add(1)
		}
		return plan.Guard(want, version, cluster)
	}
	run(t, p)
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	moved.Store(true)
	proxy.Cut()
	brokertest.Eventually(t, "it to reconnect", func() bool { return refused.Load() > 0 })
	s.fill(t, 10)
	brokertest.Eventually(t, "it to connect a few times", func() bool { return refused.Load() > 3 })
	if n := s.ready(t, "shop.slow.failed"); n != 10 {
		t.Errorf("%d of 10 messages are left", n)
	}
	moved.Store(false)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
}
