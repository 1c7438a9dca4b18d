package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// directions are the types between which the cases are replaced.
func directions() [][2]string { return [][2]string{{"classic", "quorum"}, {"quorum", "classic"}} }

// sequence is the number of the first message that inSequence publishes.
const sequence = 1_000_000

// inSequence publishes messages one after the other, each once the one before is confirmed or
// refused, until stop. shape may change them, and says where they go. Nil: to the exchange t. stop
// gives what was confirmed.
func (s *stage) inSequence(t *testing.T, pause time.Duration,
	shape func(n int, m *amqp091.Publishing) (exchange, key string),
) (stop func() map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ch, confirmed := s.target.Confirming(t), map[string]bool{}
	returned := ch.NotifyReturn(make(chan amqp091.Return, 10000))
	var failed error
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			m := amqp091.Publishing{MessageId: fmt.Sprint(sequence + n), DeliveryMode: amqp091.Persistent}
			exchange, key := "t", "order.placed"
			if shape != nil {
				exchange, key = shape(n, &m)
			}
			c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
			if err != nil {
				failed = err
				return
			}
			if c.Wait() {
				confirmed[m.MessageId] = true
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	return func() map[string]bool {
		cancel()
		done.Wait()
		if failed != nil || len(returned) > 0 {
			t.Errorf("the publisher fails: %v; %d messages were returned", failed, len(returned))
		}
		return confirmed
	}
}

// mostLate is how many messages may come after younger ones: those on the way at a switch.
const mostLate = 200

// settle ends the traffic and checks that each message came once. It returns how many came after a
// younger one of the same class.
func (s *stage) settle(t *testing.T, confirmed map[string]bool, class func(n int) int) (late int) {
	t.Helper()
	s.allArrive(t, confirmed)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := map[int]int{}
	for _, id := range s.order {
		var n int
		if _, err := fmt.Sscan(id, &n); err != nil {
			t.Fatal(err)
		}
		if c := class(n); n < last[c] {
			late++
		} else {
			last[c] = n
		}
	}
	t.Logf("%d came late", late)
	return late
}

// cancels returns how often consumers were canceled.
func (s *stage) cancels() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.canceled
}

func alike(int) int { return 0 }

// consumed waits until the statistics show so many consumers of the queue new.
func (s *stage) consumed(t *testing.T, n float64) {
	t.Helper()
	brokertest.Eventually(t, "the consumers", func() bool { return s.target.Queue(t, "new")["consumers"] == n })
}

// Of two services that consume a queue with a single active consumer, both get a cancel, and
// afterwards one of them is active. The order is kept as in any queue.
func TestReplaceASingleActiveConsumer(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStageOf(t, brokertest.VHost(t), types[0], types[1],
				amqp091.Table{"x-single-active-consumer": true}, "    arguments: {x-single-active-consumer: true}\n")
			s.rest = time.Second // as docs/same-name.md asks clients to
			for range 2 {
				defer s.consumeThrough(t, "new")()
			}
			s.replacedWith(t, 2)
			brokertest.Eventually(t, "one of two consumers to be active", func() bool {
				active := map[bool]int{}
				consumers, _ := s.target.Queue(t, "new")["consumer_details"].([]any)
				for _, c := range consumers {
					c, _ := c.(map[string]any)
					// For minutes, it lists those of a quorum queue that was deleted, without their channels.
					if channel, _ := c["channel_details"].(map[string]any); len(channel) > 0 {
						active[c["active"] == true]++
					}
				}
				return active[true] == 1 && active[false] == 1
			})
			s.replaced(t)
		})
	}
}

