package migrate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// A message that is larger than the broker takes by now stays in the legacy queue,
// with the reason; those behind it are moved, and none of them again by the next
// run. Headers that the library cannot read are moved like any other.
func TestDrainWithAMessageThatIsTooLarge(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := newStageIn(t, node.VHost(t), fmt.Sprintf(topologyFile, "quorum"), "quorum", nil)
	ch := s.target.Confirming(t)
	s.fill(t, 100, 10)
	brokertest.PublishConfirmed(t, ch, "", "old", amqp091.Publishing{MessageId: "large", Body: make([]byte, 3<<20)},
		amqp091.Publishing{MessageId: "long", Headers: amqp091.Table{"list": slices.Repeat([]any{true}, 9000)}})
	s.fill(t, 100, 10)
	node.Eval(t, "persistent_term:put(max_message_size, 1048576), application:set_env(rabbit, max_message_size, 1048576).")

	held := 0
	for run := range 2 {
		r := s.runner(t)
		r.Wait = time.Second
		err := r.Run(t.Context())
		if !errors.Is(err, migrate.ErrWaiting) ||
			!strings.Contains(err.Error(), `message "large": the body has 3145728 bytes`) {
			t.Errorf("it ends with %v", err)
		}
		q, err := ch.QueueDeclarePassive("new", true, false, false, false, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case run == 0 && (q.Messages < 201 || q.Messages > 201+101):
			t.Errorf("the new queue holds %d messages", q.Messages)
		case run == 1 && q.Messages != held:
			t.Errorf("the new queue holds %d messages, and held %d before", q.Messages, held)
		}
		held = q.Messages
	}
	brokertest.Eventually(t, "the message in the legacy queue, once its connection has ended", func() bool {
		old, err := ch.QueueDeclarePassive("old", true, false, false, false, nil)
		return err == nil && old.Messages == 1
	})
}
