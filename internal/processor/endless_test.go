package processor_test

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/notify"
)

// once checks that a line was logged just once.
func (j *journal) once(t *testing.T, text string) {
	t.Helper()
	if lines := j.with(text); len(lines) != 1 {
		t.Errorf("it was said %d times:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// The AMQP library refuses to read headers of a size that the broker takes. They
// are moved like any other, whole.
func TestAHeaderThatTheLibraryCannotRead(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	var deep any = "end"
	for range 40 {
		deep = []any{deep}
	}
	table := amqp091.Table{}
	for i := range 9000 {
		table[fmt.Sprint(i)] = nil
	}
	for name, value := range map[string]any{"long": slices.Repeat([]any{true}, 9000), "deep": deep, "wide": table} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, retryInAnHour)
			poison := amqp091.Publishing{MessageId: name, Headers: amqp091.Table{"value": value}, Type: "t", Body: []byte("b")}
			s.fill(t, 50)
			s.publish(t, "shop.slow.failed", "@work", poison)
			s.publish(t, "shop.slow.failed", "nowhere", poison)
			for i := range 50 {
				s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: fmt.Sprint(50 + i)})
			}
			log := s.runs(t)
			for queue, want := range map[string]int{"shop.slow.retry.1h": 101, "shop.unroutable": 1} {
				seen, got := map[string]int{}, amqp091.Delivery{}
				for _, m := range s.readAll(t, queue, want) {
					seen[m.MessageId]++
					if m.MessageId == name {
						got = m
					}
				}
				if len(seen) != want || seen[name] != 1 {
					t.Errorf("%s holds %d messages, the one that is hard to read %d times", queue, len(seen), seen[name])
				}
				if fmt.Sprint(got.Headers["value"]) != fmt.Sprint(value) || got.Type != "t" || string(got.Body) != "b" {
					t.Errorf("in %s it is not as it was", queue)
				}
			}
			if lines := log.with("reconnecting"); len(lines) > 0 {
				t.Errorf("there was trouble: %s", lines)
			}
		})
	}
}

// readAll takes n messages over a connection that reads what the library cannot.
func (s *stage) readAll(t *testing.T, queue string, n int) []amqp091.Delivery {
	t.Helper()
	conn, err := amqp.DialToConsume(t.Context(), s.endpoint(t, s.target))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	source, err := conn.Consume(queue, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []amqp091.Delivery
	brokertest.Eventually(t, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		select {
		case m := <-source.Deliveries():
			out = append(out, source.Take(m))
			return len(out) == n
		default:
			return false
		}
	})
	return out
}

// A user that lacks the right to one exchange: what must go there waits, all else
// goes on, and nothing is doubled but what was in flight the first time.
func TestALackingRight(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	user := s.target.User(t, "", "^$", `^shop\.slow\.dlx$`, ".*")
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, user)
	log := listen(t, p)
	s.fill(t, 150)
	s.publish(t, "shop.slow.failed", "nowhere", amqp091.Publishing{MessageId: "stray"})
	for i := range 350 {
		s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: fmt.Sprint(150 + i)})
	}
	run(t, p)
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 500)...); doubled > prefetch {
		t.Errorf("%d are doubled", doubled)
	}
	const said = "user lacks write permission on an exchange"
	log.says(t, said)
	for i := range 100 {
		s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 100)...); doubled > 0 {
		t.Errorf("%d are doubled afterwards", doubled)
	}
	log.once(t, said)
	permissions := "permissions/" + url.PathEscape(s.target.VHost) + "/" + url.PathEscape(user.Username)
	s.target.Call(t, "PUT", permissions, map[string]any{"configure": "^$", "write": ".*", "read": ".*"})
	if m := s.bury(t, "shop.unroutable"); m.MessageId != "stray" {
		t.Errorf("shop.unroutable holds %q", m.MessageId)
	}
}

