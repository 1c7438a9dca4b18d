package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// openDesk opens the desk of the topology of -f, which reads bodies as flags say. Where there is no
// topology file, it works with the dead-letter queues that it finds on the broker. closeDesk must
// be called.
func (a *app) openDesk(ctx context.Context, k chooseFlags) (d *desk.Desk, closeDesk func(), err error) {
	switch {
	case a.hasNoFile():
		return a.openFound(ctx, k)
	case k.name != "":
		return nil, nil, usageError{errors.New("--name is for a virtual host without a topology file; remove it, as the file has the name")}
	case k.showBodies:
		return nil, nil, usageError{errors.New("--show-bodies is for a virtual host without a topology file; remove it, as the file says what is masked")}
	}
	t, err := a.files().load()
	if err != nil {
		return nil, nil, err
	}
	if d, closeDesk, err = a.deskOf(ctx, t, k.messages); err == nil && d.Found != nil {
		fmt.Fprintln(a.stderr, d.Found)
	}
	return d, closeDesk, err
}

// openToLook is openDesk for a command that looks for messages in several queues, each within o.
func (a *app) openToLook(ctx context.Context, k chooseFlags) (
	d *desk.Desk, o desk.LookOptions, closeDesk func(), err error,
) {
	if o, err = k.look(); err != nil {
		return nil, o, nil, err
	}
	d, closeDesk, err = a.openDesk(ctx, k)
	return d, o, closeDesk, err
}

// openAct is openDesk for a command that moves messages: a folder of topology files that -f does
// not name is not left unread.
func (a *app) openAct(ctx context.Context, k chooseFlags) (d *desk.Desk, closeDesk func(), err error) {
	if a.hasNoFile() && isFolder("topology") {
		_, err := a.files().load() // it names the folder
		return nil, nil, err
	}
	return a.openDesk(ctx, k)
}

// needsFile refuses a command that works only with a topology file where there is none.
func (a *app) needsFile(command string) error {
	if !a.hasNoFile() || isFolder("topology") {
		return nil
	}
	return fmt.Errorf(
		"%w: there is no topology file, and %s needs one; name it with -f, or write one from the broker: dlxctl import > topology.yaml",
		desk.ErrRefused, command)
}

// hiddenBodies says that nothing tells what to mask.
const hiddenBodies = "what to mask is not known, so bodies are hidden; --show-bodies shows them"

// openFound is openDesk without a topology file. It says on stderr how the queues were found, and
// what tells what to mask.
func (a *app) openFound(ctx context.Context, k chooseFlags) (d *desk.Desk, closeDesk func(), err error) {
	messages, known, err := a.files().messages()
	switch {
	case err != nil:
		return nil, nil, err
	case known && k.showBodies:
		return nil, nil, usageError{fmt.Errorf("--show-bodies is for where nothing tells what to mask; remove it, as %s does", deskFile)}
	case !known:
		messages.Redact.HideBodies = !k.showBodies
	}
	if d, closeDesk, err = a.findDesk(ctx, k, messages); err != nil {
		return nil, nil, err
	}
	d.Found.Masked = known
	fmt.Fprintln(a.stderr, d.Found)
	switch {
	case known:
		fmt.Fprintf(a.stderr, "%s says how bodies are read, and what is masked\n", deskFile)
	case !k.showBodies:
		fmt.Fprintln(a.stderr, hiddenBodies)
	}
	if isFolder("topology") {
		fmt.Fprintln(a.stderr, "the folder topology is not read; -f topology reads it")
	}
	return d, closeDesk, nil
}

// noBodies hides bodies whole.
func noBodies() (m topology.Messages) {
	m.Redact.HideBodies = true
	return m
}

// findDesk opens the desk of what the broker tells, and reads bodies as messages says.
func (a *app) findDesk(ctx context.Context, k chooseFlags, messages topology.Messages) (
	d *desk.Desk, closeDesk func(), err error,
) {
	reader, err := k.messages.reader(topology.Compiled{Messages: messages})
	if err != nil {
		return nil, nil, err
	}
	d, closeDesk, err = a.deskWith(ctx, topology.Compiled{}, reader)
	if err != nil {
		return nil, nil, err
	}
	if err = d.Discover(ctx, k.name); err != nil {
		closeDesk()
		return nil, nil, err
	}
	return d, closeDesk, nil
}

// deskOf opens the desk of a topology; the zero topology is that of a virtual host of which nothing
// is known.
func (a *app) deskOf(ctx context.Context, t topology.Compiled, m messageFlags) (
	d *desk.Desk, closeDesk func(), err error,
) {
	reader, err := m.reader(t)
	if err != nil {
		return nil, nil, err
	}
	return a.deskWith(ctx, t, reader)
}

