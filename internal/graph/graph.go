// Package graph draws where messages can go in a virtual host: exchanges, queues, backoffs,
// dead-letter queues, and the ways on which messages are lost.
//
// The package is pure. The pictures are laid out by a method of its own: columns from the exchanges
// on the left to the dead letters on the right.
package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Kind is what a box stands for.
type Kind string

// The kinds of boxes.
const (
	Exchange Kind = "exchange"
	Queue    Kind = "queue"
	// Backoff stands for all that dlxctl generates for a backoff: the failed queue, the processor,
	// and the retry queues.
	Backoff Kind = "backoff"
	// Waiting is a failed queue, a retry queue, or a generated exchange.
	Waiting Kind = "waiting"
	// Kept is a queue whose messages wait for a person.
	Kept Kind = "kept"
	// Loss is where messages are gone.
	Loss Kind = "loss"
)

// Node is a box. Edges name it by its index.
type Node struct {
	Kind Kind
	// Name is that of the object, and Detail a second line, which may be empty.
	Name, Detail string
}

// Style is what an arrow stands for.
type Style string

// The styles of arrows.
const (
	Route Style = "route" // a binding
	// Alternate is an alternate exchange.
	Alternate Style = "alternate"
	// Dead is a dead letter.
	Dead Style = "dead"
	// Retry goes to a backoff and comes back.
	Retry Style = "retry"
	// Lost is a loss.
	Lost Style = "lost"
)

// Edge is an arrow.
type Edge struct {
	From, To int
	Style    Style
	// Labels are the keys or headers of bindings, and what else is to be said.
	Labels []string
	// Of is the work queue to whose messages the arrow is limited. Empty: any.
	Of string
	// Onward is set on a retry that comes to another queue: one arrow goes to the backoff, and one
	// from there to that queue.
	Onward bool
}

// Graph is what is drawn.
type Graph struct {
	Nodes []Node
	Edges []Edge
}

// Input says what to draw.
type Input struct {
	State topology.State
	// Files are the topologies whose generated objects are known.
	Files []topology.Compiled
	// Queues limits the graph to these queues, what leads there, and all that their messages can
	// reach. Empty: everything.
	Queues []string
	// All draws each generated object instead of one box for each backoff.
	All bool
}

// Make makes the graph.
func Make(in Input) Graph {
	b := builder{
		in: in, survey: survey.New(in.State), index: map[string]int{}, arrows: map[arrow]int{},
		labels: map[string]topology.Label{}, bound: map[string]bool{},
	}
	for _, f := range in.Files {
		work := make(map[string]topology.WorkQueue, len(f.WorkQueues))
		for _, w := range f.WorkQueues {
			work[w.Name] = w
		}
		b.work = append(b.work, work)
		for _, e := range f.Exchanges {
			b.labels["x "+e.Name] = e.Label
		}
		for _, q := range f.Queues {
			b.labels["q "+q.Name] = q.Label
		}
	}
	for _, binding := range in.State.Have.Bindings {
		b.bound[binding.Source] = true
	}
	b.bindings()
	b.queues()
	b.backoffs()
	b.delays()
	b.emptyExchanges()
	if len(in.Queues) > 0 {
		return b.around()
	}
	return b.Graph
}

// builder collects boxes and arrows.
type builder struct {
	Graph
	in     Input
	survey *survey.Survey
	index  map[string]int                  // of boxes, by kind and name
	arrows map[arrow]int                   // of arrows
	labels map[string]topology.Label       // of generated objects
	bound  map[string]bool                 // exchanges with a binding
	work   []map[string]topology.WorkQueue // of each file, by name
}

// arrow is what arrows differ in; labels are joined.
type arrow struct {
	from, to int
	style    Style
	of       string
}

// folded reports whether an object is hidden in the box of its backoff.
func (b *builder) folded(l topology.Label) bool {
	return !b.in.All && slices.Contains([]topology.Role{
		topology.RoleFailed, topology.RoleRetry, topology.RoleReturn, topology.RoleUnroutable,
	}, l.Role)
}

