package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// FromDelayed takes an exchange of the plugin for delayed messages out of use, next to the delay
// that has taken its place: it waits until the exchange holds nothing and publishers have left it,
// and deletes it. It may be stopped at any moment and run again: the deletion is all it writes.
type FromDelayed struct {
	Topology topology.Compiled
	// Nodes are the management APIs of nodes, each of which counts what it holds itself. The objects
	// are read from the first.
	Nodes    []*management.Client
	Exchange string
	Delay    topology.Delay
	// Wait is how long to wait at most, and Idle how long no message may have come before the
	// exchange is deleted. Idle must be longer than the broker's statistics are old.
	Wait, Idle time.Duration
	// Allow may have DropsRouting for the exchange: without it, no exchange is deleted whose place the
	// delay takes under the same name.
	Allow []plan.Consent
	// CheckRights fails if the user lacks one of the rights. Nil: they are not checked.
	CheckRights func([]plan.Right) error
	// Lock takes the lock of the topology, for the deletion.
	Lock   func() error
	Report func(format string, args ...any)
}

// delayedNow is an exchange of the plugin as it is now.
type delayedNow struct {
	gone     bool
	exchange topology.Exchange
	bindings []topology.Binding // from the exchange
	more     []topology.Binding // of the exchange to which the delay publishes, and that it lacks
	held     map[string]int64   // by node
	// published is how many messages were published to it, as far as that is known.
	published int64
	// left are the other exchanges of the plugin.
	left []string
	// reasons say why it cannot be deleted.
	reasons []string
}

// total is how many messages the exchange holds.
func (n delayedNow) total() (sum int64) {
	for held := range maps.Values(n.held) {
		sum += held
	}
	return sum
}

// where says how many messages each node holds.
func (n delayedNow) where() string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(n.held)) {
		parts = append(parts, fmt.Sprintf("%s on %s", messages(n.held[node]), node))
	}
	return text.List(parts)
}

// sameName reports whether the delay has the name of the exchange, and so cannot exist next to it.
func (f *FromDelayed) sameName() bool { return f.Delay.Name == f.Exchange }

// look reads the broker, and judges.
func (f *FromDelayed) look(ctx context.Context) (now delayedNow, err error) {
	m := f.Nodes[0]
	state, err := m.Inspect(ctx)
	if err != nil {
		return now, err
	}
	state = m.AskConsumers(ctx, state, []string{f.Delay.Intake})
	judged := survey.New(state)
	for _, e := range judged.Exchanges {
		switch {
		case e.Name == f.Exchange:
			now.exchange, now.bindings = e.Exchange, e.Out
		case e.Type == topology.DelayedMessage:
			now.left = append(now.left, e.Name)
		}
	}
	if now.exchange.Name == "" {
		if fix := topology.DidYouMean(f.Exchange, now.left, ""); fix != "" {
			return now, fmt.Errorf("%w: the broker has no exchange %q; %s", ErrRefused, f.Exchange, fix)
		}
		now.gone = true
		return now, nil
	}
	if now.exchange.Type != topology.DelayedMessage {
		return now, fmt.Errorf("%w: the exchange %q has the type %s, and --from-delayed is for one of type %s; name that",
			ErrRefused, f.Exchange, now.exchange.Type, topology.DelayedMessage)
	}
	now.reasons = f.delayReasons(state)
	now.reasons = append(now.reasons, now.reach(judged.Exchange(f.Delay.To), f.Delay.To)...)
	now.reasons = append(now.reasons, ledTo(judged.Exchange(f.Exchange), f.Delay.Name)...)
	if err := f.count(ctx, &now); err != nil {
		return now, err
	}
	return now, f.countless(ctx, &now)
}

