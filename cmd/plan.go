package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// planFlags are those that plan and apply share, so that both decide alike.
type planFlags struct {
	verbose bool
	allow   []string
	options plan.Options
}

func (p *planFlags) add(f *pflag.FlagSet) {
	f.BoolVarP(&p.verbose, "verbose", "v", false, "show generated objects one by one, with all fields")
	f.StringSliceVar(&p.allow, "allow", nil, "consent to a hazard by `NAME`: "+hazardNames(", ")+"; repeat it for several")
	f.BoolVar(&p.options.Prune, "prune", false, "delete drift: what nobody declared and touches what the file owns")
	f.BoolVar(&p.options.SkipBlocked, "skip-blocked", false, "go on with the rest if something is blocked or not allowed; still exits with 3")
}

// read checks --allow.
func (p *planFlags) read() error {
	for _, name := range p.allow {
		if !slices.Contains(plan.Hazards(), plan.Hazard(name)) {
			return usageError{fmt.Errorf("--allow is %q; write %s", name, hazardNames(" or "))}
		}
		p.options.Allow = append(p.options.Allow, plan.Hazard(name))
	}
	return nil
}

func hazardNames(between string) string {
	var names []string
	for _, h := range plan.Hazards() {
		names = append(names, string(h))
	}
	return strings.Join(names, between)
}

func (a *app) planCommand() *cobra.Command {
	var detailed bool
	var save string
	var flags planFlags
	c := &cobra.Command{
		Use: "plan", SuggestFor: []string{"diff", "preview"},
		Short: "Show what would change on the broker",
		Long: `Read the broker, compare it with the topology files, and show what apply would do.
Nothing is written. A user with the tag management is enough.

What carries the mark of this topology and is no longer in its file is deleted, what
does not is never touched. A change that may lose messages, stop consumers or drop
routing is refused until it is allowed by name.

Exit codes: 0 even if there are changes, 2 with --detailed-exitcode if there are
changes or drift, 3 if apply would refuse.`,
		Example:     "  dlxctl plan\n  dlxctl plan -f topology/ --detailed-exitcode\n  dlxctl plan -o markdown > comment.md",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := flags.read(); err != nil {
				return err
			}
			want, err := a.load()
			if err != nil {
				return err
			}
			m, err := a.management()
			if err != nil {
				return err
			}
			defer m.Close()
			p, err := a.makePlan(c.Context(), m, want, flags.options)
			if err != nil {
				return err
			}
			if err := a.show(p, flags.verbose); err != nil {
				return err
			}
			if save != "" {
				if err := a.save(save, p, want, flags.options); err != nil {
					return err
				}
			}
			if err := plan.Check(p, flags.options.Allow); err != nil {
				return err
			}
			if detailed && (!p.Empty() || len(p.Drift) > 0) {
				return errPending
			}
			return nil
		},
	}
	c.Flags().StringVar(&save, "save", "", "keep the plan in `FILE`, for dlxctl apply FILE")
	c.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit with 2 if there are changes or drift")
	flags.add(c.Flags())
	return c
}

// save keeps a plan in a file. It holds no credentials, but names that may be
// nobody's business.
func (a *app) save(path string, p plan.Plan, want topology.Topology, o plan.Options) error {
	var b bytes.Buffer
	if err := plan.Save(&b, p, want, o, Version()); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, reason(err))
	}
	fmt.Fprintf(a.stderr, "saved; to carry out just this: dlxctl apply %s\n", path)
	return nil
}

// management opens the management API of the broker that the flags name. load
// comes first: the file may name the virtual host.
func (a *app) management() (*broker.Management, error) { return a.managementOf(a.conn) }

// managementOf opens the management API that c names.
func (a *app) managementOf(c broker.Config) (*broker.Management, error) {
	endpoint, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	return broker.NewManagement(endpoint)
}

// makePlan reads the broker and compares.
func (a *app) makePlan(ctx context.Context, m *broker.Management, want topology.Topology, o plan.Options) (plan.Plan, error) {
	state, err := m.Inspect(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	if !atLeast(state.Version, oldest) {
		return plan.Plan{}, fmt.Errorf("the broker is RabbitMQ %s; dlxctl needs %d.%d or newer: older ones lose messages that wait in quorum queues with a TTL", state.Version, oldest[0], oldest[1])
	}
	if want.Cluster != "" && want.Cluster != state.Cluster {
		return plan.Plan{}, fmt.Errorf("the topology is for the cluster %q, and this broker belongs to %q; check RABBITMQ_URL, or cluster: in the file", want.Cluster, state.Cluster)
	}
	return plan.Make(want, state, o), nil
}

// oldest is the oldest version that can do what we need: at-least-once
// dead-lettering, and a TTL in quorum queues.
var oldest = [2]int{3, 10} //nolint:gochecknoglobals // an array cannot be a constant

// atLeast compares the first two numbers of a version such as 4.0.5.
func atLeast(version string, least [2]int) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return true // a build of one's own: it will show
	}
	return major > least[0] || major == least[0] && minor >= least[1]
}

// show prints a plan in the format that was asked for.
func (a *app) show(p plan.Plan, verbose bool) error {
	switch a.output {
	case "json":
		return plan.WriteJSON(a.stdout, p, Version())
	case "markdown":
		return plan.WriteMarkdown(a.stdout, p)
	default:
		return plan.WriteText(a.stdout, p, plan.TextOptions{Style: a.style(), Verbose: verbose})
	}
}

// style gives the colours of a plan on a terminal, and none elsewhere.
func (a *app) style() plan.Style {
	if !a.colour() {
		return plan.Style{}
	}
	paint := func(code string) func(string) string {
		return func(s string) string { return "\x1b[" + code + "m" + s + "\x1b[0m" }
	}
	return plan.Style{Create: paint("32"), Change: paint("33"), Delete: paint("31"), Blocked: paint("1;31")}
}
