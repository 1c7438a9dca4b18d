package e2e_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const deskRightsFile = `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [100ms]}}
exchanges: [{name: events}]
queues:
  - {name: billing, bindings: [{exchange: events, key: order}]}
  - {name: mail, dead: shared, type: classic, bindings: [{exchange: events, key: mail}]}
`

// deadLetters returns a virtual host with a topology and dead letters in each of its queues for
// them: with the headers that a processor of dlxctl gives them.
func deadLetters(t *testing.T, n int) (target brokertest.Target, file string) {
	t.Helper()
	target, file = brokertest.VHost(t), writeTopology(t, deskRightsFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	ch := target.Confirming(t)
	for queue, work := range map[string]string{"billing.dead": "billing", "shop.dead": "mail", "shop.unroutable": ""} {
		for i := range n {
			m := amqp091.Publishing{
				MessageId: fmt.Sprintf("%s-%d", queue, i), Body: fmt.Appendf(nil, `{"n":%d}`, i), ContentType: "application/json",
				Headers: amqp091.Table{
					"count": int64(-1), "CC": []any{"@" + work}, "retry-queue": work, "retry-reason": "rejected",
					"retry-attempts": int64(2), "retry-exchange": "events", "retry-routing-key": "order",
					"retry-first-failed-at": "2026-01-02T15:04:05.000Z", "retry-last-failed-at": "2026-01-02T15:04:06.000Z",
				},
			}
			brokertest.PublishConfirmed(t, ch, "", queue, m)
		}
	}
	return target, file
}

// With the rights that 'dlxctl rights' prints for reading at the desk, each command that reads
// works, and none that acts. Without one of its rights the error names the queue.
func TestDeskReaderRightsSuffice(t *testing.T) {
	t.Parallel()
	target, file := deadLetters(t, 3)
	full := grant(t, deskRightsFile, "desk-reader")
	reader := as(t, target, full)
	for _, queue := range []string{"billing.dead", "shop.dead", "shop.unroutable"} {
		for _, command := range []string{"list", "groups"} {
			succeeds(t, reader, "desk", command, queue, "-f", file)
		}
		lacking := as(t, target, without(full, right{"read", strings.ReplaceAll(queue, ".", `\.`)}))
		if code, out := dlxctl(lacking, "desk", "list", queue, "-f", file); code == 0 || !strings.Contains(out, queue) {
			t.Errorf("list of %s without the right to read it exits with %d:\n%s", queue, code, out)
		}
	}
	succeeds(t, reader, "desk", "-f", file)
	succeeds(t, reader, "desk", "run", "list", "-f", file)
	for _, args := range [][]string{
		{"replay", "billing.dead"}, {"park", "billing.dead"}, {"discard", "billing.dead"},
	} {
		args = append(append([]string{"desk"}, args...), "--yes", "--expect", "3", "-f", file)
		if code, out := dlxctl(reader, args...); code == 0 {
			t.Errorf("%q succeeds as a reader:\n%s", args, out)
		}
		awaitDepth(t, target, "billing.dead", 3)
	}
}

// awaitDepth waits until a queue has n ready messages.
func awaitDepth(t *testing.T, target brokertest.Target, queue string, n int) {
	t.Helper()
	ch := target.Channel(t)
	brokertest.Eventually(t, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		return brokertest.Ready(t, ch, queue) == n
	})
}

// With the rights that 'dlxctl rights' prints for acting at the desk, each command works: replay,
// park, restore, discard, and the return of a run that its brake or a person has stopped.
func TestDeskRightsSuffice(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 3
	target, file := deadLetters(t, n)
	actor := as(t, target, grant(t, deskRightsFile, "desk"))
	desk := func(code int, args ...string) {
		t.Helper()
		args = append(append([]string{"desk"}, args...), "--yes", "-f", file)
		if got, out := dlxctl(actor, args...); got != code {
			t.Fatalf("%q exits with %d, not %d:\n%s", args, got, code, out)
		}
	}
	desk(0, "park", "billing.dead", "--expect", "3")
	awaitDepth(t, target, "shop.parked", n)
	desk(0, "restore", "--expect", "3")
	awaitDepth(t, target, "billing.dead", n)
	desk(0, "replay", "billing.dead", "--expect", "3", "--rate", "none", "--ramp", "none")
	awaitDepth(t, target, "billing", n)
	desk(0, "discard", "shop.dead", "--expect", "3", "--forever")
	awaitDepth(t, target, "shop.dead", 0)
}

