package spec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// overlaid returns files a, b and so on with overlays 1, 2 and so on.
func overlaid(files []string, over ...string) []Source {
	sources := numbered(files)
	for i, text := range over {
		sources = append(sources, Source{Name: fmt.Sprint(i + 1), Data: []byte(text), Overlay: true})
	}
	return sources
}

// compiled returns what files compile to, as JSON, or their problems.
func compiled(sources []Source) string {
	top, warnings, err := Load(sources, environment("PROD=prod", "Q=billing"))
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for _, w := range warnings {
		fmt.Fprintln(&b, w)
	}
	_, _ = jsondoc.Write(&b, top), top
	return b.String()
}

// An overlay may leave a backoff without a queue: the warning names it, or all of several.
func TestAnOverlayLeavesABackoffUnused(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}, c: {tiers: [1h]}}\nqueues: [{name: q, backoff: b}, {name: r, backoff: c}]\n"
	for want, over := range map[string][]string{
		"": nil,
		`a:3:11: warning unused-backoff: the backoff "b" is used by no queue with the overlay 1; dlxctl creates nothing for it`: {
			"queues: [{name: q, backoff: c}]",
		},
		`a:3:11: warning unused-backoff: the backoff "b" is used by no queue with the overlays 1 and 2; dlxctl creates nothing for it`: {
			"queues: [{name: q, backoff: c}]", "queues: [{name: q, owner: team}]",
		},
	} {
		_, warnings, err := Load(overlaid([]string{file}, over...), environment())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range warnings {
			got = append(got, w.String())
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("the warnings are %q, want %q", got, want)
		}
	}
}

const overlayBase = `version: 1
name: shop
vhost: dev
backoff:
  standard: {tiers: [1s, 2s], retryOn: [rejected]}
  slow: {tiers: [1h]}
defaults: {backoff: standard, owner: team, arguments: {x-single-active-consumer: false}}
exchanges:
  - {name: events, type: topic}
  - {name: docs, type: headers}
queues:
  - &b
    name: billing
    deliveryLimit: 5
    arguments: {x-max-in-memory-length: 10}
    bindings: [{exchange: events, key: a}]
  - {<<: *b, name: "${PROD}.mail", backoff: slow}
accept: [unknown-argument]
removed: [old]
`

