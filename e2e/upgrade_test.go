package e2e_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// release is dlxctl of an earlier commit.
type release struct{ program, version string }

// earlierRelease builds dlxctl of the last tag before this commit. While there is none, it is that
// of the commit that wrote "## 0.1.0" into the changelog. The program is kept, so that the lines of
// RabbitMQ that are tested one after the other build it once.
func earlierRelease(t *testing.T) release {
	t.Helper()
	git := func(args ...string) string {
		out, _ := exec.CommandContext(t.Context(), "git", args...).Output() // empty is not found
		found, _, _ := strings.Cut(string(out), "\n")
		return found
	}
	tag := git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
	commit := git("rev-parse", "--verify", "--quiet", cmp.Or(tag,
		git("log", "--reverse", "--format=%H", "-G", `^## 0\.1\.0$`, "--", "../CHANGELOG.md"))+"^{commit}")
	if commit == "" {
		t.Skip("nothing is tested: no tag and no commit of 0.1.0 is in this checkout, which may lack the history")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	r := release{version: "v0.0.0-earlier." + commit[:12]}
	r.program = filepath.Join(cache, "dlxctl", "earlier-"+commit)
	if _, err := os.Stat(r.program); err != nil {
		dir := t.TempDir()
		build := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
			`git -C .. archive "$0" | tar -x -C "$1" && cd "$1"
			go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/dlxctl/dlxctl/cmd.version=$2" -o built .
			mkdir -p "$(dirname "$3")" && cp built "$3.$$" && mv "$3.$$" "$3"`, commit, dir, r.version, r.program)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build dlxctl of %s: %v\n%s", commit, err, out)
		}
	}
	t.Logf("the earlier release is %s %s", tag, commit)
	return r
}

// start starts the earlier release.
func (r release) start(t *testing.T, target brokertest.Target, args ...string) *process {
	t.Helper()
	p := commandOf(t, target, exec.CommandContext(t.Context(), r.program, args...))
	p.begin(t)
	return p
}

// exits runs the earlier release and checks its exit code.
func (r release) exits(t *testing.T, code int, target brokertest.Target, args ...string) *process {
	t.Helper()
	p := r.start(t, target, args...)
	p.exits(t, code)
	return p
}

// What docs/upgrade.md says of this release and the one before it. Each message ends once, where it
// belongs.
func TestUpgradeFromTheLastRelease(t *testing.T) {
	t.Parallel()
	earlier := earlierRelease(t)
	for name, test := range brokertest.ShareNamed(map[string]func(*testing.T, release){
		"two processors":    upgradeWithTwoProcessors,
		"messages in tiers": upgradeWithMessagesInTiers,
		"migrations":        upgradeWithinMigrations,
		"runs of the desk":  upgradeWithinRuns,
		"saved plans":       upgradeWithSavedPlans,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, earlier)
		})
	}
}

// numbered publishes the messages KEY-from to KEY-(to-1) with each of the keys.
func numbered(t *testing.T, ch *amqp091.Channel, from, to int, keys ...string) {
	t.Helper()
	for _, key := range keys {
		for n := from; n < to; n++ {
			brokertest.PublishConfirmed(t, ch, "e", key, amqp091.Publishing{MessageId: fmt.Sprint(key, "-", n)})
		}
	}
}

// holds waits until a queue has had the messages KEY-0 to KEY-(n-1), empties it, and checks that it
// had no other, and none twice but for the number that may be doubled.
func holds(t *testing.T, ch *amqp091.Channel, queue, key string, n, doubled int) {
	t.Helper()
	seen := map[string]int{}
	brokertest.Eventually(t, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		for id, n := range brokertest.Drain(t, ch, queue) {
			seen[id] += n
		}
		return len(seen) >= n
	}, &seen)
	more := 0
	for id, times := range seen {
		if more += times - 1; !strings.HasPrefix(id, key+"-") {
			t.Errorf("%s has %q", queue, id)
		}
	}
	if len(seen) > n || more > doubled {
		t.Errorf("%s has %d messages and %d doubles, not %d and at most %d: %v", queue, len(seen), more, n, doubled, seen)
	}
}

