package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// applier is one run of apply.
type applier struct {
	*app
	planFlags
	lockFlags
	yes  bool
	wait time.Duration // for retired tiers to be empty; zero: not at all

	saved *plan.Saved // nil unless a saved plan is carried out
	want  topology.Topology
	m     *broker.Management
}

func (a *app) applyCommand() *cobra.Command {
	r := applier{app: a}
	c := &cobra.Command{
		Use: "apply [PLAN]", SuggestFor: []string{"deploy", "up", "create"},
		Short: "Make the broker as the file says",
		Long: `Plan, show the plan, ask, write, and read back that nothing is left to do.

PLAN is a file of plan --save: just that is carried out, and refused if the broker has
changed since. Without it the topology files of -f are planned now.

Nothing is written while anything is blocked, or has a hazard that --allow does not
name. Objects are made in an order in which every message has somewhere to go at each
moment, and deleted in the other. If apply is stopped or fails in the middle, it says
what is done and what is not; run it again to continue.

Exit codes: 0 done, 1 failed and nothing was written, 3 blocked, 4 something was
written but not all, 130 interrupted before the first write.`,
		Example:     "  dlxctl apply\n  dlxctl plan --save plan.json && dlxctl apply plan.json\n  dlxctl apply --yes -f topology/\n  dlxctl apply --yes --allow drops-routing",
		Args:        planFile,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.read(); err != nil {
				return err
			}
			if err := r.wanted(args); err != nil {
				return err
			}
			return r.run(c.Context())
		},
	}
	c.Flags().BoolVar(&r.yes, "yes", false, "do not ask; required without a terminal")
	addWait(c.Flags(), &r.wait, "wait until retired tiers are empty, and delete them; --wait=10m gives up after 10m").NoOptDefVal = "true"
	r.planFlags.add(c.Flags())
	r.lockFlags.add(c.Flags())
	return c
}

// planFile refuses what is given in the place of a saved plan.
func planFile(c *cobra.Command, args []string) error {
	if len(args) == 1 && !isYAML(args[0]) {
		if _, err := time.ParseDuration(args[0]); err == nil && c.Flags().Changed("wait") {
			return usageError{fmt.Errorf("%s would be a saved plan here; write --wait=%s", args[0], args[0])}
		}
		return nil
	}
	return noArguments(c, args)
}

// wanted reads what is to be applied: the saved plan of args, or the files.
func (r *applier) wanted(args []string) (err error) {
	if len(args) == 0 {
		r.want, err = r.load()
		return err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("read %s: %w", args[0], reason(err))
	}
	defer f.Close()
	saved, err := plan.ReadSaved(f)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	saved.Options.Allow = append(saved.Options.Allow, r.options.Allow...)
	r.saved, r.want, r.options = &saved, saved.Want, saved.Options
	if r.conn.VHost == "" {
		r.conn.VHost = saved.VHost
	}
	return nil
}

func (r *applier) run(ctx context.Context) error {
	var err error
	if r.m, err = r.management(); err != nil {
		return err
	}
	defer r.m.Close()
	lock, err := r.take(ctx, r.app, r.m, r.want.Name)
	if err != nil {
		return err
	}
	if lock != nil {
		r.m.Over(lock)
		defer func() {
			_ = lock.Unlock(topology.LockName(r.want.Name)) // if not, the end of the connection does it
			_ = lock.Close()
		}()
	}
	p, err := r.makePlan(ctx, r.m, r.want, r.options)
	if err != nil {
		return err
	}
	if r.saved != nil {
		if err := r.saved.Check(p); err != nil {
			return err
		}
	}
	if err := r.show(p, r.verbose); err != nil {
		return err
	}
	refused := plan.Check(p, r.options.Allow)
	if refused != nil && !r.options.SkipBlocked {
		return refused
	}
	todo := plan.Allowed(p, r.options.Allow)
	if !todo.Empty() {
		if err := preflight(ctx, r.m, lock, todo); err != nil {
			return err
		}
		if !r.yes {
			if err := r.confirm(ctx); err != nil {
				return err
			}
		}
		if err := r.write(ctx, todo); err != nil {
			return err
		}
	}
	if r.wait > 0 {
		last, err := r.retire(ctx, p)
		if err != nil {
			return err
		}
		// What the tiers held may have ended in a queue that has to go as well.
		if late := plan.Check(last, r.options.Allow); late != nil && refused == nil {
			return unfinishedError{fmt.Errorf("the retired tiers are deleted, and for the rest %w", late)}
		}
	}
	return refused
}