// Each overlay gives what the edited file gives.
func TestOverlay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ over, old, edited string }{
		"a scalar at the top": {"vhost: prod", "vhost: dev", "vhost: prod"},
		"a variable":          {"vhost: ${PROD}", "vhost: dev", "vhost: prod"},
		"a key that is new":   {"cluster: c1", "vhost: dev", "vhost: dev\ncluster: c1"},
		"null removes":        {"vhost: null", "vhost: dev\n", ""},
		"another name":        {"name: prod", "name: shop", "name: prod"},
		"version":             {"version: 1", "", ""},
		"anchors": {
			"x-l: &l 7\nqueues: [{name: billing, deliveryLimit: *l}]",
			"name: billing\n    deliveryLimit: 5",
			"name: billing\n    deliveryLimit: 7",
		},
		"a list of tiers": {"backoff: {standard: {tiers: [5s]}}", "[1s, 2s]", "[5s]"},
		"tiers by exponential": {
			"backoff: {standard: {tiers: null, exponential: {first: 1s, steps: 2}}}",
			"[1s, 2s]",
			"[1s, 2s]",
		},
		"a key of a backoff": {"backoff: {standard: {retryOn: null}}", ", retryOn: [rejected]", ""},
		"a default": {
			"defaults: {owner: ops, severity: page}",
			"owner: team",
			"owner: ops, severity: page",
		},
		"a default argument": {
			"defaults: {arguments: {x-single-active-consumer: true}}",
			"consumer: false",
			"consumer: true",
		},
		"a default removed": {"defaults: {owner: null}", "owner: team, ", ""},
		"an exchange": {
			"exchanges: [{name: docs, internal: true}]",
			"type: headers",
			"type: headers, internal: true",
		},
		"arguments merge": {
			"queues: [{name: billing, arguments: {x-max-in-memory-length: 11}}]",
			"length: 10",
			"length: 11",
		},
		"bindings replace": {
			"queues: [{name: billing, bindings: [{exchange: events, keys: [b, c]}]}]",
			"bindings: [{exchange: events, key: a}]\n  - {<<: *b",
			"bindings: [{exchange: events, keys: [b, c]}]\n  - {<<: *b, bindings: [{exchange: events, key: a}]",
		},
		"a name by a variable": {
			"queues: [{name: \"${Q}\", owner: x}]",
			"name: billing\n",
			"name: billing\n    owner: x\n",
		},
		"a name with a variable": {
			"queues: [{name: prod.mail, backoff: standard}]",
			"backoff: slow",
			"backoff: standard",
		},
		"a mapping for a word": {
			"queues: [{name: billing, dead: {queue: d, arguments: null}}]",
			"name: billing\n",
			"name: billing\n    dead: {queue: d}\n",
		},
		"lists at the top": {
			"removed: [older]\naccept: null",
			"accept: [unknown-argument]\nremoved: [old]",
			"removed: [older]",
		},
		"null where nothing is": {"countHeader: null\nqueues: [{name: billing, severity: null}]", "", ""},
		"rules for messages": {
			"messages: {redact: {bodies: hidden}}",
			"vhost: dev",
			"vhost: dev\nmessages: {redact: {bodies: hidden}}",
		},
		"an alias is not changed too": {
			"queues: [{name: billing, deliveryLimit: 9}]",
			"name: billing\n    deliveryLimit: 5",
			"name: billing\n    deliveryLimit: 9",
		},
	} {
		edited := strings.Replace(overlayBase, test.old, test.edited, 1)
		switch name { // an edited anchor changes the second queue as well
		case "anchors", "an alias is not changed too":
			edited = strings.Replace(edited, "<<: *b,", "<<: *b, deliveryLimit: 5,", 1)
		case "arguments merge":
			edited = strings.Replace(edited, "<<: *b,", "<<: *b, arguments: {x-max-in-memory-length: 10},", 1)
		case "a name by a variable":
			edited = strings.Replace(edited, "<<: *b,", "<<: *b, owner: team,", 1)
		case "a mapping for a word":
			edited = strings.Replace(edited, "<<: *b,", "<<: *b, dead: own,", 1)
		}
		want := compiled(numbered([]string{edited}))
		if !strings.Contains(want, "\n{\n") && !strings.HasPrefix(want, "{\n") {
			t.Fatalf("%s: %s\n%s", name, want, edited)
		}
		got := strings.ReplaceAll(compiled(overlaid([]string{overlayBase}, test.over)), " with the overlay 1;", ";")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-edited +overlaid):\n%s", name, d)
		}
	}
}

// An entry with match is found by its pattern.
func TestOverlayOfAMatch(t *testing.T) {
	t.Parallel()
	const base = "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\n" +
		"queues: [{match: '^svc\\.', external: true}, {match: '^job\\.', external: true}]\n"
	over := "queues: [{match: '^svc\\.', severity: page, dead: {queue: svcs.dead}}]"
	edited := strings.Replace(base, "true}", "true, severity: page, dead: {queue: svcs.dead}}", 1)
	got, _, err := Load(overlaid([]string{base}, over), environment())
	want, _, wrong := Load(numbered([]string{edited}), environment())
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	got.Places, want.Places = nil, nil
	for i := range got.Matches {
		got.Matches[i].Place, want.Matches[i].Place = topology.Place{}, topology.Place{}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the overlay gives (-want +got):\n%s", d)
	}
	const refused = `1:1:18: no file has the queue "match: ^svc"; did you mean "match: ^svc\\."?`
	if got := compiled(overlaid([]string{base}, "queues: [{match: ^svc, owner: x}]")); got != refused {
		t.Errorf("it says %s", got)
	}
}