// replacedWith replaces the queue while messages come and n consumers read them. Each of them is
// canceled once, and the order is kept.
func (s *stage) replacedWith(t *testing.T, n int) {
	t.Helper()
	s.consumed(t, float64(n))
	published := s.inSequence(t, brokertest.Pause(time.Millisecond), nil)
	if err := s.replacer(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := s.settle(t, published(), alike)
	// One that is not active may learn of it when the other has read all.
	brokertest.Eventually(t, "each consumer to be canceled", func() bool { return s.cancels() >= n })
	if late > mostLate || s.cancels() != n {
		t.Errorf("%d messages are late, %d consumers were canceled", late, s.cancels())
	}
}

// A queue with an exclusive consumer is replaced as any other if that works through it.
func TestReplaceAnExclusiveConsumer(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share(directions()) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			s.rest = time.Second
			defer s.consumeAs(t, "new", 100, true, 0)()
			s.replacedWith(t, 1)
			s.replaced(t)
		})
	}
}

// An exclusive consumer that does not work through its queue is waited for, and named. Then the
// queue is as it was, and once the consumer is gone, it is replaced.
func TestReplaceWaitsForAnExclusiveConsumer(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, now := range []bool{false, true} {
		t.Run(fmt.Sprintf("drain now %t", now), func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			s.connect(t, s.target.Tool(t, "policymaker", "monitoring")) // sees the connections of others
			before := s.inspect(t)
			stuck := s.target.Channel(t)
			if err := stuck.Qos(1, 0, false); err != nil {
				t.Fatal(err)
			}
			if _, err := stuck.Consume("new", "", false, true, false, false, nil); err != nil {
				t.Fatal(err)
			}
			s.consumed(t, 1)
			published := s.inSequence(t, brokertest.Pause(5*time.Millisecond), nil)
			brokertest.Eventually(t, "messages", func() bool { return s.ready(t, "new") > 5 })
			r := s.replacer(t)
			// It is also how long the rollback waits for the switch while messages come to the hold.
			r.Wait, r.DrainNow = 10*time.Second, now
			err := r.Run(t.Context())
			named := regexp.MustCompile(`is not empty: .* and 1 (exclusive )?consumer \(\S+ -> \S+\);`).
				FindStringSubmatch(fmt.Sprint(err))
			if !errors.Is(err, migrate.ErrWaiting) || named == nil || now && named[1] == "" {
				t.Errorf("it returns %v", err)
			}
			t.Log(err)
			if d := cmp.Diff(bindingsOf(before), bindingsOf(s.inspect(t))); d != "" {
				t.Errorf("bindings (-before +after):\n%s", d)
			}
			s.nothingLeft(t)
			if err := stuck.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.consumeAs(t, "new", 100, true, 0)()
			s.settle(t, published(), alike)
			s.replaced(t)
		})
	}
}

// The priorities of messages, and their order within each, outlive the hold.
func TestReplaceAQueueWithPriorities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		types [2]string
		more  string
	}{
		"classic to classic": {[2]string{"classic", "classic"}, "    arguments: {x-max-priority: 10}\n"},
		"classic to quorum":  {[2]string{"classic", "quorum"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replaceStageOf(t, brokertest.VHost(t), tc.types[0], tc.types[1],
				amqp091.Table{"x-max-priority": 10, "x-max-length": 1000000}, tc.more)
			priority := func(n int) int { return 3 * (n % 4) }
			s.rest = time.Second
			shape := func(n int, m *amqp091.Publishing) (exchange, key string) {
				m.Priority = uint8(priority(n)) //nolint:gosec // 9 at most
				return "t", "order.placed"
			}
			published := s.inSequence(t, brokertest.Pause(time.Millisecond), shape)
			brokertest.Eventually(t, "messages", func() bool { return s.ready(t, "new") > 50 })
			r, _ := s.during(t, "replace: proving", 1, func() {
				brokertest.Eventually(t, "messages", func() bool { return s.ready(t, topology.ReplacementHoldName("shop", "new")) > 150 })
			})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			defer s.consumeAs(t, "new", 1, false, 0)()
			if late := s.settle(t, confirmed, priority); late > mostLate {
				t.Errorf("%d messages came after younger ones of their priority", late)
			}
			s.mu.Lock()
			var began []int
			for _, id := range s.order {
				var n int
				_, _ = fmt.Sscan(id, &n)
				if !slices.Contains(began, priority(n)) {
					began = append(began, priority(n))
				}
			}
			s.mu.Unlock()
			if tc.more != "" && !slices.Equal(began, []int{9, 6, 3, 0}) {
				t.Errorf("the priorities came in the order %v", began)
			}
			t.Logf("the priorities began in the order %v", began)
			s.replaced(t)
		})
	}
}