// delayReasons says what the delay lacks to take the messages of the exchange.
func (f *FromDelayed) delayReasons(state topology.State) (out []string) {
	if f.sameName() {
		consent := plan.Consent{Hazard: topology.DropsRouting, Object: f.Exchange}
		if !slices.ContainsFunc(f.Allow, func(c plan.Consent) bool {
			return c.Hazard == consent.Hazard && (c.Object == "" || c.Object == consent.Object)
		}) {
			out = append(out, fmt.Sprintf("the delay has the name of the exchange, so publishers must stop until the exchange holds nothing, is deleted, and 'dlxctl apply' has declared the delay: give the delay another name, or allow the gap with --allow %s=%s",
				consent.Hazard, f.Exchange))
		}
		return out
	}
	if !slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == f.Delay.Name }) {
		return []string{fmt.Sprintf("the broker has no exchange %q: run dlxctl apply", f.Delay.Name)}
	}
	if state.Usage[f.Delay.Intake].Consumers == 0 {
		out = append(out, fmt.Sprintf("no processor reads %s: run dlxctl process", text.Name(f.Delay.Intake)))
	}
	return out
}

// reach compares where the exchange leads with where the exchange to does, to which the delay
// publishes. It returns what to lacks, and notes what to has and the exchange lacks.
func (n *delayedNow) reach(to *survey.Exchange, name string) (missing []string) {
	if to == nil {
		return []string{fmt.Sprintf("the broker has no exchange %q, to which the delay publishes: run dlxctl apply", name)}
	}
	kind, _ := n.exchange.Arguments["x-delayed-type"].(string)
	same := func(a, b topology.Binding) bool {
		a.Source, a.Label, b.Label = b.Source, topology.Label{}, topology.Label{}
		a.Arguments, b.Arguments = compared(a.Arguments), compared(b.Arguments)
		return a.Identity() == b.Identity()
	}
	var differ []string
	for _, b := range n.bindings {
		covers := func(o topology.Binding) bool {
			return o.Destination == b.Destination && o.DestinationType == b.DestinationType &&
				(to.Type == topology.Fanout || to.Type == kind && same(o, b))
		}
		switch {
		case b.DestinationType == topology.ToExchange && b.Destination == name: // it leads there anyway
		case !slices.ContainsFunc(to.Out, covers):
			differ = append(differ, b.String())
		}
	}
	if len(differ) > 0 {
		missing = append(missing, fmt.Sprintf("the exchange %q, of type %s, lacks %s of %s, which routes as %s: %s; bind the same from it, or let the delay publish to an exchange that has them",
			name, to.Type, text.Count(len(differ), "binding"), text.Name(n.exchange.Name), kind, text.ListFirst(differ, 10)))
	}
	for _, o := range to.Out {
		if !slices.ContainsFunc(n.bindings, func(b topology.Binding) bool { return same(o, b) }) {
			n.more = append(n.more, o)
		}
	}
	return missing
}

// compared returns the arguments of a binding by which an exchange decides: not the owner mark.
func compared(a topology.Arguments) topology.Arguments {
	out := a.WithoutX()
	if match, ok := a["x-match"]; ok {
		out["x-match"] = match
	}
	return out
}

// ledTo says what the broker itself brings to an exchange.
func ledTo(e *survey.Exchange, instead string) (out []string) {
	for _, b := range e.In {
		out = append(out, fmt.Sprintf("the exchange %s leads to it: bind %s in its place, and remove the binding",
			text.Name(b.Source), text.Name(instead)))
	}
	for _, name := range e.AlternateOf {
		out = append(out, fmt.Sprintf("it is the alternate exchange of %s: set %s in its place", text.Name(name),
			text.Name(instead)))
	}
	for _, name := range e.DeadLettersOf {
		out = append(out, fmt.Sprintf("the queue %s dead-letters to it: let it dead-letter to %s", text.Name(name),
			text.Name(instead)))
	}
	return out
}

// count asks each node how many messages it holds. A node that cannot be asked is a reason: it may
// hold messages.
func (f *FromDelayed) count(ctx context.Context, now *delayedNow) error {
	now.held = map[string]int64{}
	for _, m := range f.Nodes {
		d, err := m.Delayed(ctx, f.Exchange)
		if err != nil {
			return fmt.Errorf("ask how many messages wait: %w", err)
		}
		if d.Held < 0 {
			now.reasons = append(now.reasons, fmt.Sprintf("%s does not tell how many messages it holds (messages_delayed): is the plugin enabled there", d.Node))
			continue
		}
		now.held[d.Node] = d.Held
		now.published = max(now.published, d.Published)
	}
	nodes, _, err := f.Nodes[0].Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list the nodes, which takes a user with the tag monitoring: %w", err)
	}
	for _, node := range nodes {
		if _, asked := now.held[node]; !asked {
			now.reasons = append(now.reasons, fmt.Sprintf("%s was not asked, and may hold messages: start it if it is down, and pass the URL of its management API with --node-api",
				node))
		}
	}
	return nil
}

