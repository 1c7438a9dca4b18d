package spec

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

func TestCheckNames(t *testing.T) {
	t.Parallel()
	at := func(line int) Pos { return Pos{"f.yaml", line, 5} }
	queue := func(line int, name, dead string) Queue {
		return Queue{Name: name, Backoff: "standard", Dead: Dead{Queue: dead, Pos: at(line)}, Pos: at(line)}
	}
	long := strings.Repeat("q", 254)

	for name, tc := range map[string]struct {
		exchanges []Exchange
		queues    []Queue
		want      []string
	}{
		"ordinary names": {
			[]Exchange{{Name: "events", Pos: at(1)}},
			[]Queue{
				queue(2, "billing", "billing.dead"), queue(3, "events", "shop.dead"),
				queue(4, "shop.orders.in.failed", "shop.unused.failed"),
				{Name: "shop.orders.failed", External: true, Dead: Dead{Queue: "x"}, Pos: at(5)},
			},
			nil,
		},
		"a queue declared twice": {
			nil,
			[]Queue{queue(2, "a", "a.dead"), queue(3, "a", "a.dead")},
			[]string{`f.yaml:3:5: queue "a" is already declared at f.yaml:2:5; remove one`},
		},
		"an exchange declared twice": {
			[]Exchange{{Name: "a", Pos: at(1)}, {Name: "a", Pos: at(2)}},
			nil,
			[]string{`f.yaml:2:5: exchange "a" is already declared at f.yaml:1:5; remove one`},
		},
		"exchanges with generated names": {
			[]Exchange{
				{Name: "shop.dead", Pos: at(1)},
				{Name: "shop.return", External: true, Pos: at(2)},
				{Name: "shop.unroutable", Pos: at(3)},
				{Name: "shop.standard.failed", Pos: at(4)},
				{Name: "shop.standard.dlx", Pos: at(5)},
				{Name: "shop.switch.0123456789ab", Pos: at(6)},
				{Name: "shop.failed", Pos: at(7)},
				{Name: "shop.failed.next", Pos: at(8)},
				{Name: "shop.dead.next", Pos: at(9)},
				{Name: "shop.standard.dlx.next", Pos: at(10)},
			},
			nil,
			[]string{
				`f.yaml:1:5: exchange "shop.dead" has the name that dlxctl uses for the exchange that routes to dead-letter queues; rename it, or the topology`,
				`f.yaml:2:5: exchange "shop.return" has the name that dlxctl uses for the exchange that returns messages to their work queues; rename it, or the topology`,
				`f.yaml:3:5: exchange "shop.unroutable" has the name that dlxctl uses for the unroutable exchange; rename it, or the topology`,
				`f.yaml:4:5: exchange "shop.standard.failed" has the name that dlxctl uses for the failed queue of backoff standard; rename it, or the topology`,
				`f.yaml:5:5: exchange "shop.standard.dlx" has the name that dlxctl uses for the exchange that routes to the tiers of backoff standard; rename it, or the topology`,
				`f.yaml:6:5: exchange "shop.switch.0123456789ab" has the name that dlxctl uses for the switch exchange of a migration; rename it, or the topology`,
				`f.yaml:7:5: exchange "shop.failed" has the name that dlxctl uses for the exchange that all work queues dead-letter to; rename it, or the topology`,
				`f.yaml:8:5: exchange "shop.failed.next" has the name that dlxctl uses for the exchange that routes failures while a backoff changes; rename it, or the topology`,
				`f.yaml:9:5: exchange "shop.dead.next" has the name that dlxctl uses for the exchange that routes dead letters while a dead-letter queue changes; rename it, or the topology`,
				`f.yaml:10:5: exchange "shop.standard.dlx.next" has the name that dlxctl uses for the exchange that routes retries while the tiers of backoff standard change; rename it, or the topology`,
			},
		},
		"queues with generated names": {
			nil,
			[]Queue{
				queue(1, "shop.dead", "d"), queue(2, "shop.unroutable", "d"), queue(3, "shop.lock", "d"),
				queue(4, "shop.standard.failed", "d"), queue(5, "shop.unused.retry.1m", "d"),
				queue(6, "shop.parked", "d"), queue(7, "shop.desk.orders", "d"), queue(8, "shop.unused.failed", "d"),
			},
			[]string{
				`f.yaml:1:5: queue "shop.dead" has the name that dlxctl uses for the shared dead-letter queue; rename it, or the topology`,
				`f.yaml:2:5: queue "shop.unroutable" has the name that dlxctl uses for the unroutable queue; rename it, or the topology`,
				`f.yaml:3:5: queue "shop.lock" has the name that dlxctl uses for the lock of apply; rename it, or the topology`,
				`f.yaml:4:5: queue "shop.standard.failed" has the name that dlxctl uses for the failed queue of backoff standard; rename it, or the topology`,
				`f.yaml:5:5: queue "shop.unused.retry.1m" has the name that dlxctl uses for a retry queue; rename it, or the topology`,
				`f.yaml:6:5: queue "shop.parked" has the name that dlxctl uses for the messages that dlxctl desk parks; rename it, or the topology`,
				`f.yaml:7:5: queue "shop.desk.orders" has the name that dlxctl uses for the queues of dlxctl desk; rename it, or the topology`,
				`f.yaml:8:5: queue "shop.unused.failed" has the name that dlxctl uses for the failed queue of backoff unused; rename it, or the topology`,
			},
		},
		"a dead-letter queue declared by hand": {
			nil,
			[]Queue{queue(1, "billing", "billing.dead"), queue(2, "billing.dead", "billing.dead.dead")},
			[]string{`f.yaml:1:5: queue "billing" has the dead-letter queue "billing.dead", which is a work queue of the file; rename the work queue, or choose another dead-letter queue: dead: {queue: NAME}`},
		},
		"a queue that is its own dead-letter queue": {
			nil,
			[]Queue{queue(1, "billing", "billing")},
			[]string{`f.yaml:1:5: queue "billing" has the dead-letter queue "billing", which is a work queue of the file; rename the work queue, or choose another dead-letter queue: dead: {queue: NAME}`},
		},
		"dead letters in a retry queue": {
			nil,
			[]Queue{queue(1, "billing", "shop.standard.retry.1s")},
			[]string{`f.yaml:1:5: dead-letter queue "shop.standard.retry.1s" of queue "billing" has the name that dlxctl uses for a retry queue; choose another name`},
		},
		"a shared dead-letter queue with two sets of arguments": {
			nil,
			[]Queue{
				{
					Name: "a", Dead: Dead{Queue: "d", Arguments: topology.Arguments{"x-max-length": int64(1)}, Pos: at(1)},
					Pos: at(1),
				},
				{Name: "b", Dead: Dead{Queue: "d", Pos: at(2)}, Pos: at(2)},
			},
			[]string{`f.yaml:2:5: dead-letter queue "d" has arguments {} for queue "b" and {"x-max-length":1} for queue "a"; give both the same arguments`},
		},
		"a shared dead-letter queue with two ages": {
			nil,
			[]Queue{
				{Name: "a", Dead: Dead{Queue: "d", Keep: 30 * 24 * time.Hour, Pos: at(1)}, Pos: at(1)},
				{Name: "b", Dead: Dead{Queue: "d", Pos: at(2)}, Pos: at(2)},
			},
			[]string{`f.yaml:2:5: dead-letter queue "d" has keep unset for queue "b" and 30d for queue "a"; give both the same keep`},
		},
		"a name that leaves no room for .dead": {
			nil,
			[]Queue{queue(1, long[:250], long[:250]+".dead"), queue(2, long[:251], long[:251]+".dead")},
			[]string{`f.yaml:2:5: queue "` + long[:251] + `" makes the name "` + long[:251] +
				`.dead" of 256 bytes, more than the 255 that AMQP allows; shorten it by 1`},
		},
		"a name that leaves no room for @": {
			nil,
			[]Queue{queue(1, long, "d"), queue(2, long+"q", "d")},
			[]string{`f.yaml:2:5: queue "` + long + `q" makes the name "@` + long +
				`q" of 256 bytes, more than the 255 that AMQP allows; shorten it by 1`},
		},
		"declared names that are too long": {
			[]Exchange{{Name: long + "xyz", Pos: at(1)}},
			[]Queue{queue(2, "a", long+"xyz"), queue(3, long+"abc", "d")},
			[]string{
				`f.yaml:1:5: exchange "` + long + `xyz" has 257 bytes, more than the 255 that AMQP allows; shorten it by 2`,
				`f.yaml:2:5: dead-letter queue "` + long +
					`xyz" has 257 bytes, more than the 255 that AMQP allows; shorten it by 2`,
				`f.yaml:3:5: queue "` + long + `abc" has 257 bytes, more than the 255 that AMQP allows; shorten it by 3`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop(topology.Quorum, time.Second)
			s.Exchanges, s.Queues = tc.exchanges, tc.queues
			var got []string
			for _, p := range checkNames(s) {
				got = append(got, p.String())
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

// What Decode could not read stays zero.
func TestCheckNamesTakesGaps(t *testing.T) {
	t.Parallel()
	s := &Spec{Backoffs: make([]Backoff, 2), Exchanges: make([]Exchange, 2), Queues: make([]Queue, 2)}
	if got := checkNames(s); got != nil {
		t.Errorf("a Spec with gaps has problems %v", got)
	}
	s.Name, s.Queues[0].Name, s.Exchanges[1].Name = "shop", "q", "e"
	if got := checkNames(s); got != nil {
		t.Errorf("a Spec with fewer gaps has problems %v", got)
	}
}

func TestLongestTopologyAndBackoffNamesFit(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 63)
	longest := topology.MaxDelay // "49d17h2m47s295ms" in names: no delay is longer
	if n := len(topology.RetryQueueName(name, name, longest)); n > topology.MaxNameBytes {
		t.Errorf("the longest name of a retry queue has %d bytes", n)
	}
}

func TestCompileRefusesTakenNames(t *testing.T) {
	t.Parallel()
	s := shop(topology.Quorum, time.Second)
	s.Queues[0].Name = "shop.lock"
	_, err := Compile(s)
	var problems *Error
	if !errors.As(err, &problems) || len(problems.Problems) != 1 {
		t.Errorf("Compile gives error %v, want one problem", err)
	}
}
