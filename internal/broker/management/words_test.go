package management_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
)

// The advice for an entry of a file of clusters names its keys, and no flag, which would not change
// the entry.
func TestAdviceForAnEntryOfClusters(t *testing.T) {
	t.Parallel()
	e, err := broker.Config{
		URL: "amqp://localhost:1", API: "http://localhost:1", Words: broker.Words{Keys: true},
	}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	m, err := management.New(e)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, overHTTP := m.Inspect(t.Context())
	_, overAMQP := amqp.Dial(t.Context(), e)
	for err, want := range map[error]string{
		overHTTP: "or set its URL with the key api", overAMQP: "check the key url, and",
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("%v, want %q and no flag", err, want)
		}
	}
}