// Without the right to make the queue of the records of runs, a command works as with it, and says
// that the run is not recorded.
func TestRunsNeedNoRightToBeRecorded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := deadLetters(t, 3)
	g := grant(t, deskRightsFile, "desk")
	g = without(g, right{"configure", `shop\.desk\..*`})
	g.Configure = append(g.Configure, `shop\.desk\.[0-9].*`, `shop\.desk\.lock\..*`)
	code, out := dlxctl(as(t, target, g), "desk", "park", "billing.dead", "--yes", "-f", file)
	const says = "lacks configure on the queue shop.desk.log; run 'dlxctl rights' and add "
	if code != 0 || strings.Count(out, "is not recorded: user ") != 1 || !strings.Contains(out, says) {
		t.Errorf("exit code %d, and not once %q:\n%s", code, says, out)
	}
	awaitDepth(t, target, "shop.parked", 3)
	code, out = dlxctl(target, "desk", "run", "list", "--ended", "-f", file)
	if code != 0 || !strings.Contains(out, "no record of a run") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// With the rights that 'dlxctl rights' prints for pulling, messages can be pulled out of a work
// queue. With those of the user desk they cannot.
func TestPullRights(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := deadLetters(t, 1)
	brokertest.PublishConfirmed(t, target.Confirming(t), "events", "order", amqp091.Publishing{MessageId: "m-1"})
	pull := []string{"desk", "pull", "billing", "--where", `id == "m-1"`, "--yes", "--expect", "1", "-f", file}
	code, out := dlxctl(as(t, target, grant(t, deskRightsFile, "desk")), pull...)
	for _, says := range []string{"lacks read on the queue billing", "run 'dlxctl rights' and add ", "desk-pull"} {
		if code != 3 || !strings.Contains(out, says) {
			t.Errorf("the user desk pulls with exit code %d, and the output does not say %q:\n%s", code, says, out)
		}
	}
	awaitDepth(t, target, "billing", 1)
	succeeds(t, as(t, target, grant(t, deskRightsFile, "desk-pull")), pull...)
	awaitDepth(t, target, "billing", 0)
	awaitDepth(t, target, "billing.dead", 2)
	// desk find looks into each queue, so that it knows whether a message is anywhere.
	brokertest.PublishConfirmed(t, target.Confirming(t), "", "shop.standard.failed", amqp091.Publishing{MessageId: "m-2"})
	puller, find := as(t, target, grant(t, deskRightsFile, "desk-pull")), []string{"desk", "find", "m-2", "-f", file}
	brokertest.Eventually(t, "m-2 is found in the failed queue", func() bool {
		code, out := dlxctl(puller, find...)
		return code == 0 && strings.Contains(out, "shop.standard.failed")
	})
}

