package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// cutOff sends a request to the management API, and cuts the connection soon
// after, as the end of a client does.
func cutOff(t *testing.T, target brokertest.Target, method, path, body string) {
	t.Helper()
	api, err := url.Parse(target.API)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", api.Host)
	if err != nil {
		t.Fatal(err)
	}
	user := base64.StdEncoding.EncodeToString([]byte(target.Username + ":" + target.Password))
	fmt.Fprintf(conn, "%s /api/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, user, len(body), body)
	timer := time.NewTimer(time.Duration(rand.IntN(6000)) * time.Microsecond) //nolint:gosec // any moment will do
	<-timer.C
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the end comes later
	}
	_ = conn.Close() // cut off
}

// A policy whose writer was cut off is stored, and may not be in force. Plan sees
// that, and apply makes it so: what a consumer rejects is dead-lettered.
func TestAPolicyWhoseWriterWasCutOff(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nqueues: [{name: mail, deadLetterBy: policy}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, target, "apply", "--yes", "-f", file).exits(t, 0)
	ch := target.Channel(t)
	stored := `{"pattern":"^mail$","apply-to":"queues","priority":%d,"definition":{"dead-letter-exchange":%q,"dead-letter-routing-key":"@mail"}}`
	path := "policies/" + url.PathEscape(target.VHost) + "/dlxctl.shop.queue.mail"
	seen := 0
	for n := range 40 {
		// First none, or one that leads elsewhere; then ours, as it is stored first, cut off.
		target.Call(t, "DELETE", path, nil)
		if n%2 == 0 {
			target.Call(t, "PUT", path, map[string]any{
				"pattern": "^mail$", "apply-to": "queues", "priority": 2000 + 4*n, "definition": map[string]any{"dead-letter-exchange": "nowhere", "dead-letter-routing-key": "@mail"},
			})
		}
		cutOff(t, target, "PUT", path, fmt.Sprintf(stored, 2001+4*n, "shop.dead"))
		p := start(t, target, "apply", "--yes", "-f", file)
		p.exits(t, 0)
		if strings.Contains(p.stdout.String(), "it is stored, and perhaps not in force") {
			seen++
		}
		if err := ch.PublishWithContext(t.Context(), "", "mail", true, false, amqp.Publishing{MessageId: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
		if !bury(t, ch, n) {
			t.Fatalf("message %d is lost: the policy is not in force; apply said:\n%s", n, p.stdout.String())
		}
		if seen == 10 {
			break
		}
	}
	if seen == 0 {
		t.Error("no policy was stored when its writer was cut off: this proves nothing")
	}
}

// A policy whose apply was killed while it deleted it is in force on nothing, once
// apply has run again.
func TestPoliciesWhoseDeleterWasKilled(t *testing.T) {
	t.Parallel()
	const queues, rounds = 30, 8
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	var with strings.Builder
	for i := range queues {
		if _, err := ch.QueueDeclare(fmt.Sprintf("q%d", i), true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&with, "  - {name: q%d, external: true, deadLetterBy: policy}\n", i)
	}
	const head = "version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nqueues:\n  - {name: mail}\n"
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"apply", "--yes", "--allow", "loses-messages", "--lock-timeout", lockFreed, "-f", file}
	kills := 0
	for round := range rounds {
		write(head + with.String())
		start(t, target, args...).exits(t, 0)
		write(head)
		p := start(t, target, args...)
		eventually(t, "the first policy to go", func() bool {
			var left []struct{}
			if err := json.Unmarshal(target.Call(t, "GET", "policies/"+url.PathEscape(target.VHost), nil), &left); err != nil {
				t.Fatal(err)
			}
			return len(left) < queues-round
		})
		if p.Process.Kill() == nil {
			kills++
		}
		<-p.ended
		start(t, target, args...).exits(t, 0)
		eventually(t, "the queues to have no policy", func() bool {
			var list []struct{ Policy string }
			if err := json.Unmarshal(target.Call(t, "GET", "queues/"+url.PathEscape(target.VHost)+"?disable_stats=true&enable_queue_totals=true", nil), &list); err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(list, func(q struct{ Policy string }) bool { return q.Policy != "" })
		})
	}
	if kills == 0 {
		t.Error("no apply was killed: this proves nothing")
	}
}

// A policy that somebody else's deletion has left in force, though it is gone from the
// list, is seen by plan and ended by apply.
func TestAPolicyThatIsGoneAndInForce(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if _, err := target.Channel(t).QueueDeclare("mail", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	with, without := filepath.Join(dir, "with.yaml"), filepath.Join(dir, "without.yaml")
	const head = "version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nqueues:\n  - {name: other}\n"
	for file, text := range map[string]string{with: head + "  - {name: mail, external: true, deadLetterBy: policy}\n", without: head} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	queues, policy := "queues/"+url.PathEscape(target.VHost)+"?disable_stats=true&enable_queue_totals=true", "policies/"+url.PathEscape(target.VHost)
	inForce := func() bool {
		return strings.Contains(string(target.Call(t, "GET", queues, nil)), `"policy":"dlxctl.shop.queue.mail"`)
	}
	listed := func() bool {
		return strings.Contains(string(target.Call(t, "GET", policy, nil)), "dlxctl.shop.queue.mail")
	}
	seen := 0
	for n := 0; n < 20 || seen == 0 && n < 100; n++ {
		start(t, target, "apply", "--yes", "-f", with).exits(t, 0)
		if !inForce() {
			t.Fatal("apply does not put the policy in force")
		}
		cutOff(t, target, "DELETE", policy+"/dlxctl.shop.queue.mail", "")
		if !listed() && inForce() {
			p := start(t, target, "plan", "-f", without)
			p.exits(t, 0)
			if !inForce() {
				continue // the broker was about to end it, and may have before plan looked
			}
			seen++
			if !strings.Contains(p.stdout.String(), "- policy dlxctl.shop.queue.mail") {
				t.Errorf("plan says:\n%s", p.stdout.String())
			}
		}
		start(t, target, "apply", "--yes", "--allow", "loses-messages", "-f", without).exits(t, 0)
		if listed() || inForce() {
			t.Fatal("apply leaves the policy")
		}
	}
	if seen == 0 {
		t.Error("no policy was gone and in force: this proves nothing")
	}
}

// bury rejects the message n, and reports whether it is among the dead letters.
func bury(t *testing.T, ch *amqp.Channel, n int) bool {
	t.Helper()
	for queue, end := "mail", time.Now().Add(10*time.Second); ; {
		d, ok, err := ch.Get(queue, false)
		switch {
		case err != nil:
			t.Fatal(err)
		case ok && queue == "mail":
			if err := d.Reject(false); err != nil { // it is dead-lettered, or the test fails
				t.Fatal(err)
			}
			queue = "mail.dead"
		case ok:
			if d.MessageId != fmt.Sprint(n) {
				t.Fatalf("mail.dead holds message %s, not %d", d.MessageId, n)
			}
			if err := d.Ack(false); err != nil { // found
				t.Fatal(err)
			}
			return true
		case time.Now().After(end):
			return false
		}
	}
}

// Quorum queues whose declarer was killed have a leader all the same, once apply
// has run again: what is published to them is confirmed. Until the broker has chosen
// it, it refuses what comes. The node is the test's own, see fragile.
func TestQuorumQueuesWhoseDeclarerWasKilled(t *testing.T) {
	t.Parallel()
	node := fragile(t)
	kills := 0
	for round := range 8 {
		target := node.VHost(t)
		var b strings.Builder
		b.WriteString("version: 1\nname: shop\ndefaults: {backoff: none}\nqueues:\n")
		for i := range 8 {
			fmt.Fprintf(&b, "  - {name: q%d, dead: shared}\n", i)
		}
		file := filepath.Join(t.TempDir(), "topology.yaml")
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"apply", "--yes", "--lock-timeout", lockFreed, "-f", file}
		p := start(t, target, args...)
		timer := time.NewTimer(time.Duration(60+40*round) * time.Millisecond)
		<-timer.C
		if p.Process.Kill() == nil {
			kills++
		}
		<-p.ended
		start(t, target, args...).exits(t, 0)
		ch := target.Channel(t)
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		for i := range 8 {
			queue := fmt.Sprintf("q%d", i)
			eventually(t, fmt.Sprintf("a confirm of %s in round %d", queue, round), func() bool {
				c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp.Publishing{})
				if err != nil {
					t.Fatal(err)
				}
				ok, err := c.WaitContext(ctx)
				if err != nil {
					t.Fatalf("round %d: what is published to %s is neither confirmed nor refused: %v", round, queue, err)
				}
				return ok
			})
		}
		cancel()
	}
	if kills == 0 {
		t.Error("no apply was killed: this proves nothing")
	}
}

