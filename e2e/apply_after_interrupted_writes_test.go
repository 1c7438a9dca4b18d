package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// usual is how long a write takes a broker that has little to do.
const usual = 6 * time.Millisecond

// interruptedRequest sends a request to the management API and closes the connection at some moment
// within that time, as happens when a client is killed.
func interruptedRequest(t *testing.T, target brokertest.Target, within time.Duration, method, path, body string) {
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
	fmt.Fprintf(conn, "%s /api/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\n", method, path, user)
	fmt.Fprintf(conn, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	timer := time.NewTimer(rand.N(within)) //nolint:gosec // any moment will do
	<-timer.C
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the connection ends later
	}
	_ = conn.Close() // whatever the broker answered
}

// When the request for a policy is interrupted, the broker may store the policy without putting it
// into effect. Plan detects that and apply rewrites the policy: a message that a consumer rejects
// is dead-lettered.
func TestApplyRewritesAPolicyAfterAnInterruptedWrite(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: none, type: classic}
queues: [{name: mail, deadLetterBy: policy}]
`)
	start(t, target, "apply", "--yes", "-f", file).exits(t, 0)
	ch := target.Channel(t)
	stored := `{"pattern":"^mail$","apply-to":"queues","priority":%d,` +
		`"definition":{"dead-letter-exchange":%q,"dead-letter-routing-key":"@mail"}}`
	path := "policies/" + url.PathEscape(target.VHost) + "/dlxctl.shop.queue.mail"
	rewritten := regexp.MustCompile(`it is stored, and perhaps not|may not be in effect`)
	seen := 0
	within := usual
	for n := range 40 {
		// First there is no policy, or one with another exchange. Then comes dlxctl's policy as it
		// is written first, by a request that is interrupted before or after it is complete.
		target.Call(t, "DELETE", path, nil)
		if n%2 == 0 {
			begin := time.Now()
			target.Call(t, "PUT", path, map[string]any{
				"pattern": "^mail$", "apply-to": "queues", "priority": 2000 + 4*n,
				"definition": map[string]any{"dead-letter-exchange": "nowhere", "dead-letter-routing-key": "@mail"},
			})
			within = max(usual, 3*time.Since(begin)/2) // a busy broker takes longer
		}
		interruptedRequest(t, target, within, "PUT", path, fmt.Sprintf(stored, 2001+4*n, "shop.dead"))
		p := start(t, target, "apply", "--yes", "-f", file)
		p.exits(t, 0)
		if rewritten.MatchString(p.stdout.String()) {
			seen++
		}
		brokertest.PublishConfirmed(t, ch, "", "mail", amqp091.Publishing{MessageId: fmt.Sprint(n)})
		reject(t, ch, n)
		brokertest.Eventually(t, fmt.Sprintf("message %d in mail.dead; without it the policy is not in effect", n),
			func() bool {
				return brokertest.Drain(t, ch, "mail.dead")[fmt.Sprint(n)] == 1
			}, &p.stdout)
		if seen == 10 {
			break
		}
	}
	if seen == 0 {
		t.Error("no interrupted request left a stored policy that is not in effect, so the test shows nothing")
	}
}

// Policies that an apply was deleting when it was killed are in effect on no queue after the next
// apply.
func TestApplyFinishesDeletingPoliciesAfterAKill(t *testing.T) {
	t.Parallel()
	const queues = 20
	rounds := brokertest.Rounds(3, 8)
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	var with strings.Builder
	for i := range queues {
		brokertest.Declare(t, ch, fmt.Sprintf("q%d", i), nil)
		fmt.Fprintf(&with, "  - {name: q%d, external: true, deadLetterBy: policy}\n", i)
	}
	const head = "version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nqueues:\n  - {name: mail}\n"
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write := func(text string) {
		t.Helper()
		writeTo(t, file, text)
	}
	args := []string{"apply", "--yes", "--allow", "loses-messages", "--lock-timeout", lockFreed, "-f", file}
	kills := 0
	for round := range rounds {
		write(head + with.String())
		start(t, target, args...).exits(t, 0)
		write(head)
		p := start(t, target, args...)
		brokertest.EventuallyEvery(t, 5*time.Millisecond, "the first policy to be deleted", func() bool {
			var left []struct{}
			if err := json.Unmarshal(target.Call(t, "GET", "policies/"+url.PathEscape(target.VHost), nil), &left); err != nil {
				t.Fatal(err)
			}
			return len(left) < queues-round
		})
		if p.kill() {
			kills++
		}
		start(t, target, args...).exits(t, 0)
		var list []struct{ Policy string }
		brokertest.Eventually(t, "the queues to have no policy", func() bool {
			if err := json.Unmarshal(target.Call(t, "GET", queuesPath(target), nil), &list); err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(list, func(q struct{ Policy string }) bool { return q.Policy != "" })
		}, &list)
	}
	if kills == 0 {
		t.Error("no apply was killed, so the test shows nothing")
	}
}

// An interrupted deletion can leave a policy in effect that the broker no longer lists. Plan
// detects it, and after apply it is not in effect.
func TestApplyEndsAPolicyThatIsInEffectAndNotListed(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	brokertest.Declare(t, target.Channel(t), "mail", nil)
	const head = "version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\nqueues:\n  - {name: other}\n"
	with := writeTopology(t, head+"  - {name: mail, external: true, deadLetterBy: policy}\n")
	without := writeTopology(t, head)
	policy := "policies/" + url.PathEscape(target.VHost)
	inEffect := func() bool {
		return strings.Contains(string(target.Call(t, "GET", queuesPath(target), nil)), `"policy":"dlxctl.shop.queue.mail"`)
	}
	listed := func() bool {
		return strings.Contains(string(target.Call(t, "GET", policy, nil)), "dlxctl.shop.queue.mail")
	}
	seen := 0
	for n := 0; n < 20 || seen == 0 && n < 100; n++ {
		start(t, target, "apply", "--yes", "-f", with).exits(t, 0)
		if !inEffect() {
			t.Fatal("the policy is not in effect after apply")
		}
		interruptedRequest(t, target, usual, "DELETE", policy+"/dlxctl.shop.queue.mail", "")
		if !listed() && inEffect() {
			p := start(t, target, "plan", "-f", without)
			p.exits(t, 0)
			if !inEffect() {
				continue // the broker was still deleting it, and may have finished before plan read it
			}
			seen++
			if !strings.Contains(p.stdout.String(), "- policy dlxctl.shop.queue.mail") {
				t.Errorf("plan does not delete the policy:\n%s", p.stdout.String())
			}
		}
		start(t, target, "apply", "--yes", "--allow", "loses-messages", "-f", without).exits(t, 0)
		if listed() || inEffect() {
			t.Fatal("the policy is still listed or in effect after apply")
		}
	}
	if seen == 0 {
		t.Error("no deleted policy was still in effect, so the test shows nothing")
	}
}

// queuesPath is the path of the list of queues with the policy of each, without statistics.
func queuesPath(target brokertest.Target) string {
	return "queues/" + url.PathEscape(target.VHost) + "?disable_stats=true&enable_queue_totals=true"
}

// reject takes message n out of the queue mail and rejects it.
func reject(t *testing.T, ch *amqp091.Channel, n int) {
	t.Helper()
	d := brokertest.Take(t, ch, "mail")
	if d.MessageId != fmt.Sprint(n) {
		t.Fatalf("mail holds message %s, not %d", d.MessageId, n)
	}
	if err := d.Reject(false); err != nil {
		t.Fatal(err)
	}
}

// Quorum queues that an apply was declaring when it was killed have a leader after the next apply:
// the broker confirms messages to them. Until a queue has elected its leader, the broker refuses
// messages.
func TestApplyRepairsQuorumQueuesAfterAKill(t *testing.T) {
	t.Parallel()
	vhost := brokertest.Fragile(t)
	kills := 0
	for round := range brokertest.Rounds(4, 8) {
		target := vhost(t)
		var b strings.Builder
		b.WriteString("version: 1\nname: shop\ndefaults: {backoff: none}\nqueues:\n")
		for i := range 8 {
			fmt.Fprintf(&b, "  - {name: q%d, dead: shared}\n", i)
		}
		file := writeTopology(t, b.String())
		args := []string{"apply", "--yes", "--lock-timeout", lockFreed, "-f", file}
		p := start(t, target, args...)
		if p.killAfter(t, time.Duration(60+40*round)*time.Millisecond) {
			kills++
		}
		start(t, target, args...).exits(t, 0)
		ch := target.Confirming(t)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		for i := range 8 {
			queue := fmt.Sprintf("q%d", i)
			brokertest.Eventually(t, fmt.Sprintf("a confirm of %s in round %d", queue, round), func() bool {
				c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp091.Publishing{})
				if err != nil {
					t.Fatal(err)
				}
				ok, err := c.WaitContext(ctx)
				if err != nil {
					t.Fatalf("round %d: a message to %s is neither confirmed nor refused: %v", round, queue, err)
				}
				return ok
			})
		}
		cancel()
	}
	if kills == 0 {
		t.Error("no apply was killed, so the test shows nothing")
	}
}

// Bindings of a topic exchange that an apply was changing when it was killed route as they are
// listed after the next apply: a new binding routes, and a deleted one does not.
func TestApplyRepairsBindingsAfterAKill(t *testing.T) {
	t.Parallel()
	const keys = 80
	rounds := brokertest.Rounds(5, 12)
	target := brokertest.VHost(t)
	file := filepath.Join(t.TempDir(), "topology.yaml")
	kills := 0
	for round := range rounds {
		var b strings.Builder
		b.WriteString("version: 1\nname: shop\ndefaults: {backoff: none, type: classic}\n" +
			"exchanges: [{name: events}]\nqueues:\n  - name: mail\n    bindings:\n")
		for i := range keys {
			fmt.Fprintf(&b, "      - {exchange: events, key: k%d.%d.#}\n", round, i)
		}
		writeTo(t, file, b.String())
		args := []string{"apply", "--yes", "--allow", "drops-routing", "--lock-timeout", lockFreed, "-f", file}
		if round > 0 { // the first creates the queue
			p := start(t, target, args...)
			if p.killAfter(t, time.Duration(40+180*round/rounds)*time.Millisecond) {
				kills++
			}
		}
		start(t, target, args...).exits(t, 0)
		ch := target.Channel(t)
		returned := ch.NotifyReturn(make(chan amqp091.Return, 2*keys))
		for _, made := range []int{round, round - 1} {
			for i := range keys {
				brokertest.PublishConfirmed(t, ch, "events", fmt.Sprintf("k%d.%d.x", made, i), amqp091.Publishing{})
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
		t.Errorf("apply was killed only %d times, so the test shows little", kills)
	}
}

// A successor without a leader accepts no message and looks like any other queue: migrate routes no
// messages to it.
func TestMigrateRoutesNothingToASuccessorWithoutALeader(t *testing.T) {
	t.Parallel()
	target := brokertest.Fragile(t)(t)
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: none}
exchanges: [{name: events}]
queues: [{name: new, replaces: old, bindings: [{exchange: events, key: k}]}]
`)
	ch := target.Channel(t)
	brokertest.Declare(t, ch, "old", nil)
	brokertest.DeclareExchange(t, ch, "events", "topic", nil)
	brokertest.Bind(t, ch, "old", "k", "events", nil)
	start(t, target, "migrate", "--yes", "--until", "prepare", "-f", file).exits(t, 0)
	if !leaderless(t, target, ch) {
		t.Fatal("no interrupted declaration left a queue without a leader, so the test shows nothing")
	}
	// The bindings were deleted with the queue.
	start(t, target, "migrate", "--yes", "--until", "prepare", "-f", file).exits(t, 0)
	p := start(t, target, "migrate", "--yes", "--settle", "10ms", "--idle", "1s", "-f", file)
	p.exits(t, 3)
	if !strings.Contains(p.stderr.String(), "the queue new must answer before messages are routed to it") {
		t.Errorf("migrate does not name the cause:\n%s", p.stderr.String())
	}
}

