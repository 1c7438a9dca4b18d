package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// errFindings is the error of an audit that found something as bad as --fail-on. The findings are
// on stdout, and it prints nothing.
var errFindings = errors.New("the audit found something")

type auditCommand struct {
	app           *app
	failOn        string
	baseline      string
	writeBaseline string
	explain       string
	listRules     bool
	only, skip    []string // rules
	allHosts      bool
	verbose       bool
	interval      time.Duration
	line          string // of an upgrade
}

func newAudit(a *app) *cobra.Command {
	k := auditCommand{app: a}
	c := &cobra.Command{
		Use:   "audit [live | FILE...]",
		Short: "Find where a broker loses failed messages",
		Long: `Say of each queue whether its failed messages are kept, and what would lose them: dead-letter
exchanges that route to no queue, dead-letter queues that drop what they should keep, policies
that are not what they seem, retries that RabbitMQ drops. Each finding names the binding,
argument or policy, and a fix. audit writes nothing.

audit reads the broker (live, the default; the user needs only the tag management). FILE is a
definitions file (rabbitmqctl export_definitions, GET /api/definitions), or JSON lists of
queues, exchanges, bindings and policies (rabbitmqctl --formatter json list_queues ...,
rabbitmqadmin -f raw_json list ..., GET /api/queues); several files are read as one set, and -
is stdin. With -f, audit reads a topology file as it would be applied.

With --for, audit shows what another line of RabbitMQ refuses, changes or drops, with the source
of each fact.

Exit codes: 0, or 2 if there is a finding as bad as --fail-on that the baseline does not accept.
A queue without dead-lettering is a note: --fail-on lost exits with 2 for it too.`,
		Example: "  dlxctl audit\n  dlxctl audit definitions.json -v\n  dlxctl audit definitions.json -o sarif > audit.sarif\n" +
			"  dlxctl audit definitions.json --for 4.3\n  dlxctl audit --explain dead-letter-unrouted",
		Annotations: map[string]string{outputsAnnotation: "text json markdown sarif"},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "live" {
				args = nil
			}
			return k.run(c, args)
		},
	}
	f := c.Flags()
	f.StringVar(&k.failOn, "fail-on", string(audit.Error),
		"exit with 2 for findings of this `SEVERITY` or worse: error, warning, note or never; lost is for errors, and for queues that lose failed messages")
	f.StringVar(&k.baseline, "baseline", "", "`FILE` with accepted findings: a list in YAML or JSON with rule, object, kind, severity, vhost, reason, until")
	f.StringVar(&k.writeBaseline, "write-baseline", "",
		"write a baseline that accepts all findings to `FILE`, and exit with 0")
	f.StringVar(&k.line, "for", "", "show what RabbitMQ of this `LINE` refuses, changes or drops: "+text.Or(audit.UpgradeLines()))
	f.StringVar(&k.explain, "explain", "", "explain `RULE`: why it matters, how to fix it, an example")
	f.BoolVar(&k.listRules, "rules", false, "list all rules")
	f.StringSliceVar(&k.only, "rule", nil, "check only `RULE`; repeat the flag for several")
	f.StringSliceVar(&k.skip, "skip-rule", nil, "do not check `RULE`; repeat the flag for several")
	f.BoolVar(&k.allHosts, "all-vhosts", false, "audit all virtual hosts that the user may see")
	f.BoolVarP(&k.verbose, "verbose", "v", false, "show notes, and each object with its evidence")
	f.DurationVar(&k.interval, "interval", 0, "read the broker twice, `TIME` apart, to see which queues grow (30s)")
	return c
}

func (k *auditCommand) run(c *cobra.Command, args []string) error {
	switch {
	case k.listRules:
		return k.rules()
	case k.explain != "":
		return k.explainRule()
	}
	if err := k.check(c, args); err != nil {
		return err
	}
	accepted, err := k.readBaseline()
	if err != nil {
		return err
	}
	inputs, source, err := k.inputs(c, args)
	if err != nil {
		return err
	}
	// The model of a large virtual host lives until its findings are known. A process that ends then
	// needs a quarter less memory with half the garbage, for 14 to 30 % more CPU (measured).
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	var reports []audit.Report
	for _, in := range inputs {
		if err := k.upgrades(in.State); err != nil {
			return err
		}
		in.For = k.line
		if in.Rules == nil {
			in.Rules = k.selected()
		}
		reports = append(reports, audit.Run(in))
	}
	result := accepted.Apply(reports, time.Now())
	result.Source = source
	if k.writeBaseline != "" {
		return k.saveBaseline(result)
	}
	if err := k.show(result); err != nil {
		return err
	}
	if k.fails(result) {
		return errFindings
	}
	return nil
}

// The values of --fail-on that are not severities.
const (
	failOnLost  = "lost"
	failOnNever = "never"
)

// fails reports whether a result is as bad as --fail-on.
func (k *auditCommand) fails(result audit.Result) bool {
	switch k.failOn {
	case failOnNever:
		return false
	case failOnLost:
		return result.Loses()
	default:
		return result.Fails(audit.Severity(k.failOn))
	}
}

