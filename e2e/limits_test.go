package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// limited is a topology with one work queue, which dead-letters at once.
const limited = "version: 1\nname: shop\nqueues: [{name: w, backoff: none%s}]\n"

// returnsUntilDead returns how many times a new message of the work queue w is delivered before the
// broker dead-letters it, or n if it is still there then.
func (p place) returnsUntilDead(n int) int {
	p.t.Helper()
	p.publish("w")
	for i := range n {
		var m amqp091.Delivery
		dead := false
		brokertest.Eventually(p.t, "a delivery from w or w.dead", func() bool {
			var ok bool
			if d, found, err := p.ch.Get("w.dead", true); err == nil && found {
				m, dead = d, true
				return true
			}
			var err error
			m, ok, err = p.ch.Get("w", false)
			return err == nil && ok
		})
		if dead {
			return i
		}
		if err := m.Reject(i < n-1); err != nil { // the last time it is dead-lettered
			p.t.Fatal(err)
		}
	}
	brokertest.Eventually(p.t, "the rejected message in w.dead", func() bool {
		_, ok, err := p.ch.Get("w.dead", true)
		return err == nil && ok
	})
	return n
}

// With deadLetterBy: policy a delivery limit changes in place, up, down, and away, while the queue
// holds messages and next to a policy of another team. Nothing is lost. The next plan is
// empty.
func TestADeliveryLimitChangesInPlace(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
	p.call("PUT", "policies", "billing", map[string]any{
		"pattern": "^w$", "definition": map[string]any{"max-length": 1000, "overflow": "reject-publish"}, "priority": 7,
	})
	for i, limit := range []int{3, 6, 2, 0, 3} {
		more := fmt.Sprintf(", deadLetterBy: policy, deliveryLimit: %d", limit)
		if limit == 0 {
			more = ", deadLetterBy: policy"
		}
		file := writeTopology(t, fmt.Sprintf(limited, more))
		if i > 0 {
			got := planned(t, target, []string{"-f", file})
			if want := "update policy dlxctl.shop.queue.w delivery-limit\nwarning overruled\n"; got != want {
				t.Errorf("plan from limit to %d is\n%s, not\n%s", limit, got, want)
			}
			p.publish("w") // it stays, at the head of the queue
		}
		succeeds(t, target, "apply", "--yes", "-f", file)
		if code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", file); code != 0 {
			t.Errorf("the next plan exits with %d:\n%s", code, out)
		}
		if i > 0 {
			brokertest.Eventually(t, "the message that waited in w", func() bool {
				_, ok, err := p.ch.Get("w", true)
				return err == nil && ok
			})
		}
		want := limit + 1
		if limit == 0 {
			want = 8 // more than any of the limits before
		}
		if got := p.returnsUntilDead(8); got != want {
			t.Errorf("with deliveryLimit %d a message was delivered %d times, not %d", limit, got, want)
		}
	}
}

// A queue that was created with a delivery limit as an argument gets a smaller one by
// deadLetterBy: policy, and the file of before can be applied again. A larger one is blocked.
func TestAPolicyLowersADeliveryLimit(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
	file := func(more string) string { return writeTopology(t, fmt.Sprintf(limited, more)) }
	before := file(", deliveryLimit: 5")
	succeeds(t, target, "apply", "--yes", "-f", before)

	// dlxctl would replace an empty queue.
	blocked := func(more, fix string) {
		t.Helper()
		p.publish("w")
		f, out := file(more), ""
		brokertest.Eventually(t, "a blocked change, with the fix "+fix, func() bool {
			_, out = dlxctl(target, "plan", "-f", f)
			return strings.Contains(out, fix)
		})
		if code, out := dlxctl(target, "apply", "--yes", "-f", f); code == 0 {
			t.Errorf("%s is applied:\n%s", more, out)
		}
		if _, ok, err := p.ch.Get("w", true); err != nil || !ok {
			t.Errorf("the message in w: %t, %v", ok, err)
		}
	}
	blocked(", deliveryLimit: 2", "deadLetterBy: policy")
	for _, c := range []struct {
		more  string
		limit int
	}{
		{", deadLetterBy: policy, deliveryLimit: 5", 5},
		{", deadLetterBy: policy, deliveryLimit: 2", 2},
		{", deadLetterBy: policy, deliveryLimit: 4", 4},
		{", deliveryLimit: 5", 5},
	} {
		f := file(c.more)
		out := succeeds(t, target, "apply", "--yes", "-f", f)
		if code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", f); code != 0 {
			t.Errorf("%s: the next plan exits with %d:\n%s", c.more, code, out)
		}
		if got := p.returnsUntilDead(8); got != c.limit+1 {
			t.Errorf("%s: a message was delivered %d times, after\n%s", c.more, got, out)
		}
	}
	blocked(", deadLetterBy: policy, deliveryLimit: 6", "deliveryLimit: 5")
}