// An overlay wins over the defaults of each file, and lists at the top are those of the overlay
// alone, whichever file has them.
func TestOverlayOfSeveralFiles(t *testing.T) {
	t.Parallel()
	files := []string{
		"version: 1\nqueues: [{name: p}]\nremoved: [x]\n",
		"version: 1\nname: rail\ndefaults: {backoff: none}\nqueues: [{name: c}]\n",
		"version: 1\ndefaults: {owner: crm, arguments: {x-max-length: 5}}\nqueues: [{name: t}]\nremoved: [y, z]\n",
	}
	over := []string{"defaults: {owner: all, arguments: {x-max-length: 7, x-max-length-bytes: 8}}\n", "queues: [{name: t, owner: last}]\nremoved: [y]\n"}
	s, _, err := Decode(overlaid(files, over...), environment())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range s.Queues {
		got = append(got, fmt.Sprint(q.Name, " ", q.Owner, " ", q.Arguments))
	}
	want := []string{
		`p all {"x-max-length":7,"x-max-length-bytes":8}`, `c all {"x-max-length":7,"x-max-length-bytes":8}`,
		`t last {"x-max-length":7,"x-max-length-bytes":8}`,
	}
	if d := cmp.Diff(want, got); d != "" || len(s.Removed) != 1 || s.Removed[0].Pos != (Pos{"2", 2, 11}) {
		t.Errorf("queues (-want +got):\n%s\nremoved %v", d, s.Removed)
	}
}

// A problem has the place of the value, in the file that it came from.
func TestOverlayIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ over, want string }{
		{"queues: [{name: biling, owner: x}]", `1:1:17: no file has the queue "biling"; did you mean "billing"?`},
		{"queues: [{name: search, owner: x}]", `1:1:17: no file has the queue "search"; an overlay changes what the files have: write a new queue into a file, and pass it with -f`},
		{"exchanges: [{name: event}]", `1:1:20: no file has the exchange "event"; did you mean "events"?`},
		{"backoff: {standrad: {tiers: [1s]}}", `1:1:11: no file has the backoff "standrad"; did you mean "standard"?`},
		{"backoff: {far: null}", `1:1:11: no file has the backoff "far"; an overlay changes what the files have: write a new backoff into a file, and pass it with -f`},
		{"queues: [{owner: x}]", `1:1:10: queue has no name; add name: …`},
		{"queues: [{name: billing}, {name: billing, owner: x}]", `1:1:34: the overlay has the queue "billing" twice, first on line 1; keep one`},
		{"queues: null", `1:1:9: queues is null; an overlay removes no queue: leave out the file that has it`},
		{"queues: {name: billing}", `1:1:9: queues is a mapping, not a list; write a list: [a, b], or one line with - per entry`},
		{"queues: [billing]", `1:1:10: queue is the text "billing", not a mapping; write key: value pairs, or {key: value}`},
		{"queues: [{name: billing, deliverylimit: 3}]", `1:1:26: queue has no key "deliverylimit"; did you mean "deliveryLimit"?`},
		{"queues: [{name: billing, deliveryLimit: many}]", `1:1:41: deliveryLimit is the text "many", not a whole number; write a number without quotes`},
		{"queues: [{name: billing, type: classic}]", "a:14:5: queue \"billing\" is classic, by 1:1:32, and has a deliveryLimit; only quorum queues count deliveries: remove it, or write type: quorum\na:15:17: x-max-in-memory-length is for quorum queues; remove it, or write type: quorum"},
		{"queues: [{name: billing, backoff: slwo}]", `1:1:35: there is no backoff "slwo"; did you mean "slow"?`},
		{"queues: [{name: billing, bindings: [{exchange: evnts, key: k}]}]", `1:1:37: binding comes from exchange "evnts", which is not declared; did you mean "events"?`},
		{"queues:\n- name: billing\n  owner: # crm", `1:3:3: owner has no value; give it a value, or write null to remove what the files have; a text that begins with # needs quotes`},
		{"backoff: {standard: {exponential: {first: 1s, steps: 2}}}", `1:1:35: backoff "standard" has both tiers and exponential; keep one of them: an overlay removes the other with null`},
		{"backoff: {standard: {tiers: [{delay: 1s, attempts: 2000}]}}", `1:1:22: backoff "standard" has 2000 attempts; a backoff may have at most 1000: each attempt is a binding of its headers exchange`},
		{"queues: [{name: prod.mail, backoff: standard, arguments: {x-max-length: 5}}]", `1:1:59: queue "prod.mail" has x-max-length and shares the backoff "standard" with "billing"; while it is full it would delay the retries of the other queues: give it a backoff of its own`},
		{"exchanges: [{name: events, type: headers}]", `a:16:16: binding comes from the headers exchange "events", by 1:1:28, and has no headers; add headers: {name: value}; headers: {} matches every message`},
		{"exchanges: [{name: events, type: fanout}]\nqueues: [{name: billing, bindings: [{exchange: events, headers: {a: b}}]}]", `1:2:37: binding has headers, but exchange "events" is of type fanout, by 1:1:28; only headers exchanges match headers: write key, or change the type`},
		{"vhots: prod", `1:1:1: the file has no key "vhots"; did you mean "vhost"?`},
		{"version: 2", `1:1:10: version is 2; this release reads version 1 only`},
		{"defaults: {sevrity: page}", `1:1:12: defaults has no key "sevrity"; did you mean "severity"?`},
		{"defaults: {severity: loud}", `1:1:22: severity is "loud"; write page, ticket or info`},
		{"defaults: {arguments: {x-max-priority: 5}}", `1:1:24: x-max-priority is for classic queues; a default must fit all queues that it is for: write it on the queues that it fits, or remove it, or write type: classic`},
		{"vhost: ${UNSET}", `1:1:8: "${UNSET}": the environment variable UNSET is not set; set it, or write ${UNSET:-default}`},
		{"name: null", `1:1:7: the topology has no name; an overlay may change the name, but not remove it`},
		{"backoff: {slow: null}", `1:1:17: this null removes the backoff "slow", which a:17:45 names; keep the backoff, or name another one there: none or standard`},
		{"backoff: {standard: {tiers: null}}", `1:1:29: backoff "standard" has no tiers, exponential or linear; add tiers, such as tiers: [10s, 1m, 10m]`},
		{"backoff: null\ndefaults: {backoff: none}", `1:1:10: this null removes the backoff "slow", which a:17:45 names; keep the backoff, or name another one there: none`},
		{"defaults: {backoff: null}", `1:1:21: because of this null the queue at a:12:5 has no backoff, and defaults has none; remove the null, or add backoff: NAME to the queue, or backoff: none to dead-letter messages at once`},
		{"defaults: null", `1:1:11: because of this null the queue at a:12:5 has no backoff, and defaults has none; remove the null, or add backoff: NAME to the queue, or backoff: none to dead-letter messages at once`},
		{"defaults: {backoff: null}\nqueues: [{name: billing, backoff: null}]", `1:1:21: because of this null the queue at a:12:5 has no backoff, and defaults has none; remove the null, or add backoff: NAME to the queue, or backoff: none to dead-letter messages at once`},
		{"vhost: a\n---\nvhost: b", `1:2:1: the file holds a second document; put each document into a file of its own, and pass both with --overlay`},
		{"[]", `1:1:1: the file is a list, not a mapping; write the keys of a topology file that change, and their values`},
		{"vhost: a\nvhost: b", `1:2:1: the overlay has the key "vhost" twice, first on line 1; keep one`},
		{"a: [", `1:1:1: this is not YAML: did not find expected node content; check the indentation, and quote values that hold : # { } [ ] or begin with * & ! @`},
	} {
		if got := compiled(overlaid([]string{overlayBase}, test.over)); got != test.want {
			t.Errorf("%s:\n%s, not\n%s", test.over, got, test.want)
		}
	}
	two := []string{overlayBase, "version: 1\nname: other\n"}
	if got := compiled(overlaid(two, "name: one")); !strings.HasPrefix(got, "b:2:1: name is already set at a:2;") {
		t.Errorf("an overlay makes one of two topologies: %s", got)
	}
}

