package spec

import (
	"fmt"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// queues reads the work queues of one file.
func (d *decoder) queues(f fields) {
	keys := queueKeys()
	for _, n := range d.list(f, "queues") {
		if d.full() || !d.room(n, "queues", len(d.spec.Queues)) {
			break
		}
		x := d.fields(n, "queue", keys, nil)
		if _, matches := x.values["match"]; matches {
			d.match(x)
			continue
		}
		name, ok := d.text(x, "name")
		if !ok {
			d.nameless(x)
			continue
		}
		q := Queue{
			Name: name, Type: d.defaults.typ, External: d.truth(x, "external"), Severity: topology.SeverityTicket,
			Pos: d.pos(x, "name"),
		}
		if q.External {
			q.Type = ""
		}
		d.objectName(q.Pos, "queue", name, false)
		if first, ok := d.queue(name); ok {
			d.problem(q.Pos, fmt.Sprintf("queue %q is already defined at %s:%d", name, first.Pos.File, first.Pos.Line),
				"keep one of them")
			continue
		}
		if t, ok := d.word(x, "type", []string{topology.Quorum, topology.Classic}); ok {
			q.Type = t
		}
		d.deadLetterBy(&q, x)
		d.inherit(x, q)
		if s, rules, ok := d.severity(x); ok {
			q.Severity, q.SeverityRules = s, rules
		}
		d.replaces(&q, x)
		q.Replace = d.truth(x, "replace")
		d.external(q, x)
		d.unmanaged(q, x)
		q.Owner, _ = d.text(x, "owner")
		if !q.External {
			q.Arguments = d.queueArguments(x, q)
		}
		d.deliveryLimit(&q, x)
		if !q.Unmanaged {
			q.Backoff = d.queueBackoff(x)
			q.Dead = d.dead(x, Dead{Queue: topology.DeadLetterQueueName(name), Pos: d.pos(x, "name")})
			if to, ok := d.text(x, "retryTo"); ok {
				q.RetryTo, q.RetryToPos = to, d.pos(x, "retryTo")
			}
			d.unheardSeverity(q, x)
			d.nativeQueue(&q, x)
		}
		q.Bindings = d.bindingList(x)
		q.Messages = d.queueMessages(x, name)
		q.Overlay = d.overlaidQueue(x)
		d.places.queues[name] = len(d.spec.Queues)
		d.spec.Queues = append(d.spec.Queues, q)
	}
}

// queue returns the queue of that name as far as it was read, until the next one is.
func (d *decoder) queue(name string) (*Queue, bool) {
	i, ok := d.places.queues[name]
	if !ok {
		return nil, false
	}
	return &d.spec.Queues[i], true
}

// replaces reads the name of the legacy queue. That it is not declared too is
// checked when all queues are read.
func (d *decoder) replaces(q *Queue, f fields) {
	legacy, ok := d.text(f, "replaces")
	if !ok {
		return
	}
	q.Replaces, q.ReplacesPos = legacy, d.pos(f, "replaces")
	switch legacy {
	case "":
		d.problem(q.ReplacesPos, "replaces is empty", "write the name of the legacy queue, or remove it")
	case q.Name:
		d.problem(q.ReplacesPos, fmt.Sprintf("queue %q replaces itself", q.Name),
			"choose another name for the successor; with deadLetterBy: policy no successor is needed")
	}
}

// The values of deadLetterBy.
const (
	byArguments = "arguments"
	byPolicy    = "policy"
	unmanaged   = "unmanaged"
)

// deadLetterBy reads what sets the dead-lettering of q. An external queue gets a policy, unless
// the file leaves its dead-lettering alone.
func (d *decoder) deadLetterBy(q *Queue, f fields) {
	by, given := d.word(f, "deadLetterBy", deadLetterWords())
	if !given {
		by = d.defaults.deadLetterBy
		if q.External && by != unmanaged {
			by = byPolicy
		}
	}
	q.ByPolicy, q.Unmanaged = by == byPolicy, by == unmanaged
}

// unmanaged refuses what only the dead-lettering of dlxctl gives a meaning to. A backoff in
// defaults is for the other queues.
func (d *decoder) unmanaged(q Queue, f fields) {
	if !q.Unmanaged {
		return
	}
	keys := []string{"backoff", "dead", "replaces", "retryTo"}
	if q.External {
		keys = append(keys, "deliveryLimit")
	}
	for _, key := range keys {
		if v, ok := f.values[key]; ok {
			d.problem(d.at(v.key), fmt.Sprintf("queue %q has %s, and its deadLetterBy is unmanaged", q.Name, key),
				"write deadLetterBy: policy or deadLetterBy: arguments on the queue, or remove the key")
		}
	}
}

// external refuses what cannot be said of a queue that a service declares.
func (d *decoder) external(q Queue, f fields) {
	if !q.External {
		return
	}
	if !q.ByPolicy && !q.Unmanaged {
		d.problem(d.pos(f, "deadLetterBy"),
			fmt.Sprintf("queue %q is external, and its dead-lettering would come from arguments", q.Name),
			"only the service that declares the queue can set its arguments: write deadLetterBy: policy, or remove the key")
	}
	for _, key := range []string{"arguments", "replaces", "replace"} {
		if v, ok := f.values[key]; ok {
			d.problem(d.at(v.key), fmt.Sprintf("queue %q is external and has %s", q.Name, key),
				"the service that declares the queue sets it: remove it, or remove external: true")
		}
	}
}

// queueBackoff returns the name of a queue's backoff, "" after a problem.
func (d *decoder) queueBackoff(f fields) string {
	name, pos := d.defaults.backoff, d.defaults.pos
	if _, own := f.values["backoff"]; own {
		var ok bool
		if name, ok = d.text(f, "backoff"); !ok {
			return ""
		}
		pos = d.pos(f, "backoff")
	}
	if name == "" {
		by, gone := d.removedKey(f.node, "backoff")
		if !gone {
			by = pos
		}
		switch {
		case d.mentions(f.node, "backoff"):
		case by != Pos{}:
			d.problem(by, fmt.Sprintf("because of this null the queue at %s has no backoff, and defaults has none", d.at(f.node)),
				"remove the null, or add backoff: NAME to the queue, or backoff: none to dead-letter messages at once")
		default:
			d.problem(d.at(f.node), "queue has no backoff, and defaults has none",
				"add backoff: NAME, or backoff: none to dead-letter messages at once")
		}
		return ""
	}
	if _, ok := d.backoff(name); !ok && name != topology.NoBackoff {
		names := []string{topology.NoBackoff}
		for _, b := range d.spec.Backoffs {
			names = append(names, b.Name)
		}
		if by, gone := d.goneBackoffs[name]; gone {
			d.problem(by, fmt.Sprintf("this null removes the backoff %q, which %s names", name, pos),
				"keep the backoff, or name another one there: "+text.Or(names))
			return ""
		}
		d.problem(pos, fmt.Sprintf("there is no backoff %q", name),
			d.didYouMean(name, names, "write "+text.Or(names)+", or add it under backoff"))
		return ""
	}
	return name
}

func (d *decoder) deliveryLimit(q *Queue, f fields) {
	if v, ok := f.values["deliveryLimit"]; ok && q.Type == topology.Classic {
		by := ""
		if at := d.pos(f, "type"); at.File != d.at(v.key).File { // that of an overlay
			by = fmt.Sprintf(", by %s,", at)
		}
		d.problem(d.at(v.key), fmt.Sprintf("queue %q is classic%s and has a deliveryLimit", q.Name, by),
			"only quorum queues count deliveries: remove it, or write type: quorum")
		return
	}
	if limit, ok := d.limit(f); ok {
		q.DeliveryLimit = &limit
	}
}

// limit returns the number under deliveryLimit.
func (d *decoder) limit(f fields) (int64, bool) {
	v, ok := f.values["deliveryLimit"]
	if !ok {
		return 0, false
	}
	if n, ok := d.scalar(v.value); ok && n.Value == "-1" {
		d.problem(d.at(n), "deliveryLimit is -1",
			fmt.Sprintf("write %d for no limit: RabbitMQ before 4.0 reads -1 as 0", topology.Unlimited))
		return 0, false
	}
	limit, ok := d.number(f, "deliveryLimit", 0)
	if ok && limit > topology.Unlimited {
		d.problem(d.at(v.value), fmt.Sprintf("deliveryLimit is %d", limit),
			fmt.Sprintf("write %d at most, which means no limit", topology.Unlimited))
		return 0, false
	}
	return limit, ok
}

// dead reads where the dead letters of a queue go. standard is where they go unless the file names
// a queue.
func (d *decoder) dead(f fields, standard Dead) Dead {
	v, ok := f.values["dead"]
	if !ok {
		return standard
	}
	if v.value.Kind != yaml.MappingNode {
		word, ok := d.text(f, "dead")
		if words := []string{"own", "shared"}; ok && !slices.Contains(words, word) {
			d.problem(d.at(v.value), fmt.Sprintf("dead is %q", word),
				d.didYouMean(word, words, "write own, shared, {queue: NAME} or {keep: 30d}"))
		}
		if ok && word == "shared" && d.spec.Name != "" {
			return Dead{Queue: topology.DeadLetterName(d.spec.Name), Pos: d.at(v.value)}
		}
		standard.Pos = d.at(v.value)
		return standard
	}
	x := d.fields(v.value, "dead", deadKeys(), nil)
	dead := standard
	dead.Pos = d.at(v.key)
	if _, named := x.values["queue"]; named {
		name, ok := d.text(x, "queue")
		if !ok {
			return Dead{}
		}
		dead.Queue, dead.Pos = name, d.pos(x, "queue")
		d.objectName(dead.Pos, "queue", name, false)
	}
	args, nodes := d.arguments(x, "arguments")
	d.reserved(nodes, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy,
		topology.ArgQueueType, topology.ArgDeliveryLimit, topology.ArgManagedBy)
	d.checkArguments(args, nodes, d.spec.Type)
	d.unknownArguments(args, nodes, dead.Queue)
	dead.Arguments, dead.External, dead.Keep = args, d.truth(x, "external"), d.keep(x, args)
	if _, named := x.values["queue"]; dead.External && !named {
		d.problem(dead.Pos, "dead has external: true and names no queue", "write queue: NAME next to it")
	}
	if v, given := x.values["arguments"]; given && dead.External {
		d.problem(d.at(v.key), fmt.Sprintf("the dead-letter queue %q is external and has arguments", dead.Queue),
			"the program that declares the queue sets them: remove arguments, or external: true")
	}
	return dead
}

// longestKeep is the longest age, which is beyond every use and within what a Duration can hold.
const longestKeep = 100 * 365 * 24 * time.Hour

// keep reads from which age a dead letter is old. It may be longer than a delay, which RabbitMQ
// limits.
func (d *decoder) keep(x fields, args topology.Arguments) time.Duration {
	v, ok := x.values["keep"]
	if !ok {
		return 0
	}
	n, ok := d.scalar(v.value)
	if !ok {
		return 0
	}
	const fix = "write 1m or longer, such as 30d, or remove keep"
	if n.Kind != yaml.ScalarNode {
		d.problem(d.at(n), "keep is "+kindOf(n)+", not a duration", fix)
		return 0
	}
	keep, ok := topology.ParseWait(n.Value)
	ttl, limited := args[topology.ArgMessageTTL].(int64)
	switch {
	case !ok || keep < time.Minute || keep > longestKeep:
		d.problem(d.at(n), fmt.Sprintf("keep is %q", n.Value), fix)
		return 0
	case limited && ttl <= keep.Milliseconds():
		d.problem(d.at(n), fmt.Sprintf("keep is %s, and x-message-ttl deletes each dead letter after %s",
			text.Duration(keep), text.Duration(time.Duration(ttl)*time.Millisecond)),
			"remove x-message-ttl, which deletes them without parking, or write a shorter keep")
	}
	return keep
}

func (d *decoder) queueArguments(f fields, q Queue) topology.Arguments {
	args, nodes := d.arguments(f, "arguments")
	d.reserved(nodes, topology.ArgQueueType, topology.ArgDeliveryLimit, topology.ArgManagedBy)
	if !q.Unmanaged {
		d.reserved(nodes, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey)
	}
	d.checkArguments(args, nodes, q.Type)
	d.unknownArguments(args, nodes, q.Name)
	for _, name := range []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes} {
		if v, ok := nodes[name]; ok && (d.common[v.key] || d.overlaid(v) != Pos{}) {
			d.lengths[length{q.Name, name}] = d.at(v.key)
		}
	}
	return args
}

