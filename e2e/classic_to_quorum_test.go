package e2e_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// bookings are the sources of testdata/real/datban.json, and the queues to which they lead.
func bookings() []source {
	const all, notified = "analytics.all", "notifications.all"
	return []source{
		{"notification.events", "notification.sent", []string{all}},
		{"payment.events", "payment.done", []string{all, notified, "payment.reservations"}},
		{"reservation.events", "reservation.created", []string{
			all, notified, "reservation.notifications", "reservation.payments",
		}},
		{"restaurant.events", "restaurant.changed", []string{all, notified, "restaurant.reservations"}},
		{"user.events", "user.changed", []string{all, notified, "user.reservations"}},
	}
}

// quorumFile is what the page calls the file.
const quorumFile = "quorum.yaml"

// A broker with the topology of a booking service goes from classic to quorum queues as the page
// says, from the audit to the last queue, while services publish and consume. Each message is
// consumed exactly once.
func TestFromClassicToQuorum(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	text := readFile(t, "../testdata/real/datban.json")
	var d map[string]any
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if target.AtLeast("4.0") {
		d["policies"] = []any{} // it mirrors queues: see the audit
	}
	here, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	v := &traveler{
		reader: reader{t, target.Tool(t, "policymaker"), t.TempDir()},
		wanted: map[string]map[string]bool{}, seen: map[string]map[string]int{},
	}
	writeTo(t, filepath.Join(v.dir, "definitions.json"), text)
	loaded := filepath.Join(t.TempDir(), "loaded.json")
	writeTo(t, loaded, string(here))
	addDefinitions(t, target, loaded)
	page := blocks(t, "../docs/classic-to-quorum.md", "sh")
	if len(page) != 6 {
		t.Fatalf("the page has %d blocks of commands, not 6", len(page))
	}
	queues := map[string]bool{}
	for _, s := range bookings() {
		for _, queue := range s.queues {
			queues[queue] = true
		}
	}
	publishing := v.publish(target, bookings())
	var stops []func()
	for queue := range queues {
		stops = append(stops, v.subscribe(target, queue))
	}

	v.exits(page[0], 2)
	v.runs(page[1])
	v.expectReplacements(len(queues))
	v.exits(page[2], 0)
	v.runs(page[3])
	v.expectReplacements(len(queues) - 1)
	v.runs(page[4])
	v.runs(page[5])
	v.expectReplacements(0)

	v.edit(quorumFile, []string{"user.reservations"}, func(entry string) string { // as the page says to go back
		return strings.Replace(entry, "deliveryLimit: 2147483647", "type: classic", 1)
	})
	succeeds(t, v.target, "migrate", "user.reservations", "-f", filepath.Join(v.dir, quorumFile), "--yes")
	v.expectReplacements(0)

	n := publishing()
	var left []string
	brokertest.Eventually(t, "each message consumed", func() bool {
		left = v.missing()
		return len(left) == 0
	}, &left)
	for _, stop := range stops {
		stop()
	}
	total := 0
	for queue := range queues {
		kind := target.Queue(t, queue)["type"]
		if isClassic := queue == "user.reservations"; (kind == "classic") != isClassic {
			t.Errorf("%s is a %v queue", queue, kind)
		}
		for id, times := range v.seen[queue] {
			if total++; times != 1 || !v.wanted[queue][id] {
				t.Errorf("%s had message %s %d times, wanted: %t", queue, id, times, v.wanted[queue][id])
			}
		}
	}
	t.Logf("%d messages published, %d consumed of %d queues, 0 missing", n, total, len(queues))
}

// missing names up to three messages that were confirmed for a queue and not consumed. Nothing
// publishes any more.
func (v *traveler) missing() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for queue, ids := range v.wanted {
		for id := range ids {
			if v.seen[queue][id] == 0 && len(out) < 3 {
				out = append(out, queue+": "+id)
			}
		}
	}
	return out
}

// expectReplacements checks that the plan of the file has so many replacements, and nothing else.
func (v *traveler) expectReplacements(n int) {
	v.Helper()
	_, out := dlxctl(v.target, "plan", "-f", filepath.Join(v.dir, quorumFile), "-o", "json")
	var p struct {
		Changes []struct {
			Kind    string   `json:"kind"`
			Name    string   `json:"name"`
			Hazards []string `json:"hazards"`
		} `json:"changes"`
	}
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&p); err != nil {
		v.Fatalf("%v\n%s", err, out)
	}
	for _, c := range p.Changes {
		if c.Kind != "queue" || !slices.Equal(c.Hazards, []string{"replaces-queue"}) {
			v.Errorf("the plan changes %s %s, with %q", c.Kind, c.Name, c.Hazards)
		}
	}
	if len(p.Changes) != n {
		v.Errorf("the plan has %d changes, not %d\n%s", len(p.Changes), n, out)
	}
}

// subscribe consumes from a queue until stop, and subscribes again a second after each cancel, as
// the page demands of services.
func (v *traveler) subscribe(target brokertest.Target, queue string) (stop func()) {
	v.Helper()
	conn := target.Dial(v.T)
	done := make(chan struct{})
	consume := func() (<-chan amqp091.Delivery, *amqp091.Channel, error) {
		ch, err := conn.Channel()
		if err != nil {
			return nil, nil, err
		}
		if err := ch.Qos(10, 0, false); err != nil {
			return nil, nil, err
		}
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		return deliveries, ch, err
	}
	deliveries, ch, err := consume()
	if err != nil {
		v.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case d, ok := <-deliveries:
				if ok {
					v.found(queue, d.MessageId)
					_ = d.Ack(false) // one whose acknowledgment is lost comes twice, and is counted
					continue
				}
			}
			_ = ch.Close() // of a consumer that was canceled: it has acknowledged all that it had
			for err := error(amqp091.ErrClosed); err != nil; {
				select {
				case <-done:
					return
				case <-time.After(time.Second):
				}
				deliveries, ch, err = consume() // 404 while there is no queue
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
