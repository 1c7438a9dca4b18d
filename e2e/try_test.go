package e2e_test

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// triedDepot is a topology whose messages take some seconds with --speed 1. No script tries one of
// this name, so that scripts do not find its virtual host.
const triedDepot = `version: 1
name: depot
defaults: {backoff: standard}
backoff: {standard: {tiers: [2s]}}
exchanges: [{name: events}]
queues: [{name: billing, bindings: [{exchange: events, key: "order.*"}]}]
`

// scratchHost waits until a try has queues in its scratch virtual host, and returns the name.
func scratchHost(t *testing.T, target brokertest.Target, p *process) string {
	t.Helper()
	named := regexp.MustCompile(`in the scratch virtual host (\S+)`)
	name := ""
	brokertest.Eventually(t, "the try to have queues in its virtual host", func() bool {
		if found := named.FindStringSubmatch(p.stderr.String()); found != nil {
			name = found[1]
		}
		if name == "" {
			return false
		}
		queues := target.Call(t, "GET", "queues/"+url.PathEscape(name), nil)
		return strings.Contains(string(queues), "billing.dead")
	}, &p.stderr)
	return name
}

// virtualHosts returns the names of the virtual hosts of the broker.
func virtualHosts(t *testing.T, target brokertest.Target) map[string]bool {
	t.Helper()
	var rows []struct{ Name string }
	if err := json.Unmarshal(target.Call(t, "GET", "vhosts", nil), &rows); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, r := range rows {
		out[r.Name] = true
	}
	return out
}

// A try that is killed leaves its scratch virtual host, and nothing of the user's own virtual host
// is touched: not its objects, and not its messages. The next try names what was left, and --clean
// deletes it. A try that is interrupted leaves nothing.
func TestATryThatIsKilled(t *testing.T) {
	t.Parallel()
	target := brokertest.Fragile(t)(t)
	file := writeTopology(t, triedDepot)
	succeeds(t, target, "apply", "--yes", "-f", file)
	ch := target.Confirming(t)
	brokertest.PublishConfirmed(t, ch, "events", "order.placed", amqp091.Publishing{MessageId: "of the user"})
	before := target.Definitions(t)
	untouched := func(when string) {
		t.Helper()
		if d := cmp.Diff(before, target.Definitions(t)); d != "" {
			t.Errorf("%s, the virtual host of the user differs (-before +now):\n%s", when, d)
		}
	}

	p := start(t, target, "try", "--speed", "1", "-f", file)
	left := scratchHost(t, target, p)
	if !p.kill() {
		t.Fatalf("the try has ended before it was killed:\n%s%s", &p.stdout, &p.stderr)
	}
	untouched("after a kill")
	brokertest.Eventually(t, "the broker to free the lock of the killed try", func() bool {
		return !strings.Contains(string(target.Call(t, "GET", "queues/"+url.PathEscape(left), nil)), "depot.lock")
	})

	p = start(t, target, "try", "--speed", "1", "-f", file)
	stopped := scratchHost(t, target, p)
	p.signal(t, syscall.SIGINT)
	p.exits(t, 130)
	untouched("after an interrupt")
	if hosts := virtualHosts(t, target); !hosts[left] || hosts[stopped] {
		t.Errorf("want the virtual host %s of the killed try, and not %s of the interrupted one", left, stopped)
	}
	if !strings.Contains(p.stderr.String(), "a killed try has left the virtual host "+left) {
		t.Errorf("the next try does not name %s:\n%s", left, &p.stderr)
	}

	if out := succeeds(t, target, "try", "--clean"); !strings.Contains(out, "deleted "+left) {
		t.Errorf("--clean does not delete %s:\n%s", left, out)
	}
	untouched("after --clean")
	if d, found, err := ch.Get("billing", true); err != nil || !found || d.MessageId != "of the user" || d.Redelivered {
		t.Errorf("billing of the user holds %+v (%v, %v), want the message of the user, not touched", d, found, err)
	}
}

