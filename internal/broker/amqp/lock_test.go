package amqp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// expiring makes RabbitMQ delete all queues of a virtual host that are not used for so long.
func expiring(t *testing.T, target brokertest.Target, after time.Duration) {
	t.Helper()
	target.Call(t, "PUT", "policies/"+target.VHost+"/tidy", map[string]any{
		"pattern": ".*", "apply-to": "queues", "definition": map[string]any{"expires": after.Milliseconds()},
	})
}

// A policy of another team that deletes unused queues leaves a lock that is held alone.
func TestALockOutlivesExpires(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	expiring(t, target, 3*time.Second)
	conn, other := dial(t, target), dial(t, target)
	if err := conn.Lock("shop.lock"); err != nil {
		t.Fatal(err)
	}
	began, asks := time.Now(), 0
	brokertest.EventuallyEvery(t, 200*time.Millisecond, "twice the time after which the queue is deleted", func() bool {
		asks++
		if err := other.Lock("shop.lock"); !errors.Is(err, amqp.ErrLocked) {
			t.Fatalf("after %s another connection gets the lock: %v", time.Since(began), err)
		}
		return time.Since(began) > 6*time.Second
	})
	if err := conn.Unlock("shop.lock"); err != nil || asks < 2 {
		t.Errorf("%d times the lock was held, and freeing it: %v", asks, err)
	}
	if err := other.Lock("shop.lock"); err != nil {
		t.Errorf("a lock that was freed: %v", err)
	}
}

// Without its lock a run can write nothing more: the connection ends, and the lock cannot be freed.
func TestALostLockEndsItsConnection(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	expiring(t, target, 50*time.Millisecond)
	waits, frees, other := dial(t, target), dial(t, target), dial(t, target)
	if err := errors.Join(waits.Lock("shop.lock"), frees.Lock("mail.lock")); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the broker to delete the queues", func() bool {
		_, err := other.MessagesReady("mail.lock")
		return errors.Is(err, broker.ErrNotFound)
	})
	if err := frees.Unlock("mail.lock"); err == nil {
		t.Error("a lock was freed that was lost")
	}
	brokertest.Eventually(t, "the connection to end", waits.Closed)
}
