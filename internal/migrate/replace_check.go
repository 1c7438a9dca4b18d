package migrate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// unreplaceable returns why a queue that is not yet replaced cannot be, all reasons at once. None:
// it can.
func (r *Runner) unreplaceable(ctx context.Context, m Move, state topology.State) ([]string, error) {
	p := plan.Make(r.Topology, state, plan.Options{})
	out := r.unsuitable(m, state, survey.New(state), p.Changes)
	add := func(format string, args ...any) { out = append(out, m.Legacy+": "+fmt.Sprintf(format, args...)) }
	ahead := preparationOf(p, r.Topology, []Move{m.work()})
	m.ahead(&ahead)
	for _, why := range unallowed(ahead, r.Allow) {
		add("%s", why)
	}
	for _, c := range r.policyChanges(m, state) {
		switch nack := topology.UncountedNack; {
		case c.Action == plan.Blocked && !c.IsEndured():
			add("%s %s is blocked: %s", c.Kind, c.Name, c.Reason)
		case slices.Contains(c.Hazards, nack) && !r.consents(nack, m.Legacy):
			add("RabbitMQ is to count its retries, which needs consent: %s; %s", plan.Consent{Hazard: nack, Object: m.Legacy}.Flag(),
				c.Reason)
		}
	}
	if !r.mayReplace(m.Legacy) {
		add("its replacement under its name needs consent: %s",
			plan.Consent{Hazard: topology.ReplacesQueue, Object: m.Legacy}.Flag())
	}
	if !m.find(state).successor { // what has begun is rolled back, see deletable
		switch why, err := r.undeletable(ctx, m, state); {
		case err != nil:
			return nil, err
		case why != "":
			add("%s", why)
		}
	}
	if !r.allows(m.Legacy) {
		why, err := r.byName(ctx, m, state, state.Usage[m.Legacy].Ready)
		if err != nil {
			return nil, err
		}
		if why != "" {
			add("%s: %s; what they send while there is no queue would be lost: change the publishers, or consent with %s",
				errByName, why, consentTo(m.Legacy))
		}
	}
	return out, nil
}

// Unsuitable returns, by queue, why migrate would not replace some queues of want under their
// names, as one sentence each. It knows neither consents nor publishers by name, whom only a broker
// shows.
func Unsuitable(want topology.Compiled, state topology.State, queues []string) map[string]string {
	r := Runner{Topology: want}
	seen, changes := survey.New(state), plan.Make(want, state, plan.Options{}).Changes
	blocked := map[string]string{}
	for _, c := range changes {
		if c.Kind == topology.KindQueue && c.Action == plan.Blocked && !c.ReplacesQueue() {
			_, blocked[c.Name], _ = strings.Cut(c.Reason, plan.CannotReplace)
		}
	}
	out := map[string]string{}
	for _, queue := range queues {
		if why := r.unsuitable(replacementOf(want.Name, queue), state, seen, changes); len(why) > 0 {
			out[queue] = strings.TrimPrefix(why[0], queue+": ")
		} else if blocked[queue] != "" {
			out[queue] = blocked[queue]
		}
	}
	return out
}