// A queue with a length limit that is smaller than what waits in its hold gets no more than it has
// room for: it neither drops a message that its consumers would have read, nor changes the order.
func TestReplaceAFullQueue(t *testing.T) {
	t.Parallel()
	for _, overflow := range brokertest.Share([]string{"drop-head", "reject-publish", "operator policy"}) {
		for _, types := range directions() {
			t.Run(overflow+", "+types[0]+" to "+types[1], func(t *testing.T) {
				t.Parallel()
				args, more := amqp091.Table{}, ""
				if overflow != "operator policy" {
					args = amqp091.Table{"x-max-length": 100, "x-overflow": overflow}
					more = fmt.Sprintf("    arguments: {x-max-length: 90, x-overflow: %s}\n", overflow)
				}
				s := replaceStageOf(t, brokertest.VHost(t), types[0], types[1], args, more)
				if overflow == "operator policy" {
					s.operate(t, "^new$", map[string]any{"max-length": 90, "message-ttl": 600_000})
				}
				s.rest = time.Second
				defer s.consumeAs(t, "new", 10, false, time.Millisecond)()
				s.consumed(t, 1)
				published := s.inSequence(t, 20*time.Millisecond, nil)
				wait(t, 300*time.Millisecond)
				const burst = 500 // more than the queue may have
				r, _ := s.during(t, "replace: deleted", 1, func() {
					brokertest.Fill(t, s.target.Confirming(t), "f", "", burst, 10)
				})
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				confirmed := published()
				for n := range burst {
					confirmed[fmt.Sprint(n)] = true
				}
				if late := s.settle(t, confirmed, func(n int) int { return n / sequence }); late > mostLate {
					t.Errorf("%d messages are late", late)
				}
				s.replaced(t)
			})
		}
	}
}

// A queue that drops its oldest message at its limit does so only if no consumer has read it. If
// its consumers do not come back, the rest waits in the hold, and they are missed.
func TestReplaceAFullQueueWithoutConsumers(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const limit, burst = 90, 300
	for _, consumed := range []bool{false, true} {
		t.Run(fmt.Sprintf("consumed before %t", consumed), func(t *testing.T) {
			t.Parallel()
			s := replaceStageOf(t, brokertest.VHost(t), "classic", "quorum", nil,
				fmt.Sprintf("    arguments: {x-max-length: %d, x-overflow: drop-head}\n", limit))
			if consumed { // and does not subscribe again
				if _, err := s.target.Channel(t).Consume("new", "", true, false, false, false, nil); err != nil {
					t.Fatal(err)
				}
				s.consumed(t, 1)
			}
			r, _ := s.during(t, "replace: deleted", 1, func() {
				brokertest.Fill(t, s.target.Confirming(t), "f", "", burst, 10)
			})
			r.Wait = 2 * time.Second
			err := r.Run(t.Context())
			if !consumed {
				if err != nil || s.ready(t, "new") != limit {
					t.Errorf("it returns %v; %d messages are left", err, s.ready(t, "new"))
				}
				s.replaced(t)
				return
			}
			if !errors.Is(err, migrate.ErrWaiting) ||
				!strings.Contains(fmt.Sprint(err), "it is full, with 90 messages; fix that and run the command again; new has 0 consumers, and had 1 before") {
				t.Errorf("it returns %v", err)
			}
			defer s.consumeThrough(t, "new")()
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := map[string]bool{}
			for n := range burst {
				all[fmt.Sprint(n)] = true
			}
			s.settle(t, all, alike)
			s.replaced(t)
		})
	}
}

