package e2e_test

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/templates"
	"github.com/dlxctl/dlxctl/topology"
)

// strategy is a starter of docs/strategies.md: the key of its messages, and what happens. Messages
// are published, the consumer, who holds one message at a time, gets one and does something with
// it, or moves on to another work queue, and then messages are dead letters for a reason.
type strategy struct {
	key   string
	story []string
	// priority is what publishers set, and with what the consumer publishes a copy that fails.
	priority, lower uint8
}

func strategies() map[string]strategy {
	return map[string]strategy{
		"direct": {key: "payment.made", story: []string{
			"publish m-1 m-2", "m-1 reject", "m-2 acknowledge", "dead m-1 rejected",
		}},
		"in-place": {key: "entry.made", story: []string{
			"publish m-1 m-2", "m-1 requeue", "m-1 requeue", "m-1 requeue", "m-1 requeue", "m-2 acknowledge",
			"dead m-1 delivery_limit",
		}},
		"tail": {key: "image.uploaded", story: []string{
			"publish m-1 m-2", "m-1 reject", "m-2 acknowledge", "m-1 reject", "m-1 reject", "m-1 reject", "dead m-1 rejected",
		}},
		"filter": {key: "invoice.sent", story: []string{
			"publish m-1 m-2 m-3", "m-1 requeue", "m-2 reject", "m-3 acknowledge", "m-1 acknowledge", "dead m-2 rejected",
		}},
		"crashes": {key: "image.uploaded", story: []string{
			"publish m-1 m-2", "m-1 crash", "m-2 acknowledge", "m-1 crash", "m-1 reject", "m-1 reject", "dead m-1 rejected",
		}},
		"elsewhere": {key: "report.asked", story: []string{
			"publish m-1 m-2", "m-1 reject", "m-2 reject", "move elsewhere.reports.slow",
			"m-1 reject", "m-2 acknowledge", "m-1 reject", "m-1 reject", "dead m-1 rejected",
		}},
		"priority": {key: "export.asked", priority: 1, story: []string{
			"publish m-1 m-2", "m-1 copy", "waits 1", "publish m-3 m-4", "m-2 acknowledge", "m-3 reject", "waits 2",
			"publish m-5", "m-4 acknowledge", "m-3 acknowledge", "m-5 acknowledge", // m-3 kept its priority
			"m-1 copy", "m-1 copy", "m-1 copy", "dead m-1 rejected",
		}},
		"discard": {key: "temperature.measured", story: []string{
			"publish m-1 m-2", "m-1 reject", "m-2 acknowledge", "m-1 reject", "m-1 reject", "m-1 reject", "deleted m-1",
		}},
		"deadline": {key: "quote.asked", story: []string{
			"publish m-1", "m-1 reject", "m-1 acknowledge", "stop", "publish m-2", "dead m-2 expired",
		}},
		"native": {key: "mail.asked", story: []string{
			// A retry that is due comes before the messages that wait: m-1 is last.
			"publish m-2 m-3 m-1", "m-2 reject", "m-3 acknowledge", "dead m-2 rejected",
			"m-1 requeue", "m-1 requeue", "m-1 requeue", "m-1 requeue", "dead m-1 delivery_limit",
		}},
	}
}

// Each strategy does what its page says, on each line of RabbitMQ: that decides what a requeue is.
func TestStrategies(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	known := strategies()
	page := readFile(t, "../docs/strategies.md")
	starts := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(page, -1)
	for _, row := range starts {
		if _, ok := known[row[1]]; !ok && !slices.Contains([]string{"tiers", "repeats"}, row[1]) {
			t.Errorf("no test shows what %s does", row[1])
		}
	}
	for name, s := range known {
		if !slices.ContainsFunc(starts, func(row []string) bool { return row[1] == name }) {
			t.Errorf("the page does not have %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			starter, ok := templates.Starter(name)
			if !ok {
				t.Fatalf("there is no starter %s", name)
			}
			// The same, in less time: the deadline is longer than what the test does within it.
			tiers := regexp.MustCompile(`tiers: \[[1-9].*?\]|linear: \{.*?\}`)
			text := tiers.ReplaceAllString(string(starter), "tiers: [50ms, 100ms, 150ms]")
			text = strings.Replace(text, "x-message-ttl: 300000", "x-message-ttl: 5000", 1)
			file := writeTopology(t, text)
			apply := []string{"apply", "--yes", "-f", file}
			if strings.Contains(text, "engine: native") {
				if !target.AtLeast(topology.FirstNative) {
					t.Skip("before 4.3.1, RabbitMQ delays no retries")
				}
				apply = append(apply, "--allow", "uncounted-nack")
			}
			if slices.Contains(s.story, "deleted m-1") {
				code, out := dlxctl(target, apply...)
				if consent := "--allow loses-messages=samples.discarded"; code != 3 || !strings.Contains(out, consent) {
					t.Fatalf("without consent apply exits with %d:\n%s", code, out)
				}
				apply = append(apply, "--allow", "loses-messages=samples.discarded")
			}
			succeeds(t, target, apply...)
			top := spectest.Compile(t, text)
			story := told{T: t, target: target, top: top, work: top.WorkQueues[0], strategy: s}
			if len(top.Backoffs) > 0 {
				story.processor = start(t, target, "process", "-f", file)
				defer story.processor.exits(t, 0)
				defer story.processor.signal(t, 15)
			}
			story.tell(s.story)
		})
	}
}

