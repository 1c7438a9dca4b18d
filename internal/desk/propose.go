package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Propose looks at the queue and says what the run would do. It moves nothing.
func (d *Desk) Propose(ctx context.Context, r Request) (Proposal, error) {
	c, err := d.newChoice(r)
	if err != nil {
		return Proposal{}, err
	}
	state, err := d.inspect(ctx)
	if err != nil {
		return Proposal{}, err
	}
	if !c.kind.Live { // the look refuses those
		if err := refuseStream(state, r.Queue); err != nil {
			return Proposal{}, err
		}
	}
	began := time.Now()
	if t := r.Target; t.Original || t.Queue == "" && (t.Exchange != "" || t.Key != "") {
		c.router = route.New(state)
	}
	if c.kind.Live {
		r.Look.Live, r.Look.BesideConsumers = true, true
	}
	looked, err := d.lookIn(ctx, state, r.Queue, r.Look, c.visit)
	if err != nil {
		return Proposal{}, err
	}
	// After a short look other statistics would be as old. The consumers and the room of the targets
	// are asked for in any case, and Execute reads all again, with the queue locked.
	if time.Since(began) > statisticsAge*time.Second {
		if state, err = d.inspect(ctx); err != nil {
			return Proposal{}, err
		}
	}
	state = d.Management.AskConsumers(ctx, state, c.queues())
	return c.propose(ctx, looked, state)
}

// choice is what a request chooses of a queue.
type choice struct {
	desk    *Desk
	request Request
	kind    Kind
	known   *deadletter.Known
	named   *named

	key      runKey
	entries  map[fingerprint]entry // of all messages that were seen
	chosen   int
	silent   silent
	replayed int
	copies   int
	groups   map[string]*deadletter.Group
	first    time.Time
	last     time.Time
	// to counts the messages that go to one queue alone.
	to map[place]int
	// router says where messages go that are published to an exchange; nil where none is. reaches
	// counts them, and in the end those of to. nowhere and unsure have those that reach no queue, and
	// those that may reach more, by the reason.
	router  *route.Router
	reaches map[way]int
	nowhere map[string]int
	unsure  map[string]int
	// doubts are why messages cannot go where they should, with their number.
	doubts map[string]int
	// unsaid are the queues to which a message goes that no framework has published from there.
	unsaid map[string]bool
	edited *amqp091.Delivery
	dead   string           // the dead-letter queue of the queue, if that is a work queue
	ranks  map[uint8]bool   // the priorities of all messages that were seen
	bytes  int64            // of the bodies of the chosen messages
	paths  deadletter.Paths // fields that the filter names
	// opened counts the messages that are taken out of the envelope in which EasyNetQ has put them.
	// stripped counts those that lose headers of a framework, by the names of the headers.
	opened   int
	stripped map[string]int
}

// place is a queue to which a message goes alone, and the key that it has there. shown is the key
// as a person may see it.
type place struct{ queue, key, shown string }

// address is an exchange and a routing key.
type address struct{ exchange, key string }

// way is how messages come into a queue. shown is the address as a person may see it.
type way struct {
	queue     string
	at, shown address
}

func (d *Desk) newChoice(r Request) (*choice, error) {
	c := &choice{
		desk: d, request: r, kind: r.Action.Kind(), known: d.known(), key: newRunKey(), entries: map[fingerprint]entry{},
		groups: map[string]*deadletter.Group{}, to: map[place]int{}, doubts: map[string]int{},
		unsaid: map[string]bool{}, stripped: map[string]int{}, ranks: map[uint8]bool{}, reaches: map[way]int{},
		nowhere: map[string]int{},
		unsure:  map[string]int{},
	}
	parked := topology.ParkedName(d.Topology.Name)
	if c.kind.Live {
		var err error
		if c.dead, err = d.pulledTo(r); err != nil {
			return nil, err
		}
	}
	switch t := r.Target; {
	case d.Topology.Name == "": // it has not discovered what the broker tells
		return nil, refusef("a run needs a topology; pass the topology file with -f")
	case c.kind.Edits && r.Edited == nil:
		return nil, refusef("nothing was edited; change the message first")
	case c.kind.goes == toOrigin && r.Queue != parked:
		return nil, refusef("%s takes messages from %s; name that queue", r.Action, parked)
	case c.kind.goes == toParked && !c.kind.deletes(r.Forever) && r.Queue == parked:
		return nil, refusef("the messages of %s are parked already; restore, replay, or discard them forever", parked)
	case t.Queue == r.Queue && r.Queue != "", t.Exchange == "" && t.Key == r.Queue && r.Queue != "":
		return nil, refusef("the target is the queue %s itself; name another", text.Name(r.Queue))
	case r.Queue == topology.LogName(d.Topology.Name):
		return nil, refusef("%s has the records of runs, and no message that could be moved; 'dlxctl desk run list --ended' lists them",
			r.Queue)
	case topology.IsHoldName(d.Topology.Name, r.Queue):
		return nil, refusef("%s is the hold of a run; resume or return that run", r.Queue)
	}
	if r.Filter != nil {
		c.paths = r.Filter.Paths()
	}
	var err error
	c.named, err = namedBy(r.Handles)
	return c, err
}

