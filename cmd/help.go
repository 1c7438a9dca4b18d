package cmd

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageTemplate returns cobra's template of what the help prints after the description of a
// command. The help of dlxctl lists its commands on one screen, before its flags. The help of a
// command is about its own flags, and names the global ones.
func usageTemplate(global *pflag.FlagSet) string {
	return strings.Replace(`{{if .HasParent}}Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{else}}Usage: {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$commands := .Commands}}{{if .Groups}}{{range $group := .Groups}}
{{.Title}}{{range $commands}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{else}}

Commands:{{range $commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{plainFlags .LocalFlags | flagUsages | trimTrailingWhitespaces}}{{end}}{{with advancedFlags .LocalFlags | flagUsages}}

Advanced flags:
{{. | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

GLOBAL{{end}}{{if .HasAvailableSubCommands}}

'{{.CommandPath}} [command] --help' describes a command.{{end}}{{if not .HasParent}} More commands: completion, help, version.{{end}}

An environment variable can set a flag: DLXCTL_LOG_LEVEL sets --log-level. Flags that
give consent (such as --yes, --allow, --force) have no variable.
`, "GLOBAL", foldedFlags(global), 1)
}

// setUpHelp lets help list commands in the order in which they are needed, and flags that few need
// after the others. Both are global in cobra.
var setUpHelp = sync.OnceFunc(func() { //nolint:gochecknoglobals // cobra's are global
	cobra.EnableCommandSorting = false
	cobra.AddTemplateFunc("plainFlags", func(f *pflag.FlagSet) *pflag.FlagSet { return flagsThatAre(false, f) })
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	cobra.AddTemplateFunc("advancedFlags", func(f *pflag.FlagSet) *pflag.FlagSet { return flagsThatAre(true, f) })
})

// advanced is the annotation of a flag that few need.
const advanced = "dlxctl_advanced"

// markAdvanced lets help list flags after the others.
func markAdvanced(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, advanced, []string{}) // it fails for a flag that is not there
	}
}

// flagsThatAre returns the flags that few need, or the others.
func flagsThatAre(rare bool, all *pflag.FlagSet) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if _, marked := f.Annotations[advanced]; marked == rare {
			some.AddFlag(f)
		}
	})
	return some
}

// flagUsages describes flags. The value of --wait may be left out.
func flagUsages(f *pflag.FlagSet) string {
	const optional = "[=duration]"
	return strings.ReplaceAll(f.FlagUsages(), " duration[=true]", optional+"     ")
}

// foldedFlags names the global flags in a few lines: the help of each command is about its own.
func foldedFlags(f *pflag.FlagSet) string {
	out, column := "Global Flags (dlxctl --help describes them):\n ", 1
	f.VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + "/" + name
		}
		if column+len(name)+1 > 80 {
			out, column = out+"\n ", 1
		}
		out, column = out+" "+name, column+len(name)+1
	})
	return out
}
