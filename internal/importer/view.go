package importer

import (
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// view is what an import chooses of a virtual host.
type view struct {
	state    topology.State
	adopt    bool
	quorum   bool // see [Options.Quorum]; adopt is then false
	options  Options
	survey   *survey.Survey
	policies *policy.Set

	// queues and exchanges are those that the file declares, by name.
	queues    []topology.Queue
	exchanges []topology.Exchange
	// into are the bindings of these, by destination.
	into map[topology.Key][]topology.Binding
	// left are the objects that the file does not declare.
	left []leftOut
	// all are all bindings, by destination.
	all map[topology.Key][]topology.Binding
	// delays are how long messages wait in the retry queues; see handDelays.
	delays []time.Duration
}

// leftOut is a queue, exchange or binding that the file does not declare.
type leftOut struct {
	key  topology.Key // of a binding: what people read
	why  string       // completes "it ..."
	rule string       // of audit. Empty: no rule is about this
}

// choose decides what the file declares.
func choose(state topology.State, o Options) view {
	v := view{
		state: state, adopt: o.Adopt && !o.Quorum, quorum: o.Quorum, options: o, survey: survey.New(state),
		into: map[topology.Key][]topology.Binding{}, all: bindingsInto(state),
	}
	v.policies = v.survey.Policies
	v.delays = v.handDelays()
	c := chooser{view: &v, exchanges: map[string]topology.Exchange{}}
	for _, e := range slices.Concat(topology.BuiltInExchanges(), state.Have.Exchanges) {
		c.exchanges[e.Name] = e
	}
	c.chooseQueues()
	c.chooseExchanges()
	return v
}

// chooser is the work of choose.
type chooser struct {
	*view

	exchanges map[string]topology.Exchange
	needed    map[string]bool // exchanges that a declared object is bound to
}

// bindingsInto returns the bindings by what they lead to, in their order.
func bindingsInto(state topology.State) map[topology.Key][]topology.Binding {
	out := map[topology.Key][]topology.Binding{}
	for _, b := range state.Have.Bindings {
		if b.Source == "" {
			continue // the default exchange binds every queue
		}
		key := topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}
		out[key] = append(out[key], b)
	}
	return out
}

// leave notes an object that the file does not declare.
func (c *chooser) leave(kind topology.Kind, name, why, rule string) {
	c.left = append(c.left, leftOut{topology.Key{Kind: kind, Name: name}, why, rule})
}

func (c *chooser) chooseQueues() {
	c.needed = map[string]bool{}
	for _, q := range c.state.Have.Queues {
		if c.options.Match != nil && !c.options.Match.MatchString(q.Name) {
			continue
		}
		if why, rule := c.excludesQueue(q); why != "" {
			c.leave(topology.KindQueue, q.Name, why, rule)
			continue
		}
		if !c.adopt && !c.quorum && c.isAside(q) {
			continue // a comment says what it is for
		}
		bindings, why := c.bindingsOf(queueKey(q.Name))
		if why != "" {
			c.leave(topology.KindQueue, q.Name, why, "")
			continue
		}
		c.queues = append(c.queues, q)
		c.declare(queueKey(q.Name), bindings)
	}
}

// isAside reports whether a queue is neither a work queue nor a stream.
func (v *view) isAside(q topology.Queue) bool {
	return !slices.Contains([]topology.Role{topology.RoleWork, survey.Stream}, v.survey.Queue(q.Name).Role)
}

// declare notes the bindings of an object that the file declares, and that it needs their
// exchanges.
func (c *chooser) declare(key topology.Key, bindings []topology.Binding) {
	c.into[key] = bindings
	for _, b := range bindings {
		c.needed[b.Source] = true
	}
}

// excludesQueue says why a file cannot, or should not, declare a queue.
func (c *chooser) excludesQueue(q topology.Queue) (why, rule string) {
	if owner, ok := topology.Owner(q.Arguments); ok {
		owner, _, _ = strings.Cut(owner, "/") // the desk of a topology has a mark of its own
		return "belongs to the topology " + quoted(owner) + ", whose own file declares it", ""
	}
	if p, ok := c.policies.For(q); ok {
		if owner, made := topology.PolicyOwner(p.Name); made {
			return "gets its dead-lettering from the topology " + quoted(owner) + ", whose own file declares it", ""
		}
	}
	why = excludesAlways(q)
	switch {
	case why != "":
		return why, ""
	case c.adopt:
		return excludesAdoption(c.state.Version, q)
	case q.Arguments.HasAny(topology.ArgExpires):
		// A plan is blocked while an external queue does not exist. A policy with expires often covers
		// all queues, and leaves out none.
		return "is deleted automatically while it is unused (x-expires)", ""
	default:
		return "", ""
	}
}

// excludesAlways says why no file can declare a queue.
func excludesAlways(q topology.Queue) string {
	switch {
	case q.Exclusive:
		return "is exclusive: it ends with its connection"
	case q.AutoDelete:
		return "is deleted automatically when its last consumer leaves"
	case strings.HasPrefix(q.Name, "amq."):
		return "has a name that the broker made"
	case q.Name == "":
		return "has an empty name, which only an import of definitions can give it"
	case isFederation(q.Name, "", q.Arguments):
		return federated
	}
	return unwritableName(q.Name)
}

// federated says what a queue or an exchange of the federation plugin is.
const federated = "belongs to the federation plugin, which makes and deletes it"

// isFederation reports whether the federation plugin made a queue or an exchange.
func isFederation(name, kind string, args topology.Arguments) bool {
	return strings.HasPrefix(name, "federation: ") || kind == "x-federation-upstream" ||
		args["x-internal-purpose"] == "federation"
}

