package relay_test

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
)

// The queue is asked again however often the broker was slow. The time without a delivery grows
// each time, and the regular looks of the relay do not begin it anew.
func TestABrokerThatIsSlowManyTimesIsAskedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		_, end := l.start(t, relay.Relay{UntilEmpty: true})
		for n := uint64(1); n <= 11; n += 2 {
			l.leave(amqp091.Delivery{DeliveryTag: n, MessageId: fmt.Sprint(n)})
			sleep(3 * time.Second)
			l.expect(t, "cancel", fmt.Sprint("publish ", n), "resume")
			l.confirm(n)
			l.deliver(n+1, n+1)
			l.confirm(n + 1)
			l.happened()
		}
		sleep(3 * time.Second)
		l.expect(t, "cancel", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A message that arrives while the subscription is canceled is moved also when it is the last of
// those that are moved one by one, and the queue is asked afterwards.
func TestTheLastMessageOneByOneMayArriveWhileCanceling(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, l *line) { //nolint:thelper // it is the test
		l.onTheWay = []amqp091.Delivery{{DeliveryTag: 2, MessageId: "2"}}
		_, end := l.start(t, relay.Relay{UntilEmpty: true, OneByOne: 2, Places: 1})
		l.deliver(1, 1)
		l.confirm(1)
		sleep(time.Second)
		l.expect(t, "publish 1", "moved 1", "ack 1 true", "cancel", "publish 2")
		l.confirm(2)
		sleep(time.Minute)
		l.expect(t, "moved 2", "ack 2 true", "get: empty")
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}
