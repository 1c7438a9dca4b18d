package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// references checks what one part of the files says of another, now that all
// are read.
func (d *decoder) references() {
	for i := range d.spec.Exchanges {
		e := &d.spec.Exchanges[i]
		d.sources(e.Bindings, fmt.Sprintf("exchange %q", e.Name))
	}
	uses := map[string][]*Queue{}
	unfinished := false // a queue is left alone: a person may give it a backoff later
	for i := range d.spec.Queues {
		q := &d.spec.Queues[i]
		d.sources(q.Bindings, fmt.Sprintf("queue %q", q.Name))
		if !q.Unmanaged {
			d.retriesTo(q)
			uses[q.Backoff] = append(uses[q.Backoff], q)
		} else {
			unfinished = true
		}
	}
	for _, m := range d.spec.Matches { // any number of queues
		q := &Queue{Name: fmt.Sprintf("a queue that %q covers", m.Pattern), Backoff: m.Backoff, Pos: m.Pos}
		uses[m.Backoff] = append(uses[m.Backoff], q)
	}
	d.undeclaredExchanges()
	d.delaysTo()
	d.replaced()
	if len(d.spec.Queues) == 0 && len(d.spec.Delays) == 0 && len(d.spec.Matches) == 0 && len(d.problems) == 0 {
		d.warn(d.spec.NamePos, topology.WarnNoQueues, d.spec.Name, fmt.Sprintf("the topology %q has no queues", d.spec.Name),
			"apply creates no queue, and deletes the queues that it created earlier")
	}
	for _, b := range d.spec.Backoffs {
		// A slip elsewhere is why, if there is one.
		if !unfinished && len(uses[b.Name]) == 0 && len(d.problems) == 0 {
			msg := fmt.Sprintf("the backoff %q is used by no queue", b.Name)
			if over := slices.Sorted(maps.Keys(d.overlays)); len(over) > 0 { // one may be why
				msg += " with " + text.Choose(len(over), "the overlay ", "the overlays ") + text.List(over)
			}
			d.warn(b.Pos, topology.WarnUnusedBackoff, b.Name, msg, "dlxctl creates nothing for it")
		}
		d.ownBackoff(b, uses[b.Name])
	}
}

// replaced refuses to move a legacy queue that the file declares too, or to two
// places.
func (d *decoder) replaced() {
	by := map[string]string{}
	for _, q := range d.spec.Queues {
		if q.Replaces == "" || q.Replaces == q.Name {
			continue
		}
		if legacy, declared := d.queue(q.Replaces); declared {
			d.problem(q.ReplacesPos,
				fmt.Sprintf("queue %q replaces %q, which is declared too (line %d)", q.Name, q.Replaces, legacy.Pos.Line),
				"a legacy queue must not be declared: remove one of the two")
		}
		if other, twice := by[q.Replaces]; twice {
			d.problem(q.ReplacesPos, fmt.Sprintf("queue %q replaces %q, as %q does", q.Name, q.Replaces, other),
				"a legacy queue has one successor: remove one of the two")
		}
		by[q.Replaces] = q.Name
	}
}

// native reports whether RabbitMQ does the retries of a backoff.
func (d *decoder) native(backoff string) bool {
	b, _ := d.backoff(backoff)
	return b.Native
}

// ownBackoff refuses to share a backoff with a queue that may be full: while it
// refuses messages, at-least-once dead-lettering holds up the whole tier.
func (d *decoder) ownBackoff(b Backoff, queues []*Queue) {
	if len(queues) < 2 || b.Native { // each has its own delays
		return
	}
	told := map[Pos]bool{} // the places in defaults and overlays
	for _, q := range d.receivers(queues) {
		arg, full := mayBeFull(q)
		if !full {
			continue
		}
		i := slices.IndexFunc(queues, func(o *Queue) bool { return d.receiver(o).Name != q.Name })
		if i < 0 {
			continue // it holds up nothing but the retries that come to it
		}
		pos, common := d.lengths[length{q.Name, arg}]
		if !common {
			pos = q.Pos
		} else if told[pos] {
			continue
		}
		told[pos] = true
		shares, fix := "shares the backoff %q with %q", "give it a backoff of its own"
		if q.Backoff != b.Name {
			shares, fix = "gets retries of the backoff %q, as %q does", "give the queues that retry to it a backoff of their own"
		}
		d.problem(pos, fmt.Sprintf("queue %q has %s and "+shares, q.Name, arg, b.Name, d.receiver(queues[i]).Name),
			"while it is full it would delay the retries of the other queues: "+fix)
	}
}

