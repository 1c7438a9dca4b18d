package cmd

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/templates"
	"github.com/dlxctl/dlxctl/topology"
)

// completeValues makes the shells complete the values of flags, for c and all commands below it.
func completeValues(c *cobra.Command) {
	if !c.HasParent() {
		complete := func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return outputs(c), cobra.ShellCompDirectiveNoFileComp
		}
		_ = c.RegisterFlagCompletionFunc("output", complete) // it fails if it is there already
	}
	values := map[string][]string{
		"log-level":  {"debug", "info", "warn", "error"},
		"log-format": {"text", "json"},
		"template":   templates.Starters(),
		"lang":       generate.Languages(),
		"drain":      {"idle", "now"},
		"by":         {"cause", "error", "queue", "key", "header:", "body."},
	}
	for _, s := range migrate.Stages() {
		values["until"] = append(values["until"], string(s))
	}
	if c.Name() != "serve" { // there, --allow names actions
		for _, h := range plan.Hazards() {
			values["allow"] = append(values["allow"], string(h))
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if list := values[f.Name]; len(list) > 0 {
			complete := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
			_ = c.RegisterFlagCompletionFunc(f.Name, complete) // it fails if it is there already
		}
	})
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

// completeNames makes the shells complete arguments that are names of the topology files, for c and
// all commands below it. A mistake in the files completes nothing.
func (a *app) completeNames(c *cobra.Command) {
	for _, sub := range c.Commands() {
		a.completeNames(sub)
	}
	switch {
	case c.ValidArgsFunction != nil:
	case c.CommandPath() == "dlxctl peek":
		a.completeArguments(c, allQueues)
	case c.CommandPath() == "dlxctl migrate", c.CommandPath() == "dlxctl migrate run":
		a.completeArguments(c, legacyQueues)
	case c.CommandPath() == "dlxctl generate args":
		a.completeArguments(c, workQueues)
	case strings.HasPrefix(c.CommandPath(), "dlxctl desk ") && strings.Contains(c.Use, "QUEUE"):
		a.completeArguments(c, deskTargets)
	}
}

// completeArguments makes the shells complete the arguments of a command with names.
func (a *app) completeArguments(c *cobra.Command, names func(topology.Compiled) []string) {
	c.ValidArgsFunction = func(c *cobra.Command, done []string, begin string) ([]string, cobra.ShellCompDirective) {
		a.stderr = io.Discard // a warning would break the line
		if a.fromEnvironment(c) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		slices.Sort(a.paths)
		a.paths = slices.Compact(a.paths) // cobra parses the flags twice to complete an argument
		t, err := a.files().load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, name := range names(t) {
			if strings.HasPrefix(name, begin) && !slices.Contains(done, name) {
				out = append(out, name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// allQueues are the queues of a topology, generated ones included.
func allQueues(t topology.Compiled) []string {
	var out []string
	for _, q := range t.Queues {
		out = append(out, q.Name)
	}
	slices.Sort(out)
	return out
}

// workQueues are the work queues of a topology.
func workQueues(t topology.Compiled) []string {
	var out []string
	for _, w := range t.WorkQueues {
		out = append(out, w.Name)
	}
	slices.Sort(out)
	return out
}

// legacyQueues are the queues that the file replaces.
func legacyQueues(t topology.Compiled) []string {
	names := map[string]bool{}
	for _, w := range t.WorkQueues {
		if w.Replaces != "" {
			names[w.Replaces] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// deskTargets are what names dead letters: a work queue behind an @, or a dead-letter queue.
func deskTargets(t topology.Compiled) []string {
	var out []string
	for _, name := range workQueues(t) {
		out = append(out, "@"+name)
	}
	for _, q := range t.Queues {
		if q.Label.Role == topology.RoleDeadLetter || q.Label.Role == topology.RoleUnroutable {
			out = append(out, q.Name)
		}
	}
	slices.Sort(out)
	return out
}
