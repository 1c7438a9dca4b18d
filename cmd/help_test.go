package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The help of dlxctl lists each command in a group that says when to use it.
func TestCommandsAreGrouped(t *testing.T) {
	t.Parallel()
	help := helpOf(t, nil)
	root := newRoot(&app{})
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden && c.Name() != "help" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	for _, g := range root.Groups() {
		if !strings.Contains(help, "\n"+g.Title+"\n") {
			t.Errorf("the help has no group %q:\n%s", g.Title, help)
		}
	}
	if commands, _, _ := strings.Cut(help, "\nFlags:\n"); strings.Count(commands, "\n") > 24 {
		t.Errorf("the commands do not fit on one screen:\n%s", commands)
	}
}

// What generate lists is also there without generate.
func TestShortForms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"compile", "rights", "schema", "man"} {
		short, long := helpOf(t, []string{name}), helpOf(t, []string{"generate", name})
		if strings.ReplaceAll(long, "dlxctl generate "+name, "dlxctl "+name) != short {
			t.Errorf("help of %s:\n%s\nwith generate:\n%s", name, short, long)
		}
	}
}

// The help of a command is about its own flags. The global ones are names in lines of 80
// characters, and the help of dlxctl describes them.
func TestGlobalFlagsAreFolded(t *testing.T) {
	t.Parallel()
	root := newRoot(&app{})
	for _, c := range commands(root)[1:] {
		if !c.Runnable() {
			continue
		}
		path := strings.Fields(c.CommandPath())[1:]
		_, folded, ok := strings.Cut(helpOf(t, path), "\nGlobal Flags (dlxctl --help describes them):\n")
		folded, _, _ = strings.Cut(folded, "\n\n")
		if !ok {
			t.Errorf("the help of %q names no global flags", path)
			continue
		}
		for line := range strings.Lines(folded) {
			if len(line) > 81 {
				t.Errorf("%q of %q is too long", line, path)
			}
		}
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(folded, "--"+f.Name) || strings.Contains(folded, f.Usage) {
				t.Errorf("the help of %q has --%s in:\n%s", path, f.Name, folded)
			}
		})
	}
	help := helpOf(t, nil)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if _, usage := pflag.UnquoteUsage(f); !strings.Contains(help, usage) {
			t.Errorf("the help of dlxctl does not describe --%s", f.Name)
		}
	})
}

// Words of other tools, and misspelled ones, lead to the command or flag that is meant.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"diff":                 `unknown command "diff"; did you mean "plan"?`,
		"preview":              `did you mean "plan"?`,
		"destry":               `did you mean "destroy"?`,
		"delete":               `did you mean "destroy"?`,
		"uninstall":            `did you mean "destroy"?`,
		"up":                   `did you mean "apply"?`,
		"worker":               `did you mean "process"?`,
		"run":                  `did you mean "process"?`,
		"migrat":               `did you mean "migrate"?`,
		"replay":               `did you mean "desk replay"?`,
		"requeue":              `did you mean "desk replay"?`,
		"list":                 `did you mean "desk list"?`,
		"alerts":               `did you mean "generate alerts"?`,
		"resume":               `did you mean "desk run resume"?`,
		"desk runs":            `did you mean "run"?`,
		"desk resume":          `did you mean "run resume"?`,
		"rollback":             `did you mean "migrate abort" or "desk run return"?`,
		"desk relpay":          `did you mean "replay"?`,
		"apply --auto-approve": `unknown flag: --auto-approve; did you mean "--yes"?`,
		"destroy --assume-yes": `did you mean "--yes"?`,
		"apply --alow x":       `did you mean "--allow"?`,
		"apply --dry-run":      `'dlxctl plan' shows what apply would do`,
		"frobnicate":           `unknown command "frobnicate"`,
	} {
		if err := CheckArgs(strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dlxctl %s: %v, want %s", line, err, want)
		}
	}
}

// A variable with a typo sets nothing, which a warning says.
func TestMisspelledVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"DLXCTL_LOGLEVEL":          "DLXCTL_LOGLEVEL sets no flag of dlxctl; did you mean DLXCTL_LOG_LEVEL?",
		"DLXCTL_LOG_LEVEL":         "",
		"DLXCTL_URI":               "DLXCTL_URI sets no flag of dlxctl; did you mean DLXCTL_URL?",
		"DLXCTL_SOMETHING_ELSE":    "DLXCTL_SOMETHING_ELSE sets no flag of dlxctl",
		"DLXCTL_SERVICE_PORT_HTTP": "", // Kubernetes sets it in the pods of a Service
		"OTHER_LOGLEVEL":           "",
	} {
		var out bytes.Buffer
		warnOfUnknownVariables(&out, []string{name + "=secret"}, newRoot(&app{}))
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s prints %q, want %q", name, got, want)
		}
	}
}