// visit chooses a message, or leaves it.
func (c *choice) visit(m deadletter.Message) error {
	was := c.desk.fromParked(m.Delivery, c.request.Queue)
	facts := deadletter.Read(was, c.request.Queue, c.known)
	content := deadletter.DigestOf(m.Delivery)
	whole := content.Whole(m.Delivery)
	key := c.key.of(whole)
	e := c.entries[key]
	e.present++
	c.ranks[m.Delivery.Priority] = true
	e.dated = isDated(was, facts)
	defer func() { c.entries[key] = e }()
	if !c.named.has(m, content) {
		return nil
	}
	wanted, err := c.wants(m, facts)
	if err != nil || !wanted {
		c.silent.leave(c.request, facts)
		return err
	}
	if e.wanted > 0 {
		c.copies++
	}
	e.wanted++
	c.chosen++
	c.bytes += int64(len(m.Delivery.Body))
	v := c.desk.reader().Head(m)
	c.group(v)
	if c.request.Queue == topology.ParkedName(c.desk.Topology.Name) {
		v = c.desk.reader().Head(deadletter.Message{Delivery: was, Queue: m.Queue})
	}
	c.place(m, was, withKey(facts, c.request.Key, c.request.Target), withKey(v.Facts, c.request.Key, c.request.Target))
	if c.kind.goes != toWork {
		return nil
	}
	original, err := deadletter.Original(was)
	if err != nil {
		return nil // place has refused the message
	}
	c.changes(facts, original)
	if c.kind.Edits && c.edited == nil {
		return c.edit(whole, original)
	}
	return nil
}

// changes notes what a message loses when it is sent to work.
func (c *choice) changes(facts deadletter.Facts, original amqp091.Delivery) {
	if facts.Framework == deadletter.EasyNetQ {
		c.opened++
	}
	if _, gone := deadletter.Retried(original.Headers); len(gone) > 0 && !c.request.KeepHistory {
		c.stripped[strings.Join(gone, ", ")]++
	}
}

// noteChanges says what messages lose when they are sent to work.
func (c *choice) noteChanges(p *Proposal) {
	if c.opened > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf(
			"%s %s taken out of the envelope of EasyNetQ, with %s own body, properties and headers",
			text.Count(c.opened, "message"), text.Choose(c.opened, "is", "are"), text.Choose(c.opened, "its", "their")))
	}
	for _, names := range slices.Sorted(maps.Keys(c.stripped)) {
		n := c.stripped[names]
		note := fmt.Sprintf("%s %s the headers of the failure: %s",
			text.Count(n, "message"), text.Choose(n, "loses", "lose"), names)
		if c.kind.Paced {
			note += " (--keep-history keeps them)"
		}
		p.Notes = append(p.Notes, note)
	}
}

// edit notes the message as the person wants it. Its body is valid only now. whole is the digest of
// the message in the queue, and original the one whose failure it reports.
func (c *choice) edit(whole deadletter.Digest, original amqp091.Delivery) error {
	if of := c.request.EditedFrom; of != nil && *of != whole {
		return refusef("the message that was edited is no longer in %s, and another has its handle; list the queue again",
			text.Name(c.request.Queue))
	}
	edited, err := deadletter.Apply(original, *c.request.Edited)
	if err != nil {
		return refusef("the message cannot be changed so: %s; change the edit", err)
	}
	edited.Body = slices.Clone(edited.Body)
	c.edited = &edited
	return nil
}

// wants reports whether the request chooses a message that it names.
func (c *choice) wants(m deadletter.Message, facts deadletter.Facts) (bool, error) {
	r := c.request
	if r.Limit > 0 && c.chosen >= r.Limit || !r.inTime(facts) {
		return false, nil
	}
	if r.Filter != nil {
		v := c.view(m)
		c.paths.See(v)
		if ok, err := c.silent.matches(r, v); err != nil || !ok {
			return false, err
		}
	}
	if c.kind.Once && facts.Replays > 0 && !r.Again {
		c.replayed++
		return false, nil
	}
	return true, nil
}