// deskNeeds returns, for each right of the user desk, commands that need it. run is a stopped run
// with messages of shop.unroutable, and copied is an export.
func deskNeeds(target brokertest.Target, run, copied string) map[right][][]string {
	replay := []string{"replay", "billing.dead", "--yes"}
	mail := []string{"replay", "shop.dead", "--yes"}
	every := [][]string{
		replay,
		{"park", "billing.dead", "--yes"},
		{"discard", "billing.dead", "--forever", "--yes", "--expect", "1"},
		{"restore", "--yes"},
		{"run", "resume", "--yes"},
		{"run", "resume", run, "--yes"},
		{"run", "return", run, "--yes"},
	}
	needs := map[right][][]string{
		{"configure", `shop\.desk\..*`}: every,
		{"write", `shop\.desk\..*`}:     {replay, {"run", "return", run, "--yes"}},
		{"read", `shop\.desk\..*`}:      {replay, {"run", "resume", run, "--yes"}},
		{"write", `amq\.default`}:       {replay, {"import", "billing.dead", copied, "--yes"}},
		{"configure", `shop\.parked`}:   {{"park", "billing.dead", "--yes"}, {"discard", "billing.dead", "--yes"}},
		{"write", `shop\.return`}:       {replay, mail},
		{"read", `shop\.failed`}:        {replay, mail},
		{"configure", `shop\.lock`}:     {replay, mail},
		{"read", `billing\.dead`}:       {replay, {"list", "billing.dead"}, {"list", "@billing"}},
		{"read", `shop\.dead`}:          {mail, {"groups", "shop.dead"}},
		{"read", `shop\.unroutable`}:    {{"list", "shop.unroutable"}},
		{"read", `shop\.parked`}:        {{"list", "shop.parked"}, {"restore", "--yes"}},
		{"write", `billing\.dead`}:      {{"restore", "--yes"}},
		{"write", `shop\.dead`}:         {{"restore", "--yes"}},
		{"write", `shop\.unroutable`}:   {{"run", "return", run, "--yes"}},
		{"write", "billing"}:            {replay},
		{"write", "mail"}:               {mail},
	}
	if !target.AtLeast("4.3") { // older brokers tell each user how many messages wait in a queue
		needs[right{"write", "billing"}], needs[right{"write", "mail"}] = nil, nil
	}
	return needs
}

// Without one of the rights that 'dlxctl rights' prints for acting at the desk, each command that
// needs it is refused before anything moves, and names the right and how to get it.
func TestEachDeskRightIsNeeded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := deadLetters(t, 3)
	putQueue(t, target, "full", map[string]any{"x-max-length": 0, "x-overflow": "reject-publish"})
	copied := filepath.Join(t.TempDir(), "copied.jsonl")
	succeeds(t, target, "desk", "export", "billing.dead", copied, "--raw", "-f", file)
	putQueue(t, target, "shop.parked", map[string]any{"x-queue-type": "quorum"})
	for _, queue := range []string{"billing.dead", "shop.dead"} {
		brokertest.PublishConfirmed(t, target.Confirming(t), "", "shop.parked",
			amqp091.Publishing{Headers: amqp091.Table{"desk-parked-from": queue}})
	}
	code, out := dlxctl(target,
		"desk", "replay", "shop.unroutable", "--to", "queue:full", "--limit", "2", "--yes", "-f", file)
	if code != 2 {
		t.Fatalf("a replay to a queue that is full exits with %d:\n%s", code, out)
	}
	run := regexp.MustCompile(`desk run resume (\S+)`).FindStringSubmatch(out)[1]
	full := grant(t, deskRightsFile, "desk")
	full.Write = append(full.Write, "full") // of another team
	before, needs := deskState(t, target), deskNeeds(target, run, copied)
	for _, missing := range append(rightsOf(full), right{"tag", "management"}) {
		commands, known := needs[missing]
		if missing.permission == "tag" {
			commands, known = [][]string{{"list", "billing.dead"}, {"run", "list"}, {"replay", "billing.dead", "--yes"}}, true
		}
		if !known && missing.expression != "full" {
			t.Errorf("no command is known to need %s", missing)
		}
		user := as(t, target, without(full, missing))
		for _, command := range commands {
			args := append(append([]string{"desk"}, command...), "-f", file)
			code, out := dlxctl(user, args...)
			fix := "run 'dlxctl rights' and add "
			if missing.permission == "tag" {
				fix = "rabbitmqctl set_user_tags"
			}
			for _, says := range []string{missing.permission, missing.object(), fix} {
				if code != 3 || !strings.Contains(out, says) {
					t.Errorf("%q without %s exits with %d, or does not say %q:\n%s", args, missing, code, says, out)
				}
			}
		}
	}
	if after := deskState(t, target); !slices.Equal(before, after) {
		t.Errorf("the refused commands have moved something: %q, before %q", after, before)
	}
}

// deskState returns what the virtual host has, and how many messages its queues have.
func deskState(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	state := target.Definitions(t)
	for _, queue := range []string{"billing", "mail", "billing.dead", "shop.dead", "shop.unroutable", "shop.parked"} {
		state = append(state, fmt.Sprintf("%d messages in %s", brokertest.Ready(t, target.Channel(t), queue), queue))
	}
	return state
}
