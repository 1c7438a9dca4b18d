package importer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// writer writes the files of a view.
type writer struct {
	view

	out strings.Builder
	err error
}

// width is how long lines of comments and of lists become. A longer name or value stays whole.
const width = 100

func (w *writer) files() ([]File, error) {
	parts := w.split()
	var out []File
	for i, p := range parts {
		w.out.Reset()
		w.head(i == 0)
		w.exchangeList(p.exchanges)
		w.queueList(p.queues)
		if i == 0 {
			w.tail()
		}
		out = append(out, File{Name: p.name, Data: []byte(w.out.String())})
	}
	return out, w.err
}

// raw writes one line at a depth.
func (w *writer) raw(depth int, s string) {
	if s != "" {
		w.out.WriteString(strings.Repeat("  ", depth))
	}
	w.out.WriteString(s + "\n")
}

// set writes a key with its value on one line.
func (w *writer) set(depth int, key string, value *yaml.Node) {
	s, err := line(key, value)
	w.keep(err)
	w.raw(depth, s)
}

// item writes the first line of an entry of a list.
func (w *writer) item(depth int, key string, value *yaml.Node) {
	s, err := line(key, value)
	w.keep(err)
	w.raw(depth, "- "+s)
}

func (w *writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// words returns the words of prose for a comment. YAML allows no control characters in one, but a
// name that the prose tells may have some.
func words(prose string) []string {
	out := strings.Fields(prose)
	for i, word := range out {
		out[i] = topology.Printable(word)
	}
	return out
}

// comment writes prose in lines that are not too long.
func (w *writer) comment(depth int, prose string) {
	rest := words(prose)
	for len(rest) > 0 {
		s := "#"
		for len(rest) > 0 && (s == "#" || len(s)+1+len(rest[0])+2*depth <= width) {
			s, rest = s+" "+rest[0], rest[1:]
		}
		w.raw(depth, s)
	}
}

// advise writes a comment with lines to uncomment.
func (w *writer) advise(depth int, a advice) {
	w.comment(depth, a.prose)
	for _, m := range a.lines {
		s, err := line(m.key, m.value)
		w.keep(err)
		w.raw(depth, "# "+s)
	}
}

func (w *writer) head(first bool) {
	if !first {
		w.comment(0, "Part of the topology "+w.options.Name+": its other files, such as topology.yaml, belong to it.")
		w.raw(0, "version: 1")
		return
	}
	w.intro()
	w.raw(0, "")
	w.raw(0, "version: 1")
	w.set(0, "name", textNode(w.options.Name))
	if w.state.VHost != "" {
		w.set(0, "vhost", textNode(w.state.VHost))
	}
	w.raw(0, "")
	w.raw(0, "defaults:")
	if w.adopt {
		w.raw(1, "deadLetterBy: policy")
		w.raw(1, "backoff: "+standardBackoff)
	} else {
		w.comment(1, "dlxctl sets no dead-lettering on a queue that does not ask for it.")
		w.raw(1, "deadLetterBy: unmanaged")
	}
	w.raw(0, "")
	if !w.quorum { // no queue of it has retries
		w.backoffs()
	}
}

// intro says what the file is, and what it does.
func (w *writer) intro() {
	from := "a broker"
	if w.state.Version != "" {
		from = "RabbitMQ " + w.state.Version
	}
	if w.options.Origin != "" {
		from = quoted(w.options.Origin)
	}
	vhost := "The virtual host"
	if w.state.VHost != "" {
		vhost += " " + quoted(w.state.VHost)
	}
	w.comment(0, fmt.Sprintf("%s of %s, as 'dlxctl import' found it.", vhost, from))
	w.raw(0, "#")
	if w.quorum {
		w.quorumIntro()
		return
	}
	if w.adopt {
		w.comment(0, "With this file, dlxctl declares the queues and exchanges, and gives the work queues retries and dead-letter queues. 'dlxctl plan' shows what that changes on the broker, and what is blocked.")
	} else {
		w.comment(0, "This file changes nothing: 'dlxctl plan' shows no changes. Every queue and exchange is external, and keeps the dead-lettering that it has. To improve a queue, uncomment the lines at it, and run 'dlxctl plan'.")
	}
	w.notes()
}

// notes says once what the comments of several queues rely on.
func (w *writer) notes() {
	policies, successors := 0, 0
	for _, q := range w.queues {
		if w.survey.Queue(q.Name).Role != topology.RoleWork {
			continue
		}
		if _, ok := w.policies.For(q); ok && !byArgument(q) {
			policies++
		}
		if byArgument(q) && w.manageable(q) {
			successors++
		}
	}
	count := map[survey.Fate]int{}
	for name, fate := range w.survey.Fates() {
		if w.options.Match == nil || w.options.Match.MatchString(name) {
			count[fate]++
		}
	}
	if len(count) > 0 {
		w.raw(0, "#")
		w.comment(0, fmt.Sprintf("Today %s. 'dlxctl audit' says more.", survey.Score(count)))
	}
	if !w.adopt {
		w.raw(0, "#")
		w.comment(0, "A queue that gets a backoff here gets a dead-letter queue too: its name with .dead, unless dead says otherwise.")
	}
	if policies > 0 {
		w.raw(0, "#")
		w.comment(0, "RabbitMQ applies one policy to a queue. The policy of dlxctl repeats the keys of the policy that a queue has now, and overrides it for that queue.")
	}
	if successors > 0 && w.adopt {
		w.raw(0, "#")
		w.comment(0, "RabbitMQ cannot change an argument of a queue, and an argument overrides every policy. Such a queue needs a successor with another name. 'dlxctl migrate QUEUE --write' edits this file for that.")
	} else if successors > 0 {
		w.raw(0, "#")
		w.comment(0, "RabbitMQ cannot change an argument of a queue, and an argument overrides every policy. Such a queue needs a successor with another name: 'dlxctl apply' creates it, and 'dlxctl migrate' moves bindings and messages. The successor is a quorum queue where its arguments allow that.")
	}
}

// backoffs writes the retry schedules that comments propose.
func (w *writer) backoffs() {
	w.raw(0, "backoff:")
	w.comment(1, "A message that fails waits 10 seconds, then a minute, then ten. Then it is a dead letter.")
	w.set(1, standardBackoff, standardTiers())
	if delays := w.delays; len(delays) > 0 {
		w.handBackoff(delays)
	}
	for i, q := range w.mayBeFull() {
		if i == 0 {
			w.comment(1, "A queue with a limit has a backoff of its own: while it is full, it would delay the retries of others.")
		}
		w.set(1, w.ownBackoff(q), standardTiers())
	}
	if slices.ContainsFunc(w.queues, func(q topology.Queue) bool { return w.manageable(q) && w.state.TakesNative(q) }) {
		w.comment(1, fmt.Sprintf("RabbitMQ %s retries itself, without a processor, in a quorum queue that keeps its name and has deadLetterBy: policy, with the backoff:", w.state.Version))
		w.comment(1, "native: {engine: native, linear: {first: 10s, attempts: 5, max: 1m}}")
	}
	w.raw(0, "")
}

func standardTiers() *yaml.Node { return tiersNode(textsNode([]string{"10s", "1m", "10m"})) }

// handBackoff writes the backoff that waits as long as retry queues do.
func (w *writer) handBackoff(delays []time.Duration) {
	tiers := text.Each(delays, func(d time.Duration) *yaml.Node { return textNode(text.Duration(d)) })
	w.comment(1, "It waits as long as the retry queues that exist now.")
	if len(tiers) == 1 {
		tiers = []*yaml.Node{mapNode(member{"delay", tiers[0]}, member{"attempts", valueNode(int64(5))})}
	}
	w.set(1, handBackoff, tiersNode(listNode(tiers...)))
}

func tiersNode(tiers *yaml.Node) *yaml.Node { return mapNode(member{"tiers", tiers}) }

func (w *writer) exchangeList(list []topology.Exchange) {
	if len(list) == 0 {
		return
	}
	w.raw(0, "exchanges:")
	for _, e := range list {
		w.exchange(e)
	}
	w.raw(0, "")
}

// exchange writes an exchange: on one line if it has no bindings.
func (w *writer) exchange(e topology.Exchange) {
	members := []member{{"name", textNode(e.Name)}, {"type", textNode(e.Type)}}
	_, marked := topology.Owner(e.Arguments)
	if !w.adopt || marked || strings.HasPrefix(e.Name, "amq.") {
		members = append(members, member{"external", trueNode()})
	} else {
		if e.Internal {
			members = append(members, member{"internal", trueNode()})
		}
		if len(e.Arguments) > 0 {
			members = append(members, member{"arguments", argumentsNode(e.Arguments)})
		}
	}
	bindings := w.into[topology.Key{Kind: topology.KindExchange, Name: e.Name}]
	if len(bindings) == 0 {
		s, err := inline(mapNode(members...))
		w.keep(err)
		w.raw(1, "- "+s)
		return
	}
	w.item(1, members[0].key, members[0].value)
	for _, m := range members[1:] {
		w.set(2, m.key, m.value)
	}
	w.bindings(bindings)
}

func (w *writer) queueList(list []topology.Queue) {
	if len(list) == 0 {
		return
	}
	w.raw(0, "queues:")
	for i, q := range w.grouped(list) {
		if i > 0 {
			w.raw(0, "")
		}
		w.queue(q)
	}
}

// grouped sorts queues: by the exchange that most of their bindings come from, then by name.
// Queues without bindings come last.
func (w *writer) grouped(list []topology.Queue) []topology.Queue {
	source := map[string]string{}
	for _, q := range list {
		counts := map[string]int{}
		best := ""
		for _, b := range w.into[queueKey(q.Name)] {
			counts[b.Source]++
			if n := counts[b.Source]; best == "" || n > counts[best] || n == counts[best] && b.Source < best {
				best = b.Source
			}
		}
		source[q.Name] = best
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b topology.Queue) int {
		x, y := source[a.Name], source[b.Name]
		switch {
		case x == y:
			return strings.Compare(a.Name, b.Name)
		case x == "":
			return 1
		case y == "":
			return -1
		default:
			return strings.Compare(x, y)
		}
	})
	return list
}

