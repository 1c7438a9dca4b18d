package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
)

type lockFlags struct {
	wanted  bool
	timeout time.Duration
}

func (l *lockFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&l.wanted, "lock", true, "hold a lock, so that no other run changes the same topology; needs the AMQP port")
	f.DurationVar(&l.timeout, "lock-timeout", 0, "how long to wait while another run holds the lock")
}

// lockSession gets the lock of the session's topology for a command, except with --lock=false. The
// end of the session frees it.
func (l lockFlags) lockSession(ctx context.Context, a *app, s *apply.Session, command string) error {
	if !l.wanted {
		return nil
	}
	return s.Lock(ctx, command, l.timeout, func(line string) { fmt.Fprintln(a.stderr, line) })
}
