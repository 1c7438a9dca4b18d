package cmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/templates"
)

// A variable that several commands read has one type in all of them.
func TestOneVariableOneType(t *testing.T) {
	t.Parallel()
	first := map[string]string{}
	for _, c := range commands(newRoot(&app{})) {
		c.InheritedFlags() // makes Flags complete
		c.Flags().VisitAll(func(f *pflag.Flag) {
			typ := fmt.Sprintf("%s (%T)", f.Value.Type(), f.Value)
			for _, name := range variables(f.Name) {
				if before, ok := first[name]; ok && before != typ {
					t.Errorf("%s is %s for %q, but %s for another command", name, typ, c.CommandPath(), before)
				}
				first[name] = typ
			}
		})
	}
	if first["DLXCTL_WAIT"] == "" {
		t.Error("no command has DLXCTL_WAIT, so the test proves little")
	}
}

// --wait accepts a duration, and true for no limit and false for not at all.
func TestWaitValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"10m": 10 * time.Minute, "true": forever, "false": 0, "0s": 0} {
		var wait time.Duration
		if err := (*waitValue)(&wait).Set(value); err != nil || wait != want {
			t.Errorf("--wait=%s gives %s and the error %v", value, wait, err)
		}
	}
	for _, value := range []string{"5", "soon", "-1s", ""} {
		if err := new(waitValue).Set(value); err == nil {
			t.Errorf("--wait=%s is accepted", value)
		}
	}
}

// An error on the command line or in the environment contains the fix.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args, env, want string
	}{
		{"plan", "DLXCTL_VERBOSE=maybe", `DLXCTL_VERBOSE is "maybe"; write true or false`},
		{
			"apply", "DLXCTL_YES=true",
			"DLXCTL_YES is set, but consent cannot come from a variable; unset it and pass --yes on the command line",
		},
		{"apply", "DLXCTL_WAIT=5", `DLXCTL_WAIT is "5"; write 5s or 5m`},
		{"migrate", "DLXCTL_WAIT=soon", `DLXCTL_WAIT is "soon"; write a time with its unit, such as 30s or 5m`},
		{"process", "DLXCTL_PREFETCH=many", `DLXCTL_PREFETCH is "many"; write a whole number`},
		{"plan", "DLXCTL_TIMEOUT=0s", "--timeout is 0s; write more than 0s"},
		{"apply --lock-timeout 5", "", `--lock-timeout is "5"; write 5s or 5m`},
		{"apply --wait=5", "", `--wait is "5"; write 5s or 5m`},
		{"apply --wait 10m", "", "10m would be read as a saved plan; write --wait=10m"},
		{"apply --auto-approve", "", `unknown flag: --auto-approve; did you mean "--yes"?`},
		{"apply --dry-run", "", "unknown flag: --dry-run; 'dlxctl plan' shows what apply would do"},
		{"apply --skip-blokced", "", `unknown flag: --skip-blokced; did you mean "--skip-blocked"?`},
		{"diff", "", `unknown command "diff"; did you mean "plan"?`},
		{"uninstall", "", `unknown command "uninstall"; did you mean "destroy"?`},
		{"deploy", "", `unknown command "deploy"; did you mean "apply"?`},
		{
			"generate args", "DLXCTL_FILE=../testdata/shop.yaml",
			"no queue is named; write dlxctl generate args QUEUE, where QUEUE is one of billing, ",
		},
		{
			"import shop.yaml", "",
			"shop.yaml is not a definitions file; import reads no topology file, and -o shop.yaml writes one",
		},
		{"generate args a b", "", "dlxctl generate args accepts one queue, but got 2"},
		{
			"plan --file ../testdata/shop.yaml", "DLXCTL_URL=amq://localhost",
			"the AMQP URL (RABBITMQ_URL or --url) begins with amq://",
		},
		{"plan --file ../testdata/shop.yaml", "RABBITMQ_API_URL=ftp://localhost", "ftp://"},
		{
			"plan --file ../testdata/shop.yaml", "RABBITMQ_URL=",
			"the AMQP URL (RABBITMQ_URL or --url) is empty; write the URL of the broker (in CI: is the secret missing?), or unset it for amqp://guest:guest@localhost:5672/",
		},
		{"process --file ../testdata/shop.yaml", "DLXCTL_URL=", "the AMQP URL (RABBITMQ_URL or --url) is empty; "},
		{"audit --url=", "", "the AMQP URL (RABBITMQ_URL or --url) is empty; "},
	} {
		code, said := runWith(t, strings.Fields(tc.args), tc.env)
		if code != exitUsage || !strings.Contains(said, tc.want) {
			t.Errorf("%s dlxctl %s exits with %d and prints\n%s\nwithout\n%s", tc.env, tc.args, code, said, tc.want)
		}
	}
}