// openRuns opens the desk of the topology of -f for a command that shows nothing of a message: a
// schema that cannot be read does not keep a person from ending a run. With failures, the command
// shows why messages fail again, if the schemas can be read: what must be masked in the reason is
// found in the decoded body. Without a file, or with a name, it finds the runs on the broker.
// closeDesk must be called.
func (a *app) openRuns(ctx context.Context, name string, failures bool) (d *desk.Desk, closeDesk func(), err error) {
	if name != "" || a.hasNoFile() && !isFolder("topology") {
		return a.findDesk(ctx, chooseFlags{name: name}, noBodies())
	}
	t, err := a.files().load()
	if err != nil {
		return nil, nil, err
	}
	if !failures {
		return a.deskWith(ctx, t, nil)
	}
	var m messageFlags
	reader, err := m.reader(t)
	if err != nil {
		fmt.Fprintf(a.stderr, "warning: the schemas cannot be read, so it is not shown why messages fail again: %s\n",
			topology.Printable(err.Error()))
		return a.deskWith(ctx, t, nil)
	}
	return a.deskWith(ctx, t, reader)
}

// keepsAll reports whether all queues of a topology keep the dead-lettering that they have, as in a
// file of import: where their dead letters are, only the broker tells.
func keepsAll(t topology.Compiled) bool {
	made := func(q topology.Queue) bool { return !q.External }
	return len(t.Queues) > 0 && len(t.WorkQueues)+len(t.Matches) == 0 && !slices.ContainsFunc(t.Queues, made)
}

// deskWith opens the desk of a topology, which reads messages with reader; nil reads none. Which
// queues a match covers, and all dead-letter queues if [keepsAll], are read from the broker. The
// returned function waits for the records of the runs that have ended, and says which of them could
// not be written.
func (a *app) deskWith(ctx context.Context, t topology.Compiled, reader *deadletter.Reader) (
	*desk.Desk, func(), error,
) {
	s, err := a.conn.open(t)
	if err != nil {
		return nil, nil, err
	}
	if len(t.Matches) > 0 {
		state, err := s.Management.Inspect(ctx)
		if err != nil {
			s.Close()
			return nil, nil, err
		}
		t = policy.WithMatched(t, state.Have.Queues)
	}
	d := &desk.Desk{
		Endpoint: s.Endpoint, Management: s.Management, Topology: t, Reader: reader, By: apply.Person(),
	}
	if reader != nil {
		reader.Known = deadletter.Knows(t)
		reader.Known.Route = d.Route
	}
	if keepsAll(t) { // what is found is of no topology
		if err := d.Discover(ctx, topology.DeskName); err != nil {
			s.Close()
			return nil, nil, err
		}
		d.Found.File, d.Found.Masked = t.Name, true
	}
	var unrecorded []string
	d.Unrecorded = func(run string, err error) {
		unrecorded = append(unrecorded, fmt.Sprintf("the run %s is not recorded: %s", run, err))
	}
	return d, func() {
		d.AwaitRecords()
		for _, line := range unrecorded {
			fmt.Fprintln(a.stderr, topology.Printable(line))
		}
		s.Close()
	}, nil
}

// deskPlace is a queue that the command line names.
type deskPlace struct {
	// queue is the queue.
	queue string
	// work is the work queue whose messages are meant; empty is all messages.
	work string
}

// deskQueue returns the queue that QUEUE or @WORKQUEUE names, by the topology file.
func deskQueue(t topology.Compiled, argument string) (deskPlace, error) {
	name, ofWork := strings.CutPrefix(argument, "@")
	w, isWork := t.WorkQueue(name)
	delay, isDelay := namedDelay(t, argument)
	switch {
	case isDelay:
		return deskPlace{}, usageError{fmt.Errorf("%q is a delay, and this command is for one queue; name a level of it, such as %s",
			name, delay.Levels[0].Queue)}
	case ofWork && isWork:
		return deskPlace{queue: w.DeadLetterQueue, work: w.Name}, nil
	case ofWork && slices.ContainsFunc(t.Queues, func(q topology.Queue) bool { return q.External && q.Name == name }):
		return deskPlace{}, usageError{fmt.Errorf("queue %q has deadLetterBy: unmanaged; name its dead-letter queue in place of %s", name, argument)}
	case ofWork:
		return deskPlace{}, usageError{noWorkQueue(t, name)}
	case isWork:
		return deskPlace{}, usageError{fmt.Errorf("%q is a work queue; write @%s for its dead letters, which are in %q",
			name, name, w.DeadLetterQueue)}
	default:
		return deskPlace{queue: name}, nil
	}
}

