package cmd

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages into a folder",
		Long: `Write a manual page for each command into DIR, which man reads if it is a folder such as
/usr/local/share/man/man1. SOURCE_DATE_EPOCH sets the date on the pages.`,
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
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}
