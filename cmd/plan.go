package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// planFlags are the flags that plan and apply share, so that both decide alike.
type planFlags struct {
	verbose bool
	allow   []string
	options plan.Options
}

func (p *planFlags) add(f *pflag.FlagSet) {
	p.addShared(f)
	f.BoolVar(&p.options.Prune, "prune", false, "delete drift: undeclared bindings of objects that the file owns")
	f.BoolVar(&p.options.SkipBlocked, "skip-blocked", false,
		"carry out the other changes if some are blocked or not allowed; the exit code is still 3")
}

// addShared adds those that destroy has too.
func (p *planFlags) addShared(f *pflag.FlagSet) {
	f.BoolVarP(&p.verbose, "verbose", "v", false, "show generated objects one by one, with all fields")
	f.StringSliceVar(&p.allow, "allow", nil,
		"allow a `HAZARD` for one queue or exchange (drops-routing=billing), or for every change (drops-routing); repeat the flag for several; hazards: "+hazardNames(", "))
}

// read checks --allow.
func (p *planFlags) read() error {
	for _, text := range p.allow {
		consent, err := plan.ParseConsent(text)
		if err != nil {
			return usageError{fmt.Errorf("--allow is %q; write %s, and add =NAME for one queue or exchange", text,
				hazardNames(" or "))}
		}
		p.options.Allow = append(p.options.Allow, consent)
	}
	return nil
}

// note prints, on stderr, notes about the --allow flags.
func (p *planFlags) note(a *app, made plan.Plan) {
	var given []plan.Consent
	for _, text := range p.allow {
		if consent, err := plan.ParseConsent(text); err == nil { // read has refused invalid ones
			given = append(given, consent)
		}
	}
	for _, note := range made.Notes(given) {
		fmt.Fprintf(a.stderr, "note: %s\n", topology.Printable(note))
	}
}

func hazardNames(between string) string {
	names := words(topology.Hazards())
	return strings.Join(names, between)
}

type planCommand struct {
	app      *app
	flags    planFlags
	detailed bool
	// requireRights fails if the user lacks rights that apply needs.
	requireRights bool
	save          string // the file to save the plan in; empty: none
	process       string // the command that starts a processor
}

func newPlan(a *app) *cobra.Command {
	k := planCommand{app: a}
	c := &cobra.Command{
		Use: "plan", SuggestFor: []string{"diff", "preview"},
		Short: "Show what would change on the broker",
		Long: `Read the broker, compare it with the topology files, and show what apply would do. plan
writes nothing. The user needs only the tag management.

apply deletes objects that carry the owner mark of this topology and are no longer declared.
It never touches objects without that mark. A change that may lose messages, stop
consumers or drop routing is refused until --allow HAZARD=NAME allows it. A queue or
exchange that is listed under 'removed' in the file may drop routing when it is deleted.

plan warns if the user lacks rights that apply needs (missing-rights). With
--require-rights it fails, so that apply cannot fail for that after the merge.

Exit codes: 0 even if there are changes, 2 with --detailed-exitcode if there are
changes or drift, 3 if apply would refuse.`,
		Example:     "  dlxctl plan\n  dlxctl plan -f topology/ --detailed-exitcode\n  dlxctl plan -o markdown > comment.md",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE: func(c *cobra.Command, _ []string) error {
			k.process = shellLine(c, "process")
			return k.run(c.Context())
		},
	}
	c.Flags().StringVar(&k.save, "save", "", "save the plan in `FILE`, for dlxctl apply FILE")
	c.Flags().BoolVar(&k.detailed, "detailed-exitcode", false, "exit with 2 if there are changes or drift")
	c.Flags().BoolVar(&k.requireRights, "require-rights", false,
		"fail if the user lacks rights that apply needs, for use in CI where the same user applies")
	k.flags.add(c.Flags())
	return c
}

