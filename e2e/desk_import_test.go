package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// An import is refused, with and without --yes, if the queue would drop its oldest messages for it,
// unless a person accepts the loss.
func TestAnImportIsRefusedWhereItsQueueDrops(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := deadLetters(t, 50)
	ch, path := target.Confirming(t), filepath.Join(t.TempDir(), "copy.jsonl")
	succeeds(t, target, "desk", "export", "billing.dead", path, "--raw", "-f", file)
	brokertest.Declare(t, ch, "orders.dlq", amqp091.Table{"x-max-length": 100})
	brokertest.PublishConfirmed(t, ch, "", "orders.dlq", make([]amqp091.Publishing, 100)...)
	line := []string{"desk", "import", "orders.dlq", path, "-f", file}
	for _, args := range [][]string{line, append(line, "--yes")} {
		code, out := dlxctl(target, args...)
		const why = "queue orders.dlq drops its oldest messages above 100 (max-length, overflow drop-head), and has room for 0 more, not for 50"
		if code != 3 || !strings.Contains(out, why) || !strings.Contains(out, "--allow drops-messages=orders.dlq --yes") {
			t.Errorf("%q exits with %d:\n%s", args, code, out)
		}
	}
	kept := 0
	for {
		d, ok, err := ch.Get("orders.dlq", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if d.MessageId == "" {
			kept++
		}
	}
	if kept != 100 {
		t.Errorf("%d of 100 messages are lost", 100-kept)
	}
	brokertest.PublishConfirmed(t, ch, "", "orders.dlq", make([]amqp091.Publishing, 100)...)
	succeeds(t, target, append(line, "--yes", "--allow", "drops-messages=orders.dlq")...)
}
