package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// ask asks a question on the terminal. Any answer but y or yes is no, which is an error.
func (a *app) ask(ctx context.Context, question string) error {
	if !terminal(a.stdin) {
		return errors.New("stdin is not a terminal; pass --yes to skip confirmation")
	}
	fmt.Fprint(a.stderr, question+" [y/N] ")
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

// announceStop prints that the command is stopping, when the first signal ends ctx. The
// caller calls forget once there is nothing to stop.
func (a *app) announceStop(ctx context.Context) (forget func() bool) {
	return context.AfterFunc(ctx, func() {
		fmt.Fprintln(a.stderr, "stopping after the changes in progress; a second signal kills")
	})
}
