package management_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A broker announces its version and cluster, over HTTP and over AMQP alike. A caller that does not
// accept them gets no connection and no state.
func TestAccept(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	var overview struct {
		Cluster string `json:"cluster_name"`
	}
	if err := json.Unmarshal(target.Call(t, "GET", "overview", nil), &overview); err != nil {
		t.Fatal(err)
	}
	e := managementtest.Endpoint(t, target.Tool(t))
	var mu sync.Mutex
	var asked [][2]string
	refused := errors.New("not this one")
	e.Accept = func(version, cluster string) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, [2]string{version, cluster})
		return refused
	}
	for name, dial := range map[string]func() (*amqp.Conn, error){
		"Dial":          func() (*amqp.Conn, error) { return amqp.Dial(t.Context(), e) },
		"DialToConsume": func() (*amqp.Conn, error) { return amqp.DialToConsume(t.Context(), e) },
	} {
		if conn, err := dial(); !errors.Is(err, refused) || conn != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := management.New(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if _, err := m.Inspect(t.Context()); !errors.Is(err, refused) {
		t.Errorf("Inspect: %v", err)
	}
	begun := manage(t, target).Begin(t.Context()) // by one who accepts every broker
	if _, err := m.InspectFor(t.Context(), begun, nil); !errors.Is(err, refused) {
		t.Errorf("InspectFor, begun before: %v", err)
	}
	for _, a := range asked {
		if a != [2]string{target.Version, overview.Cluster} {
			t.Errorf("it was asked for %q; the broker is %s of %s", a, target.Version, overview.Cluster)
		}
	}
	if len(asked) != 4 {
		t.Errorf("it was asked %d times", len(asked))
	}
}
