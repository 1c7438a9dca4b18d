package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// harm is a policy of another team that matches all queues but the work queue.
type harm struct {
	definition map[string]any
	types      []string
	// done reports whether the policy has harmed the queue canary, which held 5 messages before the
	// other queues did. Nil if the harm cannot be observed.
	done func(p place) bool
	// harmless says that dlxctl does not have to override the policy.
	harmless bool
	since    string // the first version with the key
}

func harms() map[string]harm {
	both, quorum := []string{topology.Classic, topology.Quorum}, []string{topology.Quorum}
	holds := func(n int) func(place) bool { return func(p place) bool { return p.count("canary") <= n } }
	return map[string]harm{
		"message-ttl": {definition: map[string]any{"message-ttl": 200}, types: both, done: holds(0)},
		"message-ttl, moving": {
			definition: map[string]any{"message-ttl": 200, "dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "k"},
			types:      both, done: holds(0),
		},
		"expires": {
			definition: map[string]any{"expires": 6000}, types: both, // apply must be quicker
			done: func(p place) bool { // a passive declaration would count as a use of the queue
				return !strings.Contains(strings.Join(p.target.Definitions(p.t), ""), `"name":"canary"`)
			},
		},
		"max-length": {definition: map[string]any{"max-length": 2}, types: both, done: holds(2)},
		"max-length, refusing": {
			definition: map[string]any{"max-length": 2, "overflow": "reject-publish"}, types: both,
		},
		"max-length-bytes": {definition: map[string]any{"max-length-bytes": 40}, types: both, done: holds(4)},
		"delivery-limit": {
			definition: map[string]any{"delivery-limit": 2}, types: quorum,
			done: func(p place) bool {
				for _, q := range []string{"shop.a.failed", "shop.unroutable", "w.dead", "canary"} {
					p.returns(q) // the same number of times each
				}
				return p.count("canary") < 5
			},
		},
		"dead-letter-routing-key": {definition: map[string]any{"dead-letter-routing-key": "dead"}, types: both},
		"dead-lettering for all": {
			definition: map[string]any{"dead-letter-exchange": "amq.direct", "dead-letter-routing-key": "dead"}, types: both,
		},
		"dead-letter-exchange": {
			definition: map[string]any{"dead-letter-exchange": "amq.direct"}, types: both, harmless: true,
		},
		"dead-letter-strategy, overflow": {
			definition: map[string]any{"dead-letter-strategy": "at-most-once", "overflow": "reject-publish"},
			types:      quorum, harmless: true,
		},
		"storage": {
			definition: map[string]any{"max-in-memory-length": 1, "max-in-memory-bytes": 1}, types: both, harmless: true,
		},
		"consumer-timeout": {
			definition: map[string]any{"consumer-timeout": 60000}, types: both, harmless: true, since: "4.0",
		},
		"delayed-retry": {
			definition: map[string]any{"delayed-retry-type": "all", "delayed-retry-min": 1000, "delayed-retry-max": 2000},
			types:      quorum, since: "4.3",
		},
		"alternate-exchange": {
			definition: map[string]any{"alternate-exchange": "amq.fanout"}, types: both, harmless: true,
		},
	}
}

const protectedFile = "version: 1\nname: shop\ndefaults: {type: %s, backoff: a}\nbackoff: {a: {tiers: [300ms, 600ms]}}\nqueues: [{name: w%s}]\n"

// A foreign policy would delete, drop or misroute the messages in the generated queues. With an
// apply before or after it, no message is lost or misrouted and no retry is early. Until the policy
// is overridden, no plan exits with 0.
func TestForeignPoliciesDoNoHarm(t *testing.T) {
	t.Parallel()
	for name, h := range brokertest.ShareNamed(harms()) {
		for _, queueType := range h.types {
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s, %s, %s apply", name, queueType, when), func(t *testing.T) {
					t.Parallel()
					p := newPlace(t)
					if h.since != "" && !p.target.AtLeast(h.since) {
						t.Skip("the broker does not have the key")
					}
					path := h.overridden(p, queueType, when)
					h.waits(p)
					p.retried(path)
				})
			}
		}
	}
}

func newPlace(t *testing.T) place {
	t.Helper()
	target := brokertest.VHost(t)
	return place{t, target, target.Channel(t), target.Dial(t)}
}