// Processors of both releases share the failed queues, before and after the apply of this one.
func upgradeWithTwoProcessors(t *testing.T, earlier release) { //nolint:thelper // it is a test
	target, file := brokertest.VHost(t), writeTopology(t, `
version: 1
name: shop
backoff: {a: {tiers: [200ms, 300ms]}, b: {tiers: [100ms, 100ms, 100ms]}}
exchanges: [{name: e}]
queues:
  - {name: billing, backoff: a, bindings: [{exchange: e, key: billing}]}
  - {name: mail, backoff: b, type: classic, deadLetterBy: policy, bindings: [{exchange: e, key: mail}]}
`)
	ch := target.Confirming(t)
	earlier.exits(t, 0, target, "apply", "--yes", "-f", file)
	f := failIn(t, target)
	f.reject(t, "billing")
	f.reject(t, "mail")
	defer earlier.start(t, target, "process", "-f", file).kill()
	numbered(t, ch, 0, 100, "billing", "mail")
	succeeds(t, target, "apply", "--yes", "-f", file)
	numbered(t, ch, 100, 200, "billing", "mail")
	defer start(t, target, "process", "-f", file).kill()
	numbered(t, ch, 200, 300, "billing", "mail")
	for queue, attempts := range map[string]int{"billing": 3, "mail": 4} {
		holds(t, ch, queue+".dead", queue, 300, 0)
		for n := range 300 {
			f.delivers(t, fmt.Sprintf("%s/%[1]s-%d", queue, n), attempts)
		}
	}
	holds(t, ch, "shop.unroutable", "", 0, 0)
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
}

// Messages wait in a tier of the earlier release, which does not run any more when they leave it.
// They have the attempts that are left to them.
func upgradeWithMessagesInTiers(t *testing.T, earlier release) { //nolint:thelper // it is a test
	target, file := brokertest.VHost(t), writeTopology(t, `
version: 1
name: shop
backoff: {a: {tiers: [100ms, 15s, 200ms]}}
exchanges: [{name: e}]
queues:
  - {name: billing, backoff: a, bindings: [{exchange: e, key: billing}]}
  - {name: mail, backoff: a, type: classic, dead: shared, bindings: [{exchange: e, key: mail}]}
`)
	ch := target.Confirming(t)
	earlier.exits(t, 0, target, "apply", "--yes", "-f", file)
	f := failIn(t, target)
	f.reject(t, "billing")
	f.reject(t, "mail")
	processor := earlier.start(t, target, "process", "-f", file)
	numbered(t, ch, 0, 20, "billing", "mail")
	awaitDepth(t, target, topology.RetryQueueName("shop", "a", 15*time.Second), 40)
	processor.signal(t, syscall.SIGTERM)
	processor.exits(t, 0)
	succeeds(t, target, "apply", "--yes", "-f", file)
	defer start(t, target, "process", "-f", file).kill()
	holds(t, ch, "billing.dead", "billing", 20, 0)
	holds(t, ch, "shop.dead", "mail", 20, 0)
	for n := range 20 {
		f.delivers(t, fmt.Sprint("billing/billing-", n), 4)
		f.delivers(t, fmt.Sprint("mail/mail-", n), 4)
	}
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
}

// The earlier release has begun migrations, and was killed in two of them. This one ends each, or
// rolls it back.
func upgradeWithinMigrations(t *testing.T, earlier release) { //nolint:thelper // it is a test
	target := brokertest.VHost(t)
	legacy := []string{"prepared", "cut", "back", "drained", "replaced"}
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\ndefaults: {backoff: none}\nexchanges: [{name: e}]\nqueues:\n")
	for _, name := range legacy {
		successor := name + ".v2, replaces: " + name
		if name == "replaced" {
			successor = name + ", replace: true"
		}
		fmt.Fprintf(&b, "  - {name: %s, bindings: [{exchange: e, key: %s}]}\n", successor, name)
	}
	file := writeTopology(t, b.String())
	putExchange(t, target, "e")
	ch := target.Confirming(t)
	for _, name := range legacy {
		putQueue(t, target, name, map[string]any{"x-max-length": 1000})
		brokertest.Bind(t, ch, name, name, "e", nil)
	}
	numbered(t, ch, 0, 20, legacy...)
	migrate := func(args ...string) []string {
		return append([]string{"migrate", "--yes", "--settle", "100ms", "-f", file}, args...)
	}
	earlier.exits(t, 0, target, migrate("--until", "prepare", "prepared")...)
	earlier.exits(t, 0, target, migrate("--until", "cutover", "cut", "back", "drained")...)
	for name, line := range map[string]string{"drained": "drain: moving", "replaced": "replace: deleted replaced"} {
		p := earlier.start(t, target, migrate(name)...)
		brokertest.Eventually(t, fmt.Sprintf("%q of migrate", line), func() bool {
			return strings.Contains(p.stdout.String(), line)
		}, &p.stdout, &p.stderr)
		p.kill()
	}
	numbered(t, ch, 20, 40, legacy...)

	succeeds(t, target, "migrate", "status", "-f", file)
	succeeds(t, target, "migrate", "abort", "back", "--yes", "--settle", "100ms", "-f", file)
	succeeds(t, target, migrate("--idle", "1s", "--lock-timeout", lockFreed, "prepared", "cut", "drained", "replaced")...)
	numbered(t, ch, 40, 60, legacy...)
	// What was in flight when a drain was killed may come twice.
	doubles := map[string]int{"prepared.v2": 0, "cut.v2": 0, "back": 0, "drained.v2": 20, "replaced": 40}
	for queue, doubled := range doubles {
		key, _, _ := strings.Cut(queue, ".")
		holds(t, ch, queue, key, 60, doubled)
	}
}