// leaderless declares the successor by interrupted requests until it has no leader. It gives up
// after 120 tries, and reports whether it succeeded.
func leaderless(t *testing.T, target brokertest.Target, ch *amqp091.Channel) bool {
	t.Helper()
	path := "queues/" + url.PathEscape(target.VHost) + "/new"
	const declaration = `{"durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum",` +
		`"x-managed-by":"dlxctl/shop","x-dead-letter-exchange":"shop.failed","x-dead-letter-routing-key":"@new",` +
		`"x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"}}`
	for range 120 {
		// The queue is the test's own and empty. It may not exist.
		brokertest.Delete(t, ch, "new")
		interruptedRequest(t, target, usual, "PUT", path, declaration)
		silent := 0
		for silent < 2 && !replies(t, target, "new") { // its leader may just be elected
			silent++
		}
		if silent == 2 {
			return true
		}
	}
	return false
}

// replies reports whether a queue answers basic.get within 4 seconds, or does not exist.
func replies(t *testing.T, target brokertest.Target, queue string) bool {
	t.Helper()
	conn, err := amqp091.Dial(target.URL)
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
	_ = conn.CloseDeadline(time.Now().Add(time.Second)) // a queue without a leader may never answer
	var refused *amqp091.Error
	return err == nil || errors.As(err, &refused) && refused.Code == amqp091.NotFound
}