func (k *planCommand) run(ctx context.Context) error {
	a, flags := k.app, &k.flags
	if err := flags.read(); err != nil {
		return err
	}
	// Almost all that a plan allocates it needs to its end: to look for garbage as often as usual
	// finds little.
	defer debug.SetGCPercent(debug.SetGCPercent(fewCollections))
	files := a.files()
	sources, err := files.read()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, begun, err := a.conn.openWhile(ctx, sources, func() (topology.Compiled, error) { return files.compile(sources) })
	if err != nil {
		return err
	}
	defer s.Close()
	want := s.Topology
	state, p, err := s.Plan(ctx, begun, flags.options)
	if err != nil {
		return err
	}
	if p, err = withReplacements(ctx, s, state, p); err != nil {
		return err
	}
	missing, err := k.checkRights(ctx, s, want, &p)
	if err != nil {
		return err
	}
	if err := a.show(p, flags.verbose, k.process); err != nil {
		return err
	}
	flags.note(a, p)
	a.noteOverlay(p)
	if k.save != "" {
		if err := a.savePlan(k.save, p, want, flags.options, k.process); err != nil {
			return err
		}
	}
	if err := plan.Check(p, flags.options.Allow); err != nil {
		return err
	}
	if missing {
		return errors.New("the user lacks rights that apply needs; see the warning missing-rights above")
	}
	if k.detailed && (!p.Empty() || len(p.Drift) > 0) {
		return errPending
	}
	return nil
}

// withReplacements returns a plan with what the broker shows of the queues that are replaced under
// their names. Without one it reads nothing: other plans are not slower.
func withReplacements(ctx context.Context, s *apply.Session, state topology.State, p plan.Plan) (plan.Plan, error) {
	var queues []string
	for _, c := range p.Changes {
		if c.ReplacesQueue() {
			queues = append(queues, c.Name)
		}
	}
	if len(queues) == 0 {
		return p, nil
	}
	shown, err := migrate.Shown(ctx, s.Management, s.Topology, state, queues)
	if err != nil {
		return p, err
	}
	p.Changes = slices.Clone(p.Changes)
	for i, c := range p.Changes {
		if r, known := shown[c.Name]; known && c.ReplacesQueue() {
			p.Changes[i].Replacement = &r
		}
	}
	return p, nil
}

// checkRights adds a warning to p if the user lacks rights that apply needs, unless the file
// accepts that: another user may apply. It reports whether plan must fail for it.
func (k *planCommand) checkRights(ctx context.Context, s *apply.Session, want topology.Compiled,
	p *plan.Plan,
) (bool, error) {
	warning, err := s.MissingRights(ctx, *p, k.requireRights)
	if err != nil && k.requireRights {
		return false, err
	}
	if warning == nil {
		return false, nil // where they are not known, apply checks them before its first write
	}
	if !k.requireRights && topology.Accepts(want.Accepted, warning.Name, nil) {
		return false, nil
	}
	p.Warnings = append(slices.Clone(p.Warnings), *warning)
	return k.requireRights, nil
}

// fewCollections lets memory grow to three times what is in use before the garbage is collected. To
// five times took longer: a system clears memory before it hands it out.
const fewCollections = 200

// savePlan saves a plan in a file, which only the user may read: it holds no credentials,
// but names of objects.
func (a *app) savePlan(path string, p plan.Plan, want topology.Compiled, o plan.Options, process string) error {
	var b bytes.Buffer
	source := planview.Source{Files: a.paths, Overlays: a.overlays, VHost: a.conn.VHost}
	if err := planview.Save(&b, p, want, source, o, Version(), process); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, reason(err))
	}
	command := "dlxctl apply " + text.ShellQuote(path)
	if needs := p.Needs(o.Allow); needs != "" {
		command += " " + needs
	}
	if err := plan.Check(p, o.Allow); errors.Is(err, plan.ErrBlocked) && !o.SkipBlocked {
		fmt.Fprintf(a.stderr, "saved, but 'dlxctl apply %s' refuses it while changes are blocked; see the suggested fixes above\n", text.ShellQuote(path))
	} else {
		fmt.Fprintf(a.stderr, "saved; to apply exactly this plan: %s\n", topology.Printable(command))
	}
	return nil
}

// show prints a plan in the format of --output. process is the command that starts a processor for
// its topology.
func (a *app) show(p plan.Plan, verbose bool, process string) error {
	switch a.output {
	case "json":
		return planview.WriteJSON(a.stdout, p, Version(), process)
	case "markdown":
		return planview.WriteMarkdown(a.stdout, p, process)
	default:
		return planview.WriteText(a.stdout, p, planview.TextOptions{
			Style: a.style(), Verbose: verbose, Width: a.width(), Process: process,
		})
	}
}

// style returns the colors of a plan on a terminal, and none elsewhere.
func (a *app) style() text.Style {
	if !a.color() {
		return text.Style{}
	}
	return text.Colors()
}