// excludesAdoption says why dlxctl cannot declare a queue as it is on RabbitMQ of a version.
func excludesAdoption(version string, q topology.Queue) (why, rule string) {
	limit, limited := q.Arguments[topology.ArgDeliveryLimit]
	count, whole := limit.(int64)
	switch {
	case !q.Durable:
		return "is not durable, and dlxctl declares durable queues only", "not-durable"
	case q.Type() == topology.Stream:
		return "is a stream, and dlxctl declares none", ""
	case q.Type() != topology.Quorum && q.Type() != topology.Classic && q.Type() != "":
		return "has the type " + quoted(q.Type()) + ", and dlxctl declares none of it", ""
	case limited && (!whole || count < 0 || count > topology.Unlimited || q.Type() != topology.Quorum):
		return "has the argument x-delivery-limit " + topology.FormatValue(limit) + ", which deliveryLimit cannot express",
			"limit-minus-one-on-3x"
	}
	others := q.Arguments.Without(topology.ArgQueueType, topology.ArgDeliveryLimit)
	if problem := spec.ArgumentProblem(version, others, q.Type()); problem != "" {
		return "has arguments that dlxctl refuses: " + problem, ""
	}
	for _, name := range q.Arguments.Names() {
		if !writableValue(q.Arguments[name], 0) || !writableName(name) || name == topology.ArgManagedBy {
			return "has the argument " + quoted(name) + " with a value that YAML cannot express", ""
		}
	}
	return "", ""
}

// bindingsOf returns the bindings that a file must have for an object, or why it cannot have them.
func (c *chooser) bindingsOf(key topology.Key) (bindings []topology.Binding, why string) {
	for _, b := range c.all[key] {
		if _, marked := topology.Owner(b.Arguments); marked {
			continue // the file of that topology has it
		}
		source, exists := c.exchanges[b.Source]
		if !exists { // no broker has such a binding, so that the file need not
			c.leave(topology.KindBinding, b.String(), "begins at an exchange that does not exist", "binding-dangling")
			continue
		}
		if why := c.excludesExchange(source); why != "" {
			return nil, "has a binding from the exchange " + quoted(b.Source) + ", which " + why
		}
		if !writableBinding(b) {
			return nil, "has a binding from " + quoted(b.Source) + " with arguments that YAML cannot express"
		}
		bindings = append(bindings, b)
	}
	return bindings, ""
}

// excludesExchange says why a file cannot declare an exchange.
func (c *chooser) excludesExchange(e topology.Exchange) string {
	if why := unwritableName(e.Name); why != "" {
		return why
	}
	builtIn := strings.HasPrefix(e.Name, "amq.")
	_, marked := topology.Owner(e.Arguments)
	switch {
	case !writableName(e.Type):
		return "has the type " + quoted(e.Type)
	case isFederation(e.Name, e.Type, e.Arguments):
		return federated
	case !c.adopt || builtIn || marked:
		return ""
	case !e.Durable:
		return "is not durable, and dlxctl declares durable exchanges only"
	case e.AutoDelete:
		return "is deleted automatically when its last binding goes"
	}
	for _, name := range e.Arguments.Names() {
		if !writableValue(e.Arguments[name], 0) || !writableName(name) || name == topology.ArgManagedBy {
			return "has the argument " + quoted(name) + " with a value that YAML cannot express"
		}
	}
	return ""
}

// chooseExchanges declares the exchanges that queues are bound to, those that lead to these, and
// without a choice of queues all others too.
func (c *chooser) chooseExchanges() {
	all := c.options.Match == nil
	chosen := map[string]bool{}
	for again := true; again; {
		again = false
		for name, e := range c.exchanges {
			_, marked := topology.Owner(e.Arguments)
			own := all && !marked && !strings.HasPrefix(name, "amq.") && !e.AutoDelete && name != "" && !c.isDelayExchange(name)
			if chosen[name] || !c.needed[name] && !own || c.excludesExchange(e) != "" {
				continue
			}
			chosen[name], again = true, true
			c.declareExchange(name)
		}
	}
	for _, name := range sortedKeys(chosen) {
		c.view.exchanges = append(c.view.exchanges, c.exchanges[name])
	}
	for _, name := range sortedKeys(c.exchanges) {
		e := c.exchanges[name]
		_, marked := topology.Owner(e.Arguments)
		switch why := c.excludesExchange(e); {
		case chosen[name] || !all || marked || name == "" || strings.HasPrefix(name, "amq.") || c.isDelayExchange(name):
		case why != "":
			c.leave(topology.KindExchange, name, why, "")
		case e.AutoDelete:
			c.leave(topology.KindExchange, name, "is deleted automatically when its last binding goes", "")
		}
	}
}

// declareExchange declares the bindings to an exchange. Those that a file cannot have are left
// out: a plan ignores bindings between exchanges that no file has.
func (c *chooser) declareExchange(name string) {
	key := topology.Key{Kind: topology.KindExchange, Name: name}
	var bindings []topology.Binding
	for _, b := range c.all[key] {
		source, exists := c.exchanges[b.Source]
		_, marked := topology.Owner(b.Arguments)
		_, foreign := topology.Owner(source.Arguments)
		switch {
		case marked || foreign || c.isDelayExchange(b.Source):
		case !exists:
			c.leave(topology.KindBinding, b.String(), "begins at an exchange that does not exist", "binding-dangling")
		case c.excludesExchange(source) != "":
			c.leave(topology.KindBinding, b.String(), "begins at an exchange that "+c.excludesExchange(source), "")
		case !writableBinding(b):
			c.leave(topology.KindBinding, b.String(), "has arguments that YAML cannot express", "")
		default:
			bindings = append(bindings, b)
		}
	}
	c.declare(key, bindings)
}

func queueKey(name string) topology.Key { return topology.Key{Kind: topology.KindQueue, Name: name} }