// A topic permission that lacks the keys of some messages of a delay stops no other: those go to
// the unroutable queue, with the reason, however many they are, and no other is doubled. Once the
// permission is granted they are published.
func TestALackingTopicPermission(t *testing.T) {
	t.Parallel()
	s := newStage(t, delayFileOf("1h"))
	user := s.target.User(t, "", "^$", ".*", ".*")
	permissions := "topic-permissions/" + url.PathEscape(s.target.VHost) + "/" + url.PathEscape(user.Username)
	s.target.Call(t, "PUT", permissions, map[string]any{"exchange": "events", "write": "^a$", "read": ".*"})
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, user)
	p.Show = func(m notify.Message) notify.Shown {
		hide := strings.NewReplacer("topic '"+string(m.Body)+"'", "topic '***'") // what the body says
		return notify.Shown{ID: hide.Replace(m.ID), Key: hide.Replace(m.Key), Error: hide.Replace(m.Error)}
	}
	log := listen(t, p)
	const barred = 2 * prefetch
	for i, id := range ids(0, barred) {
		key := []string{"b", "c"}[i%2]
		s.publish(t, "shop.later", key, amqp091.Publishing{MessageId: id, Body: []byte(key)})
	}
	for _, id := range ids(barred, barred+10) {
		s.publish(t, "shop.later", "a", amqp091.Publishing{MessageId: id})
	}
	run(t, p)
	if doubled := s.moved(t, "work", ids(barred, barred+10)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	m := s.bury(t, "shop.unroutable")
	want := "access to topic '" + string(m.Body) + "' in exchange 'events'"
	if why, _ := m.Headers["retry-error"].(string); !strings.Contains(why, want) {
		t.Errorf("it is in the unroutable queue because %q", why)
	}
	s.moved(t, "shop.unroutable", slices.DeleteFunc(ids(0, barred), func(id string) bool { return id == m.MessageId })...)
	const said = "user lacks a topic permission"
	log.once(t, said)
	s.target.Call(t, "DELETE", permissions, nil)
	brokertest.Eventually(t, "the key to be published", func() bool {
		s.publish(t, "shop.later", "b", amqp091.Publishing{MessageId: "granted", Body: []byte("b")})
		return s.ready(t, "work") > 0
	})
	log.says(t, "topic '***'")
	if lines := slices.Concat(log.with("topic 'b'"), log.with("topic 'c'")); len(lines) > 0 {
		t.Errorf("these lines are not masked:\n%s", strings.Join(lines, "\n"))
	}
	log.once(t, said)
	log.calm(t)
}

// A message that is larger than the broker accepts stays where it is. Those behind it
// are moved, and nothing is doubled but what was in flight the first time.
func TestABodyThatTheBrokerTakesNoMore(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := onNode(t, node, retryInAnHour)
	large := amqp091.Publishing{Body: make([]byte, 3<<20)}
	n := 0
	for _, id := range ids(0, 500) {
		if n++; n%200 == 0 {
			large.MessageId = "large " + id
			s.publish(t, "shop.slow.failed", "@work", large)
		}
		s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: id})
	}
	node.Eval(t, "persistent_term:put(max_message_size, 1048576), application:set_env(rabbit, max_message_size, 1048576).")
	log := s.runs(t)
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 500)...); doubled > prefetch {
		t.Errorf("%d are doubled", doubled)
	}
	log.says(t, "message_id=\"large 199\"")
	log.says(t, "message_id=\"large 399\"")
	log.held(t, "shop.slow.failed", "too_large", 2)
	log.calm(t)
	if lines := log.with("larger than the broker accepts"); len(lines) != 2 {
		t.Errorf("it was said %d times:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if left := s.ready(t, "shop.unroutable"); left > 0 {
		t.Errorf("%d are parked", left)
	}
}

// RabbitMQ 3.10 cannot deliver a message whose x-death has a count that is no
// integer. What is before it is not doubled again and again.
func TestAMessageThatTheBrokerCannotDeliver(t *testing.T) {
	t.Parallel()
	if os.Getenv("DLXCTL_TEST_LINE") != "3.10" {
		t.Skip("later brokers ignore what a publisher writes there")
	}
	s := onNode(t, brokertest.Node(t), retryInAnHour)
	forged := amqp091.Table{"x-death": []any{amqp091.Table{
		"queue": "work", "reason": "rejected", "exchange": "", "routing-keys": []any{"work"}, "count": 1.0,
	}}}
	s.publish(t, "", "work", amqp091.Publishing{MessageId: "bad", Headers: forged})
	bad := s.take(t, "work")
	s.fill(t, 50)
	reject(t, bad)
	brokertest.Eventually(t, "all in the failed queue", func() bool { return s.ready(t, "shop.slow.failed") == 51 })
	log := s.runs(t)
	const said = "broker closes the connection when it delivers a message"
	log.says(t, said)
	doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 50)...)
	if doubled > 50 {
		t.Errorf("%d are doubled", doubled)
	}
	before := len(log.with("reconnecting"))
	brokertest.Eventually(t, "three more tries", func() bool { return len(log.with("reconnecting")) >= before+3 })
	if more := s.ready(t, "shop.slow.retry.1h"); more > 0 {
		t.Errorf("%d more are doubled", more)
	}
	log.once(t, said)
	log.calm(t)

	// What the log advises helps: the management UI does not speak AMQP.
	s.fill(t, 10)
	took := false
	brokertest.Eventually(t, "the message to be taken out", func() bool {
		if took {
			return true
		}
		got := s.target.Call(t, "POST", "queues/"+url.PathEscape(s.target.VHost)+"/shop.slow.failed/get",
			map[string]any{"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"})
		took = strings.Contains(string(got), `"message_id":"bad"`)
		return took
	})
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
}
