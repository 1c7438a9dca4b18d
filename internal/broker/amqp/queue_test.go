package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A connection that has gone silent does not delay a caller whose context has ended: that caller
// may be a person who presses Ctrl-C.
func TestConsumersEndsWithItsContext(t *testing.T) {
	t.Parallel()
	target, cable := brokertest.NewProxy(t, brokertest.VHost(t))
	queue := "q"
	brokertest.Declare(t, target.Channel(t), queue, nil)
	conn := dial(t, target)
	if n, ok := conn.Consumers(t.Context(), []string{queue})[queue]; !ok || n != 0 {
		t.Fatalf("the queue has %d consumers, known: %t", n, ok)
	}
	cable.Hold()
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	begin := time.Now()
	if answers := conn.Consumers(ctx, []string{queue}); len(answers) > 0 {
		t.Errorf("a silent connection answers %v", answers)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
	}
	cable.Cut()
}