// unsuitable returns why a queue is none that can be replaced under its name, all reasons at once.
// changes are those of a plan.
func (r *Runner) unsuitable(m Move, state topology.State, seen *survey.Survey, changes []plan.Change) []string {
	out := m.reasonsOf(r.Topology, state, changes)
	add := func(format string, args ...any) { out = append(out, m.Legacy+": "+fmt.Sprintf(format, args...)) }
	for _, q := range state.Have.Queues {
		if q.Name != m.Legacy {
			continue
		}
		effective, _ := policy.All(state).For(q)
		if _, expires := effective.Definition[topology.KeyExpires]; expires || q.Arguments.HasAny(topology.ArgExpires) {
			add("the broker deletes it, with its messages, while it has no consumer (expires)")
		}
	}
	out = append(out, r.foreign(m, state)...)
	if sends := plan.DeskSends(m.Legacy, state.Have.Bindings); sends != "" {
		add("%s", sends)
	}
	for _, f := range seen.Feeders(m.Legacy) {
		add("the queue %s %s: such messages would be lost while there is no queue; let them come through an exchange",
			f.Name, describeFeeder(m, f))
	}
	if harm := plan.DeskHarm(m.Topology, state, r.hold(m, state)); harm != "" {
		add("%s, where messages wait during the replacement", harm)
	}
	work := m.work()
	for _, c := range changes {
		itself := c.Kind == topology.KindQueue && c.Name == m.Legacy
		if itself && (c.Immutable || m.find(state).successor) || c.Kind == topology.KindPolicy && c.Label.Queue == m.Legacy {
			continue // what cannot be replaced is said above, what has begun is no reason, and policies follow
		}
		if c.Action == plan.Blocked && !c.IsEndured() && (itself || work.needs(r.Topology, c)) {
			add("%s %s is blocked: %s", c.Kind, c.Name, c.Reason)
		}
	}
	return out
}

// policyChanges returns the changes of the policies of a queue that come with its replacement:
// those that a plan has once the queue is as the file has it.
func (r *Runner) policyChanges(m Move, state topology.State) []plan.Change {
	state.Have.Queues = append(slices.DeleteFunc(slices.Clone(state.Have.Queues), func(q topology.Queue) bool {
		return q.Name == m.Legacy || q.Name == m.New
	}), r.wanted(m))
	return slices.DeleteFunc(plan.Make(r.Topology, state, plan.Options{}).Changes, func(c plan.Change) bool {
		return c.Kind != topology.KindPolicy || c.Label.Queue != m.Legacy
	})
}

// needsLock says why a run without the lock replaces no queue under its name.
const needsLock = "a queue is replaced under its name only with the lock of the topology, because the deletion of one run could meet the new queue of another; run it without --lock=false"

// foreign names the queues that have the name of the hold or of the trial and are not what this
// program makes. Messages in such a hold could be dropped, and it would be deleted in the end.
func (r *Runner) foreign(m Move, state topology.State) []string {
	var out []string
	trial := r.trial(m).Name
	for _, q := range state.Have.Queues {
		if q.Name != m.New && q.Name != trial {
			continue
		}
		own := q.Arguments[topology.ArgManagedBy] == topology.DeskMark(m.Topology)
		limited := q.Arguments.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes, topology.ArgMessageTTL,
			topology.ArgExpires)
		if !own || q.Name == m.New && (limited || q.Type() != topology.Quorum) {
			out = append(out, fmt.Sprintf("%s: the queue %s exists, and is none of those that a replacement makes: messages would be lost there; delete it, or rename it",
				m.Legacy, text.Name(q.Name)))
		}
	}
	return out
}

// checkReplacements returns the replacements of a run, or why they cannot be made.
func (r *Runner) checkReplacements(ctx context.Context, state topology.State) ([]Move, error) {
	var moves []Move
	var reasons []string
	for _, m := range r.replacements(state) {
		if !r.mayReplace(m.Legacy) && len(r.Legacy) == 0 && r.differs(m, state) {
			r.say("%s", replacementLines(r.Topology, state, []string{m.Legacy})[0])
			continue
		}
		moves = append(moves, m)
		if r.Unlocked {
			reasons = append(reasons, m.Legacy+": "+needsLock)
		}
		if !r.differs(m, state) && m.find(state).successor {
			continue // it only goes on
		}
		why, err := r.unreplaceable(ctx, m, state)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, why...)
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(reasons, "\n  "))
	}
	if len(moves) > 0 && r.CheckRights != nil {
		return moves, r.CheckRights(r.replacementRights(state, moves))
	}
	return moves, nil
}