// A file without anything in it is replaced by a command that names it: without a name, init would
// overwrite topology.yaml. The help of init lists all starters.
func TestFilesThatDeclareNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte("# to do\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "team.yaml:1:1: the file declares nothing; 'dlxctl init --force " + file + "' writes a topology in its place"
	code, said := runWith(t, []string{"validate", "-f", file}, "")
	if code != exitFailed || !strings.Contains(said, want) {
		t.Errorf("validate of it exits with %d and prints\n%s", code, said)
	}
	if code, said := runWith(t, []string{"init", "--force", file}, ""); code != 0 {
		t.Errorf("init exits with %d and prints\n%s", code, said)
	}
	if code, said := runWith(t, []string{"validate", "-f", file}, ""); code != 0 {
		t.Errorf("validate of what init wrote exits with %d and prints\n%s", code, said)
	}
	_, help := runWith(t, []string{"init", "--help"}, "")
	for _, name := range templates.Starters() {
		if !strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("the help of init does not list %s:\n%s", name, help)
		}
	}
}

// A misspelled subcommand of migrate is read as a queue name; the error suggests the
// subcommand.
func TestMisspelledSubcommand(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"statuss":  "file no.yaml does not exist; 'dlxctl init' creates one, -f names another; or did you mean 'dlxctl migrate status'?",
		"abor":     "or did you mean 'dlxctl migrate abort'?",
		"invoices": "file no.yaml does not exist; 'dlxctl init' creates one, -f names another\n",
	} {
		code, said := runWith(t, []string{"migrate", name, "--file", "no.yaml"}, "")
		if code != exitFailed || !strings.Contains(said, want) {
			t.Errorf("migrate %s exits with %d and prints\n%s", name, code, said)
		}
	}
}

// 'migrate run' is refused before the file is read: run would be taken for a legacy queue.
// Behind -- it is one.
func TestMigrateRun(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"migrate run":                        "'dlxctl migrate run' is now 'dlxctl migrate'; for a queue named run, write 'dlxctl migrate -- run'\n",
		"migrate run invoices --until drain": "is now 'dlxctl migrate'",
		"migrate --until drain run invoices": "is now 'dlxctl migrate'",
	} {
		code, said := runWith(t, append(strings.Fields(args), "--file", "no.yaml"), "")
		if code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("%s exits with %d and prints\n%s", args, code, said)
		}
	}
	code, said := runWith(t, []string{"migrate", "--file", "no.yaml", "--", "run"}, "")
	if code != exitFailed || !strings.Contains(said, "file no.yaml does not exist") {
		t.Errorf("migrate -- run exits with %d and prints\n%s", code, said)
	}
}

// A misspelled variable gets a warning; the variable of another tool does not.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"DLXCTL_LOGLEVEL=debug":                      "dlxctl: warning: DLXCTL_LOGLEVEL sets no flag of dlxctl; did you mean DLXCTL_LOG_LEVEL?\n",
		"DLXCTL_ZZZZZZ=secret":                       "dlxctl: warning: DLXCTL_ZZZZZZ sets no flag of dlxctl\n",
		"DLXCTL_LOG_LEVEL=info":                      "",
		"DLXCTL_GRACE=5s":                            "",
		"DLXCTL_TEST_LINE=4.3":                       "",
		"DLXCTL_CACHE=/tmp":                          "",
		"DLXCTL_DEBIAN_MIRROR=x":                     "",
		"DLXCTL_PORT=tcp://10.0.0.1:9419":            "",
		"DLXCTL_SERVICE_HOST=10.0.0.1":               "",
		"DLXCTL_PROCESS_PORT_9419_TCP_ADDR=10.0.0.1": "",
		"DLXCTL_PROCESS_SERVICE_PORT_HTTP=9419":      "",
		"XDLXCTL_LOGLEVEL=debug":                     "",
	} {
		code, said := runWith(t, []string{"schema"}, variable)
		said, _, _ = strings.Cut(said, "{\n")
		if code != exitDone || said != want {
			t.Errorf("%s: exit code %d and output\n%s\nwant\n%s", variable, code, said, want)
		}
	}
}

// runWith runs dlxctl with one variable, and returns its exit code and its output.
func runWith(t *testing.T, args []string, variable string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	name, value, _ := strings.Cut(variable, "=")
	a := &app{
		stdout: &out, stderr: &out,
		env:     func(n string) (string, bool) { return value, n == name },
		environ: func() []string { return []string{variable} },
	}
	root := newRoot(a)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(t.Context())
	if err != nil {
		report(&out, c, err)
	}
	return exitCode(t.Context(), err), out.String()
}

// A dumb terminal gets plain lines, without colors or a progress bar.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	for term, dumb := range map[string]bool{"dumb": true, "xterm-256color": false, "": false} {
		a := &app{env: func(n string) (string, bool) { return term, n == "TERM" }}
		if a.dumb() != dumb {
			t.Errorf("TERM=%s is dumb: %t", term, a.dumb())
		}
	}
}
