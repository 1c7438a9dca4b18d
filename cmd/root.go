package cmd

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/dlxctl/dlxctl/broker"
)

// app is what every command has at hand. The flags are fields, so that a test
// can run two programs at once.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    func(string) (string, bool)
	// environ gives all variables, as NAME=VALUE. Nil: they are not looked at.
	environ func() []string

	files     []string
	conn      broker.Config
	output    string
	noColor   bool
	logLevel  string
	logFormat string

	watchFiles bool // of process
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "dlxctl",
		Short: "Dead-lettering and retries with backoff for RabbitMQ, from one file",
		Long: `dlxctl turns one YAML file (queues, bindings, backoff tiers) into the exchanges,
TTL retry queues and headers exchanges that RabbitMQ needs for retries with
backoff, shows what would change on the live broker, and makes it so.

  dlxctl init                 write a commented topology.yaml
  dlxctl plan                 show what would change on the broker
  dlxctl apply                make it so
  dlxctl process              run the worker that counts the attempts

The broker is the one of RABBITMQ_URL (or --url). A flag can be given by an
environment variable: --api is DLXCTL_API, --ca-file is DLXCTL_CA_FILE. Only the flags
that consent (--yes, --allow, --force) must be on the command line.`,
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:              true,
		SilenceUsage:               true,
		PersistentPreRunE:          func(c *cobra.Command, _ []string) error { return a.fromEnvironment(c) },
	}
	c.SetIn(a.stdin)
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.SetFlagErrorFunc(badFlag)
	c.SetUsageTemplate(c.UsageTemplate() + "\nA flag is an environment variable too: --log-level is DLXCTL_LOG_LEVEL. Flags that\nconsent (--yes, --allow, --force) are not.\n")
	a.globalFlags(c.PersistentFlags())
	c.AddCommand(
		a.initCommand(), a.validateCommand(), a.compileCommand(), a.planCommand(),
		a.applyCommand(), a.processCommand(), a.migrateCommand(), a.statusCommand(), a.generateCommand(), a.rightsCommand(), a.schemaCommand(), a.versionCommand(),
	)
	return c
}

// globalFlags are the flags that every command takes.
func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&a.files, "file", "f", []string{"topology.yaml"}, "topology `FILE` or folder; repeat it for several; - is stdin")
	f.StringVar(&a.conn.VHost, "vhost", "", "virtual host; beats the file and the URL")
	f.StringVar(&a.conn.URL, "url", "", "AMQP `URL` of the broker; others see a password here in the list of processes (env RABBITMQ_URL; default "+broker.DefaultURL+")")
	f.StringVar(&a.conn.API, "api", "", "`URL` of the management API (env RABBITMQ_API_URL; default: host and credentials of the AMQP URL, port 15672, or 15671 with amqps)")
	f.StringVar(&a.conn.PasswordFile, "password-file", "", "`FILE` that holds the password; beats the one in the URL")
	f.StringVar(&a.conn.CAFile, "ca-file", "", "`FILE` with the certificates of the authorities to trust, PEM")
	f.StringVar(&a.conn.CertFile, "cert-file", "", "`FILE` with the client certificate, PEM")
	f.StringVar(&a.conn.KeyFile, "key-file", "", "`FILE` with the key of the client certificate, PEM")
	f.BoolVar(&a.conn.InsecureSkipVerify, "insecure-skip-verify", false, "do not check the broker's certificate: anybody may listen")
	f.StringVarP(&a.output, "output", "o", "text", "output `FORMAT`: text, json or markdown, as the command offers")
	f.BoolVar(&a.noColor, "no-color", false, "no colours (also NO_COLOR)")
	f.StringVar(&a.logLevel, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "log `FORMAT`: text or json")
}

// noCommand refuses a first word that is no command, and says what it may have
// meant.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if slices.Contains([]string{"destroy", "delete", "remove", "uninstall"}, args[0]) {
		return usageError{fmt.Errorf("%w; 'dlxctl apply' deletes what the file no longer names, and 'dlxctl plan' shows what that is", err)}
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w, did you mean %q?", err, near[0])
	}
	return usageError{err}
}

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no argument %q", c.CommandPath(), args[0])
	if isYAML(args[0]) {
		err = fmt.Errorf("%w; that is a topology: %s -f %s", err, c.CommandPath(), args[0])
	}
	return usageError{err}
}

func isYAML(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".yaml" || ext == ".yml"
}

// usageArgs makes a mistake in the arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// outputsAnnotation is where a command names the output formats it offers, if text
// is not the only one.
const outputsAnnotation = "outputs"

// outputs gives the output formats that a command offers.
func outputs(c *cobra.Command) []string {
	return strings.Fields(cmp.Or(c.Annotations[outputsAnnotation], "text"))
}

func (a *app) checkGlobals(c *cobra.Command) error {
	if offers := outputs(c); !slices.Contains(offers, a.output) {
		return usageError{fmt.Errorf("%s has no output %q, only %s", c.CommandPath(), a.output, strings.Join(offers, ", "))}
	}
	if !slices.Contains([]string{"text", "json"}, a.logFormat) {
		return usageError{fmt.Errorf("--log-format is %q; write text or json", a.logFormat)}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level is %q; write debug, info, warn or error", a.logLevel)}
	}
	return nil
}

// log gives the logger that --log-level and --log-format ask for. Logs go to
// stderr: results alone go to stdout.
func (a *app) log() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.logLevel)) // checkGlobals has read it
	o := &slog.HandlerOptions{Level: level}
	if a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, o))
	}
	return slog.New(slog.NewTextHandler(a.stderr, o))
}

// terminal reports whether v, a reader or writer, is a terminal.
func terminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour reports whether stdout may be coloured.
func (a *app) colour() bool {
	v, set := a.env("NO_COLOR")
	return terminal(a.stdout) && !a.noColor && (!set || v == "") && !a.dumb()
}

// dumb reports whether the terminal, if there is one, shows plain lines only.
func (a *app) dumb() bool {
	v, _ := a.env("TERM")
	return v == "dumb"
}