// An object has the place where the file declares it, and that at which an overlay changes it.
func TestPlacesOfOverlays(t *testing.T) {
	t.Parallel()
	for over, want := range map[string]string{
		"":                                     "a:5, a:9, a:13, a:17",
		"vhost: v":                             "a:5, a:9, a:13, a:17",
		"\nbackoff: {standard: {tiers: [5s]}}": "a:5, 1:2, a:9, a:13, a:17",
		"backoff: {standard: {retryOn: null}}": "a:5, 1:1, a:9, a:13, a:17",
		"queues:\n- name: billing\n  owner: x\n  severity: page":             "a:5, a:9, a:13, 1:3, a:17",
		"queues: [{name: prod.mail, deliveryLimit: null}]":                   "a:5, a:9, a:13, a:17, 1:1",
		"exchanges: [{name: events, internal: true}]":                        "a:5, a:9, 1:1, a:13, a:17",
		"\ndefaults: {deliveryLimit: 7}":                                     "a:5, a:9, a:13, a:17",
		"\ndefaults: {type: quorum, backoff: slow}":                          "a:9, a:13, 1:2, a:17, 1:2",
		"defaults:\n  arguments: {x-single-active-consumer: true}":           "a:5, a:9, a:13, 1:2, a:17, 1:2",
		"queues:\n- name: billing\n  bindings: [{exchange: events, key: b}]": "a:5, a:9, a:13, 1:3, a:17",
	} {
		top, _, err := Load(overlaid([]string{overlayBase}, over), environment("PROD=prod", "Q=billing"))
		if err != nil {
			t.Errorf("%s: %v", over, err)
			continue
		}
		var got []string
		if b, ok := top.Backoff("standard"); ok {
			got = append(got, b.Place.String())
		}
		for _, key := range []topology.Key{
			{Kind: topology.KindExchange, Name: "events"},
			{Kind: topology.KindQueue, Name: "billing"},
			{Kind: topology.KindQueue, Name: "prod.mail"},
		} {
			got = append(got, top.Places[key].String())
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%q: %s, not %s", over, got, want)
		}
	}
}