func (w *writer) queue(q topology.Queue) {
	w.item(1, "name", textNode(q.Name))
	if w.quorum {
		w.quorumQueue(q)
		w.bindings(w.into[queueKey(q.Name)])
		return
	}
	w.advise(2, w.adviceFor(q))
	if w.adopt {
		w.full(q)
	} else {
		w.set(2, "external", trueNode())
	}
	w.bindings(w.into[queueKey(q.Name)])
}

// full writes what declares a queue: its type and its arguments.
func (w *writer) full(q topology.Queue) {
	if q.Type() == topology.Classic {
		w.set(2, "type", textNode(topology.Classic))
	}
	args, limit, _ := declared(q)
	if !w.manageable(q) {
		args = q.Arguments.Without(topology.ArgQueueType, topology.ArgDeliveryLimit)
		w.set(2, "deadLetterBy", textNode("unmanaged"))
	} else {
		if backoff := w.backoffFor(q); backoff != standardBackoff {
			w.set(2, "backoff", textNode(backoff))
		}
		for _, m := range w.deadFor(q, w.survey.Queue(q.Name)) {
			w.set(2, m.key, m.value)
		}
	}
	if limit != nil {
		w.set(2, "deliveryLimit", valueNode(*limit))
	}
	if len(args) > 0 {
		w.set(2, "arguments", argumentsNode(args))
	}
}

