package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/verify"
	"github.com/dlxctl/dlxctl/topology"
)

// errUnverified is the error of a report with problems. It is an answer and prints nothing.
var errUnverified = errors.New("the retry plane has problems")

type verifyCommand struct {
	app       *app
	maxWait   time.Duration
	late      time.Duration
	patience  time.Duration
	tiersOnly bool
}

func newVerify(a *app) *cobra.Command {
	k := verifyCommand{app: a}
	c := &cobra.Command{
		Use:        "verify",
		SuggestFor: []string{"canary", "check", "doctor", "smoke", "test"},
		Short:      "Test the live retry path with canary messages",
		Long: `Send a canary, a message of its own, through each tier of each backoff and back to a queue of
its own, and check that it comes back, not before its time and not late, with the headers
that a service relies on. A second canary enters where rejected messages go, to see that a
processor counts it and puts it into the tier. No canary reaches a work queue or a
dead-letter queue: its path is checked first; a canary that could end up elsewhere is not sent.

Where RabbitMQ does the retries (engine: native), canaries fail in a queue of verify with the
settings of the first work queue, once in each way in which a consumer can fail.

Of tiers longer than --max-wait only the settings are read; native retries follow one another,
and those are waited for that come within it. verify is meant for a job each night. Its queues
begin with NAME.verify. and are deleted at the end. After Ctrl-C, a kill or an alarm, or if a
canary did not come back, they expire by themselves: with engine: native after 10 minutes, else
6 minutes later than the longest tier within --max-wait. It needs the rights that 'dlxctl rights' prints for the user verify.

Each file with its own 'name' is a separate topology; -o json writes one object for each. A
topology without a backoff is left out, and one that cannot be verified does not stop the others.

Exit codes: 0 all is well, 1 a topology could not be verified, 2 there is a problem, 130
interrupted.`,
		Example:     "  dlxctl verify\n  dlxctl verify --max-wait 10m -o json\n  dlxctl verify --tiers-only",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	f := c.Flags()
	f.DurationVar(&k.maxWait, "max-wait", 2*time.Minute, "longest `DELAY` of a tier, or of native retries together, to wait for")
	f.DurationVar(&k.late, "late", 5*time.Second, "how long after its time a canary may come back without a problem")
	f.DurationVar(&k.patience, "patience", 30*time.Second,
		"how long after its time to wait for a canary, and how long a processor has to take one")
	f.BoolVar(&k.tiersOnly, "tiers-only", false, "do not check that processors work, as where none runs all the time")
	return c
}

// run verifies each topology, and fails if one has a problem.
func (k *verifyCommand) run(ctx context.Context) error {
	for name, d := range map[string]time.Duration{"late": k.late, "patience": k.patience, "max-wait": k.maxWait} {
		if d < 0 || name == "patience" && d < time.Millisecond {
			return usageError{fmt.Errorf("--%s is %s; write a longer time, such as 30s", name, d)}
		}
	}
	all, err := k.app.files().loadEach()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, verify.Verifiable) {
		all = all[:1] // which says that there is nothing to verify
	}
	wrong, shown := false, 0
	var failures []error
	for _, t := range all {
		if len(all) > 1 && !verify.Verifiable(t) {
			fmt.Fprintf(k.app.stderr, "topology %s has no queue with a backoff: there is nothing to verify in it\n", t.Name)
			continue
		}
		if shown > 0 && k.app.output == "text" {
			fmt.Fprintln(k.app.stdout)
		}
		problems, err := k.verify(ctx, t)
		switch {
		case err != nil && (len(all) == 1 || ctx.Err() != nil):
			return err
		case err != nil: // the others may still be verified
			failures = append(failures, fmt.Errorf("topology %s: %w", t.Name, err))
		default:
			shown++
		}
		wrong = wrong || problems
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if wrong {
		return errUnverified
	}
	return nil
}

// verify verifies one topology, writes the report, and reports whether it has problems.
func (k *verifyCommand) verify(ctx context.Context, t topology.Compiled) (bool, error) {
	s, err := k.app.conn.open(t)
	if err != nil {
		return false, err
	}
	defer s.Close()
	v := verify.Verifier{
		Topology: t, Endpoint: s.Endpoint, Management: s.Management, MaxWait: k.maxWait, Late: k.late,
		Patience: k.patience, TiersOnly: k.tiersOnly, Log: k.app.log(),
	}
	r, err := v.Run(ctx)
	if err != nil {
		return false, err
	}
	if k.app.output == "json" {
		err = jsondoc.Write(k.app.stdout, r)
	} else {
		err = verify.WriteText(k.app.stdout, r, k.app.width())
	}
	return len(r.Problems) > 0, err
}