// replacementRights returns the rights that replacements need.
func (r *Runner) replacementRights(state topology.State, moves []Move) []plan.Right {
	var p plan.Plan
	var rights []plan.Right
	for _, m := range moves {
		f, prepared := m.find(state), preparation(r.Topology, state, []Move{m.work()})
		m.ahead(&prepared)
		p.Changes = append(p.Changes, prepared.Changes...)
		p.Changes = append(p.Changes, m.wholeSwitch(state)...)
		for _, b := range union(union(f.onLegacy, f.onSwitch), r.lacksReturn(m, f)) {
			b.Destination, b.DestinationType = m.Legacy, topology.ToQueue
			p.Changes = append(p.Changes, create(b))
			p.Changes = append(p.Changes, m.bindSwitch([]topology.Binding{b})...)
		}
		for _, q := range []topology.Queue{r.hold(m, state), r.trial(m), r.wanted(m)} {
			p.Changes = append(p.Changes, create(q), remove(q))
		}
		for _, name := range []string{m.legacyEnd(), m.successorEnd()} { // the mover
			rights = append(rights, plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: name})
		}
		for _, queue := range []string{m.Legacy, m.New} {
			rights = append(rights, plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: queue})
		}
	}
	return sorted(append(plan.Rights(p), rights...))
}

// Replacements returns the queues that Run would replace under their names in a state, and writes
// for a person what that means. It writes nothing to the broker.
func (r *Runner) Replacements(ctx context.Context, state topology.State, w io.Writer) ([]string, error) {
	moves := r.replacements(state)
	names := text.Each(moves, func(m Move) string { return m.Legacy })
	shown, err := shownConsumers(ctx, r.Management, state, names)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, m := range moves {
		line := func(word, format string, args ...any) {
			b.WriteString(topology.Printable(fmt.Sprintf("  %-7s  %s", word, fmt.Sprintf(format, args...))) + "\n")
		}
		f, u := m.find(state), state.Usage[m.Legacy]
		differs := r.differs(m, state)
		fmt.Fprintf(&b, "%s: replaced under its name (%s)\n", topology.Printable(m.Legacy), r.wanted(m).Type())
		switch {
		case f.successor && !differs:
			line("resume", "a run was stopped; %s wait in the hold %s", messages(state.Usage[m.New].Ready), m.New)
		case u.MayBeConsumed():
			line("hold", "from one moment on, what is routed to it waits in %s", m.New)
			line("empty", "its consumers work through what it has: %s ready, %s; %s", messages(u.Ready), u.NotReady(),
				u.ConsumersText())
		default:
			line("hold", "what it has, %s, is moved to %s, in order; from one moment on, what is routed to it waits there too",
				messages(u.Ready), m.New)
		}
		if !f.legacy || differs {
			line("replace", "%s", plan.ReplacementPause)
			for _, consumers := range shown[m.Legacy].ConsumerLines() {
				line("restart", "%s", consumers)
			}
		}
		line("back", "what waits in the hold is moved to it, in order; then it is bound again, and the hold is deleted")
		if differs {
			why, err := r.unreplaceable(ctx, m, state)
			if err != nil {
				return nil, err
			}
			for _, reason := range why {
				line("refused", "%s", reason)
			}
		}
	}
	_, err = io.WriteString(w, b.String())
	return names, err
}

// replacementLines returns a line for each replacement that is not finished. queues limits them to
// some of the file. Empty: all.
func replacementLines(want topology.Compiled, state topology.State, queues []string) []string {
	var out []string
	for _, name := range Unfinished(want, state) {
		m := replacementOf(want.Name, name)
		f := m.find(state)
		if len(queues) > 0 && !slices.Contains(queues, name) {
			continue
		}
		where := name
		if f.policy != nil && f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd() {
			where = "its hold"
		}
		out = append(out, fmt.Sprintf("%s: its replacement under its name is not finished; new messages go to %s, and %s wait in the hold %s; run dlxctl migrate %s",
			name, where, messages(state.Usage[m.New].Ready), m.New, text.ShellQuote(name)))
	}
	for _, hold := range Stray(want, state) {
		out = append(out, fmt.Sprintf("%s: %s wait there of a queue that is being replaced under its name and that the file does not have; run dlxctl migrate with the file that has it",
			hold, messages(state.Usage[hold].Ready)))
	}
	return out
}