// bindings writes the bindings of a queue or an exchange. Those from one exchange that differ in
// their keys alone are one entry.
func (w *writer) bindings(list []topology.Binding) {
	if len(list) == 0 {
		return
	}
	w.raw(2, "bindings:")
	for i := 0; i < len(list); {
		j := i + 1
		for len(list[i].Arguments) == 0 && j < len(list) && list[j].Source == list[i].Source && len(list[j].Arguments) == 0 {
			j++
		}
		w.binding(list[i], list[i:j])
		i = j
	}
}

// binding writes one entry, for bindings from one exchange.
func (w *writer) binding(b topology.Binding, same []topology.Binding) {
	kind := ""
	if i := slices.IndexFunc(w.exchanges, func(e topology.Exchange) bool { return e.Name == b.Source }); i >= 0 {
		kind = w.exchanges[i].Type
	}
	members := []member{{"exchange", textNode(b.Source)}}
	var keys []string
	for _, other := range same {
		keys = append(keys, other.Key)
	}
	keyless := (kind == topology.Fanout || kind == topology.Headers) && len(keys) == 1 && keys[0] == ""
	switch {
	case keyless:
	case len(keys) == 1:
		members = append(members, member{"key", textNode(keys[0])})
	default:
		members = append(members, member{"keys", textsNode(keys)})
	}
	matches := matching(kind, b.Arguments)
	members = append(members, matches...)
	s, err := inline(mapNode(members...))
	w.keep(err)
	if len(s)+2*4 <= width || len(keys) < 2 {
		w.raw(3, "- "+s)
		return
	}
	w.item(3, members[0].key, members[0].value)
	w.raw(4, "keys:")
	for _, key := range keys {
		s, err := inline(textNode(key))
		w.keep(err)
		w.raw(5, "- "+s)
	}
	for _, m := range matches {
		w.set(4, m.key, m.value)
	}
}

// matching returns the arguments of a binding: as match and headers where these say it, and
// otherwise as they are.
func matching(kind string, args topology.Arguments) []member {
	if kind != topology.Headers && len(args) == 0 {
		return nil
	}
	match, _ := args[topology.ArgMatch].(string)
	headers := args.WithoutX()
	if kind == topology.Headers && (match == "all" || match == "any" && len(headers) > 0) && len(headers) == len(args)-1 {
		return []member{{"match", textNode(match)}, {"headers", argumentsNode(headers)}}
	}
	return []member{{"arguments", argumentsNode(args)}}
}
