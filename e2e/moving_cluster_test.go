package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// attempts is what the consumers of both clusters saw of the messages, by message-id: the cluster,
// the count, and the routing key of each delivery.
type attempts struct {
	mu   sync.Mutex
	seen map[string][]string
}

// work consumes the queue work on a cluster, until the test ends: each message fails twice.
func (a *attempts) work(t *testing.T, cluster string, x brokertest.Target) {
	t.Helper()
	deliveries := brokertest.Consume(t, x.Channel(t), "work", 0)
	go func() {
		for d := range deliveries {
			count, _ := d.Headers["count"].(int32)
			a.mu.Lock()
			a.seen[d.MessageId] = append(a.seen[d.MessageId], fmt.Sprint(cluster, " ", count, " ", d.RoutingKey))
			a.mu.Unlock()
			if count < 2 || strings.HasPrefix(d.MessageId, "bad") {
				_ = d.Reject(false)
			} else {
				_ = d.Ack(false)
			}
		}
	}()
}

// deliveries returns how many there were in all.
func (a *attempts) deliveries() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, list := range a.seen {
		n += len(list)
	}
	return n
}

// shovelOfThePage returns the shovel that docs/moving-cluster.md shows, with other values, old and
// new by turns.
func shovelOfThePage(t *testing.T, values ...string) (shovel map[string]any) {
	t.Helper()
	page, err := os.ReadFile("../docs/moving-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	if err := json.Unmarshal([]byte(strings.NewReplacer(values...).Replace(text)), &shovel); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return shovel
}

// A topology moves to another cluster as docs/moving-cluster.md says: publishers first, what waits
// in a long tier by a shovel, dead letters by export and import. Each message has all its attempts
// and no more, each with its count and the publisher's routing key, and ends once.
func TestMovingToAnotherCluster(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	old, node := brokertest.VHost(t), brokertest.Node(t)
	node.Plugin(t, "rabbitmq_shovel")
	next := node.VHost(t)
	const tier = "shop.standard.retry.20s"
	file := writeTopology(t, `
version: 1
name: shop
backoff: {standard: {tiers: [200ms, 20s]}}
exchanges: [{name: events, type: topic}]
queues:
  - {name: work, backoff: standard, deliveryLimit: 20, bindings: [{exchange: events, key: "order.*"}]}
  - {name: audit, backoff: none, deliveryLimit: 20}
`)
	a := &attempts{seen: map[string][]string{}}
	for cluster, x := range map[string]brokertest.Target{"old": old, "next": next} {
		succeeds(t, x, "apply", "--yes", "-f", file)
		p := start(t, x, "process", "-f", file)
		t.Cleanup(func() { p.kill() })
		a.work(t, cluster, x)
	}
	const each = 40
	publish := func(x brokertest.Target, from int) {
		ch := x.Confirming(t)
		for i := from; i < from+each; i++ {
			for _, kind := range []string{"good", "bad"} {
				id := fmt.Sprint(kind, i)
				brokertest.PublishConfirmed(t, ch, "events", "order."+id, amqp091.Publishing{MessageId: id})
			}
		}
	}
	eyes, seen := old.Channel(t), old.Channel(t)
	waiting := func() int { return brokertest.Ready(t, eyes, tier) }
	const earlier = 3 // dead letters of before
	for i := range earlier {
		m := amqp091.Publishing{MessageId: fmt.Sprint("earlier", i)}
		brokertest.PublishConfirmed(t, old.Confirming(t), "", "audit", m)
		if err := brokertest.Take(t, old.Channel(t), "audit").Reject(false); err != nil {
			t.Fatal(err)
		}
	}

	publish(old, 0)
	publish(next, each) // the publishers are switched
	brokertest.Eventually(t, "the messages of the old cluster in its long tier", func() bool {
		return waiting() == 2*each && brokertest.Ready(t, seen, "work") == 0
	}, func() string { return fmt.Sprint(waiting(), " are there") })
	shovel := "parameters/shovel/" + url.PathEscape(next.VHost) + "/tier"
	next.Call(t, "PUT", shovel, map[string]any{"value": shovelOfThePage(t,
		"amqp://OLD", old.URL, "amqp://NEW", next.URL, "shop.standard.retry.10m", tier)})
	brokertest.Eventually(t, "the long tier to be empty", func() bool { return waiting() == 0 })
	brokertest.Eventually(t, "all attempts", func() bool { return a.deliveries() == 3*4*each },
		func() string { return fmt.Sprint(a.deliveries(), " of ", 3*4*each) })
	next.Call(t, "DELETE", shovel, nil)

	export := filepath.Join(t.TempDir(), "audit.jsonl")
	brokertest.Eventually(t, "the dead letters", func() bool {
		return brokertest.Ready(t, seen, "audit.dead") == earlier &&
			brokertest.Ready(t, next.Channel(t), "work.dead") == 4*each/2
	})
	succeeds(t, old, "desk", "export", "audit.dead", export, "--raw", "-f", file)
	succeeds(t, next, "desk", "import", "audit.dead", export, "--yes", "--expect", fmt.Sprint(earlier), "-f", file)

	a.mu.Lock()
	defer a.mu.Unlock()
	moved := 0
	for _, id := range slices.Sorted(maps.Keys(a.seen)) {
		list := a.seen[id]
		var attempts []string
		for _, delivery := range list {
			_, attempt, _ := strings.Cut(delivery, " ")
			attempts = append(attempts, attempt)
		}
		if want := []string{"0 order." + id, "1 order." + id, "2 order." + id}; !slices.Equal(attempts, want) {
			t.Errorf("%s was delivered as %q", id, list)
		}
		if strings.HasPrefix(list[0], "old") && strings.HasPrefix(list[len(list)-1], "next") {
			moved++
		}
	}
	if len(a.seen) != 4*each || moved != 2*each {
		t.Errorf("%d of %d messages were delivered, and %d of %d moved", len(a.seen), 4*each, moved, 2*each)
	}
	for queue, want := range map[string]int{"work.dead": 4 * each / 2, "audit.dead": earlier} {
		ch, dead := next.Channel(t), map[string]bool{}
		if n := brokertest.Ready(t, ch, queue); n != want {
			t.Errorf("%s has %d messages, not %d", queue, n, want)
		}
		for range want {
			d := brokertest.Take(t, ch, queue)
			if dead[d.MessageId] {
				t.Errorf("%s is there twice", d.MessageId)
			}
			dead[d.MessageId] = true
			exchange, key, n := d.Headers["retry-exchange"], d.Headers["retry-routing-key"], d.Headers["retry-attempts"]
			if queue == "work.dead" && (exchange != "events" || key != "order."+d.MessageId || n != int64(3)) {
				t.Errorf("%s is a dead letter after %v attempts, of %v and %v", d.MessageId, n, exchange, key)
			}
		}
	}
}
