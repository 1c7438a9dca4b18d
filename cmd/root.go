package cmd

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/dlxctl/dlxctl/internal/text"
)

// app is what the commands share: the streams, the environment and the global flags.
// The flags are fields, so that a test can run two programs at once.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	env    func(string) (string, bool)
	// environ returns all variables, as NAME=VALUE. Nil: unknown variables are not
	// reported.
	environ func() []string

	paths     []string // the values of -f
	named     bool     // -f or its variable is given
	overlays  []string // the values of --overlay
	conn      connection
	output    string
	noColor   bool
	logLevel  string
	logFormat string
}

// newRoot builds the command tree.
func newRoot(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:                        "dlxctl",
		Short:                      "Dead-lettering and retries with backoff for RabbitMQ, from one file",
		Long:                       "Retries and dead letters for RabbitMQ, from one YAML file. Begin with 'dlxctl init'.",
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:              true,
		SilenceUsage:               true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := refuseRepeats(c); err != nil {
				return err
			}
			if err := a.fromEnvironment(c); err != nil {
				return err
			}
			variable, _ := a.env(ownVariable("file"))
			a.named = c.Flags().Changed("file") || variable != ""
			a.conn.Log = a.log()
			return nil
		},
	}
	c.SetIn(a.stdin)
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.SetFlagErrorFunc(badFlag)
	a.globalFlags(c.PersistentFlags())
	c.SetUsageTemplate(usageTemplate(c.PersistentFlags()))
	setUpHelp()
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Topology:", []*cobra.Command{
			newInit(a), newImport(a), newValidate(a), newPlan(a), newApply(a), newMigrate(a), newDestroy(a),
			newTry(a), newTrace(a), newSimulate(a), newGraph(a), newGenerate(a),
		}},
		{"Dead letters:", []*cobra.Command{newDesk(a), newPeek(a)}},
		{"Operate:", []*cobra.Command{newProcess(a), newStatus(a), newVerify(a), newAudit(a)}},
	} {
		c.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, command := range group.commands {
			command.GroupID = group.title
			c.AddCommand(command)
		}
	}
	for _, command := range slices.Concat([]*cobra.Command{newVersion(a)}, generators(a)) {
		command.Hidden = true // as short forms of what the help lists elsewhere
		c.AddCommand(command)
	}
	c.CompletionOptions.HiddenDefaultCmd = true
	c.Version = Version()
	c.SetVersionTemplate(versionText())
	countFlags(c)
	visitFlags(c, func(f *pflag.Flag) { // one form of a duration in the help too
		if d, err := time.ParseDuration(f.DefValue); err == nil && f.Value.Type() == "duration" {
			f.DefValue = text.Duration(d)
			if d == 0 {
				f.DefValue = "0" // which the help leaves out
			}
		}
	})
	return c
}

// commandFor returns the command tree for arguments. Completions are added only to that of a shell
// that completes: they take time, and every other start of dlxctl would wait for them.
func (a *app) commandFor(args []string) *cobra.Command {
	c := newRoot(a)
	c.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeValues(c, flagValues())
		a.completeNames(c)
	}
	return c
}

// globalFlags adds the flags that every command accepts.
func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&a.paths, "file", "f", []string{"topology.yaml"},
		"topology `FILE` or folder; repeat the flag for several; - is stdin")
	f.StringArrayVar(&a.overlays, "overlay", nil,
		"`FILE` that changes values of the topology files, such as those of production; may be repeated")
	a.conn.add(f)
	f.StringVarP(&a.output, "output", "o", "text", "output `FORMAT`: text, json, markdown or another, depending on the command")
	f.BoolVar(&a.noColor, "no-color", false, "print no colors (also NO_COLOR)")
	f.StringVar(&a.logLevel, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "log `FORMAT`: text or json")
}

// noCommand refuses a first word that is not a command, and suggests a command.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if near := meantCommands(c, args[0]); len(near) > 0 {
		err = fmt.Errorf(`%w; did you mean "%s"?`, err, strings.Join(near, `" or "`))
	} else if c.Name() == "desk" {
		err = fmt.Errorf("%w; if it is a queue, this lists its messages: dlxctl desk list %s", err, text.ShellQuote(args[0]))
	}
	return usageError{err}
}