// countless adds to the reasons the nodes that count no publishes: what comes and goes between two
// looks is not seen there.
func (f *FromDelayed) countless(ctx context.Context, now *delayedNow) error {
	for _, m := range f.Nodes {
		node, counts, err := m.CountsPublishes(ctx)
		if err != nil {
			return fmt.Errorf("ask whether publishes are counted: %w", err)
		}
		if !counts {
			now.reasons = append(now.reasons, fmt.Sprintf("%s does not count what is published, so it is not known whether messages still come: set management.rates_mode = basic there, management_agent.disable_metrics_collector = false and management.disable_stats = false, and restart it",
				node))
		}
	}
	return nil
}

// refusal returns the error for reasons.
func refusal(reasons []string) error {
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
}

// Preview writes the steps, and reports whether there is anything to do. The error says why it
// cannot be done.
func (f *FromDelayed) Preview(ctx context.Context, w io.Writer) (todo bool, err error) {
	now, err := f.look(ctx)
	if err != nil {
		return false, err
	}
	if now.gone {
		f.nothingLeft(now)
		return false, nil
	}
	x, delay := text.Name(f.Exchange), text.Name(f.Delay.Name)
	steps := []string{
		fmt.Sprintf("let publishers publish to %s in place of %s, with the same header x-delay", delay, x),
		fmt.Sprintf("wait until %s holds nothing on each node, and no message has come for %s", x, f.Idle),
		fmt.Sprintf("delete %s with its %s", x, text.Count(len(now.bindings), "binding")),
	}
	if f.sameName() {
		steps[0] = "stop the publishers of " + x + ": here the gap begins"
		steps = append(steps, "run dlxctl apply, which declares the delay: here the gap ends")
	}
	lines := []string{
		fmt.Sprintf("%s, an exchange of the plugin, to the delay %s, which publishes to %s", x, delay, text.Name(f.Delay.To)),
		fmt.Sprintf("it holds %s (%s); %s published to it so far", messages(now.total()), cmp.Or(now.where(), "not known"),
			text.Choose(now.published, "1 message was", messages(now.published)+" were")),
	}
	for i, step := range steps {
		lines = append(lines, fmt.Sprintf("  %d. %s", i+1, step))
	}
	// Above that (ERL_MAX_T in rabbit_exchange_type_delayed_message.erl), the plugin delays nothing.
	lines = append(lines, "the longest wait is not known, as the plugin does not tell when a message is due: it is 49 days and 17 hours at most, from the last message on")
	if len(now.more) > 0 {
		var more []string
		for _, b := range now.more {
			more = append(more, b.String())
		}
		lines = append(lines, fmt.Sprintf("note: messages of the delay also go where %s leads and %s does not: %s",
			text.Name(f.Delay.To), x, text.ListFirst(more, 10)))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, topology.Printable(line)); err != nil {
			return false, err
		}
	}
	return true, refusal(now.reasons)
}

// nothingLeft says that the exchange is gone, and what to do with the plugin.
func (f *FromDelayed) nothingLeft(now delayedNow) {
	next := "when no virtual host has one, disable the plugin"
	if len(now.left) > 0 {
		next = "other exchanges of the plugin: " + text.List(text.Names(now.left))
	}
	if f.sameName() {
		next = "run dlxctl apply, which declares the delay; " + next
	}
	f.Report("done: there is no exchange %s; %s", text.Name(f.Exchange), next)
}

