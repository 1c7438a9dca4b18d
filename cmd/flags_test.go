package cmd

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands returns every command of the tree.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// Every flag of every command has an environment variable that sets it, except flags that
// give consent. It is in the command's help, which explains the names of the variables.
func TestEveryFlagHasAVariable(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, c := range commands(newRoot(&app{})) {
		path := strings.Fields(c.CommandPath())[1:]
		help := helpOf(t, path)
		if c.Runnable() && !strings.Contains(help, "DLXCTL_") {
			t.Errorf("the help of %q does not explain environment variables", path)
		}
		c.InheritedFlags() // makes Flags complete
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			seen++
			if f.Usage == "" || !strings.Contains(help, "--"+f.Name) {
				t.Errorf("--%s of %q is not documented in its help", f.Name, path)
			}
			checkVariable(t, path, f)
		})
	}
	if seen < 100 {
		t.Errorf("only %d flags were checked", seen)
	}
}

// checkVariable checks that the variable of a flag sets it, in a program of its own.
func checkVariable(t *testing.T, path []string, f *pflag.Flag) {
	t.Helper()
	value := map[string]string{"bool": "true", "int": "7", "duration": "7s", "size": "7MiB"}[f.Value.Type()]
	switch f.Name {
	case "output", "log-format":
		value = "text"
	case "log-level":
		value = "warn"
	}
	if value == "" {
		value = "some"
	}
	name := "DLXCTL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	consents := []string{
		"yes", "allow", "force", "forward", "expect", "again", "forever", "beside-consumers", "raw", "show-bodies",
	}
	if slices.Contains(consents, f.Name) {
		checkConsent(t, path, f.Name, name)
		return
	}
	a := &app{stderr: io.Discard, env: func(n string) (string, bool) { return value, n == name }}
	c, _, err := newRoot(a).Find(path)
	if err != nil {
		t.Fatal(err)
	}
	c.InheritedFlags()
	if err := a.fromEnvironment(c); err != nil {
		t.Errorf("%s=%s for %q: %v", name, value, path, err)
		return
	}
	if got := strings.Trim(c.Flags().Lookup(f.Name).Value.String(), "[]"); got != value {
		t.Errorf("%s=%s for %q sets --%s to %q", name, value, path, f.Name, got)
	}
	for p := c; p.HasParent(); p = p.Parent() {
		if p.PersistentPreRunE != nil || p.PersistentPreRun != nil {
			t.Errorf("%q overrides the function that reads the variables", path)
		}
	}
}

// checkConsent checks that a flag that gives consent refuses its variable.
func checkConsent(t *testing.T, path []string, flag, name string) {
	t.Helper()
	a := &app{stderr: io.Discard, env: func(n string) (string, bool) { return "true", n == name }}
	c, _, err := newRoot(a).Find(path)
	if err != nil {
		t.Fatal(err)
	}
	c.InheritedFlags()
	want := name + " is set, but consent cannot come from a variable; unset it and pass --" + flag
	if err := a.fromEnvironment(c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s for %q is accepted: %v", name, path, err)
	}
}

// Whether a switch gives consent is decided for each: a variable that was set long ago must not
// overwrite a file, lose messages or skip a question. A new switch belongs in consents, or here.
func TestSwitchesThatAVariableMaySet(t *testing.T) {
	t.Parallel()
	harmless := []string{
		"broker", "detailed-exitcode", "dry-run", "exit-code", "lock", "no-color", "notify-body", "require-rights",
		"rules", "strict", "tiers-only", "try-all", "until-empty", "verbose", "watch", "write", // what a run does or prints
		"adopt", "all", "all-vhosts", "desk", "ended", "errors", "for-clusters", "for-overlays", "live", "partial",
		"problems",                            // how much it reads or prints
		"keep-history", "keep-ttl", "same-id", // how, not whether
		"past-keep",                      // it chooses less, and moves nothing without --yes
		"prune", "skip-blocked", "clean", // the plan and its hazards still need consent
		"insecure-skip-verify", // each run prints a warning
	}
	for _, c := range commands(newRoot(&app{})) {
		c.InheritedFlags() // makes Flags complete
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "bool" || f.Name == "help" || f.Name == "version" {
				return
			}
			if listed := slices.Contains(harmless, f.Name); listed == consents(f.Name) {
				t.Errorf("--%s of %q: decide whether it gives consent, and add it either to consents or to this list",
					f.Name, c.CommandPath())
			}
		})
	}
}

// helpOf returns the help of a command.
func helpOf(t *testing.T, path []string) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out, env: func(string) (string, bool) { return "", false }}
	root := newRoot(a)
	root.SetArgs(append(path, "--help"))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
