package cmd

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePage = "../docs/reference.md"

// The command reference matches the help of the commands.
func TestReference(t *testing.T) {
	t.Parallel()
	want := reference(t)
	if *update {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference.md differs from the help of the commands; run make golden")
	}
}

// reference writes the page.
func reference(t *testing.T) string {
	t.Helper()
	root := (&app{}).commandFor([]string{cobra.ShellCompRequestCmd}) // with the values of flags
	var b strings.Builder
	b.WriteString("# Commands\n\n`make golden` writes this page from the help of the commands; a test keeps both equal.\n\n")
	b.WriteString("| command | |\n| --- | --- |\n")
	shown := slices.DeleteFunc(commands(root)[1:], func(c *cobra.Command) bool {
		return c.Hidden && c.Name() != "version"
	})
	for _, c := range shown {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
	}
	b.WriteString("\n`dlxctl completion` prints a completion script for a shell, `dlxctl help` and `--help` the text below.\n")
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n")
	for _, c := range exitCodes(t) {
		fmt.Fprintf(&b, "| %s | %s |\n", c.value, cell(c.meaning))
	}
	b.WriteString("\n## Flags of every command\n\n")
	b.WriteString("An environment variable sets a flag that is not on the command line. Where two variables are listed, the first has precedence.\n\n")
	writeFlags(&b, root.PersistentFlags())
	for _, c := range shown {
		writeCommand(&b, c)
	}
	return b.String()
}

// writeCommand writes the section of a command.
func writeCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	writeProse(b, cmp.Or(c.Long, c.Short))
	fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```sh\n%s\n```\n",
			strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
	if c.HasSubCommands() && !c.LocalNonPersistentFlags().HasFlags() {
		return // it does nothing by itself
	}
	fmt.Fprintf(b, "\nOutput (`-o`): %s.\n", strings.Join(outputs(c), ", "))
	if c.LocalNonPersistentFlags().HasFlags() {
		b.WriteString("\n")
		writeFlags(b, c.LocalNonPersistentFlags())
	}
}

// writeProse writes a text of the help, and keeps indented lines as they are.
func writeProse(b *strings.Builder, text string) {
	fenced := false
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != fenced {
			b.WriteString("```\n")
			fenced = indented
		}
		if !indented {
			line = strings.NewReplacer("*", `\*`, "<", `\<`, " _", ` \_`).Replace(line)
		}
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	if fenced {
		b.WriteString("```\n")
	}
}

// writeFlags writes a table of flags.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | meaning | default | variable |\n| --- | --- | --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.NoOptDefVal != "" && value != "" {
			name, value = name+"[="+value+"]", ""
		}
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		variable := "" // flags that consent have none
		if list := variables(f.Name); len(list) > 0 {
			variable = "`" + strings.Join(list, "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", strings.TrimSpace(name+" "+value), cell(usage), standard(f), variable)
	})
}

// standard returns the default value of a flag as text. Empty: the flag has none.
func standard(f *pflag.Flag) string {
	switch v := strings.Trim(f.DefValue, "[]"); v {
	case "", "false", "0", "0s":
		return ""
	default:
		return "`" + v + "`"
	}
}

// cell escapes a text for a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`, "\n", " ").Replace(s)
}

type exit struct{ value, meaning string }

// exitCodes reads the constants of main.go with their comments.
func exitCodes(t *testing.T) []exit {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var codes []exit
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "exit") {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || spec.Doc.Text() == "" {
			t.Fatalf("main.go has no comment on %s", spec.Names[0])
		}
		codes = append(codes, exit{value.Value, strings.Join(strings.Fields(spec.Doc.Text()), " ")})
		return true
	})
	if len(codes) < 7 {
		t.Fatalf("main.go has only %d exit codes", len(codes))
	}
	return codes
}
