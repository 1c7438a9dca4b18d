package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const tutorialFile = `
version: 1
name: shop
defaults: {backoff: none}
exchanges: [{name: events}]
queues: [{name: billing, bindings: [{exchange: events, key: "order.*"}]}]
`

// tutorial follows docs/desk.md as a person with the printed rights of the desk.
type tutorial struct {
	reader
	admin   brokertest.Target
	publish *amqp091.Channel
	// fails is a regular expression for the bodies that the service rejects.
	fails atomic.Pointer[regexp.Regexp]
	// names are the handles and runs of the page, each with the real one.
	names *strings.Replacer
}

// newTutorial returns the reader of the page, with a service that fails for each body.
func newTutorial(t *testing.T) *tutorial {
	t.Helper()
	target := brokertest.VHost(t)
	tut := &tutorial{admin: target, publish: target.Confirming(t), names: strings.NewReplacer()}
	tut.fail(`.`)
	file := writeTopology(t, tutorialFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	tut.reader = reader{t, as(t, target, grant(t, tutorialFile, "desk")), filepath.Dir(file)}
	ch := target.Channel(t)
	deliveries := brokertest.Consume(t, ch, "billing", 1)
	go func() {
		for d := range deliveries {
			if strings.Contains(string(d.Body), "slow") {
				<-t.Context().Done()
			}
			if tut.fails.Load().Match(d.Body) {
				_ = d.Reject(false) // the broker delivers it again if this fails
			} else {
				_ = d.Ack(false)
			}
		}
	}()
	return tut
}

// fail makes the service reject bodies that match.
func (t *tutorial) fail(bodies string) { t.fails.Store(regexp.MustCompile(bodies)) }

// dead publishes messages that fail, and waits for them in the dead-letter queue, which then has
// total.
func (t *tutorial) dead(total int, bodies ...string) {
	t.Helper()
	for i, body := range bodies {
		brokertest.PublishConfirmed(t.T, t.publish, "events", "order.placed", amqp091.Publishing{
			MessageId: fmt.Sprintf("o-%d", i), ContentType: "application/json", Body: []byte(body),
		})
	}
	awaitDepth(t.T, t.target, "billing.dead", total)
}

// orders returns n bodies.
func orders(n int, format string) []string {
	var bodies []string
	for i := range n {
		bodies = append(bodies, fmt.Sprintf(format, i))
	}
	return bodies
}

// prepare brings about what the page presumes before a command, and returns the exit code that the
// page names.
func (t *tutorial) prepare(command string) (code int) {
	t.Helper()
	switch {
	case command == "dlxctl desk":
		t.dead(12, append(orders(11, `{"order":%d,"country":"AT"}`), `{"order":12}`)...)
		var out string
		brokertest.Eventually(t.T, "the overview to count", func() bool { // its counts are up to 5 seconds old
			out = succeeds(t.T, t.target, "desk", "-f", filepath.Join(t.dir, "topology.yaml"))
			return strings.Contains(out, "12 × rejected")
		}, &out)
	case strings.HasPrefix(command, "dlxctl desk replay @billing --where"):
		t.fail("broken") // the service is fixed
	case strings.HasPrefix(command, "dlxctl desk edit"):
		writeTo(t.T, filepath.Join(t.dir, "fixed.json"), `{"order":12,"country":"AT"}`)
	case command == "dlxctl desk replay @billing --yes":
		t.fail(".")
		t.dead(8, orders(8, `{"order":%d,"country":"AT"}`)...)
		return 2
	case strings.HasPrefix(command, "dlxctl desk pull") && !strings.Contains(command, "--yes"):
		t.target = as(t.T, t.admin, grant(t.T, tutorialFile, "desk-pull"))
		for _, body := range []string{`{"slow":true}`, `{"customer":4711}`} {
			brokertest.PublishConfirmed(t.T, t.publish, "events", "order.placed", amqp091.Publishing{Body: []byte(body)})
		}
		awaitDepth(t.T, t.target, "billing", 1)
	case strings.HasPrefix(command, "dlxctl desk digest"): // the counts are older than what was taken before
		brokertest.Eventually(t.T, "counts without what was taken", func() bool {
			code, _ := dlxctl(t.target, "desk", "digest", "-f", filepath.Join(t.dir, "topology.yaml"))
			return code == 0
		})
	case strings.Contains(command, "--forever --yes"):
		t.fail(".")
		t.dead(11, orders(3, `{"order":%d,"test":true}`)...)
	}
	return 0
}

// step runs a command of the page, and compares its output with what the page shows.
func (t *tutorial) step(command string, shows []string) {
	t.Helper()
	code := t.prepare(command)
	settle := "300ms"
	if code == 2 {
		settle = "20s" // the run stops at once
	}
	p := commandOf(t.T, t.target, exec.CommandContext(t.Context(), "sh", "-ec", t.names.Replace(command)))
	p.Dir, p.Env = t.dir, append(p.Env, "DLXCTL_SETTLE="+settle)
	p.begin(t.T)
	p.exits(t.T, code)
	printed := p.stdout.String() + p.stderr.String()
	for _, line := range shows {
		if !pattern(line).MatchString(printed) {
			t.Errorf("%q does not print the line of the page\n%s\nbut\n%s", command, line, printed)
		}
	}
	if strings.Contains(command, "groups") && shows != nil {
		var pairs []string
		for page, row := range map[string]string{"0a1b2c3d4e5f": `AT`, "9f8e7d6c5b4a": `\(no value\)`} {
			pairs = append(pairs, page, regexp.MustCompile(`([0-9a-f]{12}) +` + row).FindStringSubmatch(printed)[1])
		}
		t.names = strings.NewReplacer(pairs...)
	}
	if run := regexp.MustCompile(`desk run return (\S+)`).FindStringSubmatch(printed); run != nil {
		t.fail("broken") // the service is fixed again
		p := commandOf(t.T, t.target, exec.CommandContext(t.Context(), "dlxctl", "desk", "run", "return", run[1], "--yes"))
		p.Dir = t.dir
		p.begin(t.T)
		p.exits(t.T, 0)
	}
}

// pattern returns an expression for a line of the page, with any handle, run, time, duration and
// user in their place, and any number of spaces between the columns.
func pattern(line string) *regexp.Regexp {
	text := regexp.QuoteMeta(strings.TrimSpace(line))
	for _, r := range [][2]string{
		{`\d{8}-\d{6}-[0-9a-z]{6}`, `\d{8}-\d{6}-[0-9a-z]{6}`},
		{`[0-9a-f]{12}`, `[0-9a-f]{12}`},
		{`\d{4}-\d\d-\d\dT[0-9:]+Z`, `\S+Z`},
		{`\d+ms`, `\S+`},
		{`ann@laptop`, `\S+@\S+`},
		{` {2,}`, ` +`},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllLiteralString(text, r[1])
	}
	return regexp.MustCompile(`(?m)^ *` + text + ` *$`)
}

// A reader who follows docs/desk.md step by step, with the printed rights of the desk, sees what
// the page shows: a poison message, its group, its cause, a canary, and a full replay.
func TestDeskTutorial(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	page, err := os.ReadFile("../docs/desk.md")
	if err != nil {
		t.Fatal(err)
	}
	tut := newTutorial(t)
	steps := 0
	// What a section shows that has no commands of this kind belongs to none of another section.
	fences := regexp.MustCompile("(?ms)^```(sh)?\n(.*?)^```$|^## ").FindAllStringSubmatch(string(page), -1)
	for i, fence := range fences {
		if fence[1] != "sh" {
			continue
		}
		var shows []string
		if i+1 < len(fences) && fences[i+1][1] == "" && fences[i+1][2] != "" {
			shows = strings.Split(strings.TrimSpace(fences[i+1][2]), "\n")
		}
		for command := range strings.SplitSeq(strings.TrimSpace(fence[2]), "\n") {
			steps++
			tut.step(command, shows)
		}
	}
	if steps < 15 {
		t.Errorf("only %d steps were found", steps)
	}
}
