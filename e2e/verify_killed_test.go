package e2e_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const verifiedFile = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1s]}}
queues: [{name: billing}]
`

// A verify that is killed leaves its canaries to its queue, which expires. No plan takes that queue
// for drift, and no apply deletes it while canaries may come; what it is bound to is not deleted
// under it.
func TestAKilledVerifyLeavesItsQueueToExpire(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifiedFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	p := start(t, target, "verify", "--tiers-only", "-f", file)
	p.logs(t, "sent canaries")
	if !p.kill() {
		t.Fatal("verify ended before it was killed")
	}
	home := verifyQueue(t, target)
	if home.Arguments["x-expires"] != float64(361_000) { // 1s, twice 30s, 5m
		t.Errorf("the queue of verify has the arguments %v", home.Arguments)
	}
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
	succeeds(t, target, "apply", "--yes", "--prune", "-f", file)
	none := writeTopology(t, "version: 1\nname: shop\n")
	code, out := dlxctl(target, append([]string{"apply", "--yes", "-f", none}, everything...)...)
	if code != 3 || !strings.Contains(out, "a run of 'dlxctl verify' is in progress, and its queue "+home.Name) {
		t.Errorf("apply of an empty file exits with %d:\n%s", code, out)
	}
	awaitReady(t, target, home.Name)
	if out := succeeds(t, target, "status", "-f", file); strings.Contains(out, home.Name) {
		t.Errorf("status shows the queue of verify:\n%s", out)
	}
	holdsNoCanary(t, target, "billing", "billing.dead", "shop.unroutable")
}

// A canary that a processor does not take in time waits for one. It has the address of a work
// queue, and comes to no dead-letter queue, and verify does not say that the processor has another
// file.
func TestVerifyOfAProcessorThatHangs(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifiedFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	hung := target.Channel(t)
	taken := brokertest.Consume(t, hung, "shop.standard.failed", 1)
	brokertest.PublishConfirmed(t, hung, "shop.failed", "@billing", amqp091.Publishing{MessageId: "m-1"})
	<-taken // and is not acknowledged, so that the canary is the next one
	code, out := dlxctl(target, "verify", "--patience", "1s", "-f", file)
	if code != 2 || !strings.Contains(out, "problem processor: ") || strings.Contains(out, "other-tier") {
		t.Errorf("verify exits with %d:\n%s", code, out)
	}
	holdsNoCanary(t, target, "billing.dead", "shop.unroutable")
	hung.Close()
	succeeds(t, target, "process", "--until-empty", "-f", file)
	awaitReady(t, target, verifyQueue(t, target).Name)
}

// A processor that starts just after verify is not a fault: verify waits until it consumes.
func TestVerifyWaitsForAProcessorThatStarts(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifiedFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	p := start(t, target, "verify", "-f", file)
	p.logs(t, "waiting for a processor")
	processor := start(t, target, "process", "-f", file)
	t.Cleanup(func() { processor.kill() })
	p.exits(t, 0)
}

// An interrupt while verify waits for a processor ends it before it writes anything.
func TestVerifyInterruptedBeforeItSendsWritesNothing(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifiedFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	before := target.Definitions(t)
	p := start(t, target, "verify", "-f", file)
	p.logs(t, "waiting for a processor")
	p.signal(t, syscall.SIGINT)
	p.exits(t, 130)
	unchanged(t, target, before, "an interrupted verify")
	if p.stdout.String() != "" {
		t.Errorf("an interrupted verify reports:\n%s", &p.stdout)
	}
}

// After an alarm the broker reads nothing more from a connection that has sent a message. verify
// still reports, and deletes its queue.
func TestVerifyEndsDuringAnAlarm(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifiedFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	before := target.Definitions(t)
	p := start(t, brokertest.NewFilter(t, target, onlyMessages), "verify", "--tiers-only", "-f", file)
	timer := time.AfterFunc(time.Minute, func() { p.kill() })
	defer timer.Stop()
	p.exits(t, 0)
	unchanged(t, target, before, "verify during an alarm")
}

// onlyMessages forwards what a client sends. Once the client has sent a message, only messages
// pass.
func onlyMessages(client, server net.Conn) {
	const header = 7
	greeting := make([]byte, 8)
	if _, err := io.ReadFull(client, greeting); err != nil {
		return
	}
	_, _ = server.Write(greeting) // how the connection ends does not matter
	for sent := false; ; {
		frame := make([]byte, header)
		if _, err := io.ReadFull(client, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame[3:])+1)...)
		if _, err := io.ReadFull(client, frame[header:]); err != nil {
			return
		}
		isMethod := frame[0] == 1
		isPublish := isMethod && bytes.HasPrefix(frame[header:], []byte{0, 60, 0, 40}) // basic.publish
		sent = sent || isPublish
		if !sent || isPublish || !isMethod {
			_, _ = server.Write(frame)
		}
	}
}

// madeQueue is a queue as the management API lists it.
type madeQueue struct {
	Name      string
	Arguments map[string]any
	Messages  int
}

// holdsNoCanary fails the test if one of these queues has a message.
func holdsNoCanary(t *testing.T, target brokertest.Target, queues ...string) {
	t.Helper()
	ch := target.Channel(t)
	for _, queue := range queues {
		if m, found, err := ch.Get(queue, false); err != nil || found {
			t.Errorf("%s has the message %q: %v", queue, m.MessageId, err)
		}
	}
}

// verifyQueues returns the queues that runs of verify have made.
func verifyQueues(t *testing.T, target brokertest.Target) []madeQueue {
	t.Helper()
	var queues []madeQueue
	answer := target.Call(t, http.MethodGet, "queues/"+url.PathEscape(target.VHost), nil)
	if err := json.Unmarshal(answer, &queues); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(queues, func(q madeQueue) bool { return !strings.HasPrefix(q.Name, "shop.verify.") })
}

// verifyQueue returns the queue that a run of verify has made.
func verifyQueue(t *testing.T, target brokertest.Target) madeQueue {
	t.Helper()
	queues := verifyQueues(t, target)
	if len(queues) == 0 {
		t.Fatal("there is no queue of verify")
	}
	return queues[0]
}