// From RabbitMQ 4.3 on a lower priority works in a quorum queue too, which needs no argument for
// it: there a message without a priority has 4, and 1 is the lowest.
func TestALowerPriorityInAQuorumQueue(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.3") {
		t.Skip("before 4.3, quorum queues have no more than two priorities")
	}
	starter, _ := templates.Starter("priority")
	text := strings.NewReplacer("type: classic", "type: quorum", "    arguments: {x-max-priority: 1}\n", "",
		"[10s, 1m, 10m]", "[50ms, 100ms, 150ms]").Replace(string(starter))
	file := writeTopology(t, text)
	succeeds(t, target, "apply", "--yes", "-f", file)
	process := start(t, target, "process", "-f", file)
	defer process.exits(t, 0)
	defer process.signal(t, 15)
	top := spectest.Compile(t, text)
	s := strategies()["priority"]
	s.priority, s.lower = 0, 1
	told{T: t, target: target, top: top, work: top.WorkQueues[0], strategy: s}.tell(s.story)
}

// told is where a story happens.
type told struct {
	*testing.T
	target brokertest.Target
	top    topology.Compiled
	work   topology.WorkQueue
	strategy

	// processor is nil where a strategy needs none.
	processor *process
}

// tell does what a story says, and fails the test if something else happens.
func (s told) tell(story []string) {
	s.Helper()
	admin := s.target.Confirming(s.T)
	conn, messages := s.consume()
	exchange, _, _ := strings.Cut(s.work.Name, ".")
	for _, line := range story {
		words := strings.Fields(line)
		switch words[0] {
		case "publish":
			for _, id := range words[1:] {
				m := amqp091.Publishing{MessageId: id, Priority: s.priority}
				brokertest.PublishConfirmed(s.T, admin, exchange+".events", s.key, m)
			}
			continue
		case "waits":
			n, _ := strconv.Atoi(words[1])
			awaitDepth(s.T, s.target, s.work.Name, n)
			continue
		case "stop":
			if err := conn.Close(); err != nil {
				s.Fatal(err)
			}
			continue
		case "move":
			if err := conn.Close(); err != nil {
				s.Fatal(err)
			}
			awaitDepth(s.T, s.target, s.work.Name, 0)
			s.work, _ = s.top.WorkQueue(words[1])
			conn, messages = s.consume()
			continue
		case "deleted":
			s.processor.logs(s.T, "message_id="+words[1]+" reason=rejected")
			awaitDepth(s.T, s.target, s.work.DeadLetterQueue, 0)
			continue
		case "dead":
			dead := brokertest.Take(s.T, admin, s.work.DeadLetterQueue)
			if err := dead.Ack(false); err != nil {
				s.Fatal(err)
			}
			cause := deadletter.Read(dead, s.work.DeadLetterQueue, nil).Cause
			if dead.MessageId != words[1] || cause != words[2] {
				s.Errorf("%s: %s is dead: %s", line, dead.MessageId, cause)
			}
			continue
		}
		d := taken(s.T, messages)
		if d.MessageId != words[0] {
			s.Fatalf("%s: %s is delivered", line, d.MessageId)
		}
		err := error(nil)
		switch words[1] {
		case "acknowledge":
			err = d.Ack(false)
		case "reject":
			err = d.Reject(false)
		case "copy":
			h := maps.Clone(d.Headers)
			if h == nil {
				h = amqp091.Table{}
			}
			delete(h, "CC")
			h["retry-error"] = "no answer"
			brokertest.PublishConfirmed(s.T, admin, s.top.Name+".failed", "@"+s.work.Name,
				amqp091.Publishing{MessageId: d.MessageId, Headers: h, Priority: s.lower})
			err = d.Ack(false)
		case "requeue":
			err = d.Reject(true)
		case "crash":
			err = conn.Close()
			conn, messages = s.consume()
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	awaitDepth(s.T, s.target, s.work.Name, 0)
}

// consume consumes from the work queue, with a prefetch of 1.
func (s told) consume() (*amqp091.Connection, <-chan amqp091.Delivery) {
	s.Helper()
	conn, err := amqp091.Dial(s.target.URL)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		s.Fatal(err)
	}
	messages := brokertest.Consume(s, ch, s.work.Name, 1)
	return conn, messages
}