func (b *builder) exchange(name, detail string) int {
	kind := Exchange
	if b.generated("x " + name) {
		kind = Waiting
	}
	return b.node("x "+name, Node{kind, name, detail})
}

func (b *builder) generated(object string) bool {
	role := b.labels[object].Role
	return role != "" && role != topology.RoleBusiness && role != topology.RoleWork
}

func (b *builder) queue(name string) int {
	n := Node{Queue, name, ""}
	if q := b.survey.Queue(name); q != nil {
		kinds := map[topology.Role]Kind{
			topology.RoleDeadLetter: Kept, topology.RoleUnroutable: Kept, topology.RoleParked: Kept,
			topology.RoleFailed: Waiting, topology.RoleRetry: Waiting, survey.Delay: Waiting,
		}
		if kind, ok := kinds[q.Role]; ok {
			n.Kind = kind
		}
	}
	return b.node("q "+name, n)
}

func (b *builder) node(key string, n Node) int {
	if i, ok := b.index[key]; ok {
		return i
	}
	b.index[key] = len(b.Nodes)
	b.Nodes = append(b.Nodes, n)
	return len(b.Nodes) - 1
}

// edge adds an arrow, or a label to an arrow that is there.
func (b *builder) edge(e Edge) {
	key := arrow{e.From, e.To, e.Style, e.Of}
	if i, ok := b.arrows[key]; ok {
		b.Edges[i].Labels = append(b.Edges[i].Labels, e.Labels...)
		return
	}
	b.arrows[key] = len(b.Edges)
	b.Edges = append(b.Edges, e)
}

// bindings adds the exchanges, their bindings and their alternate exchanges.
func (b *builder) bindings() {
	types := map[string]string{}
	for _, e := range b.in.State.Have.Exchanges {
		types[e.Name] = e.Type
		if !b.hides(e.Name) {
			b.exchange(e.Name, e.Type)
		}
	}
	for _, binding := range b.in.State.Have.Bindings {
		if binding.Source == "" || b.hides(binding.Source) || b.folded(b.labels["q "+binding.Destination]) &&
			binding.DestinationType == topology.ToQueue {
			continue
		}
		from := b.exchange(binding.Source, types[binding.Source])
		to := 0
		if binding.DestinationType == topology.ToExchange {
			to = b.exchange(binding.Destination, types[binding.Destination])
		} else {
			to = b.queue(binding.Destination)
		}
		e := Edge{From: from, To: to, Style: Route, Labels: detail(binding)}
		if b.Nodes[from].Kind == Waiting { // it is generated, and its keys are addresses
			e.Of = strings.TrimPrefix(binding.Key, topology.AddressKey(""))
		}
		b.edge(e)
	}
	for _, e := range b.in.State.Have.Exchanges {
		if to, ok := b.survey.Router.Alternate(e.Name); ok && !b.hides(e.Name) {
			b.edge(Edge{
				From: b.exchange(e.Name, e.Type), To: b.exchange(to, types[to]), Style: Alternate,
				Labels: []string{"if none matches"},
			})
		}
	}
}

// hides reports whether an exchange has no box: it is generated.
func (b *builder) hides(exchange string) bool {
	return !b.in.All && b.generated("x "+exchange) || strings.HasPrefix(exchange, "amq.") && !b.bound[exchange]
}

// detail returns the key or the headers of a binding.
func detail(b topology.Binding) []string {
	_, said, found := strings.Cut(b.String(), " (")
	if !found {
		return nil
	}
	return []string{strings.TrimSuffix(said, ")")}
}

