package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions returns what a shell is offered after a command line.
func completions(t *testing.T, line ...string) []string {
	t.Helper()
	var out, errors bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errors, env: func(string) (string, bool) { return "", false }}
	root := newRoot(a)
	root.SetArgs(append([]string{"__complete"}, line...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(out.String(), "\n")
}

// The shells complete values of flags, and names from the topology files.
func TestCompletion(t *testing.T) {
	t.Parallel()
	shop := "../testdata/shop.yaml"
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

// There is a manual page for each command, and the same one for the same version and date.
func TestMan(t *testing.T) {
	t.Parallel()
	pages := func(dir string) {
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
	dir := filepath.Join(t.TempDir(), "man1")
	pages(dir)
	for _, name := range []string{"dlxctl.1", "dlxctl-apply.1", "dlxctl-desk-replay.1"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("SYNOPSIS")) {
			t.Errorf("%s has no synopsis:\n%s", name, data)
		}
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
