package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/cmd"
)

// answers gives the exit codes of the README's commands that are not 0, as the page
// says.
func answers() map[string]int {
	return map[string]int{
		"dlxctl plan --detailed-exitcode": 2, // nothing was applied yet
	}
}

// block is a fenced block of a page.
type block struct {
	page, lang string
	lines      []string
}

// blocks gives the blocks of a page that are in a language.
func blocks(t *testing.T, page, lang string) []block {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []block
	var inside *block
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		fence, fenced := strings.CutPrefix(line, "```")
		switch {
		case fenced && inside == nil:
			inside = &block{page: page, lang: fence}
		case fenced:
			if inside.lang == lang {
				found = append(found, *inside)
			}
			inside = nil
		case inside != nil:
			inside.lines = append(inside.lines, line)
		}
	}
	if inside != nil {
		t.Fatalf("%s: a block does not end", page)
	}
	return found
}

// commands gives the commands of a block, without what is said about them.
func (b block) commands() []string {
	text := strings.ReplaceAll(strings.Join(b.lines, "\n"), "\\\n", " ")
	var all []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " #")
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// reader is somebody who does what the README says, in a folder with the topology
// of its yaml blocks, beside the queues that those presume.
type reader struct {
	*testing.T
	target brokertest.Target
	dir    string
}

