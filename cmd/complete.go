package cmd

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/templates"
	"github.com/dlxctl/dlxctl/topology"
)

// completeValues makes the shells complete the values of flags, for c and all commands below it.
// values are those that flags accept: see flagValues.
func completeValues(c *cobra.Command, values map[string][]string) {
	if !c.HasParent() {
		complete := func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return outputs(c), cobra.ShellCompDirectiveNoFileComp
		}
		_ = c.RegisterFlagCompletionFunc("output", complete) // it fails if it is there already
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		list, own := values[c.Name()+" --"+f.Name]
		if !own {
			list = values["--"+f.Name]
		}
		if len(list) == 0 {
			return
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(list, isBegun) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(list, directive)) // as above
	})
	for _, sub := range c.Commands() {
		completeValues(sub, values)
	}
}

// isBegun reports whether a completion is only the beginning of a value.
func isBegun(completion string) bool {
	return strings.HasSuffix(completion, ":") || strings.HasSuffix(completion, ".") || strings.HasSuffix(completion, "=")
}

// flagValues returns the values of flags that accept only these, by the flag, or by the command and
// the flag where commands differ.
func flagValues() map[string][]string {
	rules := audit.RuleIDs()
	return map[string][]string{
		"--log-level":    {"debug", "info", "warn", "error"},
		"--log-format":   {"text", "json"},
		"--template":     templates.Starters(),
		"--lang":         generate.Languages(),
		"--drain":        {"idle", "now"},
		"--until":        words(migrate.Stages()),
		"--allow":        words(topology.Hazards()),
		"--by":           {"error", "cause", "queue", "key", "exchange", "type", "header:", "body."},
		"--to":           {"queue", "original", "queue:", "exchange:"},
		"--split-by":     {"prefix", "owner"},
		"--fail-on":      append(words(audit.Severities()), failOnLost, failOnNever),
		"--rule":         rules,
		"--skip-rule":    rules,
		"--explain":      rules,
		"trace --reason": words(trace.Causes()),
		"serve --allow":  page.Allowable(),
		"replay --allow": {desk.DropsMessages + "="}, "restore --allow": {desk.DropsMessages + "="},
		"edit --allow": {desk.DropsMessages + "="}, "resume --allow": {desk.DropsMessages + "="},
		"return --allow": {desk.DropsMessages + "="}, "pull --allow": {desk.DropsMessages + "="},
		"migrate --allow": {string(topology.DropsRouting)}, "abort --allow": {string(topology.DropsRouting)},
	}
}

// words returns the values of a list of a named type of strings.
func words[T ~string](list []T) []string {
	return text.Each(list, func(v T) string { return string(v) })
}

// completeNames makes the shells complete arguments that are names of the topology files, for c and
// all commands below it. A mistake in the files completes nothing.
func (a *app) completeNames(c *cobra.Command) {
	for _, sub := range c.Commands() {
		a.completeNames(sub)
	}
	for flag, names := range map[string]nameList{
		"trace --exchange": topology.Compiled.ExchangeNames, "trace --fail": failures, "status --owner": owners,
	} {
		command, flag, _ := strings.Cut(flag, " --")
		if c.CommandPath() == "dlxctl "+command && c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, a.namesOf(names)) // it fails if it is there already
		}
	}
	if names := argumentNames(c); names != nil && c.ValidArgsFunction == nil {
		c.ValidArgsFunction = a.namesOf(names)
	}
}

// nameList returns names of a topology that an argument or a flag accepts.
type nameList func(topology.Compiled) []string

// argumentNames returns what the arguments of a command name. Nil: other things than names of the
// topology files.
func argumentNames(c *cobra.Command) nameList {
	switch c.CommandPath() {
	case "dlxctl peek", "dlxctl graph":
		return topology.Compiled.QueueNames
	case "dlxctl migrate", "dlxctl migrate abort":
		return legacyQueues
	case "dlxctl generate args", "dlxctl simulate":
		return topology.Compiled.WorkQueueNames
	}
	switch named := strings.Contains(c.Use, "QUEUE"); {
	case named && c.CommandPath() == "dlxctl status":
		return topology.Compiled.WorkQueueNames
	case named && strings.HasPrefix(c.CommandPath(), "dlxctl desk "):
		return deskTargets
	}
	return nil
}

// namesOf returns a function that completes names of the topology files.
func (a *app) namesOf(names nameList) cobra.CompletionFunc {
	return func(c *cobra.Command, done []string, begin string) ([]string, cobra.ShellCompDirective) {
		a.stderr = io.Discard // a warning would break the line
		if a.fromEnvironment(c) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		slices.Sort(a.paths)
		a.paths = slices.Compact(a.paths) // cobra parses the flags twice to complete an argument
		all, err := a.files().loadEach()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, t := range all {
			out = append(out, names(t)...)
		}
		slices.Sort(out)
		out = slices.DeleteFunc(slices.Compact(out), func(name string) bool {
			return !strings.HasPrefix(name, begin) || slices.Contains(done, name)
		})
		directive := cobra.ShellCompDirectiveNoFileComp
		if slices.ContainsFunc(out, isBegun) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return out, directive
	}
}

// failures are the values of trace --fail: for all queues, or for one, with the number to come.
func failures(t topology.Compiled) []string {
	out := []string{"always"}
	for _, w := range t.WorkQueues {
		out = append(out, w.Name+"=")
	}
	return out
}

// owners are the owners of the work queues.
func owners(t topology.Compiled) []string {
	var out []string
	for _, w := range t.WorkQueues {
		if w.Owner != "" {
			out = append(out, w.Owner)
		}
	}
	return out
}

// legacyQueues are the queues that the file replaces.
func legacyQueues(t topology.Compiled) []string {
	var out []string
	for _, w := range t.WorkQueues {
		if w.Replaces != "" {
			out = append(out, w.Replaces)
		}
	}
	return out
}

// deskTargets are what names messages for the desk: a work queue behind an @, a dead-letter queue,
// or a delay.
func deskTargets(t topology.Compiled) []string {
	var out []string
	for _, name := range t.WorkQueueNames() {
		out = append(out, "@"+name)
	}
	for _, q := range t.Queues {
		if q.Label.Role == topology.RoleDeadLetter || q.Label.Role == topology.RoleUnroutable {
			out = append(out, q.Name)
		}
	}
	for _, d := range t.Delays {
		out = append(out, d.Name)
	}
	return out
}
