package cmd

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages into a folder",
		Long: `Write a manual page for each command into DIR, which man reads if it is a folder such as
/usr/local/share/man/man1. SOURCE_DATE_EPOCH sets the date on the pages: then the same
version of dlxctl always writes the same pages.

The pages are not in the repository. 'make docs' writes them into bin/man/man1, where
'man -M bin/man dlxctl-apply' finds them.`,
		Example: "  dlxctl man /usr/local/share/man/man1",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // all users may read manual pages
				return fmt.Errorf("create the folder %s: %w", args[0], reason(err))
			}
			header := &doc.GenManHeader{Section: "1", Source: "dlxctl " + Version(), Manual: "dlxctl"}
			if _, set := a.env("SOURCE_DATE_EPOCH"); !set {
				now := time.Now()
				header.Date = &now
			}
			c.Root().DisableAutoGenTag = true
			keepTables(c.Root())
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}

// keepTables makes indented lines of help texts blocks of code, for c and all commands below it:
// the pages are made from Markdown, which would join such lines into a paragraph.
func keepTables(c *cobra.Command) {
	var b strings.Builder
	block := false
	for line := range strings.Lines(c.Long) {
		if indented := strings.HasPrefix(line, "  "); indented != block && line != "\n" {
			b.WriteString("\n")
			block = indented
		}
		if block && line != "\n" {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	c.Long = b.String()
	for _, sub := range c.Commands() {
		keepTables(sub)
	}
}