// operate sets an operator policy.
func (s *stage) operate(t *testing.T, pattern string, definition map[string]any) {
	t.Helper()
	s.target.Call(t, "PUT", "operator-policies/"+url.PathEscape(s.target.VHost)+"/limits",
		map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"})
}

// An operator policy for all queues that would drop messages from the hold is named, and nothing is
// written.
func TestReplaceIsRefusedUnderOperatorPolicies(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]int{
		"max-length": 10, "max-length-bytes": 10, "message-ttl": 60_000, "expires": 60_000, "delivery-limit": 5,
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			s.operate(t, ".*", map[string]any{key: value})
			before := s.target.Definitions(t)
			err := s.replacer(t).Run(t.Context())
			if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(fmt.Sprint(err), "the operator policy limits") ||
				!strings.Contains(fmt.Sprint(err), ".hold") {
				t.Errorf("it returns %v", err)
			}
			if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s", d)
			}
		})
	}
}

// What comes by alternate exchanges, by an argument or by a policy, and through exchanges before
// those to which the queue is bound, comes once, and nothing goes astray to the alternate exchange
// of an exchange that is bound to the queue.
func TestReplaceBehindOtherExchanges(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, types := range directions() {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], nil)
			s.rest = time.Second
			ch := s.target.Channel(t)
			declare := func(name, kind string, args amqp091.Table) {
				brokertest.DeclareExchange(t, ch, name, kind, args)
			}
			declare("spill", "fanout", nil)
			declare("by argument", "direct", amqp091.Table{"alternate-exchange": "f"})
			declare("by policy", "topic", nil)
			declare("middle", "fanout", nil)
			declare("front", "topic", nil)
			declare("spilling", "direct", amqp091.Table{"alternate-exchange": "spill"})
			s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/alternate", map[string]any{
				"pattern": "^by policy$", "definition": map[string]any{"alternate-exchange": "t"}, "apply-to": "exchanges",
			})
			brokertest.Declare(t, ch, "astray", nil)
			for _, err := range []error{
				ch.QueueBind("astray", "", "spill", false, nil), ch.QueueBind("new", "k", "spilling", false, nil),
				ch.QueueBind("new", "", "middle", false, nil), ch.ExchangeBind("middle", "#", "front", false, nil),
				ch.ExchangeBind("t", "order.#", "front", false, nil), // a second way to the queue
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			before := s.inspect(t)
			defer s.consumeThrough(t, "new")()
			s.consumed(t, 1)
			ways := [][2]string{
				{"by argument", "none"},
				{"by policy", "order.placed"},
				{"front", "order.placed"},
				{"front", "x"},
				{"spilling", "k"},
			}
			shape := func(n int, _ *amqp091.Publishing) (exchange, key string) {
				return ways[n%len(ways)][0], ways[n%len(ways)][1]
			}
			published := s.inSequence(t, brokertest.Pause(time.Millisecond), shape)
			if err := s.replacer(t).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.settle(t, published(), alike)
			if n := s.ready(t, "astray"); n > 0 {
				t.Errorf("%d messages went astray", n)
			}
			s.tidy(t)
			s.nothingLeft(t)
			after := s.inspect(t)
			if d := cmp.Diff(bindingsOf(before), bindingsOf(after)); d != "" || plan.Differs(s.want, after, "new") {
				t.Errorf("bindings (-before +after):\n%s", d)
			}
		})
	}
}

