package cmd

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// forever is the duration of --wait=true: ten years.
const forever = 10 * 365 * 24 * time.Hour

// waitValue is the value of --wait, in every command that has it. true means no limit; false
// and zero do not wait.
type waitValue time.Duration

// addWait adds --wait to a command, with the value that wait has now.
func addWait(f *pflag.FlagSet, wait *time.Duration, usage string) *pflag.Flag {
	return f.VarPF((*waitValue)(wait), "wait", "", usage)
}

// Set parses a duration, true or false.
func (w *waitValue) Set(s string) error {
	switch s {
	case "true":
		*w = waitValue(forever)
		return nil
	case "false":
		*w = 0
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%s is negative", s)
	}
	*w = waitValue(d)
	return nil
}

// String returns the duration.
func (w *waitValue) String() string { return time.Duration(*w).String() }

// Type returns the name of the type in help texts.
func (w *waitValue) Type() string { return "duration" }
