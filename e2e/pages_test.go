package e2e_test

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
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/cmd"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// followed returns the pages whose commands TestReadme runs, in the order in which a reader
// follows them.
func followed() []string {
	return []string{
		"../README.md", "../docs/file.md", "../docs/plan.md", "../docs/migrate.md",
		"../docs/processor.md", "../docs/metrics.md",
	}
}

// answers returns the exit codes of the pages' commands that are not 0, as the pages say.
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

// blocks returns the blocks of a page that are in one of the languages, in their order.
func blocks(t *testing.T, page string, langs ...string) []block {
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
			if slices.Contains(langs, inside.lang) {
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

// commands returns the commands of a block, without comments.
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

// reader follows the pages, in a folder with the topology of their yaml blocks and on a
// broker with the queues that those presume.
type reader struct {
	*testing.T
	target brokertest.Target
	dir    string
}

// newReader returns a reader with a virtual host of its own.
func newReader(t *testing.T) reader {
	t.Helper()
	r := reader{t, brokertest.VHost(t), t.TempDir()}
	ch := r.target.Channel(t)
	brokertest.DeclareExchange(t, ch, "events", "topic", nil)
	for _, queue := range []string{"crm.inbox", "invoices"} {
		arguments := amqp091.Table{"x-queue-type": "classic"}
		brokertest.Declare(t, ch, queue, arguments)
	}
	brokertest.Bind(t, ch, "invoices", "invoice.*", "events", nil)
	topology, overlay := pagesTopology(t)
	for name, text := range map[string]string{
		"topology.yaml": topology,
		"shop.yaml":     topology,
		"prod.yaml":     overlay,
		"mail.yaml": "version: 1\nname: mail\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\n" +
			"queues: [{name: mails}]\n",
	} {
		writeTo(t, filepath.Join(r.dir, name), text)
	}
	return r
}

// pagesTopology is the file of the README with the queues that docs/file.md adds, and the overlay
// of that page.
func pagesTopology(t *testing.T) (whole, overlay string) {
	t.Helper()
	for _, page := range []string{"../README.md", "../docs/file.md"} {
		for _, b := range blocks(t, page, "yaml") {
			text := strings.Join(b.lines, "\n") + "\n"
			added, queues := strings.CutPrefix(text, "queues:\n")
			switch {
			case whole == "" && strings.HasPrefix(text, "version: 1\n"):
				whole = text
			case queues && strings.Contains(whole, "\nqueues:\n"):
				whole += added
			case regexp.MustCompile(`^(version: 1|messages:|backoff:|defaults:|notify:)\n`).MatchString(text):
				checkFragment(t, page, text)
			case strings.HasPrefix(text, "# prod.yaml\n"):
				overlay = text
			default:
				t.Fatalf("%s has a yaml block that the test does not know how to read:\n%s", page, text)
			}
		}
	}
	return whole, overlay
}

// checkFragment checks that the block of a page is a topology file, or a part of one.
func checkFragment(t *testing.T, page, block string) {
	t.Helper()
	text := block
	if !strings.HasPrefix(text, "version:") {
		text = "version: 1\nname: shop\n" + text
	}
	if !strings.Contains(text, "\nbackoff:") {
		text += "backoff: {standard: {tiers: [1s]}}\n"
	}
	file := writeTopology(t, text)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "orders.binpb"), nil, 0o600); err != nil { // some name it
		t.Fatal(err)
	}
	if code, out := run("validate", "-f", file); code != 0 {
		t.Errorf("%s: dlxctl validate refuses a block: %s\n%s", page, out, block)
	}
}

// shell starts a command in the reader's folder.
func (r reader) shell(command string) *process {
	r.Helper()
	p := commandOf(r.T, r.target, exec.CommandContext(r.Context(), "sh", "-ec", command))
	p.Dir = r.dir
	p.Env = append(p.Env,
		"DLXCTL_IDLE=100ms", "DLXCTL_SETTLE=10ms", // a reader waits longer
		"DLXCTL_LISTEN=127.0.0.1:0",
	)
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
	// Another program may listen at the port of the page.
	p := r.shell("exec " + strings.ReplaceAll(command, "--listen :9419", "--listen 127.0.0.1:0"))
	p.answers(r.T, "/readyz")
	p.signal(r.T, syscall.SIGTERM)
	p.exits(r.T, 0)
}

// follow runs a command of a page. A command that it cannot run is an error, so that a
// page shows no command that is not tested.
func (r reader) follow(command string) {
	r.Helper()
	words := strings.Fields(command)
	switch {
	case words[0] == "export":
		checkExport(r.T, words)
	case words[0] == "make":
		checkTarget(r.T, words) // scripts/fresh runs them
	case words[0] == "go":
		checkInstall(r.T, command)
	case words[0] != "dlxctl":
		r.Errorf("no test runs %q: add it here, or say here why not", command)
	case words[1] == "process" && !slices.Contains(words, "--until-empty"):
		r.runs(command)
	case strings.HasPrefix(command, "dlxctl migrate abort"):
		// At this place of the page the migration is finished, and nothing is left to roll
		// back. So another reader runs this command halfway.
		half := newReader(r.T)
		half.does("dlxctl migrate --yes --until cutover")
		half.does(command)
	default:
		r.does(command)
	}
}

