package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// sessions returns the pages that TestPagesAsSessions follows.
func sessions() []string {
	return []string{
		"../docs/teams.md", "../docs/consumers.md", "../docs/removing.md", "../docs/security.md", "../docs/simulate.md",
	}
}

// Each of these pages is one session, in a folder and a virtual host of its own. A reader who goes
// through it from top to bottom gets the file of the README as topology.yaml, the files of the yaml
// blocks, whose first line names the file ("# topology/shared.yaml"), and sees what the console
// blocks show. A line "..." in the page is any number of lines. With -update the test writes the
// pages.
func TestPagesAsSessions(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, page := range sessions() {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			r := reader{t, brokertest.VHost(t).Tool(t), t.TempDir()}
			followSession(r, page)
		})
	}
}

// followSession goes through the blocks of a page.
func followSession(r reader, page string) {
	r.Helper()
	text := readFile(r.T, page)
	written, commands := text, 0
	first := blocks(r.T, "../README.md", "yaml")[0]
	writeTo(r.T, filepath.Join(r.dir, "topology.yaml"), strings.Join(first.lines, "\n")+"\n")
	for _, b := range blocks(r.T, page, "yaml", "console") {
		if b.lang == "yaml" {
			r.keeps(b)
			continue
		}
		shown := strings.Join(b.lines, "\n")
		var got []string
		for _, e := range b.entries() {
			commands++
			got = append(append(got, "$ "+e.command), r.compares(e)...)
		}
		written = strings.Replace(written, shown, strings.Join(got, "\n"), 1)
	}
	if commands == 0 {
		r.Errorf("%s has no command", page)
	}
	if *update && written != text {
		if err := os.WriteFile(page, []byte(written), 0o644); err != nil { //nolint:gosec // a page of the repository
			r.Fatal(err)
		}
	}
}

// keeps writes the file of a yaml block.
func (r reader) keeps(b block) {
	r.Helper()
	name, ok := strings.CutPrefix(b.lines[0], "# ")
	name, _, _ = strings.Cut(name, ":")
	if !ok || filepath.Ext(name) != ".yaml" || !filepath.IsLocal(name) {
		r.Fatalf("%s: the first line of a yaml block names no file: %s", b.page, b.lines[0])
	}
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.Fatal(err)
	}
	writeTo(r.T, path, strings.Join(b.lines, "\n")+"\n")
}

// compares runs a command of a console block, and returns the lines that the page should show.
func (r reader) compares(e entry) []string {
	r.Helper()
	got := r.prints(entry{"exec 2>&1\n" + e.command, e.output}) // in the order in which a terminal has it
	shown := e.shown(got)
	switch {
	case shown != nil:
		return shown
	case len(e.output) == 0 && strings.Join(got, "") == "":
		return nil
	case !*update:
		r.Errorf("%q does not print what the page shows; make golden writes it\n%s", e.command, cmp.Diff(e.output, got))
	}
	return e.shortened(got)
}

// The page of the alerts has a section for each that dlxctl generates, to which a link can lead.
func TestEachAlertHasASection(t *testing.T) {
	t.Parallel()
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s]}}
queues: [{name: billing}, {name: audit, backoff: none}, {name: mail, replaces: legacy}]
`)
	code, out := run("generate", "alerts", "--processors", "2", "-f", file)
	if code != 0 {
		t.Fatal(out)
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(out, -1)
	const page = "../docs/alerts.md"
	for _, alert := range alerts {
		if !strings.Contains(readFile(t, page), "\n## "+alert[1]+"\n") {
			t.Errorf("%s has no section for %s", page, alert[1])
		}
	}
	if len(alerts) < 10 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
}