// write carries out a plan and reads back that nothing of it is left.
func (r *applier) write(ctx context.Context, p plan.Plan) error {
	done := map[plan.Action]int{}
	patient := patient{Applier: r.m, full: map[topology.Key]bool{}}
	told := context.AfterFunc(ctx, func() {
		fmt.Fprintln(r.stderr, "stopping when what is under way is done; a second signal kills")
	})
	defer told()
	bar := r.newProgress("applied", "changes", len(p.Changes))
	err := plan.Execute(ctx, &patient, p, func(c plan.Change) {
		done[c.Action]++
		bar.step()
	})
	bar.finish()
	if err != nil {
		return err
	}
	done[plan.Delete] -= len(patient.full)
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool { return patient.full[topology.Key{Kind: c.Kind, Name: c.Name}] })
	left, err := r.readBack(ctx, p)
	if err != nil {
		return unfinishedError{fmt.Errorf("%s written, but reading back failed: %w", count(len(p.Changes), "change"), err)}
	}
	if !left.Empty() {
		var text strings.Builder
		if err := plan.WriteText(&text, left, plan.TextOptions{}); err != nil {
			return err
		}
		return unfinishedError{fmt.Errorf("%s written, but the broker is not as the file says; somebody else may be changing it. Left to do:\n%s", count(len(p.Changes), "change"), text.String())}
	}
	if r.output == "text" && len(p.Changes) > 0 {
		fmt.Fprintf(r.stdout, "done: %s; read back, nothing is left to do%s\n", summary(done), later(left.Retiring))
	}
	return nil
}

// readBack gives what is left to do of p. Policies get a few more tries: what the
// broker still does for a run that was killed, or for others, may undo ours.
func (r *applier) readBack(ctx context.Context, p plan.Plan) (plan.Plan, error) {
	const tries = 3
	for try := 0; ; try++ {
		left, err := r.makePlan(ctx, r.m, r.want, r.options)
		if err != nil {
			return left, err
		}
		left = plan.Later(p, plan.Allowed(left, r.options.Allow))
		policies := left
		policies.Changes = slices.DeleteFunc(slices.Clone(left.Changes), func(c plan.Change) bool { return c.Kind != topology.KindPolicy })
		if policies.Empty() || try == tries {
			return left, nil
		}
		if err := plan.Execute(ctx, r.m, policies, func(plan.Change) {}); err != nil {
			return left, err
		}
	}
}

// later says what only time can bring.
func later(retiring []string) string {
	if len(retiring) == 0 {
		return ""
	}
	return fmt.Sprintf(" but to delete %s when they are empty: run apply again then, or with --wait", strings.Join(retiring, ", "))
}

// patient leaves retired tiers in which messages still wait for a later apply,
// and with them what leads these back. The broker refuses to delete the tiers:
// nothing is lost.
type patient struct {
	plan.Applier
	mu   sync.Mutex
	full map[topology.Key]bool
}

// Apply carries out a change, or notes that it has to wait.
func (p *patient) Apply(ctx context.Context, c plan.Change) error {
	if c.LeadsBack() && p.waits() {
		p.leave(c)
		return nil
	}
	err := p.Applier.Apply(ctx, c)
	if c.Action == plan.Delete && c.Label.Role == topology.RoleRetry && errors.Is(err, broker.ErrRefused) {
		p.leave(c)
		return nil
	}
	return err
}

// leave notes that c has to wait.
func (p *patient) leave(c plan.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full[topology.Key{Kind: c.Kind, Name: c.Name}] = true
}

// waits reports whether a tier stays. The tiers come before what leads back.
func (p *patient) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.full) > 0
}

// summary says what was done: "3 created, 1 deleted".
func summary(done map[plan.Action]int) string {
	words := map[plan.Action]string{
		plan.Create: "created", plan.Update: "updated", plan.Replace: "replaced", plan.Delete: "deleted", plan.Migrate: "made for a migration",
	}
	var parts []string
	for _, a := range plan.Actions() {
		if n := done[a]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[a]))
		}
	}
	return strings.Join(parts, ", ")
}

// retire waits until the retired tiers are empty, and deletes them. It gives the
// plan for what is left then.
func (r *applier) retire(ctx context.Context, first plan.Plan) (plan.Plan, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	said, begun := "", time.Now()
	for wrote := !first.Empty(); ; wrote = true {
		p, err := r.makePlan(ctx, r.m, r.want, r.options)
		if err != nil && wrote {
			return p, unfinishedError{err}
		}
		if err != nil {
			return p, err
		}
		if todo := plan.Allowed(p, r.options.Allow); !todo.Empty() {
			// It takes its time to prove that a tier is empty: this is no hot loop.
			if err := r.write(ctx, todo); err != nil {
				return p, unfinishedError{err}
			}
			continue
		}
		if len(p.Retiring) == 0 {
			return p, nil
		}
		if text := strings.Join(p.Retiring, ", "); text != said {
			said = text
			fmt.Fprintf(r.stderr, "waiting for retired tiers to be empty: %s\n", text)
		}
		if time.Since(begun) > r.wait {
			return p, unfinishedError{fmt.Errorf("retired tiers still hold messages after %s: %s; run apply again", r.wait, strings.Join(p.Retiring, ", "))}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return p, unfinishedError{errors.New("interrupted while waiting for retired tiers to be empty; run apply again")}
		}
	}
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