// With no rights but those that migrate names, and with those that 'dlxctl rights' prints, a queue
// is replaced under traffic: the run is killed, rolled back, killed again and finished. Without any
// it writes nothing.
func TestReplaceWithThePrintedRights(t *testing.T) {
	t.Parallel()
	dlxctl := brokertest.Program(t)
	for _, printed := range []bool{false, true} {
		t.Run(fmt.Sprintf("dlxctl rights %t", printed), func(t *testing.T) {
			t.Parallel()
			s := replaceStageOf(t, brokertest.VHost(t), "classic", "quorum", nil, "    replace: true\n")
			admin, flags := s.target, []string{"--yes", "--settle", "50ms", "--wait", "30s", "--lock-timeout", "20s"}
			if printed {
				grants := generate.Rights(s.want)
				i := slices.IndexFunc(grants, func(g generate.Grant) bool { return g.User == "migrator" })
				g := grants[i]
				s.user = admin.User(t, strings.Join(g.Tags, ","), generate.Expression(g.Configure), generate.Expression(g.Write),
					generate.Expression(g.Read))
			} else {
				s.user = s.namedRights(t, dlxctl, flags)
			}
			s.rest = time.Second
			stop := s.consumeThrough(t, "new")
			defer stop()
			s.consumed(t, 1)
			published := s.inSequence(t, brokertest.Pause(time.Millisecond), nil)
			log := func(line string) { t.Log(line) }
			run := func(args ...string) {
				c, out := s.command(t, dlxctl, args...)
				if err := c.Run(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
				t.Log(out)
			}
			s.killAt(t, dlxctl, flags, "replace: proving", func() {}, log)
			if plan.Differs(s.want, s.inspect(t), "new") {
				run("abort", "--yes", "--settle", "50ms", "--lock-timeout", "20s")
				if left := migrate.Unfinished(s.want, s.inspect(t)); len(left) > 0 || !plan.Differs(s.want, s.inspect(t), "new") {
					t.Errorf("it is not rolled back")
				}
			} else {
				t.Log("the kill came when the queue was deleted: nothing can be rolled back")
			}
			s.killAt(t, dlxctl, flags, "replace: deleted", func() {}, log)
			s.killAt(t, dlxctl, flags, "replace: bind new", func() {}, log)
			run(flags...)
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			if lost > 0 || doubled > 3*200 {
				t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
			}
			t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
			s.replaced(t)
		})
	}
}

// namedRights returns a user with no rights but those that migrate names, by their exact names.
func (s *stage) namedRights(t *testing.T, program string, flags []string) brokertest.Target {
	t.Helper()
	before := s.target.Definitions(t)
	lists := map[string][]string{"configure": {topology.LockName("shop")}}
	user := func(tags string) brokertest.Target {
		expression := func(permission string) string {
			return "^(" + strings.Join(text.Each(lists[permission], regexp.QuoteMeta), "|") + ")$"
		}
		return s.target.User(t, tags, expression("configure"), expression("write"), expression("read"))
	}
	for round := range 4 {
		s.user = user([]string{"management", "management,policymaker"}[min(round, 1)])
		var out strings.Builder
		if s.killAt(t, program, flags, "replace: ", func() {}, func(line string) { fmt.Fprintln(&out, line) }) {
			return s.user
		}
		t.Log(out.String())
		if round == 0 && !strings.Contains(out.String(), "\n  the tag policymaker\n") {
			t.Error("it does not name the tag")
		}
		if d := cmp.Diff(before, s.target.Definitions(t)); d != "" {
			t.Fatalf("definitions (-before +after):\n%s", d)
		}
		list, quoted := regexp.MustCompile(`(?m)^  (configure|write|read): (.*)$`), regexp.MustCompile(`"([^"]+)"`)
		for _, line := range list.FindAllStringSubmatch(out.String(), -1) {
			for _, name := range quoted.FindAllStringSubmatch(line[2], -1) {
				lists[line[1]] = append(lists[line[1]], name[1])
			}
		}
	}
	t.Fatal("it does not name all rights")
	return s.user
}

// A policy of the switch exchange that a run has written after it lost its lock, and after the next
// run has ended, leads to the hold. Nothing is doubled when the queue is replaced again.
func TestReplaceAfterALatePolicy(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	s.rest = time.Second
	name := topology.SwitchPolicyName("shop", "new")
	exchange := topology.SwitchExchangeName("shop", "new")
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/"+url.PathEscape(name), map[string]any{
		"pattern": "^" + regexp.QuoteMeta(exchange) + "$", "apply-to": "exchanges", "priority": topology.PolicyPriority,
		"definition": map[string]any{"alternate-exchange": exchange + ".new"},
	})
	defer s.consumeThrough(t, "new")()
	s.consumed(t, 1)
	published := s.inSequence(t, brokertest.Pause(time.Millisecond), nil)
	r, told := s.during(t, "", 0, nil)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.settle(t, published(), alike)
	if strings.Contains(told.String(), "doubled:") {
		t.Errorf("it says:\n%s", told)
	}
	s.replaced(t)
}