// queues adds the queues, and where they dead-letter to.
func (b *builder) queues() {
	for _, q := range b.survey.Queues {
		if b.folded(b.labels["q "+q.Name]) {
			continue
		}
		i := b.queue(q.Name)
		b.Nodes[i].Detail = q.Type()
		if q.DeadLetters {
			b.deadLetters(i, q)
		} else if q.Role == topology.RoleWork {
			b.lost(i, "no dead-letter exchange")
		}
	}
}

// deadLetters adds the way of the dead letters of a queue. Those to generated objects that are
// folded belong to a backoff.
func (b *builder) deadLetters(from int, q *survey.Queue) {
	var labels []string
	if q.To.HasKey && q.To.Exchange != "" && q.To.Key != q.Name { // its own name says nothing new
		labels = append(labels, q.To.Key)
	}
	if !q.To.AtLeastOnce {
		labels = append(labels, atMostOnce)
	}
	to := q.To.Exchange
	switch {
	case !b.in.All && b.generated("x "+to):
		b.folds(from, q, labels)
		return
	case b.survey.Exchange(to) == nil:
		b.lost(from, "exchange "+text.Name(to)+" does not exist")
		return
	case q.ByKey():
		box := b.node("x by name", Node{Exchange, "default exchange", "by name"})
		b.edge(Edge{From: from, To: box, Style: Dead, Labels: labels})
		return
	case to == "":
		for _, name := range q.Targets() {
			b.edge(Edge{From: from, To: b.queue(name), Style: Dead, Labels: labels})
		}
	case !b.hides(to):
		b.edge(Edge{From: from, To: b.exchange(to, ""), Style: Dead, Labels: labels})
	}
	if i := slices.IndexFunc(q.Hops, survey.Hop.Loses); i >= 0 {
		b.lost(from, q.Hops[i].Why())
	}
}

// folds adds the ways of a work queue through its backoff.
func (b *builder) folds(from int, q *survey.Queue, labels []string) {
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == q.To.Key })
	for i, f := range b.in.Files {
		w, ok := b.work[i][q.Name]
		if !ok {
			continue
		}
		dead := b.queue(w.DeadLetterQueue)
		backoff, ok := f.Backoff(w.Backoff)
		if !ok {
			backoff, ok = f.NativeBackoff(w.Backoff)
		}
		if ok && len(backoff.Tiers) > 0 {
			box := b.node("b "+f.Name+" "+w.Backoff, Node{Backoff, "backoff " + w.Backoff, tiers(backoff)})
			b.edge(Edge{From: from, To: box, Style: Retry, Labels: labels, Of: q.Name, Onward: w.RetryTo != ""})
			if w.RetryTo != "" {
				b.edge(Edge{From: box, To: b.queue(w.RetryTo), Style: Retry, Of: q.Name, Onward: true})
			}
			b.edge(Edge{From: box, To: dead, Style: Dead, Of: q.Name})
			return
		}
		b.edge(Edge{From: from, To: dead, Style: Dead, Labels: labels, Of: q.Name})
	}
}

// tiers lists the delays of a backoff.
func tiers(b topology.Backoff) string {
	const most = 6
	out := text.Each(b.Tiers, func(t topology.Tier) string { return text.Duration(t.Delay) })
	if b.Outage != nil {
		out = append(out, "outage")
	}
	return text.FirstOf(out, most)
}

// backoffs adds what the processor does, where each object is drawn.
func (b *builder) backoffs() {
	if !b.in.All {
		return
	}
	for _, f := range b.in.Files {
		for _, l := range f.Backoffs {
			if _, drawn := b.index["q "+l.FailedQueue]; drawn && b.survey.Exchange(l.RetryExchange) != nil {
				b.edge(Edge{
					From: b.queue(l.FailedQueue), To: b.exchange(l.RetryExchange, ""), Style: Dead,
					Labels: []string{"processor"},
				})
			}
		}
	}
}