// Bindings of a topic exchange whose apply was killed route as they are listed, once
// apply has run again: a new one does, and one that was deleted does not.
func TestBindingsWhoseWriterWasKilled(t *testing.T) {
	t.Parallel()
	const keys, rounds = 80, 12
	target := brokertest.VHost(t)
	file := filepath.Join(t.TempDir(), "topology.yaml")
	kills := 0
	for round := range rounds {
		var b strings.Builder
		b.WriteString("version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nexchanges: [{name: events}]\nqueues:\n  - name: mail\n    bindings:\n")
		for i := range keys {
			fmt.Fprintf(&b, "      - {exchange: events, key: k%d.%d.#}\n", round, i)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"apply", "--yes", "--allow", "drops-routing", "--lock-timeout", lockFreed, "-f", file}
		if round > 0 { // the first makes the queue
			p := start(t, target, args...)
			timer := time.NewTimer(time.Duration(40+15*round) * time.Millisecond)
			<-timer.C
			if p.Process.Kill() == nil {
				kills++
			}
			<-p.ended
		}
		start(t, target, args...).exits(t, 0)
		ch := target.Channel(t)
		returned := ch.NotifyReturn(make(chan amqp.Return, 2*keys))
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		for _, made := range []int{round, round - 1} {
			for i := range keys {
				c, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "events", fmt.Sprintf("k%d.%d.x", made, i), true, false, amqp.Publishing{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.WaitContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				// The broker returns before it confirms.
				if routed := len(returned) == 0; routed != (made == round) {
					t.Errorf("round %d: key k%d.%d.# routes: %v", round, made, i, routed)
				}
				for len(returned) > 0 {
					<-returned
				}
			}
		}
	}
	if kills < rounds/2 {
		t.Errorf("%d times apply was killed: this proves nothing", kills)
	}
}

// fragile gives a node for tests that delete queues while the broker still makes
// them. On 3.10.8 that can end rabbit_fifo_dlx_sup, which nobody starts again: from
// then on no queue of the whole node dead-letters at least once, and declaring such
// a queue fails with 541 INTERNAL_ERROR.
func fragile(t *testing.T) *brokertest.Server {
	t.Helper()
	return brokertest.Node(t)
}

// A new queue without a leader takes nothing, and looks like any other: migrate
// turns no messages to it. The node is the test's own, see fragile.
func TestMigrateToAQueueWithoutALeader(t *testing.T) {
	t.Parallel()
	target := fragile(t).VHost(t)
	file := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nname: shop\ndefaults: {backoff: none}\nexchanges: [{name: events}]\nqueues: [{name: new, replaces: old, bindings: [{exchange: events, key: k}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ch := target.Channel(t)
	if _, err := ch.QueueDeclare("old", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare("events", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("old", "k", "events", false, nil); err != nil {
		t.Fatal(err)
	}
	start(t, target, "migrate", "--yes", "--until", "prepare", "-f", file).exits(t, 0)
	if !leaderless(t, target, ch) {
		t.Fatal("no queue was without a leader when its client was cut off: this proves nothing")
	}
	// The bindings of a queue went with it.
	start(t, target, "migrate", "--yes", "--until", "prepare", "-f", file).exits(t, 0)
	p := start(t, target, "migrate", "--yes", "--settle", "10ms", "--idle", "1s", "-f", file)
	p.exits(t, 3)
	if !strings.Contains(p.stderr.String(), "the queue new must answer before messages are turned to it") {
		t.Errorf("it says:\n%s", p.stderr.String())
	}
}

// leaderless makes the queue new anew, its client cut off each time, until it has
// no leader. It gives up after so many tries, and reports whether it came about.
func leaderless(t *testing.T, target brokertest.Target, ch *amqp.Channel) bool {
	t.Helper()
	path := "queues/" + url.PathEscape(target.VHost) + "/new"
	for range 120 {
		if _, err := ch.QueueDelete("new", false, false, false); err != nil { // the test's own, and empty; it may not be there
			t.Fatal(err)
		}
		cutOff(t, target, "PUT", path, `{"durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum","x-managed-by":"dlxctl/shop","x-dead-letter-exchange":"shop.dead","x-dead-letter-routing-key":"@new","x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"}}`)
		silent := 0
		for silent < 2 && !replies(t, target, "new") { // it may just have begun
			silent++
		}
		if silent == 2 {
			return true
		}
	}
	return false
}

// replies reports whether a queue says within some seconds what it holds.
func replies(t *testing.T, target brokertest.Target, queue string) bool {
	t.Helper()
	conn, err := amqp.Dial(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := ch.Get(queue, true)
		answer <- err
	}()
	timer := time.NewTimer(4 * time.Second)
	defer timer.Stop()
	select {
	case err = <-answer:
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	_ = conn.CloseDeadline(time.Now().Add(time.Second)) // it may hang on the question
	var refused *amqp.Error
	return err == nil || errors.As(err, &refused) && refused.Code == amqp.NotFound
}