// check refuses flags that do not go together.
func (k *auditCommand) check(c *cobra.Command, args []string) error {
	named := k.named(c)
	switch offered := []string{"error", failOnLost, "warning", "note", failOnNever}; {
	case !slices.Contains(offered, k.failOn):
		return usageError{fmt.Errorf("--fail-on is %q; write %s", k.failOn, strings.Join(offered, ", "))}
	case len(args) > 0 && named:
		return usageError{errors.New("a definitions file and -f exclude each other; audit them one after the other")}
	case (len(args) > 0 || named) && (k.interval != 0 || k.allHosts):
		return usageError{errors.New("--interval and --all-vhosts are for a live broker; remove them, or the files")}
	case k.allHosts && c.Flags().Changed("vhost"):
		return usageError{errors.New("--all-vhosts and --vhost exclude each other; remove one")}
	case k.line != "" && !slices.Contains(audit.UpgradeLines(), k.line):
		return usageError{fmt.Errorf("--for is %q; write %s", k.line, text.Or(audit.UpgradeLines()))}
	case k.interval < 0:
		return usageError{fmt.Errorf("--interval is %s; write a time such as 30s", k.interval)}
	}
	for _, id := range slices.Concat(k.only, k.skip) {
		if err := knownRule(id); err != nil {
			return err
		}
	}
	for _, path := range args {
		if isYAML(path) {
			return usageError{fmt.Errorf("%s is not a definitions file; name a topology file with -f: dlxctl audit -f %s",
				path, text.ShellQuote(path))}
		}
	}
	return nil
}

// upgrades refuses a line before that of the broker.
func (k *auditCommand) upgrades(state topology.State) error {
	if k.line != "" && state.Version != "" && !(topology.State{Version: k.line}).AtLeast(lineOf(state.Version)) {
		return usageError{fmt.Errorf("--for is %s, and the virtual host is of RabbitMQ %s already; write a later line",
			k.line, topology.Printable(state.Version))}
	}
	return nil
}

// lineOf returns the first two numbers of a version.
func lineOf(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // what it cannot read is 0: no line is before that
	return major, minor
}

