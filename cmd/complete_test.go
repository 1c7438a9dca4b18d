package cmd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// completions returns what a shell is offered after a command line.
func completions(t *testing.T, line ...string) []string {
	t.Helper()
	var out, errors bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errors, env: func(string) (string, bool) { return "", false }}
	if err := a.commandFor(append([]string{"__complete"}, line...)).Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(out.String(), "\n")
}

// The shells complete values of flags, and names from the topology files.
func TestCompletion(t *testing.T) {
	t.Parallel()
	shop, team := "../testdata/shop.yaml", filepath.Join(t.TempDir(), "team.yaml")
	const file = "version: 1\nname: team\ndefaults: {backoff: none}\n" +
		"queues: [{name: invoices.v2, replaces: invoices}]\n"
	if err := os.WriteFile(team, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line []string
		want []string
	}{
		{[]string{"plan", "-o", ""}, []string{"json", "markdown", "text"}},
		{[]string{"apply", "--allow", "dr"}, []string{"drops-routing"}},
		{[]string{"destroy", "--allow", ""}, []string{"loses-messages", "stops-consumers"}},
		{[]string{"init", "--template", ""}, []string{"full", "minimal"}},
		{[]string{"migrate", "--until", ""}, []string{"check", "cutover", "retire"}},
		{[]string{"generate", "args", "--lang", ""}, []string{"go", "elixir"}},
		{[]string{"generate", "args", "-f", shop, "b"}, []string{"billing"}},
		{[]string{"desk", "list", "-f", shop, ""}, []string{"@billing", "billing.dead"}},
		{[]string{"desk", "replay", "-f", shop, "@"}, []string{"@billing"}},
		{[]string{"peek", "-f", shop, "shop."}, []string{"shop.unroutable"}},
		{[]string{"status", "-f", shop, "-f", team, ""}, []string{"billing", "invoices.v2"}},
		{[]string{"status", "-f", shop, "--owner", ""}, []string{"team-billing"}},
		{[]string{"graph", "-f", shop, "bill"}, []string{"billing", "billing.dead"}},
		{[]string{"graph", "-f", shop, "-f", team, ""}, []string{"billing", "invoices.v2"}},
		{[]string{"trace", "-f", shop, "--exchange", "e"}, []string{"events"}},
		{[]string{"trace", "-f", shop, "--exchange", "events", "--fail", ""}, []string{"always", "billing=", ":6"}},
		{[]string{"trace", "--reason", ""}, []string{"rejected", "expired", "crash"}},
		{[]string{"migrate", "-f", team, ""}, []string{"invoices"}},
		{[]string{"migrate", "abort", "-f", team, ""}, []string{"invoices"}},
		{[]string{"migrate", "--drain", ""}, []string{"idle", "now"}},
		{[]string{"audit", "--fail-on", ""}, []string{"error", "warning", "note", "lost", "never"}},
		{[]string{"audit", "--explain", "dead-letter-"}, []string{"dead-letter-unrouted"}},
		{[]string{"audit", "--rule", "dead-letter-"}, []string{"dead-letter-unrouted"}},
		{[]string{"import", "--split-by", ""}, []string{"prefix", "owner"}},
		{[]string{"desk", "serve", "--allow", ""}, []string{"replay", "discard"}},
		{[]string{"desk", "replay", "--to", ""}, []string{"queue", "original", "queue:", ":6"}},
		{[]string{"desk", "groups", "--by", "c"}, []string{"cause"}},
		{[]string{"graph", "-o", ""}, []string{"svg", "mermaid"}},
		{[]string{"process", "--log-level", ""}, []string{"debug", "error"}},
	} {
		got := completions(t, test.line...)
		for _, want := range test.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q completes to %q, without %s", test.line, got, want)
			}
		}
	}
	if got := completions(t, "desk", "serve", "--allow", ""); slices.Contains(got, "drops-routing") {
		t.Errorf("the page has no hazards: %q", got)
	}
	if got := completions(t, "peek", "-f", "nowhere.yaml", ""); len(got) != 2 {
		t.Errorf("a file that does not exist completes to %q", got)
	}
}

// There is a manual page for each command, and always the same one for a version and a date.
func TestMan(t *testing.T) {
	t.Parallel()
	write := func(dir string) {
		t.Helper()
		var out, errors bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errors, env: func(name string) (string, bool) {
			return "", name == "SOURCE_DATE_EPOCH"
		}}
		root := newRoot(a)
		root.SetArgs([]string{"man", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err, errors.String())
		}
	}
	first, second := filepath.Join(t.TempDir(), "man1"), t.TempDir()
	write(first)
	write(second)
	for _, c := range commands(newRoot(&app{})) {
		if c.Hidden {
			continue
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"} {
			if !bytes.Contains(page, []byte(want)) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if again, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(page, again) {
			t.Errorf("%s is another page the second time: %v", name, err)
		}
	}
}

// A table of a help text is a table in the manual page.
func TestManKeepsTables(t *testing.T) {
	t.Parallel()
	c := &cobra.Command{
		Use: "dlxctl", Long: "Move queues:\n\n  check    look\n  cutover  route\n\nThen stop.",
		Run: func(*cobra.Command, []string) {},
	}
	keepTables(c)
	var out bytes.Buffer
	if err := doc.GenMan(c, &doc.GenManHeader{Date: &time.Time{}}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), ".EX\n  check    look\n  cutover  route\n") {
		t.Errorf("the page is:\n%s", &out)
	}
}

// make docs writes the manual pages, where the help of man says.
func TestMakeDocsWritesManualPages(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "make", "-C", "..", "-n", "docs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const dir = "bin/man/man1"
	if !bytes.Contains(out, []byte("bin/dlxctl man "+dir+"\n")) || !strings.Contains(helpOf(t, []string{"man"}), dir) {
		t.Errorf("make docs runs:\n%s", out)
	}
}

// --version prints what version prints.
func TestVersionFlag(t *testing.T) {
	t.Parallel()
	var flag, command, errors bytes.Buffer
	if code := Main([]string{"--version"}, strings.NewReader(""), &flag, &errors); code != 0 {
		t.Fatalf("exit code %d: %s", code, errors.String())
	}
	Main([]string{"version"}, strings.NewReader(""), &command, &errors)
	if flag.String() != command.String() || !strings.HasPrefix(flag.String(), "dlxctl ") {
		t.Errorf("--version prints %q, and version %q", flag.String(), command.String())
	}
}
