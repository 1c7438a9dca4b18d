package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const keepFile = `
version: 1
name: shop
defaults: {backoff: none, type: %s, dead: {keep: 30d}}
queues: [{name: billing}]
`

// nightKill is a moment at which a program is killed that parks old messages: after it has sent
// something so many times. The broker does not get the last one if it is held back.
type nightKill struct {
	name  string
	old   int // messages
	sent  string
	times int
	held  bool
}

// nightKills are moments of all steps. A run sends each old message twice: to its hold, and to the
// queue of parked ones. A run of few has no hold, and sends each once.
func nightKills() []nightKill {
	const many, few = 1500, 40
	text, ends := "old-", "\x00\x32\x00\x28" // in the id of a message; queue.delete
	return []nightKill{
		{"it creates the hold", many, "x-desk-run", 1, false},
		{"it writes the list", many, "desk-manifest", 1, true},
		{"it takes the first", many, text, 1, true},
		{"it takes", many, text, many / 2, false},
		{"it takes the last", many, text, many, true},
		{"it has taken all", many, "S\x00\x00\x00\x07sending", 1, true},
		{"it notes that it sends", many, "S\x00\x00\x00\x07sending", 1, false},
		{"it sends the first", many, text, many + 1, false},
		{"it sends", many, text, many + many/2, false},
		{"it sends the last", many, text, 2 * many, true},
		{"it deletes the hold", many, ends, 1, true},
		{"it sends the first of few", few, text, 1, false},
		{"it sends few", few, text, few / 2, false},
		{"it sends the last of few", few, text, few, true},
	}
}

// through returns the target as reached through a proxy that calls kill at the moment. Nothing
// comes to the broker on any connection after it.
func (m nightKill) through(t *testing.T, target brokertest.Target, kill func()) brokertest.Target {
	t.Helper()
	var mu sync.Mutex
	var reached atomic.Bool
	seen := 0
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		buffer := make([]byte, 1<<12)
		var last []byte // of what was read before: the end, which may be the begin of what is sought
		for {
			n, err := client.Read(buffer)
			if err != nil || reached.Load() {
				return
			}
			read := append(last, buffer[:n]...)
			last = slices.Clone(read[max(0, len(read)-len(m.sent)+1):])
			mu.Lock()
			before := seen
			seen += bytes.Count(read, []byte(m.sent))
			now := before < m.times && seen >= m.times
			mu.Unlock()
			if !now || !m.held {
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
			if now {
				reached.Store(true)
				kill()
				return
			}
		}
	})
}

// A program that parks old messages each night is killed, wherever it is. The next night's does the
// rest without a person: no message is lost, and at most what was in flight is doubled.
func TestTheNextNightParksTheRest(t *testing.T) {
	t.Parallel()
	for i, m := range brokertest.Share(nightKills()) {
		for j, typ := range []string{"quorum", "classic"} {
			if (i+j)%2 > 0 && brokertest.Rounds(1, 2) == 1 {
				continue // each night
			}
			t.Run(m.name+", "+typ, func(t *testing.T) {
				t.Parallel()
				m.play(t, typ)
			})
		}
	}
}

func (m nightKill) play(t *testing.T, typ string) {
	t.Helper()
	const young = 50
	target, file := brokertest.VHost(t), writeTopology(t, fmt.Sprintf(keepFile, typ))
	succeeds(t, target, "apply", "--yes", "-f", file)
	ch := target.Confirming(t)
	var all []amqp091.Publishing
	for i := range m.old + young {
		id, failed := fmt.Sprintf("old-%d", i), "2020-01-02T15:04:06.000Z"
		if i%(m.old/young+1) == 0 && i/(m.old/young+1) < young {
			id, failed = fmt.Sprintf("young-%d", i), time.Now().UTC().Format(time.RFC3339)
		}
		all = append(all, amqp091.Publishing{
			MessageId: id, DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{
				"count": int32(-1), "retry-queue": "billing", "retry-reason": "rejected", "retry-attempts": int64(1),
				"retry-first-failed-at": failed, "retry-last-failed-at": failed,
			},
		})
	}
	brokertest.PublishConfirmed(t, ch, "", "billing.dead", all...)
	awaitDepth(t, target, "billing.dead", len(all))

	park := []string{"desk", "park", "--past-keep", "--yes", "-f", file}
	var p *process
	killed := make(chan struct{})
	p = command(t, m.through(t, target, func() { _ = p.Process.Kill(); close(killed) }), park...)
	p.begin(t)
	select {
	case <-killed:
	case <-p.ended:
	}
	if <-p.ended; p.ProcessState.ExitCode() != -1 {
		t.Fatalf("it exits with %d before it is killed:\n%s%s", p.ProcessState.ExitCode(), &p.stdout, &p.stderr)
	}
	runs := ""
	brokertest.Eventually(t, "no process to work on a run", func() bool {
		runs = succeeds(t, target, "desk", "run", "list", "-f", file)
		return !strings.Contains(runs, " now ")
	}, &runs)
	shown := ""
	brokertest.Eventually(t, "no consumer to be left of what was killed", func() bool {
		var code int
		code, shown = dlxctl(target, "desk", "park", "--past-keep", "-f", file)
		return code == 0
	}, &shown)
	if strings.Contains(runs, "park") { // with a longer keep, or none, what it has taken may be young
		long := writeTopology(t, strings.ReplaceAll(fmt.Sprintf(keepFile, typ), "30d", "10000d"))
		code, out := dlxctl(target, "desk", "park", "--past-keep", "--yes", "-f", long)
		if code != 3 || !strings.Contains(out, "that were older than 30d, and keep is 10000d now\n  to put them back: ") {
			t.Errorf("with a longer keep it exits with %d:\n%s", code, out)
		}
		none := writeTopology(t, strings.ReplaceAll(fmt.Sprintf(keepFile, typ), ", dead: {keep: 30d}", ""))
		code, out = dlxctl(target, "desk", "park", "billing.dead", "--past-keep", "--yes", "-f", none)
		if code != 3 || !strings.Contains(out, "that were older than 30d, and it has no keep now\n  to put them back: ") {
			t.Errorf("without a keep it exits with %d:\n%s", code, out)
		}
		if !strings.Contains(shown, "; with --yes it is continued first\n") {
			t.Errorf("without --yes it says\n%s", shown)
		}
	}
	said := succeeds(t, target, park...)
	if now := succeeds(t, target, "desk", "run", "list", "-f", file); now != "no run is in progress\n" {
		t.Errorf("runs are left:\n%s", now)
	}
	dead, parked := brokertest.Drain(t, ch, "billing.dead"), brokertest.Drain(t, ch, "shop.parked")
	lost, doubled, wrong := 0, 0, 0
	for _, message := range all {
		n := dead[message.MessageId] + parked[message.MessageId]
		lost, doubled = lost+max(0, 1-n), doubled+max(0, n-1)
		if strings.HasPrefix(message.MessageId, "old-") == (dead[message.MessageId] > 0) {
			wrong++
		}
	}
	most := 256
	if m.old <= 100 {
		most = 4
	}
	if lost > 0 || doubled > most || wrong > 0 {
		t.Errorf("%d lost, %d doubled, %d where they do not belong; the runs were\n%sthe next night said\n%s", lost, doubled,
			wrong, runs, said)
	}
	t.Logf("%d lost, %d doubled", lost, doubled)
}