// Of a limit in the arguments and one in a policy, the smaller one applies.
func TestTheSmallerLimitApplies(t *testing.T) {
	t.Parallel()
	const argument, lower, higher = 6, 3, 9
	for _, kind := range []string{topology.Classic, topology.Quorum} {
		for key, perMessage := range map[string]int{topology.KeyMaxLength: 1, topology.KeyMaxLengthBytes: 10} {
			if kind == topology.Quorum && key == topology.KeyMaxLengthBytes {
				continue // how many bytes it counts for a message is not known here
			}
			for policy, want := range map[int]int{lower: lower, higher: argument} {
				t.Run(fmt.Sprintf("%s %s %d", kind, key, policy), func(t *testing.T) {
					t.Parallel()
					target := brokertest.VHost(t)
					p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
					putQueue(t, target, "q", map[string]any{"x-queue-type": kind, "x-" + key: argument * perMessage})
					for range 12 {
						brokertest.PublishConfirmed(t, p.ch, "", "q", amqp091.Publishing{Body: []byte("0123456789")})
					}
					p.holds("q", argument)
					p.call("PUT", "policies", "p", map[string]any{
						"pattern": "^q$", "definition": map[string]any{key: policy * perMessage},
					})
					brokertest.Eventually(t, "the policy in effect", func() bool { return target.Queue(t, "q")["policy"] == "p" })
					for range 12 {
						brokertest.PublishConfirmed(t, p.ch, "", "q", amqp091.Publishing{Body: []byte("0123456789")})
					}
					p.holds("q", want)
				})
			}
		}
	}
}

// holds waits until a queue holds n messages.
func (p place) holds(queue string, n int) {
	p.t.Helper()
	brokertest.Eventually(p.t, fmt.Sprintf("%d messages in %s", n, queue), func() bool { return p.count(queue) == n })
}

// With deadLetterBy: policy the length of a queue changes in place while messages arrive: down, up
// to its argument or, without one, to any number, away, and back by the file of before. What is
// over the limit becomes a dead letter, and none is lost. The policy of another team stays in
// effect.
func TestALengthChangesInPlace(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{topology.Classic, topology.Quorum} {
		for name, steps := range map[string][]int{
			"argument":    {20, 10, 15, 20, 5, 20},
			"no argument": {0, 20, 10, 30, 0, 10, 20},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				lengthChanges(t, kind, steps)
			})
		}
	}
}

// lengthChanges applies files with these lengths one after the other. 0 is none.
func lengthChanges(t *testing.T, kind string, steps []int) {
	t.Helper()
	target := brokertest.VHost(t)
	p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
	p.call("PUT", "policies", "billing", map[string]any{
		"pattern": "^w$", "definition": map[string]any{"message-ttl": 3600000}, "priority": 7,
	})
	file := func(length int) string {
		limit := ""
		if length > 0 {
			limit = fmt.Sprintf(", x-max-length: %d", length)
		}
		return writeTopology(t, fmt.Sprintf(limited,
			fmt.Sprintf(", type: %s, deadLetterBy: policy, arguments: {x-overflow: drop-head%s}", kind, limit)))
	}
	succeeds(t, target, "apply", "--yes", "-f", file(steps[0]))
	traffic := target.Channel(t)
	if err := traffic.Confirm(false); err != nil {
		t.Fatal(err)
	}
	stop := brokertest.PublishEvery(t, traffic, "", "w", 5*time.Millisecond)
	for i, length := range steps {
		args := []string{"-f", file(length)}
		if i > 0 {
			most := 0
			if steps[i-1] == 0 || length > 0 && length < steps[i-1] {
				most = length
			}
			brokertest.Eventually(t, "more messages than the new limit", func() bool { return p.count("w") > most })
			if most > 0 {
				want := "update policy dlxctl.shop.queue.w max-length [loses-messages] [at-most-once]\n"
				brokertest.Eventually(t, want, func() bool { return strings.HasPrefix(planned(t, target, args), want) })
				if code, out := dlxctl(target, append([]string{"apply", "--yes"}, args...)...); code != 3 {
					t.Errorf("without consent apply exits with %d:\n%s", code, out)
				}
			}
			allowed := append([]string{"apply", "--yes", "--allow", "loses-messages=w"}, args...)
			succeeds(t, target, allowed...)
		}
		if code, out := dlxctl(target, append([]string{"plan", "--detailed-exitcode"}, args...)...); code != 0 {
			t.Errorf("with the length %d the next plan exits with %d:\n%s", length, code, out)
		}
		if length > 0 {
			p.holds("w", length)
		} else {
			brokertest.Eventually(t, "a queue without a limit", func() bool { return p.count("w") > 40 })
		}
		brokertest.Eventually(t, "the TTL of another team in effect", func() bool {
			effective, _ := target.Queue(t, "w")["effective_policy_definition"].(map[string]any)
			return effective["message-ttl"] == 3600000.0
		})
	}
	n := stop()
	brokertest.Eventually(t, "each message in w or w.dead", func() bool { return p.count("w")+p.count("w.dead") == n })

	if steps[0] > 0 { // the queue has it as an argument
		_, out := dlxctl(target, "plan", "-f", file(steps[0]+1))
		if !strings.Contains(out, "no policy can raise or remove it") {
			t.Errorf("the plan of a greater length is\n%s", out)
		}
	}
}

