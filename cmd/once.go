package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// once is the value of a flag that takes one value, and counts how often it is given.
type once struct {
	pflag.Value

	times int
}

// Set sets the value.
func (v *once) Set(s string) error {
	v.times++
	return v.Value.Set(s)
}

// countFlags makes each flag of each command below c count how often it is given, except lists and
// switches.
func countFlags(c *cobra.Command) {
	visitFlags(c, func(f *pflag.Flag) {
		_, list := f.Value.(pflag.SliceValue)
		if _, done := f.Value.(*once); !list && !done && f.Value.Type() != "bool" {
			f.Value = &once{Value: f.Value}
		}
	})
}

// refuseRepeats refuses a flag that takes one value and is given more than once: the last one would
// win, in silence.
func refuseRepeats(c *cobra.Command) error {
	var problem error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if v, counts := f.Value.(*once); counts && v.times > 1 {
			problem = usageError{fmt.Errorf("--%s takes one value, and is given %d times; remove all but one", f.Name, v.times)}
		}
	})
	return problem
}
