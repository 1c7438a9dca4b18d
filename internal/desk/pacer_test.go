package desk_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A run waits for each of its target queues, says for what, and stops for those that have had no
// consumer for a minute: before it sends, if they hold too much without the others, and after a
// batch, if they have not read it. One that the person has named it does not wait for.
func TestThePaceOfSeveralTargets(t *testing.T) {
	t.Parallel()
	type queues = map[string]desk.TargetQueue
	ready := func(n int) desk.TargetQueue { return desk.TargetQueue{Ready: n} }
	idle := func(n int) desk.TargetQueue { return desk.TargetQueue{Ready: n, Idle: true} }
	uncounted := func(n int) desk.TargetQueue { return desk.TargetQueue{Ready: n, Uncounted: true} }
	const unseen = management.StatisticsLag + time.Minute + 200*time.Millisecond // the pause between two questions
	const goesOn = ", more than --max-waiting 1000: the run goes on once consumers have read them"
	const unheard = ", so that nothing tells whether messages fail again; start its consumers, or pass --ramp none"
	for name, tc := range map[string]struct {
		target      desk.Target
		batch, last bool
		now         func(second int) queues
		pause, stop string
		after       time.Duration
	}{
		"one is too full": {
			now:   func(int) queues { return queues{"a": idle(1001)} },
			pause: "a holds 1001 messages" + goesOn, after: time.Minute,
			stop: "a holds 1001 messages, more than --max-waiting 1000, and has had no consumer for 1m; start its consumers, or pass --max-waiting 0",
		},
		"the fuller one is read": {
			now:   func(second int) queues { return queues{"a": idle(1), "b": ready(1240 - 3*second)} },
			pause: "the target queues hold 1241 messages (1240 of them in b)" + goesOn, after: 81 * time.Second,
		},
		"two are too full": {
			now: func(second int) queues {
				return queues{"a": idle(500), "b": {Ready: 600, Idle: second >= 30}, "c": ready(700)}
			},
			pause: "the target queues hold 1800 messages (700 of them in c)" + goesOn, after: 90 * time.Second,
			stop: "a and b hold 1100 messages, more than --max-waiting 1000, and have had no consumer for 1m; start their consumers, or pass --max-waiting 0",
		},
		"one after the other has no consumer": {
			now: func(second int) queues {
				return queues{"a": {Ready: 1, Idle: second < 40}, "b": {Ready: 1001, Idle: second >= 40}}
			},
			pause: "the target queues hold 1002 messages (1001 of them in b)" + goesOn, after: 100 * time.Second,
			stop: "b holds 1001 messages, more than --max-waiting 1000, and has had no consumer for 1m; start its consumers, or pass --max-waiting 0",
		},
		"a batch": {
			batch: true,
			now: func(second int) queues {
				return queues{"a": ready(max(0, 90-second)), "b": ready(max(0, 30-second))}
			},
			pause: "waiting until the consumers of a and b have read 120 messages", after: 90 * time.Second,
		},
		"a batch in a queue that is never empty": {
			batch: true,
			now:   func(second int) queues { return queues{"a": {Ready: 900, Delivered: 1 + int64(second)}} },
			pause: "waiting until the consumers of a have read 900 messages",
			after: 900*time.Second + management.StatisticsLag,
		},
		"a batch that one does not read": {
			batch: true,
			now:   func(second int) queues { return queues{"a": idle(5), "b": ready(max(0, 3-second))} },
			pause: "waiting until the consumers of a and b have read 8 messages", after: time.Minute,
			stop: "a has had no consumer for 1m" + unheard,
		},
		"a batch that one has read": {
			batch: true,
			now:   func(second int) queues { return queues{"a": idle(0), "b": ready(max(0, 90-second))} },
			pause: "waiting until the consumers of b have read 90 messages", after: 90 * time.Second,
		},
		"a batch for named ones": {
			batch: true, target: desk.Target{Exchange: "orders"},
			now:   func(second int) queues { return queues{"a": idle(500), "b": ready(max(0, 90-second))} },
			pause: "waiting until the consumers of b have read 90 messages", after: 90 * time.Second,
		},
		"a batch that nothing counts": {
			batch: true, now: func(int) queues { return queues{"a": uncounted(5)} },
			pause: "waiting until the consumers of a have read 5 messages", after: unseen,
			stop: "dlxctl cannot see whether the consumers of a have read the batch: the broker keeps no statistics (management_agent.disable_metrics_collector); pass --ramp none",
		},
		"a batch that nothing counts, and the queue is empty": {
			batch: true, now: func(second int) queues { return queues{"a": uncounted(max(0, 50-second))} },
			pause: "waiting until the consumers of a have read 50 messages", after: 50 * time.Second,
		},
		"the last batch, that nothing counts": {
			batch: true, last: true, now: func(int) queues { return queues{"a": uncounted(5)} },
			pause: "waiting until the consumers of a have read 5 messages", after: unseen,
		},
		"a batch for a named one": {
			batch: true, target: desk.Target{Queue: "a"}, now: func(int) queues { return queues{"a": idle(500)} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				now := func() queues { return tc.now(int(time.Since(began).Seconds())) }
				ctx, end := context.WithTimeout(t.Context(), 2*time.Hour)
				defer end()
				pause, err := desk.Pace(ctx, desk.SendOptions{MaxWaiting: 1000}, tc.target, tc.batch, tc.last, now)
				stop := ""
				if err != nil {
					stop = err.Error()
				}
				if after := time.Since(began); pause != tc.pause || stop != tc.stop || after != tc.after {
					t.Errorf("after %s\npaused  %q\nstopped %q\nwant after %s\npaused  %q\nstopped %q",
						after, pause, stop, tc.after, tc.pause, tc.stop)
				}
			})
		})
	}
}

// A batch of which others keep the run from hearing whether it failed stops the run after a minute.
// The last one has no other behind it, and the result says what was not heard.
func TestABatchThatIsNotHeard(t *testing.T) {
	t.Parallel()
	const busy = "another program consumes from dlq; wait until it has ended"
	for name, tc := range map[string]struct {
		last, next bool
		busy, stop string
	}{
		"heard": {next: true},
		"busy": {
			busy: busy, stop: "for 1m it was not known whether messages failed again: " + busy + ", or pass --ramp none",
		},
		"last": {last: true, next: true, busy: busy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				next, err := desk.Judge(t.Context(), tc.last, tc.busy)
				stop := ""
				if err != nil {
					stop = err.Error()
				}
				if next != tc.next || stop != tc.stop {
					t.Errorf("the next batch may be sent: %t; it stops: %q", next, stop)
				}
			})
		})
	}
}
