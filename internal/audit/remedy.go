package audit

import (
	"fmt"
	"maps"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// describe returns the value of an argument or of a key of a policy, with the duration of
// milliseconds.
func describe(name string, v any) string {
	switch v := v.(type) {
	case int64:
		switch strings.TrimPrefix(name, "x-") {
		case topology.KeyMessageTTL, topology.KeyExpires, topology.KeyConsumerTimeout:
			return fmt.Sprintf("%d (%s)", v, text.Millis(v))
		}
	case string:
		return text.Name(v)
	}
	return topology.FormatValue(v)
}

// inTopology returns the lines of a topology file that attach dead-lettering to a queue that a
// service declares.
func inTopology(q *queue) string {
	return fmt.Sprintf("queues: # in a topology file; or name a backoff, for retries\n"+
		"  - {name: %s, type: %s, external: true, backoff: none}", text.YAML(q.Name), q.Type())
}

// successor returns the lines of a topology file that replace a queue: the arguments of a queue
// never change.
func successor(q *queue) string {
	return fmt.Sprintf("queues: # in a topology file; then run dlxctl migrate\n"+
		"  - {name: %s, type: %s, replaces: %s, backoff: none}",
		text.YAML(q.Name+".v2"), q.Type(), text.YAML(q.Name))
}

// vhost returns the flag for a virtual host that is not the default one.
func (x *index) vhost(flag string) string {
	if x.State.VHost == "" || x.State.VHost == "/" {
		return ""
	}
	return " " + flag + " " + text.ShellQuote(x.State.VHost)
}

// declareBinding returns the command that binds a queue.
func (x *index) declareBinding(source, destination, key string) string {
	return fmt.Sprintf("rabbitmqadmin declare binding%s --source %s --destination-type queue --destination %s"+
		" --routing-key %s", x.vhost("--vhost"), text.ShellQuote(source), text.ShellQuote(destination), text.ShellQuote(key))
}

// declareExchange returns the command that declares a durable exchange.
func (x *index) declareExchange(name, kind string) string {
	return fmt.Sprintf("rabbitmqadmin declare exchange%s --name %s --type %s --durable true", x.vhost("--vhost"),
		text.ShellQuote(name), kind)
}

// declareQueue returns the command that declares a queue that keeps dead letters.
func (x *index) declareQueue(name string) string {
	return fmt.Sprintf("rabbitmqadmin declare queue%s --name %s --type quorum --durable true --arguments %s",
		x.vhost("--vhost"), text.ShellQuote(name),
		text.ShellQuote(fmt.Sprintf(`{"x-delivery-limit":%d}`, topology.Unlimited)))
}

// setPolicy returns the command that writes a policy.
func (x *index) setPolicy(p topology.Policy) string {
	applyTo := p.ApplyTo
	if applyTo == "" {
		applyTo = "all"
	}
	return fmt.Sprintf("rabbitmqctl set_policy%s --apply-to %s --priority %d %s %s %s", x.vhost("-p"), applyTo,
		p.Priority, text.ShellQuote(p.Name), text.ShellQuote(p.Pattern), text.ShellQuote(p.Definition.String()))
}

// clearPolicy returns the command that deletes a policy.
func (x *index) clearPolicy(name string) string {
	return fmt.Sprintf("rabbitmqctl clear_policy%s %s", x.vhost("-p"), text.ShellQuote(name))
}

// override returns the command that sets a policy for one queue: the one in effect with some keys
// changed, and a higher priority.
func (x *index) override(q *queue, remove []string, set topology.Arguments) string {
	p := topology.Policy{
		Name: q.Name + "-only", Pattern: topology.QueuesPattern([]string{q.Name}), ApplyTo: "queues",
		Priority: 1, Definition: topology.Arguments{},
	}
	if q.hasPolicy {
		maps.Copy(p.Definition, q.policy.Definition)
		p.Priority = q.policy.Priority + 1
	}
	for _, key := range remove {
		delete(p.Definition, key)
	}
	maps.Copy(p.Definition, set)
	return x.setPolicy(p)
}

// without returns the way to take keys that a policy or an argument sets from a queue.
func (x *index) without(q *queue, arguments ...string) string {
	var keys []string
	for _, name := range arguments {
		if _, own := q.Arguments[name]; own {
			return successor(q)
		}
		keys = append(keys, topology.PolicyKey(name))
	}
	if q.hasOperator && q.operator.Definition.HasAny(keys...) {
		return "rabbitmqctl clear_operator_policy" + x.vhost("-p") + " " + text.ShellQuote(q.operator.Name)
	}
	return x.override(q, keys, nil)
}

// list joins up to three names, and counts the rest.
func list(names []string) string { return text.FirstOf(text.Names(names), 3) }
