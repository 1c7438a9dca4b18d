package spec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/templates"
)

// enumFile is a valid file with one of each object that has words to choose from.
const enumFile = `
version: 1
name: shop
defaults: {type: quorum, backoff: b, severity: {rules: [{key: a, severity: page}]}}
backoff: {a: {tiers: [1s]}, b: {tiers: [1s]}}
exchanges: [{name: all, type: fanout, bindings: [{exchange: docs, headers: {format: pdf}}]}, {name: docs, type: headers}]
queues: [{name: q, messages: {redact: {}}, severity: {rules: [{key: a, severity: page}]}, bindings: [{exchange: docs, headers: {format: pdf}}]}]
delays: [{name: later, to: all}]
messages: {redact: {}}
notify: [{to: "https://h", severity: [page]}]
`

// The schema offers nothing that the decoder refuses: an editor would complete it.
func TestTheSchemaOffersOnlyWhatIsTaken(t *testing.T) {
	t.Parallel()
	offered := 0
	eachWord(object(fileKeys()), nil, func(path []string, word string) {
		offered++
		var file map[string]any
		if err := yaml.Unmarshal([]byte(enumFile), &file); err != nil {
			t.Fatal(err)
		}
		var value any = word
		if path[0] == "version" {
			value = 1
		}
		put(t, file, path, value)
		data, err := yaml.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Decode([]Source{{Name: "f", Data: data}}, environment()); err != nil {
			t.Errorf("the schema offers %s: %s, and the decoder says\n%v", strings.Join(path, "."), word, err)
		}
	})
	if offered < 18 {
		t.Errorf("the schema offers %d words only: this proves little", offered)
	}
}

// eachWord calls see for each word that a shape offers, with the keys that lead to
// it. "*" is any name of a map, "[]" an item of a list.
func eachWord(s shape, path []string, see func([]string, string)) {
	at := func(step string) []string { return append(slices.Clone(path), step) }
	for _, word := range s.enum {
		see(path, word)
	}
	for _, e := range s.either {
		eachWord(e, path, see)
	}
	for _, k := range s.keys {
		eachWord(k.shape, at(k.name), see)
	}
	if s.items != nil {
		eachWord(*s.items, at("[]"), see)
	}
	if s.values != nil {
		eachWord(*s.values, at("*"), see)
	}
}

// put sets what path leads to in a file. Objects on the way are there already; a
// list at the end holds the value alone.
func put(t *testing.T, file map[string]any, path []string, value any) {
	t.Helper()
	if last := len(path) - 1; path[last] == "[]" {
		path, value = path[:last], []any{value}
	}
	var here any = file
	for _, step := range path[:len(path)-1] {
		switch at := here.(type) {
		case map[string]any:
			if step == "*" {
				step = slices.Sorted(maps.Keys(at))[0]
			}
			here = at[step]
		case []any:
			here = at[0]
		}
	}
	object, ok := here.(map[string]any)
	if !ok {
		t.Fatalf("%v leads nowhere in\n%s", path, enumFile)
	}
	object[path[len(path)-1]] = value
}

// What is odd and not wrong is told, by a fixed name and with what to do about it.
func TestWarnings(t *testing.T) {
	t.Parallel()
	head := "version: 1\nname: shop\n"
	for file, want := range map[string][]string{
		head + "exchanges: [{name: e, type: topci}]\nqueues: [{name: q, backoff: none}]\n":                                                {`3:29: odd-exchange-type: exchange "e" has the type "topci", which needs a plugin on the broker; did you mean "topic"?`},
		head + "exchanges: [{name: e, type: x-delayed-message}]\nqueues: [{name: q, backoff: none}]\n":                                    nil,
		head + "exchanges: [{name: e, type: quux}]\nqueues: [{name: q, backoff: none}]\n":                                                 nil,
		head + "exchanges: [{name: e, type: fanout}]\nqueues: [{name: q, backoff: none, bindings: [{exchange: e, key: order.placed}]}]\n": {`4:46: ignored-key: binding has a key, and exchange "e" is of type fanout; a fanout exchange ignores keys: remove the key, or change the type`},
		head + "exchanges: [{name: e, type: fanout}]\nqueues: [{name: q, backoff: none, bindings: [{exchange: e}]}]\n":                    nil,
		head + "exchanges: [{name: e}]\n": {
			`2:7: no-queues: the topology "shop" has no queues; apply creates no queue, and deletes the queues that it created earlier`,
		},
		head + "backoff: {b: {tiers: [1s]}}\nqueues: [{name: q, backoff: none}]\n": {`3:11: unused-backoff: the backoff "b" is used by no queue; dlxctl creates nothing for it`},
	} {
		_, warnings, err := Decode([]Source{{Name: "f", Data: []byte(file)}}, environment())
		if err != nil {
			t.Errorf("%v\n%s", err, file)
		}
		var got []string
		for _, w := range warnings {
			got = append(got, fmt.Sprintf("%d:%d: %s: %s; %s", w.Line, w.Col, w.Name, w.Msg, w.Fix))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("warnings (-want +got):\n%s\nof\n%s", d, file)
		}
	}
}