// A quorum queue gets another overflow by the policy, and refuses messages at its limit from then
// on. It keeps those that it has.
func TestAnOverflowChangesInPlace(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
	file := func(arguments string) string {
		return writeTopology(t, fmt.Sprintf(limited, ", deadLetterBy: policy, arguments: {"+arguments+"}"))
	}
	succeeds(t, target, "apply", "--yes", "-f", file("x-max-length: 6, x-overflow: drop-head"))
	for range 8 {
		p.publish("w")
	}
	p.holds("w", 6)
	p.holds("w.dead", 2)
	refuses := file("x-max-length: 3, x-overflow: reject-publish")
	succeeds(t, target, "apply", "--yes", "-f", refuses)
	if code, out := dlxctl(target, "plan", "--detailed-exitcode", "-f", refuses); code != 0 {
		t.Errorf("the next plan exits with %d:\n%s", code, out)
	}
	brokertest.Eventually(t, "a refusal", func() bool { return !p.accepted("", "w", amqp091.Publishing{}) })
	if n, dead := p.count("w"), p.count("w.dead"); n < 6 || dead != 2 {
		t.Errorf("w has %d messages, and w.dead %d", n, dead)
	}
}

// When a quorum queue no longer dead-letters at least once, RabbitMQ deletes what it is
// dead-lettering at that moment: the plan asks for consent.
func TestTheEndOfAtLeastOnceNeedsConsent(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	p := place{t: t, target: target, ch: target.Channel(t), conn: target.Dial(t)}
	file := func(arguments string) string {
		return writeTopology(t, fmt.Sprintf(limited, ", deadLetterBy: policy"+arguments+
			", dead: {queue: small, arguments: {x-max-length: 1, x-overflow: reject-publish}}"))
	}
	succeeds(t, target, "apply", "--yes", "-f", file(""))
	for range 9 {
		p.publish("w")
		brokertest.Eventually(t, "a delivery", func() bool {
			m, ok, err := p.ch.Get("w", false)
			return err == nil && ok && m.Reject(false) == nil
		})
	}
	waiting := func() bool { n, _ := target.Queue(t, "w")["messages_dlx"].(float64); return n >= 5 }
	brokertest.Eventually(t, "rejected messages that the dead-letter queue refuses", waiting)
	args := []string{"-f", file(", arguments: {x-overflow: drop-head}")}
	const want = "update policy dlxctl.shop.queue.w overflow dead-letter-strategy [loses-messages] [at-most-once]\n"
	brokertest.Eventually(t, want, func() bool { return strings.HasPrefix(planned(t, target, args), want) })
	if code, out := dlxctl(target, append([]string{"apply", "--yes"}, args...)...); code != 3 || !waiting() {
		t.Errorf("without consent apply exits with %d, the messages wait: %t\n%s", code, waiting(), out)
	}
	succeeds(t, target, append([]string{"apply", "--yes", "--allow", "loses-messages=w"}, args...)...)
	brokertest.Eventually(t, "RabbitMQ to have deleted them", func() bool { return p.count("w") == 0 })
}