// Between the moment in which try finds its virtual host empty and the one in which it holds the
// lock, another dlxctl applies the topology there. try deletes nothing of it.
func TestATryDeletesOnlyWhatItHasMade(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, triedDepot)
	locks, applied := make(chan struct{}), make(chan struct{})
	var first sync.Once
	slow := onMethod(t, target, []byte{0, 50, 0, 10}, func(server net.Conn) { // queue.declare, of the lock
		first.Do(func() { close(locks) })
		beatUntil(t.Context(), server, applied)
	})
	p := start(t, slow, "try", "--in", target.VHost, "-f", file)
	select {
	case <-locks:
	case <-p.ended:
		t.Fatalf("try ended before it connected:\n%s", &p.stderr)
	}
	succeeds(t, target, "apply", "--yes", "-f", file)
	before := target.Definitions(t)
	close(applied)
	<-p.ended
	unchanged(t, target, before, "a try that finds its virtual host in use")
	p.exits(t, 1)
	if !strings.Contains(p.stderr.String(), "is not empty: it has ") {
		t.Errorf("try does not say that the virtual host is in use:\n%s", &p.stderr)
	}
}

// beatUntil sends heartbeats to the broker until something happens: it takes a connection that is
// silent for a failed one.
func beatUntil(ctx context.Context, server net.Conn, happens <-chan struct{}) {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case <-happens:
			return
		case <-ctx.Done():
			return
		case <-beat.C:
			_, _ = server.Write([]byte{8, 0, 0, 0, 0, 0, 0, 0xCE})
		}
	}
}

// The command that try prints for what a killed try has left in a given virtual host deletes it,
// with the messages that are on their way.
func TestWhatAKilledTryLeavesIsDeletedAsPrinted(t *testing.T) {
	t.Parallel()
	target, file := brokertest.Fragile(t)(t), writeTopology(t, triedDepot)
	before := target.Definitions(t)
	p := start(t, target, "try", "--in", target.VHost, "--speed", "1", "-f", file)
	const tier = "depot.standard.retry.2s"
	brokertest.Eventually(t, "the try to have its retry queue", func() bool {
		return strings.Contains(string(target.Call(t, "GET", "queues/"+url.PathEscape(target.VHost), nil)), tier)
	}, &p.stderr)
	awaitReady(t, target, tier)
	if !p.kill() {
		t.Fatalf("the try has ended before it was killed:\n%s%s", &p.stdout, &p.stderr)
	}
	printed := regexp.MustCompile(`delete it: dlxctl (.*)\n`)
	var arguments []string
	brokertest.Eventually(t, "the next try to print how to delete what is left", func() bool {
		_, out := dlxctl(target, "try", "--in", target.VHost, "-f", file)
		found := printed.FindStringSubmatch(out)
		if found != nil {
			arguments = strings.Fields(found[1])
		}
		return found != nil // once the broker has freed the lock
	})
	brokertest.Eventually(t, "the printed command to delete all", func() bool {
		code, _ := dlxctl(target, append(arguments, "--yes", "-f", file)...)
		return code == 0 // it is refused while messages come that the counts of the broker do not have yet
	})
	unchanged(t, target, before, "a killed try whose objects were deleted")
}

// A message that another program publishes when the queues of a try are drained, and not yet
// deleted, stays.
func TestATryKeepsAMessageThatComesAtItsEnd(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, strings.Replace(triedDepot, "tiers: [2s]", "tiers: [50ms]", 1))
	ch, late := target.Confirming(t), amqp091.Publishing{MessageId: "of a service"}
	var first sync.Once
	watched := onMethod(t, target, []byte{0, 40, 0, 20}, func(net.Conn) { // exchange.delete
		first.Do(func() {
			if err := brokertest.Publish(t.Context(), ch, "", "billing", late); err != nil {
				t.Error(err)
			}
		})
	})
	p := start(t, watched, "try", "--in", target.VHost, "-f", file)
	p.exits(t, 4)
	if !strings.Contains(p.stderr.String(), "another program has published a message there: it is in billing") {
		t.Errorf("try does not say where the message is:\n%s", &p.stderr)
	}
	if !strings.Contains(p.stdout.String(), "\nas predicted: 4 messages in 1 queue, ") {
		t.Errorf("try does not print what it has found out:\n%s", &p.stdout)
	}
	if d := brokertest.Take(t, ch, "billing"); d.MessageId != late.MessageId {
		t.Errorf("billing has the message %q", d.MessageId)
	}
}