// receiver returns the queue to which the retries of q come.
func (d *decoder) receiver(q *Queue) *Queue {
	if to, ok := d.queue(q.RetryTo); ok && q.RetryTo != "" {
		return to
	}
	return q
}

// receivers returns the queues to which the retries of queues come, each once.
func (d *decoder) receivers(queues []*Queue) []*Queue {
	seen := map[string]bool{}
	var out []*Queue
	for _, q := range queues {
		if q = d.receiver(q); !seen[q.Name] {
			seen[q.Name] = true
			out = append(out, q)
		}
	}
	return out
}

// retriesTo refuses a retryTo to which no message would come, or whose queue may go: when a
// migration is aborted, messages that wait for the successor would have no queue.
func (d *decoder) retriesTo(q *Queue) {
	if q.RetryToPos == (Pos{}) || d.full() {
		return
	}
	to, ok := d.queue(q.RetryTo)
	b, known := d.backoff(q.Backoff)
	what := fmt.Sprintf("queue %q has retryTo %q", q.Name, q.RetryTo)
	switch {
	case !ok:
		var names []string
		for _, o := range d.spec.Queues {
			if o.Name != q.Name && !o.Unmanaged {
				names = append(names, o.Name)
			}
		}
		d.problem(q.RetryToPos, what+", and the file has no queue of that name",
			d.didYouMean(q.RetryTo, names, "name a queue of the file, or add it (external: true if a service declares it)"))
	case to.Name == q.Name:
		d.problem(q.RetryToPos, what+", which is the queue itself",
			"remove it: messages come back to their own queue without it")
	case to.Unmanaged:
		d.problem(q.RetryToPos, what+", whose deadLetterBy is unmanaged",
			"write deadLetterBy: policy or deadLetterBy: arguments on that queue, or name another one")
	case to.Replaces != "":
		d.problem(q.RetryToPos, fmt.Sprintf("%s, which replaces %q", what, to.Replaces),
			"remove retryTo until the migration is done and replaces is removed: messages come back to their own queue until then")
	case d.native(to.Backoff) && !d.native(q.Backoff):
		d.problem(q.RetryToPos, fmt.Sprintf("%s, whose backoff %q has engine: native", what, to.Backoff),
			"its attempts would not go on to count: give that queue a backoff with engine: processor, or name another queue")
	case q.Backoff == topology.NoBackoff, known && len(b.Tiers) == 0:
		d.problem(q.RetryToPos, fmt.Sprintf("%s, and its backoff %q retries nothing", what, q.Backoff),
			"give the queue a backoff with tiers, or remove retryTo; to collect dead letters elsewhere, write dead: {queue: NAME}")
	}
}

// mayBeFull returns the argument by which a queue may refuse what comes back to it.
func mayBeFull(q *Queue) (string, bool) {
	overflow, _ := q.Arguments[topology.ArgOverflow].(string)
	if q.Type == topology.Classic && overflow != topology.RejectPublish && overflow != "reject-publish-dlx" {
		return "", false // it drops its oldest message, and refuses none
	}
	for _, name := range []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes} {
		if _, ok := q.Arguments[name]; ok {
			return name, true
		}
	}
	return "", false
}