// Run waits, and deletes the exchange. Its errors wrap ErrRefused or ErrWaiting where they apply.
//
// Why nothing is lost: the plugin has written a message into its table when the broker confirms it
// (delay_message is a call), and removes it only after it has given it to the queues (handle_info
// routes, then deletes). So when each node holds nothing, all that was confirmed before is in its
// queue or was routed nowhere, and the deletion of the exchange, which takes its bindings with it
// in one step, can only harm what comes later. Nothing has come for Idle, neither into the table of
// a node nor by the count of the exchange, which also has what was delayed by less than the pause
// between two looks; and RabbitMQ closes the channel of the next publisher with NOT_FOUND.
// What is left is a message that is confirmed between the last look and the deletion, after Idle
// without one. The page says so.
func (f *FromDelayed) Run(ctx context.Context) error {
	now, err := f.look(ctx)
	if err != nil {
		return err
	}
	if now.gone {
		f.nothingLeft(now)
		return nil
	}
	if err := refusal(now.reasons); err != nil {
		return err
	}
	change := remove(now.exchange)
	change.Hazards = []topology.Hazard{topology.DropsRouting} // its bindings go with it
	if f.CheckRights != nil {
		if err := f.CheckRights(plan.Rights(plan.Plan{Changes: []plan.Change{change}})); err != nil {
			return err
		}
	}
	f.Report("waiting until %s holds nothing and no message has come for %s; it holds %s", text.Name(f.Exchange), f.Idle,
		messages(now.total()))
	if err := f.await(ctx); err != nil {
		return err
	}
	quiet := time.Now()
	if err := f.Lock(); err != nil {
		return err
	}
	if time.Since(quiet) > countEvery { // messages may have come again, and be in their queues already
		once := *f
		once.Wait = f.Idle // no longer: others wait for the lock
		if err := once.await(ctx); err != nil {
			return err
		}
	}
	// The wait may have taken days: all is looked at once more.
	last, err := f.look(ctx)
	switch {
	case err != nil:
		return err
	case last.gone:
		f.nothingLeft(last)
		return nil
	case len(last.reasons) > 0:
		return refusal(last.reasons)
	case last.total() > 0: // it came after the wait
		return f.waiting(last, true)
	}
	if err := f.Nodes[0].Apply(ctx, change); err != nil && !errors.Is(err, broker.ErrNotFound) {
		return err
	}
	f.Report("deleted %s with its %s", text.Name(f.Exchange), text.Count(len(last.bindings), "binding"))
	last.gone = true
	f.nothingLeft(last)
	return nil
}

// countEvery is the pause between two counts of what an exchange of the plugin holds.
const countEvery = time.Second

// await waits until the exchange has held nothing for Idle, while no message was published to it.
func (f *FromDelayed) await(ctx context.Context) error {
	began := time.Now()
	quiet, last, came := began, delayedNow{}, time.Time{}
	for first := true; ; first = false {
		var now delayedNow
		if err := f.count(ctx, &now); err != nil {
			return err
		}
		if err := refusal(now.reasons); err != nil {
			return err
		}
		if !first && (now.published != last.published || now.total() > last.total()) {
			came = time.Now()
		}
		if now.total() > 0 || now.published != last.published {
			quiet = time.Now()
		}
		last = now
		switch {
		case time.Since(quiet) >= f.Idle:
			return nil
		case time.Since(began) >= f.Wait:
			return f.waiting(now, time.Since(came) < f.Idle)
		}
		if err := wait.For(ctx, min(countEvery, f.Idle)); err != nil {
			return err
		}
	}
}

// waiting says what must go first. came reports that messages came in the last Idle.
func (f *FromDelayed) waiting(now delayedNow, came bool) error {
	why := fmt.Sprintf("%s holds %s (%s)", text.Name(f.Exchange), messages(now.total()), now.where())
	switch {
	case came && f.sameName():
		why += fmt.Sprintf(", and messages came to it in the last %s: stop its publishers", f.Idle)
	case came:
		why += fmt.Sprintf(", and messages came to it in the last %s: let publishers publish to %s", f.Idle,
			text.Name(f.Delay.Name))
	}
	return fmt.Errorf("%w: %s; nothing was deleted; run the command again, with --wait true to wait as long as it takes",
		ErrWaiting, why)
}
