package spec

import (
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// severityShape is a severity, or one that depends on the message.
func severityShape() shape {
	return shape{either: []shape{oneOf(topology.Severities()...), object(severityKeys())}}
}

func severityKeys() []key {
	return []key{
		{"default", "Severity of messages that no rule fits. Default: ticket.", false, oneOf(topology.Severities()...)},
		{"rules", "Rules for messages. The first that fits counts.", false, list(object(severityRuleKeys()))},
	}
}

func severityRuleKeys() []key {
	return []key{
		{"key", "Pattern that the routing key of the publisher fits, as in a binding to a topic exchange. Default: any.", false, anyText()},
		{"header", "Headers that the message has, all with equal values. Default: any.", false, table()},
		{"severity", "Severity of the messages that fit key and header.", true, oneOf(topology.Severities()...)},
	}
}

// severity reads the severity of a queue: a word, or rules about its messages. It reports false if
// there is none, or after a problem.
func (d *decoder) severity(f fields) (string, []topology.SeverityRule, bool) {
	v, ok := f.values["severity"]
	if !ok || v.value.Kind != yaml.MappingNode {
		word, ok := d.word(f, "severity", topology.Severities())
		return word, nil, ok
	}
	x := d.fields(v.value, "severity", severityKeys(), nil)
	standard := topology.SeverityTicket
	if word, given := d.word(x, "default", topology.Severities()); given {
		standard = word
	}
	var rules []topology.SeverityRule
	for _, n := range d.list(x, "rules") {
		if r, ok := d.severityRule(n); ok {
			rules = append(rules, r)
		}
	}
	return standard, rules, true
}

// severityRule reads one rule. It reports false after a problem.
func (d *decoder) severityRule(n *yaml.Node) (r topology.SeverityRule, ok bool) {
	x := d.fields(n, "a rule of severity", severityRuleKeys(), nil)
	if r.Severity, ok = d.word(x, "severity", topology.Severities()); !ok {
		return r, false
	}
	key, hasKey := d.text(x, "key")
	header, nodes := d.arguments(x, "header")
	_, hasHeader := x.values["header"]
	switch {
	case hasKey && key == "":
		d.problem(d.pos(x, "key"), "key is empty", `write a pattern such as "order.#", or remove the key`)
		return r, false
	case len(key) > topology.MaxNameBytes:
		d.problem(d.pos(x, "key"), fmt.Sprintf("the pattern %q has %d bytes, more than the %d that a routing key may have",
			key, len(key), topology.MaxNameBytes), fmt.Sprintf("shorten it by %d", len(key)-topology.MaxNameBytes))
		return r, false
	case hasHeader && len(nodes) == 0 && x.values["header"].value.Kind != yaml.MappingNode:
		return r, false // reported as it was read
	case hasHeader && len(nodes) == 0:
		d.problem(d.pos(x, "header"), "header has no name", "write names and values such as {type: refund}, or remove header")
		return r, false
	case !hasKey && !hasHeader:
		if !d.mentions(x.node, "key") && !d.mentions(x.node, "header") && len(x.slips) == 0 {
			d.problem(d.at(n), "a rule of severity has neither key nor header, and would fit every message",
				"add one of them, or write the severity under default")
		}
		return r, false
	}
	for name, v := range header {
		switch v.(type) {
		case []any, topology.Arguments:
			d.problem(d.at(nodes[name].value), fmt.Sprintf("the header %q is compared with %s", name, kindOf(nodes[name].value)),
				"write text, a number, or true or false")
			return r, false
		}
	}
	r.Key, r.Header = key, header
	return r, true
}

// unheardSeverity refuses rules about the messages of a queue without a backoff: no processor sees
// these messages, and the alert about their dead-letter queue knows none.
func (d *decoder) unheardSeverity(q Queue, f fields) {
	if q.Backoff != topology.NoBackoff || len(q.SeverityRules) == 0 {
		return
	}
	d.problem(d.pos(f, "severity"),
		fmt.Sprintf("queue %q has rules of severity and backoff: none, so no processor reads its messages", q.Name),
		"write severity: page, ticket or info on the queue, or give it a backoff, such as one with tiers: []")
}