// sources checks the bindings of one destination against the exchanges they
// come from.
func (d *decoder) sources(bindings []Binding, what string) {
	seen := map[string]bool{}
	for i := range bindings {
		b := &bindings[i]
		e, ok := d.exchange(b.Exchange)
		if !ok {
			d.undeclared(*b)
			continue
		}
		d.fits(b, e)
		for _, key := range b.Keys {
			id := topology.Binding{Source: b.Exchange, Key: key, Arguments: b.Arguments}
			if seen[id.Identity()] {
				d.problem(b.Pos, fmt.Sprintf("%s is bound to %q twice in the same way (key %q)", what, b.Exchange, key), "keep one")
			}
			seen[id.Identity()] = true
		}
	}
}

// undeclared notes a binding from an exchange that no file declares.
func (d *decoder) undeclared(b Binding) {
	if d.missing == nil {
		d.missing = map[string][]Pos{}
	}
	d.missing[b.Exchange] = append(d.missing[b.Exchange], b.Pos)
}

// undeclaredExchanges reports each exchange that bindings name and no file declares,
// once, with the places of its bindings.
func (d *decoder) undeclaredExchanges() {
	names := text.Each(d.spec.Exchanges, func(e Exchange) string { return e.Name })
	for _, name := range slices.Sorted(maps.Keys(d.missing)) {
		if d.full() {
			return
		}
		places := d.missing[name]
		msg := fmt.Sprintf("binding comes from exchange %q, which is not declared", name)
		if len(places) > 1 {
			msg += fmt.Sprintf("; %d more bindings do: %s", len(places)-1, linesOf(places[0].File, places[1:]))
		}
		otherwise := "declare it under exchanges, with external: true if another team manages it"
		d.problem(places[0], msg, d.didYouMean(name, names, otherwise))
	}
}

// linesOf names the lines of places, and the file where it is another.
func linesOf(file string, places []Pos) string {
	const shown = 10
	var lines []string
	for _, p := range places[:min(len(places), shown)] {
		line := fmt.Sprintf("line %d", p.Line)
		if p.File != file {
			line = fmt.Sprintf("%s:%d", p.File, p.Line)
		}
		lines = append(lines, line)
	}
	if len(places) > shown {
		lines = append(lines, "…")
	}
	return strings.Join(slices.Compact(lines), ", ")
}

// fits checks that a binding says what the type of its exchange asks for, and
// gives bindings without a key an empty one.
func (d *decoder) fits(b *Binding, e Exchange) {
	headers, by, typ := len(b.Arguments) > 0 && !b.Raw, "", e.Type
	if e.TypeBy != (Pos{}) {
		by = fmt.Sprintf(", by %s,", e.TypeBy)
		typ += strings.TrimSuffix(by, ",")
	}
	switch {
	case headers && e.Type != topology.Headers && e.Type != "":
		d.problem(b.Pos, fmt.Sprintf("binding has headers, but exchange %q is of type %s", e.Name, typ),
			"only headers exchanges match headers: write key, or change the type")
	case e.Type == topology.Headers && !headers && !b.Raw:
		d.problem(b.Pos, fmt.Sprintf("binding comes from the headers exchange %q%s and has no headers", e.Name, by),
			"add headers: {name: value}; headers: {} matches every message")
	case b.Keys == nil && !headers && e.Type != topology.Headers && e.Type != topology.Fanout && e.Type != "":
		d.problem(b.Pos, fmt.Sprintf("binding has no key, and exchange %q is of type %s", e.Name, typ),
			`add key; on a topic exchange "#" matches every message`)
	}
	keyed := slices.ContainsFunc(b.Keys, func(key string) bool { return key != "" })
	if keyed && e.Type == topology.Fanout && len(b.Arguments) == 0 {
		d.warn(b.Pos, topology.WarnIgnoredKey, e.Name,
			fmt.Sprintf("binding has a key, and exchange %q is of type %s", e.Name, typ),
			"a fanout exchange ignores keys: remove the key, or change the type")
	}
	if b.Keys == nil {
		b.Keys = []string{""}
	}
}