// A slip is one problem, that names what was meant.
func TestSlips(t *testing.T) {
	t.Parallel()
	head := "version: 1\nname: shop\nexchanges: [{name: e}]\n"
	for file, want := range map[string][]string{
		head + "queues: [{name: q, backoff: none, bindings: [{exchange: e, routing_key: a}]}]\n":   {`4:60: binding has no key "routing_key"; did you mean "key"?`},
		head + "queues: [{name: q, backoff: none, bindings: [{exchange: e, routingKeys: [a]}]}]\n": {`4:60: binding has no key "routingKeys"; did you mean "keys"?`},
		head + "queues: [{namme: q, backoff: none}]\n":                                             {`4:11: queue has no key "namme"; did you mean "name"?`},
		head + "queues: [{name: q, backoff: none, arguments: {x-message-ttl: 5m}}]\n":              {`4:62: x-message-ttl is the text "5m", not a whole number; write it in milliseconds: 300000`},
		head + "queues: [{name: q, backoff: none, arguments: {x-expires: soon}}]\n":                {`4:58: x-expires is the text "soon", not a whole number; write a number without quotes, in milliseconds`},
		head + "queues:\n  - name: q\n    backoff: none\n    bindings:\n      - {exchange: evnts, key: a}\n      - {exchange: evnts, key: b}\n      - {exchange: orders, key: a}\n  - {name: r, backoff: none, bindings: [{exchange: evnts, key: c}]}\n": {
			`8:9: binding comes from exchange "evnts", which is not declared; 2 more bindings do: line 9, line 11; declare it under exchanges, with external: true if another team manages it`,
			`10:9: binding comes from exchange "orders", which is not declared; declare it under exchanges, with external: true if another team manages it`,
		},
	} {
		_, _, err := Decode([]Source{{Name: "f", Data: []byte(file)}}, environment())
		if d := cmp.Diff(want, problems(t, err)); d != "" {
			t.Errorf("problems (-want +got):\n%s\nof\n%s", d, file)
		}
	}
}

// The starter that explains every key has every key, some of them in comments: what
// these show is taken as well.
func TestTheFullStarterHasEveryKey(t *testing.T) {
	t.Parallel()
	data, ok := templates.Starter("full")
	if !ok {
		t.Fatal("there is no starter full")
	}
	data = uncommented(data)
	_, warnings, err := Decode([]Source{{Name: "full.yaml", Data: data}}, environment())
	if err != nil || len(warnings) > 0 {
		t.Errorf("with its comments it is not valid: %v %v", err, warnings)
	}
	var file any
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	eachKey(file, nil, func(path string) { seen[path] = true })
	known := 0
	var wanted func(s shape, path []string)
	wanted = func(s shape, path []string) {
		at := func(step string) []string { return append(slices.Clone(path), step) }
		for _, k := range s.keys {
			known++
			if name := anywhere(at(k.name)); !seen[name] {
				t.Errorf("it does not show %s", name)
			}
			wanted(k.shape, at(k.name))
		}
		for _, e := range s.either {
			wanted(e, path)
		}
		if s.items != nil {
			wanted(*s.items, at("[]"))
		}
		if s.values != nil && s.values.keys != nil {
			wanted(*s.values, at("*"))
		}
	}
	wanted(object(fileKeys()), nil)
	if known < 50 {
		t.Errorf("the format has %d keys only: this proves little", known)
	}
}

// uncommented returns the starter with the keys that it has in comments.
func uncommented(data []byte) []byte {
	keys := regexp.MustCompile(`(?m)^( *)# ( *- \{.*\}|[a-zA-Z]+:( \S+| \[.*\])?)$`)
	return keys.ReplaceAll(data, []byte("$1$2"))
}

// anywhere returns a path as text, the same for the bindings of a queue and of an
// exchange, for the messages of a queue and of all, and for dead-letter queues: to show their keys
// once is enough.
func anywhere(path []string) string {
	return strings.NewReplacer("exchanges.[].bindings.[].", "queues.[].bindings.[].", "queues.[].messages.", "messages.",
		"defaults.dead.", "queues.[].dead.", "defaults.severity.", "queues.[].severity.").
		Replace(strings.Join(path, "."))
}

// eachKey calls see for each key of a value, with those that lead to it.
func eachKey(v any, path []string, see func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			step := name
			if len(path) == 1 && path[0] == "backoff" {
				step = "*"
			}
			at := append(slices.Clone(path), step)
			see(anywhere(at))
			eachKey(inner, at, see)
		}
	case []any:
		for _, item := range v {
			eachKey(item, append(slices.Clone(path), "[]"), see)
		}
	}
}
