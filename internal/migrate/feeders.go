package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// mostProofs is how many times the feeders of a legacy queue are proved empty at most, one
// proof after the other.
const mostProofs = 5

// fedError says that messages can still come to a legacy queue by its name, from a feeder: a
// queue that dead-letters to it.
type fedError struct {
	text   string
	final  bool   // waiting does not help
	advice string // what else helps than to run migrate again. Empty: --forward
}

func (e *fedError) Error() string { return e.text }

// feeders returns the queues from which messages can come to a queue by its name.
func feeders(state topology.State, queue string) []survey.Feeder {
	return survey.New(state).Feeders(queue)
}

// feedersEmpty returns a check that no message can come to the legacy queue by dead-lettering to
// its name: its feeders are empty, or canaries have shown that what they hold is of other queues,
// and no messages for the legacy queue are routed to them. The check has to be closed.
//
// The check runs while the drain consumes and no message comes. A message that is not in a
// feeder is then in the legacy queue, where the drain consumes it, or on its way from one
// feeder to the next: so each further feeder needs one more proof, in which the message
// would have to move on again. A consumer next to the drain could reject a message into a
// feeder later.
func (r *Runner) feedersEmpty(m Move, h *mover) (check func(context.Context) error, closes func()) {
	said := false
	c := &canaries{endpoint: r.Endpoint, move: m, mover: h}
	return func(ctx context.Context) error {
		return r.checkFeeders(ctx, m, c, func(why error) {
			if !said {
				r.say("retire: waiting up to %s, as %s", text.Duration(r.Wait), why)
				said = true
			}
		})
	}, c.close
}

// checkFeeders returns why a message can still come to the legacy queue by its name. Nil: none can.
// Without canaries the feeders have to be empty. waits is called with why it is too early to know.
func (r *Runner) checkFeeders(ctx context.Context, m Move, c *canaries, waits func(error)) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	if err := unseenError(m, state); err != nil {
		waits(err)
		return err
	}
	list := feeders(state, m.Legacy)
	if len(list) == 0 {
		return nil
	}
	state = r.Management.AskConsumers(ctx, state, queueNames(list))
	judged := survey.New(state)
	list = judged.Feeders(m.Legacy)
	c.observe(state, list)
	held, shared := holdingError(m, list), c.underWay(list)
	switch {
	case shared || c.needed(list, held):
		if err := r.passFeeders(ctx, m, c, judged, list, held); err != nil {
			waits(err)
			return err
		}
		shared = true
	case held != nil:
		waits(held)
		return held
	default:
		if err := r.proveEmpty(ctx, m, list); err != nil {
			return err
		}
	}
	// Feeders and consumers that are new since the first look are seen here.
	if state, err = r.inspect(ctx); err != nil {
		return err
	}
	state = r.Management.AskConsumers(ctx, state, queueNames(list))
	if err := unseenError(m, state); err != nil {
		return err
	}
	after := feeders(state, m.Legacy)
	if err := r.checkAlone(ctx, m, state, after); err != nil {
		c.void()
		return err
	}
	if len(after) > len(list) {
		return &fedError{text: fmt.Sprintf("another queue dead-letters to %s by its name", m.Legacy)}
	}
	for _, f := range after {
		if f.ConsumersUnknown && !f.Unsure {
			return &fedError{text: fmt.Sprintf("the queue %s %s, and it is not known whether it has consumers", f.Name,
				describeFeeder(m, f))}
		}
		// What is on its way to a dead-letter exchange counts too: a message may be there that a
		// canary has overtaken.
		if n := f.Unacknowledged; shared && n > 0 {
			return &fedError{text: fmt.Sprintf("%s of the queue %s, which %s, %s with a consumer or on the way to another queue",
				messages(n), f.Name, describeFeeder(m, f), text.Choose(n, "is", "are"))}
		}
	}
	return openError(m, after)
}

