package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/plan"
)

func (a *app) applyCommand() *cobra.Command {
	var yes, verbose bool
	var lock lockFlags
	c := &cobra.Command{
		Use:   "apply",
		Short: "Make the broker as the file says",
		Long: `Plan, show the plan, ask, write, and read back that nothing is left to do.

Nothing is written while anything is blocked. Objects are made in an order in which
every message has somewhere to go at each moment. If apply is stopped or fails in the
middle, it says what is done and what is not; run it again to continue.

Exit codes: 0 done, 1 failed and nothing was written, 3 blocked, 4 something was
written but not all, 130 interrupted before the first write.`,
		Example:     "  dlxctl apply\n  dlxctl apply --yes -f topology/",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE:        func(c *cobra.Command, _ []string) error { return a.apply(c.Context(), lock, yes, verbose) },
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask; required without a terminal")
	verboseFlag(c, &verbose)
	lock.add(c.Flags())
	return c
}

func (a *app) apply(ctx context.Context, lock lockFlags, yes, verbose bool) error {
	want, err := a.load()
	if err != nil {
		return err
	}
	m, err := a.management()
	if err != nil {
		return err
	}
	defer m.Close()
	free, err := lock.take(ctx, a, m, want.Name)
	if err != nil {
		return err
	}
	defer free()
	p, err := a.makePlan(ctx, m, want)
	if err != nil {
		return err
	}
	if err := a.show(p, verbose); err != nil {
		return err
	}
	if err := plan.Check(p); err != nil || p.Empty() {
		return err
	}
	if !yes {
		if err := a.confirm(ctx); err != nil {
			return err
		}
	}
	done := 0
	if err := plan.Execute(ctx, m, p, func(plan.Change) { done++ }); err != nil {
		return err
	}
	left, err := a.makePlan(ctx, m, want)
	if err != nil {
		return unfinishedError{fmt.Errorf("%s written, but reading back failed: %w", count(done, "change"), err)}
	}
	if !left.Empty() {
		var text strings.Builder
		if err := plan.WriteText(&text, left, plan.TextOptions{}); err != nil {
			return err
		}
		return unfinishedError{fmt.Errorf("%s written, but the broker is not as the file says; somebody else may be changing it. Left to do:\n%s", count(done, "change"), text.String())}
	}
	if a.output == "text" {
		fmt.Fprintf(a.stdout, "done: %d created; read back, nothing is left to do\n", done)
	}
	return nil
}

// confirm asks on the terminal. Anything but y or yes is no.
func (a *app) confirm(ctx context.Context) error {
	if !terminal(a.stdin) {
		return errors.New("there is no terminal to ask on; write --yes to apply without asking")
	}
	fmt.Fprint(a.stderr, "apply these changes? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n') // no answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		if s == "y" || s == "yes" {
			return nil
		}
		return errors.New("not confirmed; nothing was written")
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return ctx.Err()
	}
}
