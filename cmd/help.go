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
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

GLOBAL{{end}}{{if .HasAvailableSubCommands}}

'{{.CommandPath}} [command] --help' describes a command.{{end}}{{if not .HasParent}} More commands: completion, help, version.{{end}}

An environment variable can set a flag: DLXCTL_LOG_LEVEL sets --log-level. Flags that
give consent (such as --yes, --allow, --force) have no variable.
`, "GLOBAL", foldedFlags(global), 1)
}

// inOrder lets help list commands in the order in which they are needed. It is a global variable of
// cobra.
var inOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false }) //nolint:gochecknoglobals // cobra's is one

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