// delays adds where the processor publishes the messages of delays. Without the generated objects,
// the exchange that publishers use stands for all that the delay has.
func (b *builder) delays() {
	for _, f := range b.in.Files {
		for _, d := range f.Delays {
			to := b.survey.Exchange(d.To)
			if to == nil || b.survey.Exchange(d.Name) == nil {
				continue
			}
			due := Edge{To: b.exchange(d.To, to.Type), Style: Route, Labels: []string{"when it is due"}}
			if !b.in.All {
				due.From = b.exchange(d.Name, "delay")
				b.edge(due)
				continue
			}
			for _, queue := range d.Queues() {
				due.From = b.queue(queue)
				b.edge(due)
				b.edge(Edge{
					From: due.From, To: b.exchange(d.LevelExchange, topology.Headers), Style: Dead, Labels: []string{"processor"},
				})
			}
		}
	}
}

// lost adds a loss behind a box.
func (b *builder) lost(from int, why string) {
	n := b.Nodes[from]
	to := b.node(fmt.Sprintf("l %s %s", n.Kind, n.Name), Node{Loss, "lost", why})
	b.edge(Edge{From: from, To: to, Style: Lost})
}

// emptyExchanges adds the losses of exchanges that lead nowhere.
func (b *builder) emptyExchanges() {
	leads := make([]bool, len(b.Nodes))
	for _, e := range b.Edges {
		leads[e.From] = true
	}
	for i, n := range b.Nodes {
		if n.Kind == Exchange && !leads[i] && slices.Contains(topology.ExchangeTypes(), n.Detail) {
			b.lost(i, "no binding")
		}
	}
}

// around returns the part of the graph around some queues: what leads to them, and all that their
// messages can reach.
func (b *builder) around() Graph {
	keep, chosen := map[int]bool{}, map[string]bool{}
	for _, name := range b.in.Queues {
		if i, ok := b.index["q "+name]; ok {
			keep[i] = true
			b.choose(chosen, name)
		}
	}
	edges := map[int]bool{}
	walk := func(next func(Edge) (from, to int), anyOf bool) {
		leaving := make([][]int, len(b.Nodes)) // the arrows, by the box that they are followed from
		for i, e := range b.Edges {
			if from, _ := next(e); from >= 0 && (e.Of == "" || chosen[e.Of] || anyOf && e.Onward) {
				leaving[from] = append(leaving[from], i)
			}
		}
		todo := slices.Collect(maps.Keys(keep))
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			for _, i := range leaving[at] {
				edges[i] = true
				if _, to := next(b.Edges[i]); !keep[to] {
					keep[to], todo = true, append(todo, to)
				}
			}
		}
	}
	start := make(map[int]bool, len(keep))
	for i := range keep {
		start[i] = true
	}
	walk(func(e Edge) (int, int) { return e.From, e.To }, false)
	reached := keep
	keep = start
	walk(func(e Edge) (int, int) {
		if e.Style != Route && e.Style != Alternate && !e.Onward || b.Nodes[e.From].Kind == Waiting {
			return -1, -1
		}
		return e.To, e.From
	}, true)
	for i := range reached {
		keep[i] = true
	}
	return b.only(keep, edges)
}

// choose adds a queue, and those to which its messages come by retryTo.
func (b *builder) choose(chosen map[string]bool, queue string) {
	for queue != "" && !chosen[queue] {
		chosen[queue] = true
		for _, work := range b.work {
			if w, ok := work[queue]; ok {
				queue = w.RetryTo
				break
			}
		}
	}
}

// only returns the graph with some of its boxes and arrows.
func (b *builder) only(nodes, edges map[int]bool) Graph {
	var out Graph
	moved := map[int]int{}
	for i, n := range b.Nodes {
		if nodes[i] {
			moved[i] = len(out.Nodes)
			out.Nodes = append(out.Nodes, n)
		}
	}
	for i, e := range b.Edges {
		if edges[i] {
			e.From, e.To = moved[e.From], moved[e.To]
			out.Edges = append(out.Edges, e)
		}
	}
	slices.SortStableFunc(out.Edges, func(a, b Edge) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	return out
}