// An overlay of several topologies may name what one of them has.
func TestOverlayOfSeveralTopologies(t *testing.T) {
	t.Parallel()
	other := []Source{{Name: "z", Data: []byte("backoff: {far: {tiers: [1s]}}\nexchanges: [{name: else}]\nqueues: [{name: \"${PROD}.where\"}]\n")}}
	over := Source{Name: "1", Overlay: true, Others: other, Data: []byte("vhost: v\nbackoff: {far: {tiers: [2s]}}\nexchanges: [{name: else, internal: true}]\nqueues: [{name: prod.where, owner: x}]\n")}
	want := compiled(overlaid([]string{overlayBase}, "vhost: v"))
	if d := cmp.Diff(want, compiled(append(numbered([]string{overlayBase}), over))); d != "" {
		t.Error(d)
	}
	over.Data = []byte("queues: [{name: where}]\n")
	got := compiled(append(numbered([]string{overlayBase}), over))
	if !strings.HasPrefix(got, `1:1:17: no file has the queue "where"`) {
		t.Error(got)
	}
}

// Paths of schemas are relative to the file that names them.
func TestOverlayOfPaths(t *testing.T) {
	t.Parallel()
	files := []Source{
		{Name: "base/a.yaml", Data: []byte(overlayBase + "messages: {protoset: [a.binpb]}\n")},
		{Name: "prod/o.yaml", Data: []byte("messages: {proto: [o.proto]}\n"), Overlay: true},
	}
	s, _, err := Decode(files, environment("PROD=p"))
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Concat(s.Messages.Protosets, s.Messages.ImportPaths)
	if d := cmp.Diff([]string{"base/a.binpb", "prod"}, got); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
}

// The laws of overlays, for whatever the files and the overlay hold: an overlay of an empty file
// changes nothing, and to apply an overlay twice is to apply it once.
func lawsOfOverlays(tb testing.TB, file, over []byte) {
	tb.Helper()
	base := Source{Name: "f", Data: file}
	same := func(what string, one, two []Source) {
		tb.Helper()
		if a, b := compiled(one), compiled(two); a != b {
			tb.Errorf("%s:\n%s\n%s", what, a, b)
		}
	}
	same("an empty overlay changes something", []Source{base}, []Source{base, {Name: "o", Overlay: true}})
	o := Source{Name: "o", Data: over, Overlay: true}
	same("a second time changes something", []Source{base, o}, []Source{base, o, o})
}

// partsOfOverlays are lines of which overlays are drawn.
func partsOfOverlays() []string {
	return []string{
		"vhost: v", "vhost: null", "name: other", "cluster: c", "removed: [a]", "accept: null",
		"defaults: {owner: o, backoff: slow}",
		"defaults: null", "defaults: {arguments: {x-max-length: null, x-foo: 1}}", "backoff: {slow: null}",
		"backoff: {slow: {tiers: [1s, 1m]}, standard: {retryOn: null}}", "backoff: null", "exchanges: [{name: events, internal: true}]",
		"queues: [{name: billing, owner: x, arguments: {x-max-length: 5}, deliveryLimit: null}]",
		"queues: [{name: billing, dead: {queue: d}}, {name: prod.mail, bindings: null}]", "queues: [{name: missing}]",
		"queues: [{name: billing, dead: null, type: classic}]",
		"messages: {redact: {bodies: hidden, types: [email]}}", "messages: null",
	}
}

