package processor_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// What the broker does as a whole, one after the other on one node: it restarts,
// is killed, raises an alarm, loses the leader of a queue.
func TestOutages(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	for _, tc := range []struct { //nolint:paralleltest // they share the node
		name string
		test func(*testing.T, *brokertest.Server)
	}{
		{"restart", func(t *testing.T, n *brokertest.Server) { t.Helper(); restartedUnderLoad(t, n, n.Stop) }},
		{"kill", func(t *testing.T, n *brokertest.Server) { t.Helper(); restartedUnderLoad(t, n, n.Kill) }},
		{"alarm", blockedByAnAlarm},
		{"stopped during an alarm", stoppedDuringAnAlarm},
		{"a tier without a leader", aTierWithoutALeader},
		{"a confirm that never comes", aConfirmThatNeverComes},
		{"a failed queue without a leader", aFailedQueueWithoutALeader},
		{"a short consumer_timeout", aShortConsumerTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, node) })
	}
}

// restartedUnderLoad takes the broker away while the processor works, and expects
// every message afterwards.
func restartedUnderLoad(t *testing.T, node *brokertest.Server, down func(testing.TB)) {
	t.Helper()
	s := onNode(t, node, retryInAnHour)
	const n = 8_000
	s.fill(t, n)
	pause(t, time.Second) // see Kill
	p := s.processor(t)
	p.ConfirmTimeout = 10 * time.Second // the broker may forget a confirm while its queues recover
	log := listen(t, p)
	run(t, p)
	brokertest.EventuallyEvery(t, 5*time.Millisecond, "the processor to work",
		func() bool { return s.ready(t, "shop.slow.failed") < n*9/10 })
	down(t)
	log.says(t, "reconnecting")
	node.Start(t)
	s.reconnect(t)
	doubled := s.moved(t, "shop.slow.retry.1h", ids(0, n)...)
	if doubled > prefetch {
		t.Errorf("%d are doubled, more than were in flight", doubled)
	}
	t.Logf("%d doubled", doubled)
	log.calm(t)
}

// While an alarm lasts nothing moves and nothing is lost; afterwards it goes on
// by itself.
func blockedByAnAlarm(t *testing.T, node *brokertest.Server) {
	t.Helper()
	s := onNode(t, node, retryInAnHour)
	s.fill(t, 5000)
	node.Alarm(t, true)
	log := s.runs(t)
	log.says(t, "broker blocks publishing because of an alarm")
	pause(t, time.Second)
	if n := s.ready(t, "shop.slow.retry.1h"); n > 0 {
		t.Errorf("%d messages were moved during the alarm", n)
	}
	node.Alarm(t, false)
	log.says(t, "broker accepts messages again")
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 5000)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	log.calm(t)
}

// A processor that is told to stop while the broker takes nothing, and whose
// publish hangs, since the socket is full, ends anyway.
func stoppedDuringAnAlarm(t *testing.T, node *brokertest.Server) {
	t.Helper()
	s := onNode(t, node, retryInAnHour)
	const n = 300
	body := []byte(strings.Repeat("x", 200_000)) // no socket takes all of them
	for _, id := range ids(0, n) {
		s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: id, Body: body})
	}
	node.Alarm(t, true)
	p := s.processor(t)
	p.Prefetch, p.Grace, p.Monitor = n, time.Second, monitor.New("")
	log := listen(t, p)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	log.says(t, "broker blocks publishing because of an alarm")
	pause(t, 500*time.Millisecond)
	begin := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s to end, with a grace of %s", took, p.Grace)
	}
	node.Alarm(t, false)
	run(t, s.processor(t))
	left, doubled := p.Monitor.Totals().Unsettled, int64(s.moved(t, "shop.slow.retry.1h", ids(0, n)...))
	if left == 0 || doubled > left {
		t.Errorf("%d are doubled, and the processor counts %d that it left unsettled", doubled, left)
	}
	t.Logf("%d left unsettled, %d doubled", left, doubled)
}

// member lets the broker call a function for the one member of the retry queue, as
// ra:stop_server(quorum_queues, Member).
func (s *stage) member(t *testing.T, node *brokertest.Server, call string) {
	t.Helper()
	s.memberOf(t, node, retryQueue, call)
}