// overridden sets the policy before or after a first apply, and applies the file as a user who may
// set policies but not administer the broker. It returns the path of the file.
func (h harm) overridden(p place, queueType, when string) string {
	p.t.Helper()
	ci := p.target.User(p.t, "management,policymaker", ".*", ".*", ".*")
	path := writeTopology(p.t, fmt.Sprintf(protectedFile, queueType, ""))
	apply := func() {
		p.t.Helper()
		if code, said := dlxctl(ci, "apply", "--yes", "-f", path); code != 0 {
			p.t.Fatalf("apply exits with %d:\n%s", code, said)
		}
	}
	if when == "after" {
		apply()
	}
	p.policy("policies", "foreign", "^(?!w$)", h.definition)
	p.declare("canary", queueType)
	code, said := dlxctl(ci, "plan", "--detailed-exitcode", "-f", path)
	if (code == 0) != (h.harmless && when == "after") {
		p.t.Errorf("plan exits with %d:\n%s", code, said)
	}
	apply()
	if code, said := dlxctl(ci, "plan", "--detailed-exitcode", "-f", path); code != 0 || strings.Contains(said, "would") {
		p.t.Fatalf("plan exits with %d:\n%s", code, said)
	}
	return path
}

// waits fills the queues in which messages wait for a processor or an operator, gives the policy
// time to do harm, and checks that no message is lost.
func (h harm) waits(p place) {
	p.t.Helper()
	for i := range perQueue {
		p.send("", "w", fmt.Sprint("failed-", i))
		brokertest.Eventually(p.t, "a message in the work queue", func() bool {
			m, ok, err := p.ch.Get("w", false)
			return err == nil && ok && m.Reject(false) == nil
		})
		p.send("shop.unroutable", "", fmt.Sprint("unroutable-", i))
		p.send("", "w.dead", fmt.Sprint("dead-", i))
		p.send("", "canary", fmt.Sprint("canary-", i))
	}
	brokertest.Eventually(p.t, "the failed messages in the failed queue", func() bool {
		return p.count("shop.a.failed") == perQueue
	})
	if h.done != nil {
		brokertest.Eventually(p.t, "the policy to harm the canary", func() bool { return h.done(p) })
	}
	for _, q := range []string{"shop.a.failed", "shop.unroutable", "w.dead"} {
		// The broker may still be requeueing some.
		brokertest.Eventually(p.t, "all messages in "+q, func() bool { return p.count(q) == perQueue })
	}
}

const perQueue = 5

// retried starts a processor and rejects each message until it is dead-lettered: the message is
// retried after each delay, not earlier, and ends in its dead-letter queue.
func (p place) retried(path string) {
	p.t.Helper()
	processor := start(p.t, p.target, "process", "-f", path)
	deliveries := brokertest.Consume(p.t, p.ch, "w", 0)
	before := map[string]time.Time{}
	deadline := time.After(time.Minute)
	for range 2 * perQueue { // each was rejected once already
		select {
		case m := <-deliveries:
			if last, again := before[m.MessageId]; again && time.Since(last) < 580*time.Millisecond {
				p.t.Errorf("message %s is retried %s after the second failure, not 600ms", m.MessageId, time.Since(last))
			}
			before[m.MessageId] = time.Now()
			if err := m.Reject(false); err != nil {
				p.t.Fatal(err)
			}
		case <-deadline:
			p.t.Fatalf("only %d messages were retried; %d are in the unroutable queue\n%s", len(before),
				p.count("shop.unroutable"), &processor.stderr)
		}
	}
	brokertest.Eventually(p.t, "all dead letters", func() bool { return p.count("w.dead") == 2*perQueue })
	if n := p.count("shop.unroutable"); n != perQueue {
		p.t.Errorf("the unroutable queue holds %d messages, not %d", n, perQueue)
	}
	processor.signal(p.t, syscall.SIGTERM)
	processor.exits(p.t, 0)
}

// policy sets a policy, or an operator policy.
func (p place) policy(kind, name, pattern string, definition map[string]any) {
	p.t.Helper()
	p.call("PUT", kind, name, map[string]any{
		"pattern": pattern, "apply-to": "all", "priority": 10, "definition": definition,
	})
}

func (p place) declare(queue, queueType string) {
	p.t.Helper()
	p.call("PUT", "queues", queue, durable("", map[string]any{"x-queue-type": queueType}))
}

// count returns the number of messages that are ready in a queue, or -1 if it does not exist.
func (p place) count(queue string) int {
	p.t.Helper()
	ch, err := p.conn.Channel()
	if err != nil {
		p.t.Fatal(err)
	}
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return -1
	}
	return q.Messages
}