// Runs that one release has begun, and that were killed or interrupted, are ended by the other.
func upgradeWithinRuns(t *testing.T, earlier release) { //nolint:thelper // it is a test
	target, file := brokertest.VHost(t), writeTopology(t, `
version: 1
name: shop
defaults: {backoff: none}
exchanges: [{name: e}]
queues:
  - {name: billing, bindings: [{exchange: e, key: billing}]}
`)
	earlier.exits(t, 0, target, "apply", "--yes", "-f", file)
	ch := target.Confirming(t)
	this := func(t *testing.T, target brokertest.Target, args ...string) *process {
		t.Helper()
		return start(t, target, args...)
	}
	replay := []string{"desk", "replay", "@billing", "--yes", "--rate", "4/s", "--ramp", "none", "-f", file}
	resume := []string{"desk", "run", "resume", "--yes", "--rate", "none", "--settle", "500ms", "-f", file}
	for _, c := range []struct {
		what         string
		begins, ends func(*testing.T, brokertest.Target, ...string) *process
		killed       bool
	}{
		{"begun by the earlier release, killed, and resumed by this one", earlier.start, this, true},
		{"begun by the earlier release, interrupted, and resumed by this one", earlier.start, this, false},
		{"begun by this release, interrupted, and resumed by the earlier one", this, earlier.start, false},
	} {
		numbered(t, ch, 0, 20, "billing")
		for range 20 {
			m := brokertest.Take(t, ch, "billing")
			if err := m.Reject(false); err != nil {
				t.Fatal(err)
			}
		}
		awaitDepth(t, target, "billing.dead", 20)
		run := c.begins(t, target, replay...)
		brokertest.Eventually(t, "the first messages of a run "+c.what, func() bool {
			return brokertest.Ready(t, ch, "billing") >= 2
		}, &run.stdout, &run.stderr)
		doubled := 0
		if c.killed {
			doubled = 1 // --in-flight with a rate
			run.kill()
			runs := ""
			brokertest.Eventually(t, "no process to work on the run", func() bool { // as the broker sees it
				runs = succeeds(t, target, "desk", "run", "list", "-f", file)
				return !strings.Contains(runs, " now ")
			}, &runs)
		} else {
			run.signal(t, syscall.SIGINT)
			run.exits(t, 2)
		}
		c.ends(t, target, resume...).exits(t, 0)
		holds(t, ch, "billing", "billing", 20, doubled)
		holds(t, ch, "billing.dead", "billing", 0, 0)
		if t.Failed() {
			t.Fatalf("after a run %s", c.what)
		}
	}
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
}

// A plan that one release has saved is refused by the other, which says why and writes nothing.
func upgradeWithSavedPlans(t *testing.T, earlier release) { //nolint:thelper // it is a test
	target, file := brokertest.VHost(t), writeTopology(t, pageFile)
	before, dir := target.Definitions(t), t.TempDir()
	old, now := filepath.Join(dir, "earlier.json"), filepath.Join(dir, "now.json")
	earlier.exits(t, 0, target, "plan", "--save", old, "-f", file)
	succeeds(t, target, "plan", "--save", now, "-f", file)
	code, out := dlxctl(target, "apply", "--yes", old)
	if reason := "dlxctl " + earlier.version + " saved this plan, "; code != 1 || !strings.Contains(out, reason) {
		t.Errorf("a plan of the earlier release is refused with %d, and without %q:\n%s", code, reason, out)
	}
	out = earlier.exits(t, 1, target, "apply", "--yes", now).stderr.String()
	if reason := " saved this plan, and this is dlxctl " + earlier.version; !strings.Contains(out, reason) {
		t.Errorf("the earlier release refuses a plan of this one without %q:\n%s", reason, out)
	}
	unchanged(t, target, before, "a plan of another release")
}
