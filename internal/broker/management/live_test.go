package management_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A user with the tag management alone sees the consumers of other users, how they acknowledge,
// which queues grow, and how old the first message is.
func TestLive(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	ch := x.Confirming(t)
	for _, name := range []string{"automatic", "manual", "growing", "odd/ü name"} {
		brokertest.Declare(t, ch, name, nil)
	}
	for queue, auto := range map[string]bool{"automatic": true, "manual": false, "odd/ü name": true} {
		if _, err := ch.Consume(queue, "consumer of "+queue, auto, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	published := time.Now().Add(-time.Hour).Truncate(time.Second)
	brokertest.PublishConfirmed(t, ch, "", "growing", amqp091.Publishing{Timestamp: published})

	viewer := x.User(t, "management", "", "", "")
	m := resolve(t, broker.Config{URL: viewer.URL, API: viewer.API})
	var live topology.Live
	brokertest.Eventually(t, "the broker reports consumers and the age of the message", func() bool {
		live = readLive(t, m, 0)
		return len(live.Consumers["automatic"]) == 1 && live.Consumers["automatic"][0].Connection != "" &&
			len(live.Consumers["manual"]) == 1 && len(live.Consumers["odd/ü name"]) == 1 &&
			live.Oldest["growing"].Equal(published)
	}, &live)
	if c := live.Consumers["automatic"][0]; !c.AutoAck || c.Tag != "consumer of automatic" || c.Connection == "" {
		t.Errorf("the consumer of automatic is %+v", c)
	}
	if c := live.Consumers["manual"]; len(c) != 1 || c[0].AutoAck {
		t.Errorf("the consumers of manual are %+v", c)
	}
	if live.Growth != nil || len(live.Leaderless) > 0 || len(live.Unseen) != 1 {
		t.Errorf("with one reading: %+v", live)
	}

	stop := brokertest.PublishEvery(t, ch, "", "growing", 5*time.Millisecond)
	live = readLive(t, m, 300*time.Millisecond)
	stop()
	if live.Growth["growing"] < 1 || live.Growth["manual"] != 0 || live.Interval < 300*time.Millisecond ||
		len(live.Unseen) > 0 {
		t.Errorf("with two readings: %+v", live)
	}
	hosts, err := m.VHosts(t.Context())
	if err != nil || !slices.Equal(hosts, []string{x.VHost}) {
		t.Errorf("the user sees the virtual hosts %v, %v", hosts, err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Live(interrupted, topology.State{}, time.Hour); err == nil {
		t.Error("a reading that was interrupted succeeded")
	}
}

// readLive reads what the broker tells.
func readLive(t *testing.T, m *management.Client, interval time.Duration) topology.Live {
	t.Helper()
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := m.Live(t.Context(), state, interval)
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// How many messages wait in an exchange of the plugin is read, and asked for only if there is one.
// The brokers of the tests do not have the plugin: the answer is as its source makes it.
func TestDelayedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := "[]"
		if strings.HasPrefix(r.URL.Path, "/api/exchanges/") {
			answer = `[{"name":"later","type":"x-delayed-message","messages_delayed":12},{"name":"e","type":"topic"}]`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	m := resolve(t, broker.Config{API: s.URL})
	for kind, want := range map[string]int64{topology.DelayedMessage: 12, topology.Topic: 0} {
		live, err := m.Live(t.Context(), topology.State{Have: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "later", Type: kind}},
		}}, 0)
		if err != nil || live.Delayed["later"] != want {
			t.Errorf("%s: %v, %v", kind, live.Delayed, err)
		}
	}
}