// view returns a message as the filter may see it.
func (c *choice) view(m deadletter.Message) deadletter.View {
	if c.request.Filter.NeedsBody() {
		return c.desk.reader().View(m)
	}
	return c.desk.reader().Head(m)
}

// place notes where a message would go. was is the message as it was before it was parked, if it
// was. facts say where it goes, and shown what a person may see of that.
func (c *choice) place(m deadletter.Message, was amqp091.Delivery, facts, shown deadletter.Facts) {
	from := parkedFrom(m.Delivery)
	original, err := deadletter.Original(was)
	switch t := c.request.Target; {
	case c.kind.goes == toParked:
	case c.kind.goes == toDead:
		c.to[place{queue: c.dead}]++
	case c.kind.goes == toOrigin && from == "":
		c.doubts["do not name the queue from which they were parked; replay them with --to"]++
	case c.kind.goes == toOrigin:
		c.to[place{queue: from}]++
	case err != nil:
		c.doubts[err.Error()]++
	case c.desk.uncounted(facts, was.Headers) != "":
		c.doubts[c.desk.uncounted(facts, was.Headers)]++
	case t.Queue != "":
		c.sends(place{queue: t.Queue, key: t.Queue, shown: t.Queue}, facts)
	case t.Exchange != "" || t.Key != "":
		named := address{t.Exchange, t.Key}
		c.publish(original, facts, named, named)
	case t.Original && facts.Exchange == "" && (facts.Key == "" || facts.Key == c.request.Queue): // or imported
		c.doubts["do not tell where they were published; name a target with --to"]++
	case t.Original:
		c.publish(original, facts, c.desk.original(facts), c.desk.original(shown))
	case facts.WorkQueue == "":
		doubt := cmp.Or(shown.Doubt, "no header names the queue in which it failed")
		c.doubts[doubt+"; name a target with --to"+c.example()]++
	default:
		c.sends(place{queue: facts.WorkQueue, key: facts.Key, shown: shown.Key}, facts)
	}
}

// sends notes that a message goes to one queue alone.
func (c *choice) sends(to place, facts deadletter.Facts) {
	c.to[to]++
	c.says(to.queue, facts)
}

// says notes whether a framework has published a message from the queue to which it goes.
func (c *choice) says(queue string, facts deadletter.Facts) {
	if !facts.ByFramework || facts.WorkQueue != queue {
		c.unsaid[queue] = true
	}
}

// group counts what messages have in common, as a person may see it.
func (c *choice) group(v deadletter.View) {
	parts := slices.DeleteFunc([]string{v.Cause, v.Key, v.WorkQueue}, func(s string) bool { return s == "" })
	name := cmp.Or(strings.Join(parts, ", "), "unknown")
	g := c.groups[name]
	if g == nil {
		g = &deadletter.Group{Value: name, Example: v.Handle}
		c.groups[name] = g
	}
	g.Count++
	if t := v.LastFailed; !t.IsZero() {
		g.First, g.Last = earlier(g.First, t), later(g.Last, t)
		c.first, c.last = earlier(c.first, t), later(c.last, t)
	}
}

// earlier returns the earlier of two times. The zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// queues returns the queues to which messages go.
func (c *choice) queues() []string {
	seen := map[string]bool{}
	for p := range c.to {
		seen[p.queue] = true
	}
	for w := range c.reaches {
		seen[w.queue] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func (c *choice) propose(ctx context.Context, looked Looked, state topology.State) (Proposal, error) {
	p := Proposal{
		Request: c.request, Looked: looked, Chosen: c.chosen, ReplayedBefore: c.replayed, Copies: c.copies,
		First: c.first, Last: c.last,
	}
	for _, g := range c.groups {
		p.Groups = append(p.Groups, *g)
	}
	slices.SortFunc(p.Groups, func(a, b deadletter.Group) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Value, b.Value))
	})
	c.reach(&p, state)
	c.uncertain(&p)
	c.noteChanges(&p)
	c.refuse(&p)
	if looked.spent != "" {
		p.Refusals = append(p.Refusals, looked.spent)
	}
	if c.kind.Live && len(c.ranks) > 1 && looked.Type == topology.Quorum && state.AtLeast(4, 0) {
		p.Refusals = append(p.Refusals, fmt.Sprintf("messages of %s have different priorities, and a quorum queue delivers what was returned to it first, whatever its priority; let the consumers read them, or stop the consumers and the publishers",
			text.Name(c.request.Queue)))
	}
	if c.kind.goes == toWork {
		p.manifest.Echo = c.echoes(state)
		c.brakes(&p, state)
	}
	p.Notes = append(p.Notes, c.request.notes(looked, c.paths, c.silent)...)
	p.manifest = c.manifest(&p, state, p.manifest.Echo)
	if err := c.drops(ctx, &p, state); err != nil {
		return p, err
	}
	if p.Chosen == 0 || len(p.Refusals) > 0 {
		return p, nil
	}
	m := p.manifest
	m.Run = c.desk.newRun() // Execute names it anew
	err := c.desk.permit(ctx, c.desk.rightsOf(&m, state), m.watched())
	if errors.Is(err, ErrRefused) {
		p.Refusals, err = append(p.Refusals, err.Error()), nil
	}
	return p, err
}