// The schema of overlays takes what may be in one, and refuses what an overlay of any file is
// refused for.
func TestOverlaySchema(t *testing.T) {
	t.Parallel()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(OverlaySchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("overlay.json", value); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("overlay.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, fits := range append(partsOfOverlays(), "version: 1", "x-mine: {a: 1}", "queues: [{name: billing}]",
		"queues: [{match: '^svc\\.', severity: page}]",
		"backoff: {slow: {exponential: {steps: 3}}}", "queues: [{name: billing, dead: {arguments: null}}]",
		"queues: [{name: billing, deliveryLimit: \"${LIMIT}\"}]") {
		if err := schema.Validate(plain(t, []byte(fits))); err != nil {
			t.Errorf("the schema refuses\n%s\n%v", fits, err)
		}
	}
	for _, wrong := range []string{
		"name: null", "version: 2", "queues: null", "queues: [{owner: x}]", "queues: [{name: null}]",
		"queues: [{match: null}]", "exchanges: [{match: a}]",
		"queues: {name: billing}", "queues: [{name: billing, deliverylimit: 3}]", "vhots: prod",
		"defaults: {severity: loud}", "backoff: {standard: {tiers: [{attempts: 2}]}}",
		"queues: [{name: billing, bindings: [{key: a}]}]",
	} {
		if schema.Validate(plain(t, []byte(wrong))) == nil {
			t.Errorf("the schema takes\n%s", wrong)
		}
		if got := compiled(overlaid([]string{overlayBase}, wrong)); !strings.HasPrefix(got, "1:") {
			t.Errorf("the decoder takes\n%s\n%s", wrong, got)
		}
	}
}

func TestLawsOfOverlays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		byKey := map[string]string{}
		for _, part := range rapid.SliceOfN(rapid.SampledFrom(partsOfOverlays()), 0, 5).Draw(t, "parts") {
			key, _, _ := strings.Cut(part, ":")
			byKey[key] = part
		}
		var over string
		for _, part := range byKey {
			over += part + "\n"
		}
		base := overlayBase + rapid.SampledFrom([]string{"", "messages: {redact: {types: [iban]}}\n"}).Draw(t, "more")
		one := compiled(overlaid([]string{base}, over))
		again := overlaid([]string{base}, over)
		two := compiled(append(again, again[1]))
		if one != two {
			t.Fatalf("a second time changes something:\n%s\n%s\n%s", over, one, two)
		}
		empty := overlaid([]string{base}, "", "# nothing\n", "{}", "x-y: 1\n")
		if a, b := compiled(numbered([]string{base})), compiled(empty); a != b {
			t.Fatalf("an empty overlay changes something:\n%s\n%s", a, b)
		}
	})
}

// The starters and samples stay as they are under an empty overlay.
func TestEmptyOverlayOfSamples(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"../../testdata/*.yaml", "../../templates/starters/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lawsOfOverlays(t, data, nil)
		}
	}
}

// A queue that gets a successor gets it in the overlays too, so that they still change it.
func TestRenameInOverlays(t *testing.T) {
	t.Parallel()
	base := "version: 1\nname: shop\nqueues:\n  - name: billing\n    backoff: none\n  - {name: mail, backoff: none}\n"
	files := overlaid([]string{base}, "queues: [{name: mail, owner: x}]\n", "queues:\n- name: billing\n  owner: y\n")
	s := NewSuccessors(files, nil)
	lines, ok := s.Rename("billing", "billing.v2")
	want := "a:   - name: billing.v2\n    replaces: billing\n2: - name: billing.v2\n  replaces: billing"
	if !ok || lines != want {
		t.Errorf("the lines are %q, not %q", lines, want)
	}
	top, _, err := Load(s.Sources(), environment())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range top.WorkQueues {
		got = append(got, w.Name+" "+w.Replaces+" "+w.Owner)
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"billing.v2 billing y", "mail  x"}, got); d != "" || len(s.Edited()) != 2 {
		t.Errorf("work queues (-want +got):\n%s", d)
	}
}
