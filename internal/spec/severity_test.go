package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

const severityHead = "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\n"

// The severity of messages comes from the queue, or from defaults.
func TestSeverityRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file  string
		word  string
		rules []topology.SeverityRule
	}{
		"none":       {"queues: [{name: q, backoff: b}]", "ticket", nil},
		"short form": {"queues: [{name: q, backoff: b, severity: page}]", "page", nil},
		"rules": {
			`queues: [{name: q, backoff: b, severity: {default: info, rules: [{key: "campaign.*", severity: page}, {key: "#", header: {type: refund, n: 2}, severity: ticket}]}}]`,
			"info",
			[]topology.SeverityRule{
				{Key: "campaign.*", Severity: "page"},
				{Key: "#", Header: topology.Arguments{"type": "refund", "n": int64(2)}, Severity: "ticket"},
			},
		},
		"no default":   {"queues: [{name: q, backoff: b, severity: {rules: [{key: a, severity: info}]}}]", "ticket", []topology.SeverityRule{{Key: "a", Severity: "info"}}},
		"only default": {"queues: [{name: q, backoff: b, severity: {default: page}}]", "page", nil},
		"of defaults": {
			"defaults: {backoff: b, severity: {rules: [{key: a, severity: info}]}}\nqueues: [{name: q}]", "ticket",
			[]topology.SeverityRule{{Key: "a", Severity: "info"}},
		},
		"a queue wins": {"defaults: {backoff: b, severity: {rules: [{key: a, severity: info}]}}\nqueues: [{name: q, severity: page}]", "page", nil},
	} {
		c, _, err := Load([]Source{{Name: "a", Data: []byte(severityHead + tc.file)}}, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w, _ := c.WorkQueue("q")
		if d := cmp.Diff(tc.rules, w.SeverityRules); d != "" || w.Severity != tc.word {
			t.Errorf("%s: %s (-want +got):\n%s", name, w.Severity, d)
		}
	}
}

// What is wrong with a rule is said with its place.
func TestSeverityProblems(t *testing.T) {
	t.Parallel()
	for severity, want := range map[string]string{
		"loud":                     `a:4:42: severity is "loud"; write page, ticket or info`,
		"[page]":                   `a:4:42: severity is a list, not text; write text`,
		"{default: loud}":          `a:4:52: default is "loud"; write page, ticket or info`,
		"{defaut: page}":           `a:4:43: severity has no key "defaut"; did you mean "default"?`,
		"{rules: {key: a}}":        `a:4:50: rules is a mapping, not a list; write a list: [a, b], or one line with - per entry`,
		"{rules: [{key: a}]}":      `a:4:51: a rule of severity has no severity; add severity: …`,
		"{rules: [{severity: x}]}": `a:4:62: severity is "x"; write page, ticket or info`,
		"{rules: [{severity: page}]}": `a:4:51: a rule of severity has neither key nor header, and would fit every message; ` +
			`add one of them, or write the severity under default`,
		`{rules: [{key: "", severity: page}]}`: `a:4:57: key is empty; write a pattern such as "order.#", or remove the key`,
		"{rules: [{kye: a, severity: page}]}":  `a:4:52: a rule of severity has no key "kye"; did you mean "key"?`,
		"{rules: [{header: {}, severity: page}]}": `a:4:60: header has no name; ` +
			`write names and values such as {type: refund}, or remove header`,
		"{rules: [{header: {a: [1]}, severity: page}]}": `a:4:64: the header "a" is compared with a list; ` +
			`write text, a number, or true or false`,
		"{rules: [{header: a, severity: page}]}": `a:4:60: header is the text "a", not a mapping; ` +
			`write key: value pairs, or {key: value}`,
		"{rules: [{key: " + strings.Repeat("x", 256) + ", severity: page}]}": `a:4:57: ` +
			`the pattern "` + strings.Repeat("x", 256) +
			`" has 256 bytes, more than the 255 that a routing key may have; shorten it by 1`,
	} {
		file := severityHead + "queues: [{name: q, backoff: b, severity: " + severity + "}]"
		_, _, err := Decode([]Source{{Name: "a", Data: []byte(file)}}, func(string) (string, bool) { return "", false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %s", severity, err, want)
		}
	}
	file := severityHead + "defaults: {severity: {rules: [{key: a, severity: page}]}}\nqueues: [{name: q, backoff: none}]"
	_, _, err := Decode([]Source{{Name: "a", Data: []byte(file)}}, func(string) (string, bool) { return "", false })
	if want := `a:4:22: queue "q" has rules of severity and backoff: none, so no processor reads its messages; ` +
		"write severity: page, ticket or info on the queue, or give it a backoff, such as one with tiers: []"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