// reach says where the messages go, and refuses what does not exist.
func (c *choice) reach(p *Proposal, state topology.State) {
	bound := returnable(c.desk.Topology.Name, state)
	exists := map[string]bool{}
	for _, q := range state.Have.Queues {
		exists[q.Name] = true
	}
	successors := map[string]string{}
	for _, w := range c.desk.Topology.WorkQueues {
		if w.Replaces != "" && exists[w.Name] && c.kind.goes != toDead {
			successors[w.Replaces] = w.Name
		}
	}
	through, fix := topology.ReturnExchangeName(c.desk.Topology.Name), "run dlxctl apply, or name another target with --to"
	switch c.kind.goes {
	case toOrigin: // it has no --to, and a pull has none
		fix = "run dlxctl apply, or replay them with --to"
	case toDead:
		fix = "run dlxctl apply"
	case toWork, toParked:
	}
	with := "pass"
	switch {
	case c.kind.goes == toOrigin:
		with = "replay them with"
	case len(c.to) > 1: // not all are for that queue
		with = "choose its messages alone, and pass"
	}
	for at, n := range c.to {
		successor, replaced := successors[at.queue]
		switch {
		case !exists[at.queue] && replaced:
			p.Refusals = append(p.Refusals, fmt.Sprintf("the queue %s does not exist: %s replaces it; %s --to queue:%s",
				text.Name(at.queue), text.Name(successor), with, text.ShellQuote(successor)))
		case !exists[at.queue]:
			p.Refusals = append(p.Refusals, fmt.Sprintf("the queue %s does not exist; %s", text.Name(at.queue), fix))
		case bound[at.queue] && c.request.Target == (Target{}) && c.kind.goes == toWork:
			c.reaches[way{at.queue, address{through, at.key}, address{through, at.shown}}] += n
		default:
			c.reaches[way{at.queue, address{"", at.key}, address{"", at.shown}}] += n
		}
	}
	reaches := map[Reach]int{}
	for w, n := range c.reaches {
		reaches[Reach{Queue: w.queue, Exchange: w.shown.exchange, Key: w.shown.key}] += n
	}
	for reach, n := range reaches {
		reach.Messages = n
		usage, counted := state.Usage[reach.Queue]
		reach.Waiting, reach.Consumers = int(usage.Ready), int(usage.Consumers)
		if !counted {
			reach.Waiting = -1
		}
		if !counted || usage.ConsumersUnknown {
			reach.Consumers = -1
		}
		p.Reaches = append(p.Reaches, reach)
	}
	slices.SortFunc(p.Reaches, func(a, b Reach) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.Key, b.Key))
	})
}

// refuse adds why the run cannot be done.
func (c *choice) refuse(p *Proposal) {
	p.Refusals = append(p.Refusals, c.named.refusals(c.request.Queue)...)
	for doubt, n := range c.doubts {
		p.Refusals = append(p.Refusals, fmt.Sprintf("%s: %s", text.Count(n, "message"), doubt))
	}
	if c.kind.Edits && c.chosen > 1 {
		p.Refusals = append(p.Refusals, fmt.Sprintf("edit changes one message, and %d were chosen; name one by its handle", c.chosen))
	}
	slices.Sort(p.Refusals)
	p.Refusals = slices.Compact(p.Refusals)
}

// example names the work queue whose dead letters the queue keeps, if it is one alone.
func (c *choice) example() string {
	for _, q := range c.desk.deadLetterQueues() {
		if q.Queue == c.request.Queue && len(q.WorkQueues) == 1 {
			return ", for example --to " + text.ShellQuote("queue:"+q.WorkQueues[0])
		}
	}
	return ""
}