// send publishes a persistent message of 10 bytes and waits for the answer. The broker may refuse
// messages to the canary.
func (p place) send(exchange, key, id string) {
	p.t.Helper()
	if !p.accepted(exchange, key, amqp091.Publishing{MessageId: id, Body: []byte("ten bytes.")}) && key != "canary" {
		p.t.Errorf("the broker refuses %s", id)
	}
}

// returns gets each message of a queue and requeues it.
func (p place) returns(queue string) {
	p.t.Helper()
	var taken []amqp091.Delivery
	for {
		m, ok, err := p.ch.Get(queue, false)
		if err != nil {
			p.t.Fatal(err)
		}
		if !ok {
			break
		}
		taken = append(taken, m)
	}
	for _, m := range taken {
		if err := m.Reject(true); err != nil {
			p.t.Fatal(err)
		}
	}
}

// A foreign policy disables at-least-once dead-lettering: a retry to a work queue that is full is
// still held in its retry queue, not dropped.
func TestAForeignOverflowPolicyDropsNoRetry(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "after"} {
		t.Run(when+" apply", func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			const full = ", arguments: {x-max-length: 1, x-overflow: reject-publish}"
			path := writeTopology(t, fmt.Sprintf(protectedFile, topology.Quorum, full))
			ci := p.target.User(t, "management,policymaker", ".*", ".*", ".*")
			apply := func() { start(t, ci, "apply", "--yes", "-f", path).exits(t, 0) }
			if when == "after" {
				apply()
			}
			p.policy("policies", "foreign", "retry", map[string]any{"overflow": "drop-head"})
			apply()
			start(t, ci, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
			brokertest.Eventually(t, "the work queue to be full", func() bool { // it accepts one or two more than its limit
				return !p.accepted("", "w", amqp091.Publishing{MessageId: "full"})
			})
			headers := amqp091.Table{"count": int64(1), "CC": []any{"@w"}}
			if !p.accepted("shop.a.dlx", "", amqp091.Publishing{MessageId: "retry", Headers: headers}) {
				t.Fatal("the retry queue refuses the message")
			}
			// Without at-least-once dead-lettering the broker does not count these messages.
			brokertest.Eventually(t, "the retry queue to hold the message", func() bool {
				return p.target.Queue(t, "shop.a.retry.300ms")["messages_dlx"] == 1.0
			})
		})
	}
}

// accepted publishes a message and reports whether the broker accepts it.
func (p place) accepted(exchange, key string, m amqp091.Publishing) bool {
	p.t.Helper()
	err := brokertest.Publish(p.t.Context(), p.ch, exchange, key, m)
	if err != nil && !errors.Is(err, brokertest.ErrRefused) {
		p.t.Fatal(err)
	}
	return err == nil
}

// The harm of an operator policy blocks the first write until it is allowed.
func TestOperatorPoliciesNeedConsent(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for key, tc := range map[string]struct {
		value any
		since string
	}{
		"message-ttl":      {value: 500},
		"expires":          {value: 60000},
		"max-length":       {value: 3},
		"max-length-bytes": {value: 30},
		"delivery-limit":   {value: 2},
		"overflow":         {value: "drop-head", since: "4.0"},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if tc.since != "" && !p.target.AtLeast(tc.since) {
				t.Skip("operator policies do not have the key on this version")
			}
			ci := p.target.User(t, "management,policymaker", ".*", ".*", ".*")
			path := writeTopology(t, fmt.Sprintf(protectedFile, topology.Quorum, ""))
			p.policy("operator-policies", "limits", "^shop\\.", map[string]any{key: tc.value})
			before := strings.Join(p.target.Definitions(t), "\n")
			start(t, ci, "plan", "-f", path).exits(t, 3)
			start(t, ci, "apply", "--yes", "-f", path).exits(t, 3)
			if strings.Join(p.target.Definitions(t), "\n") != before {
				t.Error("plan or apply wrote to the broker")
			}
			start(t, ci, "apply", "--yes", "--allow", "loses-messages", "-f", path).exits(t, 0)
			start(t, ci, "plan", "--detailed-exitcode", "-f", path).exits(t, 3)
			start(t, ci, "plan", "--detailed-exitcode", "--allow", "loses-messages", "-f", path).exits(t, 2)
			p.call("DELETE", "operator-policies", "limits", nil)
			start(t, ci, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
		})
	}
}