// ArgumentProblem says what a topology file would be refused for that declares a queue of this
// type with these arguments, on RabbitMQ of a version; see [LoadFor]. Empty: nothing.
func ArgumentProblem(version string, args topology.Arguments, queueType string) string {
	d := newDecoder(version, nil)
	nodes := map[string]field{}
	for name, value := range args {
		n := &yaml.Node{}
		if err := n.Encode(value); err != nil {
			return fmt.Sprintf("%s: %v", name, err)
		}
		nodes[name] = field{n, n}
	}
	d.checkArguments(args, nodes, queueType)
	if len(d.problems) == 0 {
		return ""
	}
	return d.problems[0].Msg
}

// checkArguments refuses arguments that RabbitMQ refuses, and those that contradict each other.
func (d *decoder) checkArguments(args topology.Arguments, nodes map[string]field, queueType string) {
	for _, p := range arguments.Refused(d.version, queueType, args) {
		n := nodes[p.Argument].value
		if p.Misplaced {
			n = nodes[p.Argument].key
		}
		fix := p.Fix
		if p.Misplaced && d.common[nodes[p.Argument].key] {
			fix = "a default must fit all queues that it is for: write it on the queues that it fits, or " + fix
		}
		d.problem(d.at(n), p.Msg, fix)
	}
	overflow, has := args[topology.ArgOverflow]
	switch at := nodes[topology.ArgOverflow].value; {
	case queueType == topology.Quorum && overflow == "reject-publish-dlx": // accepted, and ignored
		d.among(at, topology.ArgOverflow, "reject-publish-dlx", []string{"drop-head", topology.RejectPublish})
	case has && overflow != topology.RejectPublish && args[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce:
		d.problem(d.at(at), fmt.Sprintf("x-overflow is %q with x-dead-letter-strategy at-least-once", overflow),
			"at-least-once works with reject-publish only")
	}
}

// unknownArguments warns of arguments that RabbitMQ does not know. Import reads the team of a queue
// from some that it does not know either.
func (d *decoder) unknownArguments(args topology.Arguments, nodes map[string]field, queue string) {
	for _, name := range arguments.Ignored(args) {
		about := queue
		if d.common[nodes[name].key] {
			about = "defaults" // one warning for all queues
		}
		fix := fmt.Sprintf("remove it, or write accept: [unknown-argument=%s] at the top of the file", about)
		if d.compares(len(arguments.Known())) {
			if meant := arguments.Meant(name); meant != "" {
				fix = fmt.Sprintf("did you mean %q?", meant)
			}
		}
		d.warn(d.at(nodes[name].key), topology.WarnUnknownArgument, about,
			fmt.Sprintf("RabbitMQ does not know the argument %s: it stores it, and ignores it", text.Name(name)), fix)
	}
}