// drops refuses queues that would not keep the messages, unless they may drop them.
func (c *choice) drops(ctx context.Context, p *Proposal, state topology.State) error {
	conn, err := amqp.Dial(ctx, c.desk.endpoint("counts"))
	if err != nil {
		return err
	}
	defer conn.Close()
	room := c.desk.roomIn(state, conn.MessagesReady)
	err = room.refuse(p.manifest.Goes, p.manifest.Bytes, c.desk.Allow)
	if why, ok := errors.AsType[DroppingError](err); ok {
		p.Drops, err = why.Queues, nil
		p.Refusals = append(p.Refusals, why.Error())
	}
	p.Notes = append(p.Notes, room.overflows(p.manifest.Goes)...)
	return err
}

// brakes notes whose failures nothing hears, and refuses those that a run must not listen to.
func (c *choice) brakes(p *Proposal, state topology.State) {
	heard := failureRoutes(c.desk.Topology, state)
	var deaf, late []string
	for _, r := range p.Reaches {
		_, is := heard[r.Queue]
		switch name := text.Name(r.Queue); {
		case is || slices.Contains(deaf, name) || slices.Contains(late, name):
		case slices.Contains(p.manifest.Echo, r.Queue):
			late = append(late, name)
		default:
			deaf = append(deaf, name)
		}
	}
	if why := unfinishedChange(c.queues(), heard); why != "" {
		p.Refusals = append(p.Refusals, why)
	}
	if len(late) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("failures in %s are heard once they are back in %s, at which the run looks again when its number of messages has changed",
			strings.Join(late, ", "), text.Name(c.request.Queue)))
	}
	if len(deaf) > 0 {
		to := "not dead-letter to " + text.Name(c.request.Queue)
		if c.desk.Found == nil || c.desk.Found.Topology != "" {
			to = fmt.Sprintf("dead-letter to neither %s nor %s", topology.FailedExchangeName(c.desk.Topology.Name),
				text.Name(c.request.Queue))
		}
		p.Notes = append(p.Notes, fmt.Sprintf(
			"nothing hears failures in %s, which %s %s: the run does not stop by itself when messages fail again there",
			strings.Join(deaf, ", "), text.Choose(len(deaf), "does", "do"), to))
	}
}

// echoes returns the queues whose dead letters come back to the queue that the run takes from,
// whichever of its messages fails: the broker brings them, or the framework of the consumer, which
// has published all messages of the run from there. A framework publishes to a dead-letter queue;
// in another one the messages lie because a person or a program has moved them.
func (c *choice) echoes(state topology.State) []string {
	router, comes := route.New(state), map[string]bool{}
	keeps := sync.OnceValue(func() bool { return survey.New(state).Keeps(c.request.Queue) })
	for w := range c.reaches {
		before, seen := comes[w.queue]
		comes[w.queue] = (before || !seen) &&
			(comesBack(router, w.queue, w.at.key, c.request.Queue) || !c.unsaid[w.queue] && keeps())
	}
	maps.DeleteFunc(comes, func(_ string, all bool) bool { return !all })
	return slices.Sorted(maps.Keys(comes))
}

// manifest returns what the run takes.
func (c *choice) manifest(p *Proposal, state topology.State, echo []string) manifest {
	r := c.request
	maps.DeleteFunc(c.entries, func(_ fingerprint, e entry) bool { return e.wanted == 0 })
	m := manifest{
		summary: summary{
			Action: r.Action, Queue: r.Queue, Reason: r.Reason, Chosen: c.chosen, Target: r.Target, Send: r.Send,
			Forever: r.Forever, Keep: r.Keep,
		},
		Consumers:   p.Looked.consumers,
		KeepHistory: r.KeepHistory, KeepTTL: r.KeepTTL, Key: c.key, wanted: c.entries, edited: c.edited,
		Partial: p.Looked.Missed != "", Goes: map[string]int{}, Bytes: c.bytes, Allow: c.desk.Allow, Echo: echo,
		ChosenBy: r.criteria(), NewKey: r.Key,
	}
	heard := failureRoutes(c.desk.Topology, state)
	for w := range c.reaches {
		if c.router != nil && !slices.Contains(m.Through, w.at.exchange) {
			m.Through = append(m.Through, w.at.exchange)
		}
	}
	if c.edited != nil { // the dead letter is parked, where no limit counts
		m.Bytes = int64(len(c.edited.Body))
	}
	slices.Sort(m.Through)
	for _, reach := range p.Reaches {
		m.Goes[reach.Queue] += reach.Messages
		if slices.Contains(m.Watch, reach.Queue) {
			continue
		}
		m.Watch = append(m.Watch, reach.Queue)
		if _, is := heard[reach.Queue]; is {
			m.Listen = append(m.Listen, reach.Queue)
		}
	}
	return m
}
