package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// allowFlag is --allow of the commands that send messages: the queues that may drop them.
type allowFlag struct{ values []string }

func (k *allowFlag) add(f *pflag.FlagSet) {
	f.StringArrayVar(&k.values, "allow", nil,
		"send although a queue would drop or delete messages: `"+desk.DropsMessages+"=QUEUE`; repeat the flag for several")
}

// queues returns the queues that may drop messages.
func (k *allowFlag) queues() ([]string, error) {
	var out []string
	for _, v := range k.values {
		queue, ok := strings.CutPrefix(v, desk.DropsMessages+"=")
		if !ok || queue == "" {
			return nil, usageError{fmt.Errorf("--allow is %q; write %s=QUEUE", v, desk.DropsMessages)}
		}
		out = append(out, queue)
	}
	return out, nil
}

// allowLine returns the command line of a command that runs, with consent to what queues drop.
func allowLine(c *cobra.Command, queues []string, more ...string) string {
	var words []string
	for _, queue := range queues {
		words = append(words, "--allow", desk.DropsMessages+"="+queue)
	}
	return commandLine(c, c.Flags().Args(), append(words, more...)...)
}
