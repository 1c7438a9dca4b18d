package cmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type statusCommand struct {
	app      *app
	filter   status.Filter
	all      bool
	watch    bool
	interval time.Duration
	// errors asks for a look at dead letters.
	errors bool
	// exitCode asks for the exit code 2 if there is a problem.
	exitCode bool
	// command returns a command line to paste, for one value of -f. An empty path stands for all.
	command func(path string, words ...string) string
}

func newStatus(a *app) *cobra.Command {
	k := statusCommand{app: a}
	c := &cobra.Command{
		Use:        "status [QUEUE...]",
		SuggestFor: []string{"top", "health", "queues"},
		Short:      "Show problems, and what waits in which queue",
		Long: `Show what is wrong and what to do about it, then a row for each work queue: messages that
are ready, unacknowledged, retrying (in the failed queue and the retry queues), and
dead letters. CONSUMERS is how many consumers it has. Queues that are empty and have
consumers are only counted; --all shows them, and the generated queues one by one.

QUEUE is the name of a queue, or a pattern with * and ?. The name of a dead-letter, failed
or retry queue stands for the work queues that use it. Problems of the topology as a
whole, such as an alarm, are shown with every filter.

Loops of redeliveries, and consumers that hold messages and do nothing, are problems of the
queues of the file. With --all they are looked for in every queue of the virtual host.

Numbers of messages are up to 5 seconds old, and those of consumers up to 10. OLDEST is
the age of the message at the head, which RabbitMQ reports for classic queues whose
publishers set a timestamp. NEXT DUE is when RabbitMQ delivers the first message again that
it delays; it is up to 12 seconds old. The user needs only the tag management.

--errors also looks at the dead letters, and says what they died of: at up to 1,000 of each
queue, for 5 seconds at most. A look gives them back in their order; docs/looking.md says
what it costs in a queue. The user needs read on the dead-letter queues for it.

--watch shows the status again and again until Ctrl-C: on a terminal in place, and
elsewhere as one block after the other.

Each file with its own 'name' is a separate topology; -o json writes one object for each.

Exit codes: 0 even if there are problems, 2 with --exit-code if there is a problem, 1 if
the broker cannot be read. Notes are not problems.`,
		Example: `  dlxctl status
  dlxctl status 'billing.*' --all
  dlxctl status --owner team-billing --problems
  dlxctl status --errors
  dlxctl status --watch
  dlxctl status --exit-code > status.txt || mail -s dlxctl ops@example.com < status.txt`,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && isYAML(args[0]) {
				return noArguments(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			k.filter.Queues = args
			k.command = func(path string, words ...string) string { return shellLineOf(c, path, words...) }
			return k.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&k.all, "all", false, "show all queues, generated ones and those without any message too")
	f.StringArrayVar(&k.filter.Owners, "owner", nil, "show the work queues of an `OWNER` of the file; repeat the flag for several")
	f.BoolVar(&k.filter.Problems, "problems", false, "show only problems, and the queues that have one")
	f.BoolVar(&k.errors, "errors", false, "look at dead letters, and say what they died of")
	f.BoolVar(&k.watch, "watch", false, "show the status again and again, until Ctrl-C")
	f.DurationVar(&k.interval, "interval", 5*time.Second, "with --watch: `DURATION` from one look to the next, at least 1s")
	f.BoolVar(&k.exitCode, "exit-code", false, "exit with 2 if there is a problem, for cron and CI")
	return c
}

func (k *statusCommand) run(ctx context.Context) error {
	if k.watch && k.exitCode {
		return usageError{errors.New("--exit-code has no meaning with --watch, which only Ctrl-C ends; remove one of them")}
	}
	if k.watch && k.errors {
		return usageError{errors.New("--errors looks at messages, which --watch would do again and again; remove one of them")}
	}
	if k.interval < time.Second {
		return usageError{fmt.Errorf("--interval is %s; write 1s or more", k.interval)}
	}
	all, err := k.app.files().loadEach()
	if err != nil {
		return err
	}
	looks := statusLooks{k: k}
	looks.check = slices.ContainsFunc(all, func(t topology.Compiled) bool { return len(t.Matches) > 0 })
	if !looks.check {
		if err := k.checkFilter(all); err != nil {
			return err
		}
	}
	defer looks.close()
	for _, t := range all {
		s, err := k.app.conn.open(t)
		if err != nil {
			return err
		}
		looks.sessions = append(looks.sessions, s)
	}
	if k.watch {
		return newStatusWatch(&looks).run(ctx)
	}
	reports, err := looks.look(ctx)
	if err != nil {
		return err
	}
	if err := k.print(reports); err != nil {
		return err
	}
	if k.exitCode && slices.ContainsFunc(reports, func(r status.Report) bool { return r.Wrong > 0 }) {
		return errPending
	}
	return nil
}

// checkFilter refuses a queue or owner that chooses nothing: a mistyped name must not look like a
// healthy queue.
func (k *statusCommand) checkFilter(all []topology.Compiled) error {
	if slices.Contains(slices.Concat(k.filter.Queues, k.filter.Owners), "") { // of a variable that is not set
		return usageError{errors.New("the name of a queue or owner is empty; write a name, or leave it out to see all queues")}
	}
	queue, owner, owners := k.filter.Unknown(all)
	switch {
	case owner != "" && len(owners) == 0:
		return fmt.Errorf("no queue of the file has an owner; add owner: %s to the queues of that team", owner)
	case owner != "":
		return fmt.Errorf("no queue of the file has the owner %q; %s", owner,
			topology.DidYouMean(owner, owners, "the owners are "+strings.Join(owners, ", ")))
	case queue != "":
		return fmt.Errorf("no queue of the file is called %q; %s", queue,
			topology.DidYouMean(queue, status.Names(all), "'dlxctl status --all' lists the queues"))
	}
	return nil
}

func (k *statusCommand) print(reports []status.Report) error {
	width, height := k.app.screenSize()
	if k.app.output == "json" || height == 0 {
		return k.write(k.app.stdout, reports, width, 0)
	}
	lines := k.fitted(reports, "", width, height-2) // the prompts before and behind it
	_, err := io.WriteString(k.app.stdout, strings.Join(lines, "\n")+"\n")
	return err
}

// fitted returns the lines of reports below a text. Tables lose rows, up to a few, until all lines
// fit the height of a screen. With a height of 0 or less, and with --all, they lose none.
func (k *statusCommand) fitted(reports []status.Report, above string, width, height int) []string {
	const fewest = 4
	for rows := status.DefaultRows; ; rows-- {
		var b bytes.Buffer
		b.WriteString(above)
		_ = k.write(&b, reports, width, rows) // a buffer accepts all
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if rows == fewest || height <= 0 || len(lines) <= height || k.all {
			return lines
		}
	}
}

// write writes reports. width is that of the terminal, rows how many rows a table has at most;
// zero is the default.
func (k *statusCommand) write(w io.Writer, reports []status.Report, width, rows int) error {
	for i, r := range reports {
		if k.app.output == "json" {
			if err := jsondoc.Write(w, r); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		o := status.TextOptions{
			Style: k.app.style(), Width: width, All: k.all, Quiet: len(k.filter.Queues) > 0, Rows: rows,
		}
		if err := status.WriteText(w, r, o); err != nil {
			return err
		}
	}
	return nil
}

// statusLooks reads the brokers of some topologies, as often as it is asked to.
type statusLooks struct {
	k        *statusCommand
	sessions []*apply.Session
	// check says that the filter is to be checked: the broker tells which queues a match covers.
	check bool
}

func (l *statusLooks) close() {
	for _, s := range l.sessions {
		s.Close()
	}
}

// look reads all brokers once.
func (l *statusLooks) look(ctx context.Context) ([]status.Report, error) {
	var states []topology.State
	var all []topology.Compiled
	for _, s := range l.sessions {
		state, err := s.Inspect(ctx)
		if err != nil {
			return nil, err
		}
		states, all = append(states, state), append(all, policy.WithMatched(s.Topology, state.Have.Queues))
	}
	if l.check {
		if err := l.k.checkFilter(all); err != nil {
			return nil, err
		}
		l.check = false // a queue that a service deletes later is not mistyped
	}
	var reports []status.Report
	for i, s := range l.sessions {
		t := all[i]
		state := askDoubtful(ctx, s, t, states[i], l.k.filter)
		traffic, err := l.traffic(ctx, s, t, state)
		if err != nil {
			return nil, err
		}
		inOutage, err := s.Management.InOutage(ctx, status.Telling(t, state, l.k.filter))
		if err != nil {
			return nil, err
		}
		report := status.Make(t, state, status.Options{
			At: time.Now(), Filter: l.k.filter, Traffic: traffic, InOutage: inOutage, Command: l.commands(i),
		})
		if l.k.errors {
			if report.Why, err = l.why(ctx, s, t, report); err != nil {
				return nil, err
			}
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// why looks at the dead letters of a report.
func (l *statusLooks) why(
	ctx context.Context, s *apply.Session, t topology.Compiled, r status.Report,
) ([]status.Why, error) {
	const messages, hold = 1000, 5 * time.Second
	var m messageFlags
	reader, err := m.reader(t)
	if err != nil {
		return nil, err
	}
	reader.Known = deadletter.Knows(t)
	d := &desk.Desk{Endpoint: s.Endpoint, Management: s.Management, Topology: t, Reader: reader}
	reader.Known.Route = d.Route
	var out []status.Why
	for _, q := range r.Queues {
		if q.Role != topology.RoleDeadLetter || q.Messages == 0 {
			continue
		}
		seen, err := d.Why(ctx, q.Name, desk.LookOptions{Messages: messages, Hold: hold}, r.At.Add(-status.Recently))
		if err != nil {
			return nil, err
		}
		out = append(out, whyOf(q, seen))
	}
	return out, nil
}

// whyOf returns what a look at a queue says.
func whyOf(q status.Queue, seen desk.Why) status.Why {
	out := status.Why{
		Queue: q.Name, Messages: max(seen.Looked.Messages+seen.Looked.Unacknowledged, seen.Looked.Looked),
		LookedAt: seen.Looked.Looked, NotLookedAt: cmp.Or(seen.Refused, seen.Looked.Missed), By: seen.By,
	}
	groups := seen.All
	switch {
	case seen.Refused != "":
		out.Messages = int(q.Messages)
	case out.LookedAt == 0:
		out.NotLookedAt = cmp.Or(out.NotLookedAt, "it is empty, or others hold its messages")
	case out.LookedAt == out.Messages:
		if out.InLastHour = &seen.New; seen.New > 0 {
			groups = seen.Recent
		}
	default:
		out.NotLookedAt = cmp.Or(out.NotLookedAt, "others hold them")
	}
	out.Groups = text.Each(groups, func(g deadletter.Group) status.Reason {
		return status.Reason{Value: g.Value, Count: g.Count}
	})
	return out
}

// traffic reads what the statistics count of the queues that hold messages.
func (l *statusLooks) traffic(
	ctx context.Context, s *apply.Session, t topology.Compiled, state topology.State,
) (out status.Traffic, err error) {
	busy := status.Busy(t, state, l.k.filter, l.k.all)
	if out.Recent, err = s.Management.Traffic(ctx, busy, status.LoopTime, status.LoopStep); err != nil {
		return out, err
	}
	out.Long, err = s.Management.Traffic(ctx, status.Still(state, out.Recent), status.StuckTime, status.StuckStep)
	return out, err
}

// askDoubtful returns state with the consumers of the queues whose number is in doubt, as the
// queues themselves report it. The broker logs each question that it refuses: if it refuses the
// first queue without consumers, the others keep their statistics.
func askDoubtful(
	ctx context.Context, s *apply.Session, t topology.Compiled, state topology.State, f status.Filter,
) topology.State {
	unknown, idle := status.Doubtful(t, state, f)
	state = s.Management.AskConsumers(ctx, state, unknown)
	if len(idle) > 0 {
		state = s.Management.AskConsumers(ctx, state, idle[:1])
		if state.Usage[idle[0]].ConsumersAsked {
			state = s.Management.AskConsumers(ctx, state, idle[1:])
		}
	}
	return state
}

// commands returns the function that makes command lines to paste for a topology, by its number.
// Of several topologies each is one value of -f, and most commands accept only one topology.
func (l *statusLooks) commands(i int) func(words ...string) string {
	path := ""
	if len(l.sessions) > 1 {
		path = l.k.app.paths[i]
	}
	return func(words ...string) string { return l.k.command(path, words...) }
}
