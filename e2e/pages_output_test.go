package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// entry is a command of a console block and the lines below it, which it prints.
type entry struct {
	command string
	output  []string
}

// entries returns the commands of a console block.
func (b block) entries() []entry {
	var all []entry
	for _, line := range b.lines {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, entry{command: command})
		} else if n := len(all); n > 0 {
			all[n-1].output = append(all[n-1].output, line)
		}
	}
	return all
}

// The console blocks of the README show what the commands print. Each block is a session
// of its own: a new virtual host, and a folder "shop" with the yaml block above it. A
// line "..." in the page is any number of lines. With -update the test writes the page.
func TestReadmeOutput(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text, commands := string(page), 0
	for _, b := range blocks(t, "../README.md", "console") {
		r := reader{t, brokertest.VHost(t), filepath.Join(t.TempDir(), "shop")}
		if err := os.Mkdir(r.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if found := blocks(t, "../README.md", "yaml"); !strings.HasPrefix(b.lines[0], "$ dlxctl init") {
			topology := strings.Join(found[0].lines, "\n") + "\n"
			if err := os.WriteFile(filepath.Join(r.dir, "topology.yaml"), []byte(topology), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var written []string
		for _, e := range b.entries() {
			commands++
			got := r.prints(e)
			if shown := e.shown(got); shown != nil {
				e.output = shown
			} else if !*update {
				t.Errorf("README.md: %q does not print what the page shows; make golden writes it\n%s",
					e.command, cmp.Diff(e.output, got))
			} else {
				e.output = e.shortened(got)
			}
			written = append(append(written, "$ "+e.command), e.output...)
		}
		text = strings.Replace(text, strings.Join(b.lines, "\n"), strings.Join(written, "\n"), 1)
	}
	if commands < 5 {
		t.Errorf("only %d commands were found", commands)
	}
	if *update && text != string(page) {
		if err := os.WriteFile("../README.md", []byte(text), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
	}
}

// prints runs the command and returns what it prints. A processor is stopped when it has
// printed as many lines as the page shows.
func (r reader) prints(e entry) []string {
	r.Helper()
	if e.command != "dlxctl process" {
		p := r.shell(e.command)
		p.exits(r.T, 0)
		return steady(p.stdout.String() + p.stderr.String())
	}
	p := r.shell("exec env -u DLXCTL_LISTEN -u DLXCTL_IDLE " + e.command)
	brokertest.Eventually(r.T, e.command+" to print its lines", func() bool {
		return strings.Count(p.stderr.String(), "\n") >= len(e.output)
	})
	lines := steady(p.stderr.String())
	p.signal(r.T, syscall.SIGTERM)
	p.exits(r.T, 0)
	return lines
}

// steady returns the lines of an output with the broker and the time of an example, without
// the progress of a slow apply, and without the warnings that only releases of RabbitMQ
// before 4.0 cause.
func steady(output string) []string {
	for _, r := range []struct{ find, write string }{
		{`(?m)^\n?warning forged-.*\n`, ""},
		{`set_permissions -p \S+`, "set_permissions -p /"},
		{`(?m)^applied \d+ of \d+ changes.*\n`, ""},
		{`vhost \S+, cluster \S+, RabbitMQ \d+\.\d+\.\d+`, "vhost /, cluster rabbit@host, RabbitMQ 4.3.6"},
		{`vhost=\S+`, "vhost=/"},
		{`broker=\S+`, "broker=amqp://localhost:5672"},
		{`time=\S+`, "time=2026-01-02T03:04:05.678Z"},
	} {
		output = regexp.MustCompile(r.find).ReplaceAllString(output, r.write)
	}
	return strings.Split(strings.TrimRight(output, "\n"), "\n")
}

// shown returns the lines of the page, if they match what was printed, else nil.
func (e entry) shown(got []string) []string {
	var b strings.Builder
	for _, line := range e.output {
		if line == "..." {
			b.WriteString(`(?:.*\n)*?`)
		} else {
			b.WriteString(regexp.QuoteMeta(strings.TrimRight(line, " ")) + " *\n")
		}
	}
	if len(e.output) > 0 && regexp.MustCompile("^"+b.String()+"$").MatchString(strings.Join(got, "\n")+"\n") {
		return e.output
	}
	return nil
}

// shortened returns what was printed, with a "..." where the page has one: the same number
// of lines before and after it.
func (e entry) shortened(got []string) []string {
	for i, line := range e.output {
		if after := len(e.output) - i - 1; line == "..." && i+after <= len(got) {
			return append(append(append([]string{}, got[:i]...), "..."), got[len(got)-after:]...)
		}
	}
	return got
}

// The record of the demo in the README's picture shows what plan prints.
func TestReadmeDemoRecord(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	record, err := os.ReadFile("../docs/images/demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range []string{
		"retry-reason = permanent", "retry-error = the bank did not answer in 3 s",
		"  PaymentTimeout: the bank did not answer in <n> s",
	} {
		if !strings.Contains(string(record), why) {
			t.Errorf("docs/images/demo.txt does not show why a message died: %q", why)
		}
	}
	dir, err := filepath.Abs("../internal/tools/demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"cat topology.yaml", "dlxctl plan", "dlxctl apply --yes"} {
		_, shown, found := strings.Cut(string(record), "$ "+command+"\n")
		if !found {
			t.Fatalf("docs/images/demo.txt does not show %q", command)
		}
		shown = regexp.MustCompile(`(?m)^\d\. `).Split(shown, 2)[0]
		r := reader{t, brokertest.VHost(t), dir}
		p := r.shell(command)
		p.exits(t, 0)
		want := steady(strings.ReplaceAll(shown, "vhost dlxctl-demo", "vhost /"))
		if d := cmp.Diff(want, steady(p.stdout.String()+p.stderr.String())); d != "" {
			t.Errorf("%q prints something else than the record of the demo; make docs writes it\n%s", command, d)
		}
	}
}