// selected returns the rules that --rule and --skip-rule leave. Nil is all that run by default.
func (k *auditCommand) selected() []string {
	if len(k.only)+len(k.skip) == 0 {
		return nil
	}
	ids := []string{}
	for _, r := range audit.Rules() {
		wanted := !r.Off
		if k.line != "" {
			wanted = r.Upgrade != ""
		}
		if len(k.only) > 0 {
			wanted = slices.Contains(k.only, r.ID)
		}
		if wanted && !slices.Contains(k.skip, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// inputs reads what to audit, and names it.
func (k *auditCommand) inputs(c *cobra.Command, args []string) ([]audit.Input, string, error) {
	switch {
	case len(args) > 0:
		inputs, err := k.fromFiles(args)
		return inputs, sourceNames(args), err
	case k.named(c):
		inputs, err := k.fromTopologies()
		return inputs, sourceNames(slices.Concat(k.app.paths, k.app.overlays)), err
	default:
		inputs, err := k.live(c.Context())
		return inputs, "the live broker", err
	}
}

// named reports whether the command line names topology files to audit.
func (k *auditCommand) named(c *cobra.Command) bool {
	return c.Flags().Changed("file") || c.Flags().Changed("overlay")
}

// sourceNames names files for the first lines of an output.
func sourceNames(paths []string) string {
	if len(paths) > 3 {
		return text.Count(len(paths), "file")
	}
	var names []string
	for _, path := range paths {
		if path == "-" {
			path = "stdin"
		}
		names = append(names, strings.TrimPrefix(filepath.ToSlash(path), "./"))
	}
	return strings.Join(names, ", ")
}

// fromFiles reads definitions files.
func (k *auditCommand) fromFiles(paths []string) ([]audit.Input, error) {
	hosts, err := k.app.readDefinitions(paths)
	if err != nil {
		return nil, err
	}
	var out []audit.Input
	for _, h := range hosts {
		out = append(out, audit.Input{State: h.State, Positions: h.Positions, Oddities: h.Oddities})
	}
	return out, nil
}

// fromTopologies compiles the topology files of -f.
func (k *auditCommand) fromTopologies() ([]audit.Input, error) {
	all, err := k.app.files().loadEach()
	if err != nil {
		return nil, err
	}
	var out []audit.Input
	for _, t := range all {
		vhost, err := k.app.conn.vhost(t)
		if err != nil {
			return nil, err
		}
		out = append(out, audit.Input{
			State: topology.State{VHost: vhost, Have: t.Topology}, Positions: declaredAt(t), Declared: true,
		})
	}
	return out, nil
}

// declaredAt returns where the files declare their objects, and, for a queue that was made for a
// work queue, that work queue.
func declaredAt(t topology.Compiled) map[topology.Key]topology.Place {
	places := maps.Clone(t.Places)
	for _, q := range t.Queues {
		if _, ok := places[q.ID()]; ok {
			continue
		}
		if at, ok := places[topology.Key{Kind: topology.KindQueue, Name: q.Label.Queue}]; ok {
			places[q.ID()] = at
		}
	}
	return places
}

// live reads the broker: one virtual host, or all that the user may see.
func (k *auditCommand) live(ctx context.Context) ([]audit.Input, error) {
	var hosts []string
	if k.allHosts {
		s, err := k.app.conn.open(topology.Compiled{})
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if hosts, err = s.Management.VHosts(ctx); err != nil {
			return nil, err
		}
		if len(hosts) == 0 { // nothing was audited: that must not look as if nothing was found
			return nil, fmt.Errorf("user %s has permissions in no virtual host, so nothing can be audited; "+
				"give it any permission in each, or the tag monitoring, which names those that it cannot read",
				topology.Printable(s.Management.User()))
		}
	} else {
		endpoint, err := k.app.conn.Resolve()
		if err != nil {
			return nil, err
		}
		hosts = []string{endpoint.VHost}
	}
	var out []audit.Input
	var refused error
	read := 0
	for _, vhost := range hosts {
		in, err := k.inspect(ctx, vhost)
		switch {
		case err == nil:
			read++
		case k.allHosts && (errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrNoVHost)):
			// The tag monitoring lists all virtual hosts, and one may be deleted meanwhile.
			refused = cmp.Or(refused, err)
			in = audit.Input{
				State: topology.State{VHost: vhost}, Live: &topology.Live{Unseen: []string{err.Error()}},
				Rules: []string{}, // none can tell what it holds
			}
		default:
			return nil, err
		}
		in.Several = k.allHosts
		out = append(out, in)
	}
	if read == 0 {
		return nil, refused
	}
	return out, nil
}

// inspect reads one virtual host of the broker.
func (k *auditCommand) inspect(ctx context.Context, vhost string) (audit.Input, error) {
	s, err := k.app.conn.open(topology.Compiled{VHost: vhost})
	if err != nil {
		return audit.Input{}, err
	}
	defer s.Close()
	state, err := s.Management.Inspect(ctx)
	if err != nil {
		return audit.Input{}, err
	}
	live, err := s.Management.Live(ctx, state, k.interval)
	return audit.Input{State: state, Live: &live}, err
}

func (k *auditCommand) readBaseline() (audit.Baseline, error) {
	if k.baseline == "" {
		return audit.Baseline{}, nil
	}
	data, err := os.ReadFile(k.baseline)
	switch {
	case errors.Is(err, fs.ErrNotExist) && k.writeBaseline == k.baseline:
		return audit.Baseline{}, nil
	case errors.Is(err, fs.ErrNotExist):
		return audit.Baseline{}, fmt.Errorf("file %s does not exist; 'dlxctl audit --write-baseline %s' writes one",
			k.baseline, k.baseline)
	case err != nil:
		return audit.Baseline{}, fmt.Errorf("read %s: %w", k.baseline, reason(err))
	}
	return audit.ReadBaseline(filepath.ToSlash(k.baseline), data)
}

// saveBaseline writes the file of --write-baseline.
func (k *auditCommand) saveBaseline(result audit.Result) error {
	var b strings.Builder
	if err := audit.WriteBaseline(&b, result); err != nil {
		return err
	}
	if err := os.WriteFile(k.writeBaseline, []byte(b.String()),
		0o644); err != nil { //nolint:gosec // a file for a repository
		return fmt.Errorf("write %s: %w", k.writeBaseline, reason(err))
	}
	fmt.Fprintf(k.app.stderr, "wrote %s with %s; write a reason for each, and pass --baseline %s\n", k.writeBaseline,
		text.Count(len(result.Findings)+len(result.Accepted)+len(result.Unchecked), "finding"), k.writeBaseline)
	return nil
}

// show prints a result in the format of --output.
func (k *auditCommand) show(result audit.Result) error {
	a := k.app
	switch a.output {
	case "json":
		return jsondoc.Write(a.stdout, audit.Document{Result: result, Program: Version()})
	case "markdown":
		return audit.WriteMarkdown(a.stdout, result)
	case "sarif":
		return audit.WriteSARIF(a.stdout, result, Version())
	}
	return audit.WriteText(a.stdout, result, audit.TextOptions{
		Verbose: k.verbose, Notes: len(k.only) > 0 || k.failOn == string(audit.Note),
		Style: a.style(),
	})
}

func (k *auditCommand) rules() error {
	if k.app.output == "json" {
		return jsondoc.Write(k.app.stdout, audit.RuleList(audit.Rules()))
	}
	return audit.WriteRules(k.app.stdout)
}

func (k *auditCommand) explainRule() error {
	if err := knownRule(k.explain); err != nil {
		return err
	}
	rule, _ := audit.RuleByID(k.explain)
	return audit.WriteExplanation(k.app.stdout, rule)
}

// knownRule refuses a name that is not a rule, and suggests one.
func knownRule(id string) error {
	if _, known := audit.RuleByID(id); known {
		return nil
	}
	return usageError{fmt.Errorf("there is no rule %q, see 'dlxctl audit --rules'%s", id,
		topology.Suggestion(id, audit.RuleIDs()))}
}