// memberOf does so for that of another quorum queue.
func (s *stage) memberOf(t *testing.T, node *brokertest.Server, queue, call string) {
	t.Helper()
	node.Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
		Member = amqqueue:get_pid(Q), ok = %s.`, s.target.VHost, queue, call))
}

const retryQueue = "shop.slow.retry.1h"

// leaderless is how long the queue of a tier has no leader. The broker itself ends that time: on a
// busy machine a command may start late, and what has been refused for 13 seconds goes to the
// unroutable queue.
const leaderless = 5 * time.Second

// A tier whose queue has no leader for some seconds refuses or says nothing. Its
// messages wait, others pass; once there is a leader they are there, once each.
func aTierWithoutALeader(t *testing.T, node *brokertest.Server) {
	t.Helper()
	for range 5 {
		if othersPass(t, node) {
			return
		}
	}
	t.Errorf("in each of 5 tries other messages took longer than %s, or waited for the tier", leaderless)
}

// othersPass reports whether other messages passed before the tier had a leader again.
func othersPass(t *testing.T, node *brokertest.Server) bool {
	t.Helper()
	s := onNode(t, node, retryInAnHour)
	pause(t, time.Second)
	p := s.processor(t)
	p.ConfirmTimeout = 10 * time.Second
	listen(t, p)
	stop := run(t, p)
	defer stop()
	s.member(t, node, fmt.Sprintf(`ra:stop_server(quorum_queues, Member),
		spawn(fun () -> timer:sleep(%d), ra:restart_server(quorum_queues, Member) end)`, leaderless.Milliseconds()))
	begin := time.Now() // a little after the broker's
	s.fill(t, prefetch/2)
	brokertest.Fill(t, s.ch, "shop.slow.failed", "@gone", 3*prefetch, 10)
	if doubled := s.moved(t, "shop.unroutable", ids(0, 3*prefetch)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	took := time.Since(begin)
	brokertest.Eventually(t, "a leader", func() bool {
		ch := s.target.Channel(t)
		defer ch.Close()
		_, _, err := ch.Get(retryQueue, false) // the close gives the message back
		return err == nil
	})
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, prefetch/2)...); doubled > prefetch/2 {
		t.Errorf("%d are doubled", doubled)
	}
	t.Logf("other messages passed in %s", took)
	return took < leaderless
}

// When a confirm has not come for too long the processor reconnects, less and
// less often. That may double what was in flight, and loses nothing.
func aConfirmThatNeverComes(t *testing.T, node *brokertest.Server) {
	t.Helper()
	s := onNode(t, node, retryInAnHour)
	pause(t, time.Second)
	p := s.processor(t)
	p.ConfirmTimeout = time.Second
	log := listen(t, p)
	run(t, p)
	s.member(t, node, "sys:suspend(Member)")
	s.fill(t, prefetch/2)
	brokertest.Eventually(t, "two tries", func() bool { return len(log.with("has not confirmed a message in time")) >= 2 })
	s.member(t, node, "sys:resume(Member)")
	t.Logf("%d doubled", s.moved(t, "shop.slow.retry.1h", ids(0, prefetch/2)...))
	log.calm(t)
}

// A processor that starts while its failed queue has no leader blames no message, and goes on once
// there is one. The broker gives up after net_ticktime and 5 seconds; before 4.0 it could be a
// message if that were less than 10.
func aFailedQueueWithoutALeader(t *testing.T, node *brokertest.Server) {
	t.Helper()
	brokertest.OnNewestLine(t)
	s := onNode(t, node, retryInAnHour)
	s.fill(t, prefetch/2)
	tick := 1
	if !node.Target().AtLeast("4.0") {
		tick = 6
	}
	node.Eval(t, fmt.Sprintf("application:set_env(kernel, net_ticktime, %d).", tick))
	s.memberOf(t, node, "shop.slow.failed", "sys:suspend(Member)")
	log := s.runs(t)
	log.says(t, "INTERNAL_ERROR")
	s.memberOf(t, node, "shop.slow.failed", "sys:resume(Member)")
	if doubled := s.moved(t, retryQueue, ids(0, prefetch/2)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	if lines := log.with("delivers a message"); len(lines) > 0 {
		t.Errorf("it blames a message: %s", lines)
	}
}

// A message that waits for longer than consumer_timeout makes the broker end the channel, once: no
// message is blamed, and from then on the subscription is renewed in time.
func aShortConsumerTimeout(t *testing.T, node *brokertest.Server) {
	t.Helper()
	if node.Target().AtLeast("4.3") {
		t.Skip("the queue cancels the consumer there, and ends no channel")
	}
	const timeout = 4 * time.Second
	node.Eval(t, fmt.Sprintf(`application:set_env(rabbit, channel_tick_interval, 1000),
		application:set_env(rabbit, consumer_timeout, %d).`, timeout.Milliseconds()))
	s := onNode(t, node, retryInAnHour)
	if err := s.ch.ExchangeDelete("shop.unroutable", false, false); err != nil {
		t.Fatal(err)
	}
	s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: "waits"})
	log := s.runs(t)
	const said = "delivery acknowledgement on channel"
	log.says(t, said)
	pause(t, 2*timeout)
	s.fill(t, prefetch)
	if doubled := s.moved(t, retryQueue, ids(0, prefetch)...); doubled > 0 {
		t.Errorf("%d are doubled", doubled)
	}
	log.once(t, said)
	if lines := log.with("delivers a message"); len(lines) > 0 {
		t.Errorf("it blames a message: %s", lines)
	}
	s.apply(t, s.topology)
	s.bury(t, "shop.unroutable")
}

// From 4.3 on the queue takes back what waits for longer than its consumer_timeout, and cancels the
// consumer. What is in flight then is confirmed and acknowledged first: nothing is doubled.
func TestAShortConsumerTimeoutOfTheQueue(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	s := newStage(t, retryInAnHour)
	if !s.target.AtLeast("4.3") {
		t.Skip("the broker ends the channel: see aShortConsumerTimeout")
	}
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/timeout", map[string]any{
		"pattern": "^shop.slow.failed$", "apply-to": "quorum_queues", "definition": map[string]any{"consumer-timeout": 3000},
	})
	if err := s.ch.ExchangeDelete("shop.unroutable", false, false); err != nil {
		t.Fatal(err)
	}
	s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: "waits"})
	log := s.runs(t)
	n := 0
	for ; len(log.with("the broker canceled the consumer")) < 2; n += 50 {
		all := make([]amqp091.Publishing, 50)
		for i, id := range ids(n, n+50) {
			all[i] = amqp091.Publishing{MessageId: id}
		}
		brokertest.PublishConfirmed(t, s.ch, "shop.slow.failed", "@work", all...)
	}
	if doubled := s.moved(t, retryQueue, ids(0, n)...); doubled > 0 {
		t.Errorf("%d of %d are doubled", doubled, n)
	}
}