// meantCommands returns the commands below c that a word may mean: first those that list the word
// as another name, then subcommands with that name, then the one with the most similar name.
func meantCommands(c *cobra.Command, word string) []string {
	var direct, deeper []string
	for _, sub := range c.Commands() {
		if slices.Contains(sub.SuggestFor, word) {
			direct = append(direct, sub.Name())
		}
		deeper = append(deeper, commandsBelow(sub, sub.Name(), word)...)
	}
	switch near := c.SuggestionsFor(word); {
	case len(direct) > 0:
		return direct
	case len(deeper) > 0:
		return deeper
	case len(near) > 0:
		return near[:1]
	}
	return nil
}

// commandsBelow returns the commands below c that have a word as a name, and all that list it as
// another name. Of two with the name it returns the one with the shorter path, the path of c first.
func commandsBelow(c *cobra.Command, path, word string) []string {
	var out []string
	named := func(path string) bool { return strings.HasSuffix(path, " "+word) }
	for _, sub := range c.Commands() {
		if slices.Contains(slices.Concat(sub.SuggestFor, sub.Aliases, []string{sub.Name()}), word) {
			out = append(out, path+" "+sub.Name())
		}
	}
	for _, sub := range c.Commands() {
		for _, below := range commandsBelow(sub, path+" "+sub.Name(), word) {
			if !named(below) || !slices.ContainsFunc(out, named) {
				out = append(out, below)
			}
		}
	}
	return out
}

// noArguments refuses arguments, for commands that accept flags only. One that names topology files
// belongs to -f.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s accepts no argument, but got %q", c.CommandPath(), args[0])
	if isYAML(args[0]) {
		err = fmt.Errorf("%w; name a topology file with -f: %s -f %s", err, c.CommandPath(), args[0])
	} else if isFolder(args[0]) {
		err = fmt.Errorf("%w; name a folder of topology files with -f: %s -f %s", err, c.CommandPath(),
			text.ShellQuote(args[0]))
	}
	return usageError{err}
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

// outputsAnnotation is the annotation of a command that lists its output formats, if
// text is not the only one.
const outputsAnnotation = "outputs"

func outputs(c *cobra.Command) []string {
	return strings.Fields(cmp.Or(c.Annotations[outputsAnnotation], "text"))
}

func (a *app) checkGlobals(c *cobra.Command) error {
	if offers := outputs(c); !slices.Contains(offers, a.output) {
		return usageError{fmt.Errorf("%s has no output format %q; write %s", c.CommandPath(), a.output,
			strings.Join(offers, ", "))}
	}
	if !slices.Contains([]string{"text", "json"}, a.logFormat) {
		return usageError{fmt.Errorf("--log-format is %q; write text or json", a.logFormat)}
	}
	if a.conn.RequestTime <= 0 {
		return usageError{fmt.Errorf("--timeout is %s; write more than 0s", a.conn.RequestTime)}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level is %q; write debug, info, warn or error", a.logLevel)}
	}
	return nil
}

// log returns the logger that --log-level and --log-format ask for. Logs go to
// stderr: only results go to stdout.
func (a *app) log() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.logLevel)) // checkGlobals has checked it
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

// color reports whether stdout may be colored.
func (a *app) color() bool {
	v, set := a.env("NO_COLOR")
	return terminal(a.stdout) && !a.noColor && (!set || v == "") && !a.dumb()
}

// width returns how many columns stdout has: 0 if it is not a terminal, or one that shows plain
// lines only.
func (a *app) width() int {
	columns, _ := a.screenSize()
	return columns
}

// screenSize returns how many columns and lines stdout has, as width does.
func (a *app) screenSize() (columns, lines int) {
	f, ok := a.stdout.(*os.File)
	if !ok || !terminal(a.stdout) || a.dumb() {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

// dumb reports whether the terminal, if there is one, shows plain lines only.
func (a *app) dumb() bool {
	v, _ := a.env("TERM")
	return v == "dumb"
}