// placeOf is deskQueue for a desk. Without a topology file, @WORKQUEUE is where the dead letters of
// the queue go.
func placeOf(d *desk.Desk, argument string) (deskPlace, error) {
	name, ofWork := strings.CutPrefix(argument, "@")
	if d.Found == nil || !ofWork && d.Found.Has(name) {
		return deskQueue(d.Topology, argument)
	}
	queues := d.Found.DeadLettersOf(name)
	switch {
	case !ofWork && len(queues) == 0:
		return deskPlace{queue: name}, nil
	case !ofWork:
		return deskPlace{}, usageError{fmt.Errorf("%q is a work queue; write @%s for its dead letters, which are in %s",
			name, name, text.List(text.Names(queues)))}
	case len(queues) == 1:
		return deskPlace{queue: queues[0], work: name}, nil
	case len(queues) > 1:
		return deskPlace{}, usageError{fmt.Errorf("the dead letters of %q go to %s; name one of them in place of %s", name,
			text.List(text.Names(queues)), argument)}
	}
	err := fmt.Errorf("no dead-letter queue of %q was found on the broker", name)
	if fix := topology.DidYouMean(name, d.Topology.WorkQueueNames(), ""); fix != "" {
		return deskPlace{}, usageError{fmt.Errorf("%w; %s", err, fix)}
	}
	return deskPlace{}, usageError{fmt.Errorf("%w; 'dlxctl desk' lists those that were found; name the queue without @", err)}
}

// deskPlaces is placeOf for a command that takes a delay by its name, too: that is all queues in
// which its messages wait. There may be none. An error that wraps desk.ErrUnreached says what else
// waits, which no command can look at.
func deskPlaces(ctx context.Context, d *desk.Desk, argument string) ([]deskPlace, error) {
	if delay, ok := namedDelay(d.Topology, argument); ok && delay.Timer != "" {
		return nil, usageError{fmt.Errorf("%q is a delay with engine: native, and RabbitMQ shows no client the messages that it delays; 'dlxctl status' counts them",
			argument)}
	} else if ok {
		queues, err := d.Waiting(ctx, delay)
		return text.Each(queues, func(name string) deskPlace { return deskPlace{queue: name} }), err
	}
	place, err := placeOf(d, argument)
	return []deskPlace{place}, err
}

// namedDelay returns the delay that an argument names, unless a queue of the topology has the name.
func namedDelay(t topology.Compiled, argument string) (topology.Delay, bool) {
	if slices.ContainsFunc(t.Queues, func(q topology.Queue) bool { return q.Name == argument }) {
		return topology.Delay{}, false
	}
	return t.Delay(argument)
}

// only returns the expression that chooses what where chooses, among the messages of the work
// queue of the place.
func (p deskPlace) only(where string) string {
	switch {
	case p.work == "":
		return where
	case where == "":
		return "queue == " + strconv.Quote(p.work)
	default:
		return "queue == " + strconv.Quote(p.work) + " && (" + where + ")"
	}
}

// oneQueue requires one argument, QUEUE or @WORKQUEUE.
func oneQueue(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && args[0] != "" && args[0] != "@":
		return nil
	case len(args) > 1:
		return usageError{fmt.Errorf("%s accepts one queue, but got %d; run it once for each", c.CommandPath(), len(args))}
	default:
		return usageError{fmt.Errorf("no queue is named; write %s QUEUE, or @WORKQUEUE for the dead letters of a work queue; 'dlxctl desk' lists the dead-letter queues", c.CommandPath())}
	}
}

// handleAndQueue requires a handle, and accepts a queue behind it.
func handleAndQueue(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usageError{fmt.Errorf("no message is named; write %s HANDLE, where HANDLE is as 'dlxctl desk list' prints it",
			c.CommandPath())}
	case len(args) > 2:
		return usageError{fmt.Errorf("%s accepts a handle and a queue, but got %d arguments", c.CommandPath(), len(args))}
	}
	if _, _, err := deadletter.ParseHandle(args[0]); err != nil {
		return usageError{err}
	}
	return nil
}

// oneRun requires one argument, the name of a run.
func oneRun(c *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s accepts the name of one run, but got %d arguments; 'dlxctl desk run list' lists the runs",
		c.CommandPath(), len(args))}
}

// findRun returns the run of that name that is in progress.
func findRun(ctx context.Context, d *desk.Desk, id string) (desk.Run, error) {
	runs, err := d.Runs(ctx)
	if err != nil {
		return desk.Run{}, err
	}
	var names []string
	for _, r := range runs {
		if r.ID == id {
			return r, nil
		}
		names = append(names, r.ID)
	}
	err = fmt.Errorf("%w: no run %q is in progress; it has ended, or it never existed", desk.ErrRefused, id)
	switch fix := topology.DidYouMean(id, names, ""); {
	case fix != "":
		return desk.Run{}, fmt.Errorf("%w; %s", err, fix)
	case len(names) > 0:
		return desk.Run{}, fmt.Errorf("%w; 'dlxctl desk run list' lists the %d that are", err, len(names))
	default:
		return desk.Run{}, fmt.Errorf("%w; this topology has none, and -f names the file of another", err)
	}
}