// checkAlone fails if the legacy queue has another consumer than the drain.
func (r *Runner) checkAlone(ctx context.Context, m Move, state topology.State, list []survey.Feeder) error {
	consumers, err := r.consumers(ctx, state, m.Legacy)
	if err == nil && consumers > 1 {
		err = &fedError{text: fmt.Sprintf("%s has %s, and what is rejected there goes to %s, which dead-letters back to it by its name",
			m.Legacy, text.Count(consumers, "consumer"), names(list))}
	}
	return err
}

// passFeeders returns nil once canaries have passed all feeders, or those are empty that none may
// pass: nothing is left in them that the legacy queue has dead-lettered. held says which feeder
// holds messages; nil: none does.
func (r *Runner) passFeeders(
	ctx context.Context, m Move, c *canaries, judged *survey.Survey, list []survey.Feeder, held error,
) error {
	if err := r.checkAlone(ctx, m, judged.State, list); err != nil {
		c.void()
		return err
	}
	if c.underWay(list) {
		back, err := c.back()
		switch {
		case err != nil:
			c.drop()
			return &fedError{text: err.Error()}
		case !back:
			return c.waiting(list)
		}
		return nil
	}
	if err := openError(m, list); err != nil {
		return err
	}
	paths := map[string][]string{}
	var others []survey.Feeder
	for _, f := range list {
		last, why := m.canaryPath(judged, list, f.Name)
		if why != "" && f.Ready+f.Unacknowledged > 0 {
			return &fedError{text: fmt.Sprintf("%s; migrate sends no canary there, as %s: %s can be deleted only while %s is empty%s",
				held, why, m.Legacy, f.Name, usedBy(f))}
		}
		if why != "" {
			others = append(others, f)
		} else {
			paths[f.Name] = last
		}
	}
	// What the legacy queue has dead-lettered is in the feeders, and not on its way there.
	if err := r.proveEmpty(ctx, m, others); err != nil {
		return err
	}
	i := slices.IndexFunc(judged.State.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i < 0 {
		return nil
	}
	err := r.Management.ProveEmpty(ctx, judged.State.Have.Queues[i:i+1])
	switch {
	case errors.Is(err, broker.ErrRefused):
		return &fedError{text: err.Error()}
	case err != nil:
		return err
	}
	if err := r.checkAlone(ctx, m, judged.State, list); err != nil {
		return err
	}
	if err := c.send(ctx, list, paths); err != nil {
		c.drop()
		if _, isFed := errors.AsType[*fedError](err); isFed || ctx.Err() != nil {
			return err
		}
		if held != nil && errors.Is(err, broker.ErrForbidden) {
			return held // proofRights asks for these rights only where a feeder may never be empty
		}
		return &fedError{text: err.Error()}
	}
	return c.waiting(list)
}

// usedBy names the other queues that dead-letter to a feeder.
func usedBy(f survey.Feeder) string {
	if len(f.Others) == 0 {
		return ""
	}
	return ", and other queues dead-letter to it: " + text.FirstOf(f.Others, 4)
}

// waiting says for what a round waits.
func (c *canaries) waiting(list []survey.Feeder) *fedError {
	ttl := within(list) + c.late()
	out := &fedError{text: fmt.Sprintf("other queues use %s too, from where messages come to %s by its name: those that wait there come back within %s, before a canary that migrate sent at %s",
		names(list), c.move.Legacy, text.Duration(ttl), c.sent.Format(time.TimeOnly))}
	out.advice = longEnough(ttl)
	return out
}

// within returns how long a message takes through all feeders, at most.
func within(list []survey.Feeder) time.Duration {
	var out time.Duration
	for _, f := range list {
		out += timeToLive(f.Args)
	}
	return out
}

// longEnough returns the flag with which a run waits for messages that come back within a time.
func longEnough(within time.Duration) string {
	// A round in which messages came is followed by another one.
	return "--wait " + text.Duration((2*within).Truncate(time.Minute)+2*time.Minute)
}

func queueNames(list []survey.Feeder) []string {
	return text.Each(list, func(f survey.Feeder) string { return f.Name })
}

func (r *Runner) proveEmpty(ctx context.Context, m Move, list []survey.Feeder) error {
	for range min(len(list), mostProofs) {
		err := r.Management.ProveEmpty(ctx, queuesOf(list))
		switch {
		case errors.Is(err, broker.ErrRefused):
			return &fedError{text: fmt.Sprintf("%s, and dead-letters to %s by its name", err, m.Legacy)}
		case errors.Is(err, broker.ErrForbidden):
			return &fedError{
				final: true,
				text:  fmt.Sprintf("dlxctl cannot know whether %s still holds messages for %s: %s", names(list), m.Legacy, err),
			}
		case err != nil:
			return err
		}
	}
	return nil
}

func holdingError(m Move, list []survey.Feeder) error {
	for _, f := range list {
		if n := f.Ready + f.Unacknowledged; n > 0 {
			return &fedError{text: fmt.Sprintf("the queue %s holds %s and %s",
				f.Name, messages(n), describeFeeder(m, f))}
		}
	}
	return nil
}

// openError says which feeder can still get messages for the legacy queue, also if none are in it.
func openError(m Move, list []survey.Feeder) error {
	for _, f := range list {
		if len(f.Open) > 0 {
			return &fedError{
				final: true,
				text: fmt.Sprintf("the queue %s %s, and can still get messages: %s; %s, or stop these, and run the command again",
					f.Name, describeFeeder(m, f), strings.Join(f.Open, ", "), m.change(f)),
			}
		}
	}
	return nil
}

// change says what has to change so that the messages of a feeder come to the successor. What other
// queues get from it stays as it is.
func (m Move) change(f survey.Feeder) string {
	switch {
	case f.Next != m.Legacy:
		return fmt.Sprintf("let its messages no longer come to %s", f.Next)
	case f.AnyKey:
		return fmt.Sprintf("let the messages for %s come to it with the routing key %s", m.Legacy, m.New)
	default:
		return "let it dead-letter to " + m.New
	}
}

// unseenError fails while the node of a queue is down. RabbitMQ 4.3 does not list a classic queue
// then, so where it dead-letters is not known: what waits in it may come back once the node is up.
func unseenError(m Move, state topology.State) error {
	if len(state.Down) == 0 {
		return nil
	}
	return &fedError{text: fmt.Sprintf("the node of the queue %s is down, and the queue may dead-letter to %s by its name: start the node",
		text.Name(state.Down[0]), m.Legacy)}
}

// describeFeeder says how the messages of a feeder come to the legacy queue.
func describeFeeder(m Move, f survey.Feeder) string {
	switch {
	case f.Next != m.Legacy:
		return fmt.Sprintf("dead-letters to %s, which leads to %s by its name", f.Next, m.Legacy)
	case f.AnyKey:
		return fmt.Sprintf("dead-letters to the default exchange by the routing keys of its messages, which may be %s",
			m.Legacy)
	default:
		return fmt.Sprintf("dead-letters to %s by its name", m.Legacy)
	}
}

// feederNotes returns a note for each queue that dead-letters to the legacy queue by its
// name, or may do so unseen.
func (m Move) feederNotes(s *survey.Survey) []Note {
	var out []Note
	if err := unseenError(m, s.State); err != nil {
		out = append(out, Note{Text: err.Error()})
	}
	list := s.Feeders(m.Legacy)
	for _, f := range list {
		until := "it is proved empty"
		if _, why := m.canaryPath(s, list, f.Name); why == "" {
			until = "all that it has dead-lettered there is back"
		}
		n := Note{Text: fmt.Sprintf("the queue %s holds %s and %s: %s is deleted only once %s, and messages that return are moved on to %s; afterwards: %s",
			f.Name, messages(f.Ready+f.Unacknowledged), describeFeeder(m, f), m.Legacy, until, m.New, m.fate(f))}
		switch {
		case len(f.Open) > 0:
			n = Note{
				Decide: true,
				Text: fmt.Sprintf("the queue %s %s, and it can still get messages (%s): %s is kept, and migrate exits with code 2, until these stop; %s",
					f.Name, describeFeeder(m, f), strings.Join(f.Open, ", "), m.Legacy, m.change(f)),
			}
		case f.Unsure && len(f.Exchanges) > 0:
			n.Text = fmt.Sprintf("the queue %s %s, and the broker does not show with which keys messages come to it from the exchange %s: a publisher that sends messages with the key %s there must send them with the key %s",
				f.Name, describeFeeder(m, f), text.FirstOf(f.Exchanges, 2), m.Legacy, m.New)
		case f.Unsure && f.Ready+f.Unacknowledged == 0:
			continue
		case !f.AnyKey && len(f.From) == 0 && len(f.Exchanges) == 0:
			n = Note{
				Decide: true,
				Text: fmt.Sprintf("the queue %s holds %s and %s, and no queue dead-letters to it: a publisher that sends to %s by its name must send to a queue that dead-letters to %s",
					f.Name, messages(f.Ready+f.Unacknowledged), describeFeeder(m, f), f.Name, m.New),
			}
		}
		out = append(out, n)
	}
	return out
}

// fate says what becomes of a feeder when the legacy queue is deleted. It belongs to other teams,
// and stays in any case.
func (m Move) fate(f survey.Feeder) string {
	name, n := text.Name(f.Name), len(f.Others)
	held := f.Ready + f.Unacknowledged
	switch {
	case !f.AnyKey && f.Next == m.Legacy && f.Used():
		return fmt.Sprintf("%s is still used, and its messages would have no queue: %s", name, m.change(f))
	case len(f.Returned) > 0:
		n = len(f.Returned)
		return fmt.Sprintf("%s stays: %s %s through it (%s). Nothing to do.", name, text.Count(n, "other queue"),
			text.Choose(n, "retries", "retry"), text.FirstOf(f.Returned, 2))
	case n > 0:
		return fmt.Sprintf("%s stays: %s %s to it (%s). Nothing to do.", name, text.Count(n, "other queue"),
			text.Choose(n, "dead-letters", "dead-letter"), text.FirstOf(f.Others, 2))
	case f.MayBeConsumed():
		return fmt.Sprintf("%s stays: it has %s. Nothing to do.", name, f.ConsumersText())
	case len(f.Exchanges) > 0:
		return fmt.Sprintf("no queue dead-letters to %s any more; if no service publishes to the exchange %s, you may delete it once it is empty",
			name, text.FirstOf(f.Exchanges, 2))
	case held > 0:
		return fmt.Sprintf("no queue dead-letters to %s any more; if no service publishes to it by its name, you may delete it once it is empty", name)
	default:
		return fmt.Sprintf("no queue dead-letters to %s any more; if no service publishes to it by its name, you may delete it", name)
	}
}

// noteFeeders notes the feeders of a legacy queue that is now deleted.
func (r *Runner) noteFeeders(state topology.State, m Move) {
	list := feeders(state, m.Legacy)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range list {
		if !f.Unsure {
			r.fed[f.Name] = m
		}
	}
}

// adviseOnFeeders says what becomes of the feeders of all queues that this run has deleted: who
// else uses them is known only at the end.
func (r *Runner) adviseOnFeeders(ctx context.Context) error {
	if len(r.fed) == 0 {
		return nil
	}
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(r.fed))
	s := survey.New(r.Management.AskConsumers(ctx, state, names))
	for _, name := range names {
		m := r.fed[name]
		for _, f := range s.Feeders(m.Legacy) {
			if f.Name == name {
				r.say("retire: %s", m.fate(f))
			}
		}
	}
	return nil
}

func queuesOf(list []survey.Feeder) []topology.Queue {
	return text.Each(list, func(f survey.Feeder) topology.Queue { return f.Queue.Queue })
}

func names(list []survey.Feeder) string {
	var out []string
	for _, f := range list {
		if !slices.Contains(out, f.Name) {
			out = append(out, f.Name)
		}
	}
	return strings.Join(out, ", ")
}
