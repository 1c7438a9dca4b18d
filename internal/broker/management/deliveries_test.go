package management_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// However many queues are asked for, RabbitMQ answers: it refuses long filters.
func TestDeliveriesOfManyQueues(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	if _, err := target.Channel(t).QueueDeclare("orders", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	m := manage(t, target)
	names := []string{"orders"}
	for _, count := range []int{1, 35, 45, 60, 200, 600} {
		for len(names) < count {
			names = append(names, fmt.Sprintf("invoicing.europe.%04d", len(names))) // 21 bytes
		}
		got, err := m.Deliveries(t.Context(), names)
		if _, found := got["orders"]; err != nil || !found || len(got) > 1 {
			t.Errorf("of %d queues: %v, %v", count, got, err)
		}
	}
}