// newReader gives a reader with a virtual host of its own.
func newReader(t *testing.T) reader {
	t.Helper()
	r := reader{t, brokertest.VHost(t), t.TempDir()}
	ch := r.target.Channel(t)
	if err := ch.ExchangeDeclare("events", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"crm.inbox", "invoices"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.QueueBind("invoices", "invoice.*", "events", false, nil); err != nil {
		t.Fatal(err)
	}
	topology := readmeTopology(t)
	for name, text := range map[string]string{
		"topology.yaml": topology,
		"shop.yaml":     topology,
		"mail.yaml":     "version: 1\nname: mail\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nqueues: [{name: letters}]\n",
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// readmeTopology is the README's file with the queues that the other blocks add.
func readmeTopology(t *testing.T) string {
	t.Helper()
	var whole string
	for _, b := range blocks(t, "README.md", "yaml") {
		text := strings.Join(b.lines, "\n") + "\n"
		added, queues := strings.CutPrefix(text, "queues:\n")
		switch {
		case whole == "" && strings.HasPrefix(text, "version: 1\n"):
			whole = text
		case queues && strings.Contains(whole, "\nqueues:\n"):
			whole += added
		default:
			t.Fatalf("the README has a yaml block that the test does not know how to read:\n%s", text)
		}
	}
	return whole
}

// shell begins a command in the reader's folder, which the shell becomes.
func (r reader) shell(command string) *process {
	r.Helper()
	p := &process{Cmd: exec.CommandContext(r.Context(), "sh", "-ec", command), ended: make(chan struct{})}
	p.Dir = r.dir
	p.Env = append(os.Environ(),
		"RABBITMQ_URL="+r.target.URL, "RABBITMQ_API_URL="+r.target.API,
		"DLXCTL_IDLE=100ms", "DLXCTL_SETTLE=10ms", // a reader has more patience
		"DLXCTL_LISTEN=127.0.0.1:0",
	)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.begin(r.T)
	return p
}

// does runs a command to its end and checks its exit code.
func (r reader) does(command string) {
	r.Helper()
	r.shell(command).exits(r.T, answers()[command])
}

// runs starts a processor, waits until it is ready, and stops it as a service
// manager does.
func (r reader) runs(command string) {
	r.Helper()
	for _, found := range regexp.MustCompile(` -f (\S+)`).FindAllStringSubmatch(command, -1) {
		r.does("dlxctl apply --yes -f " + found[1])
	}
	p := r.shell("exec " + strings.ReplaceAll(command, "--listen :9419", "--listen 127.0.0.1:0")) // somebody may listen there
	address := p.address(r.T)
	eventually(r.T, command+" to be ready", func() bool { return strings.HasPrefix(get(r.T, address, "/readyz"), "200 ok") })
	p.signal(r.T, syscall.SIGTERM)
	p.exits(r.T, 0)
}

// follow does what a command of a page says, or fails: what nobody runs may not
// stand there.
func (r reader) follow(command string) {
	r.Helper()
	words := strings.Fields(command)
	switch {
	case words[0] == "export":
		checkExport(r.T, words)
	case words[0] == "make":
		checkTarget(r.T, words) // scripts/fresh runs them
	case words[0] != "dlxctl":
		r.Errorf("nobody runs %q: teach this test to, or say here why not", command)
	case words[1] == "process" && !slices.Contains(words, "--until-empty"):
		r.runs(command)
	case strings.HasPrefix(command, "dlxctl migrate abort"):
		// Where the README says so the migration is done. There is nothing to turn
		// back any more; so this is done by somebody who has got half way.
		half := newReader(r.T)
		half.does("dlxctl migrate --yes --until cutover")
		half.does(command)
	default:
		r.does(command)
	}
}

// checkExport checks that a variable is one that dlxctl reads. The test gives it a
// value of its own.
func checkExport(t *testing.T, words []string) {
	t.Helper()
	name, _, given := strings.Cut(words[1], "=")
	if !given || !slices.Contains([]string{"RABBITMQ_URL", "RABBITMQ_API_URL"}, name) {
		t.Errorf("%q sets none of the variables that the test sets too", words)
	}
}

// checkTarget checks that make has the target.
func checkTarget(t *testing.T, words []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run"}, words[1:]...)...).CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", words, err, out)
	}
}

// The commands of the README do what they say, in the order in which they stand
// there.
func TestReadme(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	found := 0
	for _, b := range blocks(t, "README.md", "sh") {
		for _, command := range b.commands() {
			found++
			r.follow(command)
		}
	}
	if found < 10 {
		t.Errorf("only %d commands were found", found)
	}
}

// The commands of the other pages, and the examples of the commands' help among
// them, are commands, and their flags and arguments are taken. So are those in the
// sentences of all pages.
func TestCommandsInThePages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "CONTRIBUTING.md", "THREATS.md", "README.md", "ARCHITECTURE.md") {
		var listed []block
		if page != "README.md" { // TestReadme does what stands there
			listed = blocks(t, page, "sh")
		}
		for _, b := range listed {
			for _, line := range b.commands() {
				for _, command := range regexp.MustCompile(` (?:&&|\|) `).Split(line, -1) {
					checked++
					couldDo(t, page, command)
				}
			}
		}
		for _, command := range inSentences(t, page) {
			checked++
			var value *pflag.ValueRequiredError // the sentence names the flag alone
			if err := cmd.Takes(strings.Fields(command)[1:]...); err != nil && !errors.As(err, &value) {
				t.Errorf("%s: %q: %v", page, command, err)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// inSentences gives the commands that stand as code within the sentences of a page.
func inSentences(t *testing.T, page string) []string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(data), "")
	var all []string
	for _, found := range regexp.MustCompile("`dlxctl ([^`]+)`").FindAllStringSubmatch(prose, -1) {
		all = append(all, "dlxctl "+found[1])
	}
	return all
}

// couldDo checks that a command is one, and does not run it.
func couldDo(t *testing.T, page, command string) {
	t.Helper()
	for strings.Contains(strings.Fields(command)[0], "=") { // a variable for the command
		_, command, _ = strings.Cut(command, " ")
	}
	command, _, _ = strings.Cut(command, " > ")
	switch words := strings.Fields(command); words[0] {
	case "dlxctl":
		if err := cmd.Takes(words[1:]...); err != nil {
			t.Errorf("%s: %q: %v", page, command, err)
		}
	case "make":
		checkTarget(t, words)
	case "promtool": // TestPromtoolTakesRulesAndQueries does that
	default:
		t.Errorf("%s: nobody looks at %q", page, command)
	}
}

// The test of the pages sees what is not a command of dlxctl, and does not see what is
// one as such a thing.
func TestTakes(t *testing.T) {
	t.Parallel()
	for command, taken := range map[string]bool{
		"frobnicate": false, "generate nothing": false, "plan extra": false, "plan --frobnicate": false, "apply --lock-timeout 5": false,
		"plan -o xml": false, "generate args": false, "status billing": false,
		"plan -f a.yaml": true, "apply plan.json": true, "apply --wait": true, "apply --wait=10m": true, "migrate invoices --until cutover --yes": true, "": true, "generate alerts -o json": true,
	} {
		if err := cmd.Takes(strings.Fields(command)...); (err == nil) != taken {
			t.Errorf("dlxctl %s: %v", command, err)
		}
	}
}