// checkExport checks that dlxctl reads the variable. The test sets its own value.
func checkExport(t *testing.T, words []string) {
	t.Helper()
	name, _, given := strings.Cut(words[1], "=")
	if !given || !slices.Contains([]string{"RABBITMQ_URL", "RABBITMQ_API_URL"}, name) {
		t.Errorf("%q sets a variable that the test does not set", words)
	}
}

// checkInstall checks that the command installs this module.
func checkInstall(t *testing.T, command string) {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Fields(string(mod))[1]
	if want := "go install " + module + "@latest"; command != want {
		t.Errorf("%q does not install the module; write %q", command, want)
	}
}

// checkTarget checks that make has the target.
func checkTarget(t *testing.T, words []string) {
	t.Helper()
	arguments := append([]string{"-C", "..", "--dry-run"}, words[1:]...)
	if out, err := exec.CommandContext(t.Context(), "make", arguments...).CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", words, err, out)
	}
}

// The commands of the README and of the pages after it do what the pages say, in the
// order in which a reader follows them.
func TestReadme(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	needsLine(t, "4.0") // for match
	r := newReader(t)
	found := 0
	for _, page := range followed() {
		for _, b := range blocks(t, page, "sh") {
			for _, command := range b.commands() {
				found++
				r.follow(command)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d commands were found", found)
	}
}

// The commands of the other pages, in blocks and in sentences, are commands of dlxctl with
// flags and arguments that it accepts.
func TestCommandsInThePages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(pages, "../CONTRIBUTING.md", "../SECURITY.md", "../README.md", "../ARCHITECTURE.md") {
		var listed []block
		if !slices.Contains(followed(), page) { // TestReadme runs the commands of those
			listed = blocks(t, page, "sh")
		}
		for _, b := range listed {
			for _, line := range b.commands() {
				for _, command := range chained(line) {
					checked++
					couldDo(t, page, command)
				}
			}
		}
		for _, command := range inSentences(t, page) {
			checked++
			var value *pflag.ValueRequiredError // the sentence names the flag alone
			if err := checkArgs(shellWords(command)[1:]); err != nil && !errors.As(err, &value) {
				t.Errorf("%s: %q: %v", page, command, err)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// chained returns the commands of a line that && or | connects. A quoted && or | is part of an
// argument.
func chained(line string) []string {
	var all []string
	begin, quoted := 0, false
	for i := range len(line) {
		switch rest := line[i:]; {
		case line[i] == '\'':
			quoted = !quoted
		case !quoted && (strings.HasPrefix(rest, " && ") || strings.HasPrefix(rest, " | ")):
			all = append(all, line[begin:i])
			begin = i + len(" | ")
			if strings.HasPrefix(rest, " && ") {
				begin++
			}
		}
	}
	return append(all, line[begin:])
}

// shellWords returns the words of a command, as a shell reads its single quotes.
func shellWords(command string) []string {
	words := regexp.MustCompile(`(?:'[^']*'|[^\s'])+`).FindAllString(command, -1)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "'", "")
	}
	return words
}

// inSentences returns the commands that the sentences of a page show as code.
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

// couldDo checks a command without running it.
func couldDo(t *testing.T, page, command string) {
	t.Helper()
	for strings.Contains(strings.Fields(command)[0], "=") { // a variable for the command
		_, command, _ = strings.Cut(command, " ")
	}
	command, _, _ = strings.Cut(command, " > ")
	switch words := shellWords(command); words[0] {
	case "dlxctl":
		if err := checkArgs(words[1:]); err != nil {
			t.Errorf("%s: %q: %v", page, command, err)
		}
	case "make":
		checkTarget(t, words)
	case "promtool": // TestPromtoolAcceptsRulesAndQueries runs it
	case "curl", "sh", "sha256sum", "sudo": // scripts/packagetest installs the packages by these programs
	case "kubectl", "terraform": // programs of others; TestOutputsCreateTheTopology does what they do
	default:
		t.Errorf("%s: no test checks %q", page, command)
	}
}

// checkArgs returns the error with which dlxctl would refuse arguments. The desk reads what a flag
// names as the target of messages only when it runs.
func checkArgs(args []string) error {
	if i := slices.Index(args, "--to"); i > 1 && i+1 < len(args) && args[1] == "replay" {
		ask := desk.DefaultAsk(desk.Replay)
		ask.To = args[i+1]
		if _, err := ask.Request(time.Time{}); err != nil {
			return err
		}
	}
	return cmd.CheckArgs(args...)
}

// The test of the pages refuses what is not a command of dlxctl, and accepts what is one.
func TestCheckArgs(t *testing.T) {
	t.Parallel()
	for command, taken := range map[string]bool{
		"frobnicate":                             false,
		"generate nothing":                       false,
		"plan extra":                             false,
		"plan --frobnicate":                      false,
		"apply --lock-timeout 5":                 false,
		"plan -o xml":                            false,
		"generate args":                          false,
		"generate alerts extra":                  false,
		"plan -f a.yaml":                         true,
		"apply plan.json":                        true,
		"apply --wait":                           true,
		"apply --wait=10m":                       true,
		"migrate invoices --until cutover --yes": true,
		"":                                       true,
		"generate alerts -o json":                true,
		"status billing mail":                    true,
		"desk replay billing.dead --to mail":     false,
	} {
		if err := checkArgs(strings.Fields(command)); (err == nil) != taken {
			t.Errorf("dlxctl %s: %v", command, err)
		}
	}
}
