package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/templates"
	"github.com/dlxctl/dlxctl/topology"
)

// environment returns a lookup of pairs NAME=value.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v, true
			}
		}
		return "", false
	}
}

// problems returns the problems of a file as lines without the file's name.
func problems(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	broken, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error is %T", err)
	}
	var lines []string
	for _, p := range broken.Problems {
		lines = append(lines, strings.TrimPrefix(p.String(), p.File+":"))
	}
	return lines
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The example of the design compiles, to the last key.
func TestTheExampleOfTheDesign(t *testing.T) {
	t.Parallel()
	s, _, err := Decode([]Source{{Name: "design.yaml", Data: read(t, "../../testdata/design.yaml")}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compile(s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range s.Queues {
		got = append(got, fmt.Sprintf("%s %q external=%t policy=%t replaces=%q", q.Name, q.Type, q.External, q.ByPolicy,
			q.Replaces))
	}
	want := []string{
		`billing "quorum" external=false policy=false replaces=""`,
		`reports "classic" external=false policy=false replaces=""`,
		`audit "quorum" external=false policy=false replaces=""`,
		`crm.inbox "" external=true policy=true replaces=""`,
		`invoices.v2 "quorum" external=false policy=false replaces="invoices"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
}

// Without these it is a Spec: every key of the format, read.
func TestDecode(t *testing.T) {
	t.Parallel()
	got, _, err := Decode([]Source{{Name: "shop.yaml", Data: read(t, "../../testdata/shop.yaml")}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	tiers := func(attempts int, delays ...time.Duration) []Tier {
		var out []Tier
		for _, d := range delays {
			out = append(out, Tier{Delay: d, Attempts: attempts})
		}
		return out
	}
	limit := int64(5)
	s, m, day := time.Second, time.Minute, 24*time.Hour
	want := &Spec{
		Name: "shop", VHost: "/", CountHeader: "count", Type: "quorum",
		Backoffs: []Backoff{
			{Name: "standard", Tiers: tiers(1, 10*s, m, 10*m), RetryUntil: day},
			{Name: "patient", Tiers: append(tiers(1, m), tiers(4, 30*m)...), RetryUntil: 12 * time.Hour},
			{Name: "polite", Tiers: tiers(3, m, 2*m, 4*m, 8*m, 16*m), RetryUntil: day},
			{
				Name: "growing", Tiers: tiers(1, 5*s, 10*s, 20*s, 40*s, 80*s, 160*s), RetryUntil: day,
				RetryOn: []topology.Reason{topology.ReasonRejected, topology.ReasonDeliveryLimit},
			},
			{Name: "again", Tiers: tiers(3, 0), RetryUntil: day},
		},
		Exchanges: []Exchange{
			{Name: "events", Type: "topic"},
			{Name: "docs", Type: "headers"},
			{Name: "orders.in", Type: "direct", Bindings: []Binding{{Exchange: "events", Keys: []string{"order.#"}}}},
			{Name: "legacy.bus", External: true},
		},
		Queues: []Queue{
			{
				Name: "billing", Type: "quorum", Backoff: "standard", Dead: Dead{Queue: "billing.dead"}, DeliveryLimit: &limit,
				Bindings: []Binding{
					{Exchange: "events", Keys: []string{"order.placed", "order.*.cancelled"}},
					{
						Exchange: "docs", Keys: []string{""},
						Arguments: topology.Arguments{"x-match": "any", "format": "pdf", "pages": int64(2)},
					},
				},
				Owner: "team-billing", Severity: "page",
			},
			{
				Name: "reports", Type: "classic", Backoff: "standard", Dead: Dead{Queue: "shop.dead"}, Severity: "ticket",
				Arguments: topology.Arguments{"x-max-length": int64(100000)},
				Bindings:  []Binding{{Exchange: "events", Keys: []string{"report.#"}}},
			},
			{
				Name: "audit", Type: "quorum", Backoff: "none", Dead: Dead{Queue: "audit.dead"}, Severity: "ticket",
				Bindings: []Binding{{Exchange: "events", Keys: []string{"#"}}},
			},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreTypes(Pos{}, []Pos{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("Spec (-want +got):\n%s", d)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	env := environment("A=1", "EMPTY=", "TEXT=a: b")
	for in, want := range map[string]string{
		"plain": "plain", "${A}": "1", "x${A}y${A}": "x1y1", "${NOT:-d}": "d", "${NOT:-}": "", "${A:-d}": "1",
		"${EMPTY}": "", "${EMPTY:-d}": "d", "$${A}": "${A}", "$A": "$A", "$$": "$$", "${TEXT}": "a: b",
		"${NOT:-a:-b}": "a:-b",
	} {
		if got, err := expand(in, env); got != want || err != nil {
			t.Errorf("expand(%q) gives %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"${NOT}", "${", "${A", "${}", "${1A}", "${A B}", "${A-d}"} {
		if got, err := expand(in, env); err == nil {
			t.Errorf("expand(%q) gives %q", in, got)
		}
	}
}

// What is expanded is one value: typed anew where it is not quoted, and never
// more than a value.
func TestExpansionAndTypes(t *testing.T) {
	t.Parallel()
	file := func(line string) []Source {
		return []Source{{Name: "f", Data: []byte("version: 1\nname: shop\nqueues:\n  - name: q\n    backoff: none\n    " + line + "\n")}}
	}
	for line, want := range map[string]any{
		"arguments: {x-max-length: 010}":                 int64(8),
		"arguments: {x-max-length: 0x10}":                int64(16),
		"arguments: {x-max-length: 1_000}":               int64(1000),
		"arguments:\n      x-max-length: ${N}":           int64(5),
		"arguments:\n      x-other: \"${N}\"":            "5",
		"arguments:\n      x-other: ${LIST}":             "[1, 2]",
		"arguments:\n      x-other: ${NULL}":             "",
		"arguments: {x-other: 2026-11-21}":               "2026-11-21",
		"arguments: {x-other: 1.0}":                      int64(1),
		"arguments: {x-other: 1.5}":                      1.5,
		"arguments: {x-other: [a, {b: 1}, true]}":        []any{"a", topology.Arguments{"b": int64(1)}, true},
		"arguments: &a {x-other: yes}\n    x-none: *a\n": nil,
	} {
		s, _, err := Decode(file(line), environment("N=5", "LIST=[1, 2]", "NULL="))
		if want == nil {
			if err == nil {
				t.Errorf("%s is taken", line)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, got := range s.Queues[0].Arguments {
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", line, d)
			}
		}
	}
}

func TestMergeKeys(t *testing.T) {
	t.Parallel()
	s, _, err := Decode([]Source{{Name: "f", Data: []byte(`
version: 1
name: shop
x-a: &a {owner: team-a, severity: page}
x-b: &b {owner: team-b, backoff: none}
queues:
  - {name: one, <<: *a, backoff: none}
  - {<<: [*b, *a], name: two, severity: info}
`)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range s.Queues {
		got = append(got, q.Name+" "+q.Owner+" "+q.Severity+" "+q.Backoff)
	}
	if d := cmp.Diff([]string{"one team-a page none", "two team-b info none"}, got); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
}

func TestSeveralFiles(t *testing.T) {
	t.Parallel()
	a := Source{Name: "a", Data: []byte("version: 1\nname: shop\ndefaults: {backoff: s}\nqueues: [{name: q}]\n")}
	for name, tc := range map[string]struct {
		b    string
		want []string
	}{
		"lists and backoffs join": {"version: 1\nbackoff: {s: {tiers: [1s]}}\nexchanges: [{name: e}]\nqueues: [{name: r, bindings: [{exchange: e, key: k}]}]\n", nil},
		"each says the version": {
			"backoff: {s: {tiers: [1s]}}\n",
			[]string{"1:1: the file has no version; add the line: version: 1"},
		},
		"one says the name": {
			"version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\n",
			[]string{"2:1: name is already set at a:2; the files of one topology set it once; for a topology of its own run this file alone"},
		},
		"defaults without queues": {
			"version: 1\ndefaults: {backoff: s}\nbackoff: {s: {tiers: [1s]}}\n",
			[]string{"2:1: defaults is for the queues of this file, which has none; move it to a, which has the name of the topology: its defaults are for the queues of all files"},
		},
		"no queue overrides another's": {
			"version: 1\nbackoff: {s: {tiers: [1s]}}\nqueues: [{name: q}]\n",
			[]string{`3:17: queue "q" is already defined at a:4; keep one of them`},
		},
		"backoffs are found everywhere": {
			"version: 1\n",
			[]string{`3:21: there is no backoff "s"; write none, or add it under backoff`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Decode([]Source{a, {Name: "b", Data: []byte(tc.b)}}, environment())
			if d := cmp.Diff(tc.want, problems(t, err)); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestExponential(t *testing.T) {
	t.Parallel()
	for shape, want := range map[string]string{
		"{first: 5s, factor: 2, steps: 6, max: 1m}":    "5s 10s 20s 40s 1m 1m",
		"{first: 5s, steps: 3}":                        "5s 10s 20s",
		"{first: 1ms, factor: 1.5, steps: 5}":          "1ms 2ms 2ms 3ms 5ms",
		"{first: 1m, factor: 1, steps: 3}":             "1m 1m 1m",
		"{first: 1s, factor: 1000, steps: 3, max: 1d}": "1s 16m40s 1d",
	} {
		s, _, err := Decode([]Source{{
			Name: "f",
			Data: []byte("version: 1\nname: shop\nbackoff: {b: {exponential: " + shape +
				"}}\nqueues: [{name: q, backoff: b}]\n"),
		}},
			environment())
		if err != nil {
			t.Errorf("%s: %v", shape, err)
			continue
		}
		var got []string
		for _, tier := range s.Backoffs[0].Tiers {
			got = append(got, topology.FormatDelay(tier.Delay))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s gives %v, want %s", shape, got, want)
		}
	}
}

// Every key of the tables is read by the decoder: a value of the wrong kind under
// it is a problem at that place. A key that was only listed would be ignored.
func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	head := "version: 1\nname: shop\nexchanges: [{name: e}]\n"
	for place, tc := range map[string]struct {
		keys []key
		file string // KEY stands for the key with its value
	}{
		"file":        {fileKeys(), "KEY\n"},
		"defaults":    {defaultsKeys(), head + "defaults: {KEY}\n"},
		"backoff":     {backoffKeys(), head + "backoff: {b: {KEY}}\nqueues: [{name: q, backoff: b}]\n"},
		"tier":        {tierKeys(), head + "backoff: {b: {tiers: [{KEY}]}}\nqueues: [{name: q, backoff: b}]\n"},
		"exponential": {exponentialKeys(), head + "backoff: {b: {exponential: {KEY}}}\nqueues: [{name: q, backoff: b}]\n"},
		"linear":      {linearKeys(), head + "backoff: {b: {linear: {KEY}}}\nqueues: [{name: q, backoff: b}]\n"},
		"exchange":    {exchangeKeys(), "version: 1\nname: shop\nexchanges: [{KEY}, {name: f, KEY}]\n"},
		"queue":       {queueKeys(), head + "queues: [{KEY}, {name: q, KEY}]\n"},
		"binding": {
			bindingKeys(),
			head + "queues: [{name: q, backoff: none, bindings: [{KEY}, {exchange: e, KEY}, {exchange: e, headers: {}, KEY}]}]\n",
		},
		"messages":          {messagesKeys(), head + "messages: {KEY}\n"},
		"messages, type":    {messageTypeKeys(), head + "messages: {types: [{KEY}, {type: a.B, KEY}]}\n"},
		"messages, redact":  {redactKeys(), head + "messages: {redact: {KEY}}\n"},
		"messages of queue": {queueMessagesKeys(), head + "queues: [{name: q, backoff: none, messages: {KEY}}]\n"},
		"dead": {
			deadKeys(),
			head + "queues: [{name: q, backoff: none, dead: {KEY}}, {name: r, backoff: none, dead: {queue: d, KEY}}]\n",
		},
	} {
		for _, k := range tc.keys {
			wrong := "[[]]" // neither text nor number, truth value, mapping, or list of such
			file := strings.ReplaceAll(tc.file, "KEY", k.name+": "+wrong)
			_, _, err := Decode([]Source{{Name: "f", Data: []byte(file)}}, environment())
			said := strings.Join(problems(t, err), "\n")
			if strings.Contains(said, fmt.Sprintf("no key %q", k.name)) {
				t.Errorf("%s: %s is in the table and unknown to the decoder", place, k.name)
			}
			if !strings.Contains(said, "is a list") {
				t.Errorf("%s: the decoder does not read %s:\n%s", place, k.name, said)
			}
		}
		file := strings.ReplaceAll(tc.file, "KEY", "zzz: 1")
		_, _, err := Decode([]Source{{Name: "f", Data: []byte(file)}}, environment())
		if said := strings.Join(problems(t, err), "\n"); !strings.Contains(said, `has no key "zzz"`) {
			t.Errorf("%s: an unknown key is taken:\n%s", place, said)
		}
	}
}

// fit checks a value against a JSON Schema of the kind that Schema gives.
func fit(schema map[string]any, v any, at string) []string {
	if len(schema) == 0 {
		return nil // anything
	}
	if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(fmt.Sprint(v)) {
		return []string{fmt.Sprintf("%s: %v does not match %s", at, v, pattern)}
	}
	if list, ok := schema["anyOf"].([]any); ok {
		var all []string
		fits := false
		for _, s := range list {
			one, _ := s.(map[string]any)
			misfits := fit(one, v, at)
			fits = fits || len(misfits) == 0
			all = append(all, misfits...)
		}
		if _, more := schema["properties"]; !fits {
			return all
		} else if !more {
			return nil
		}
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return []string{fmt.Sprintf("%s: %v is not among %v", at, v, enum)}
	}
	if want, ok := schema["const"]; ok && want != v {
		return []string{fmt.Sprintf("%s: %v is not %v", at, v, want)}
	}
	var out []string
	switch v := v.(type) {
	case map[string]any:
		if t, ok := schema["type"]; ok && t != "object" {
			return []string{at + " is an object, not " + fmt.Sprint(t)}
		}
		properties, _ := schema["properties"].(map[string]any)
		patterns, _ := schema["patternProperties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			next, known := properties[name].(map[string]any)
			if more, free := schema["additionalProperties"].(map[string]any); !known && free {
				next, known = more, true
			}
			_, closed := schema["additionalProperties"]
			if !known && closed && (patterns == nil || !strings.HasPrefix(name, "x-")) {
				out = append(out, at+" has no key "+name)
				continue
			}
			out = append(out, fit(next, v[name], at+"."+name)...)
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[fmt.Sprint(name)]; !ok {
				out = append(out, fmt.Sprintf("%s lacks %v", at, name))
			}
		}
	case []any:
		if t, ok := schema["type"]; ok && t != "array" {
			return []string{at + " is a list, not " + fmt.Sprint(t)}
		}
		items, _ := schema["items"].(map[string]any)
		for i, e := range v {
			out = append(out, fit(items, e, fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		kind := map[bool]string{true: "string"}[fmt.Sprintf("%T", v) == "string"]
		if t, ok := schema["type"]; ok && (kind == "string") != (t == "string") {
			out = append(out, fmt.Sprintf("%s is %v, not %v", at, v, t))
		}
	}
	return out
}

// The files that we write and show fit the schema; what the decoder refuses for
// its keys and words does not.
func TestSchema(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"design.yaml": read(t, "../../testdata/design.yaml"),
		"shop.yaml":   read(t, "../../testdata/shop.yaml"),
	}
	for _, name := range templates.Starters() {
		files[name], _ = templates.Starter(name)
	}
	for name, data := range files {
		if misfits := fit(schema, plain(t, data), name); len(misfits) > 0 {
			t.Errorf("%s does not fit the schema:\n%s", name, strings.Join(misfits, "\n"))
		}
	}
	for _, wrong := range []string{
		"version: 2\nname: a\n", "name: a\n", "version: 1\nnam: a\n", "version: 1\ndefaults: {type: stream}\n",
		"version: 1\nqueues: [{}]\n", "version: 1\nqueues: [{name: q, severity: loud}]\n", "version: 1\nqueues: {name: q}\n",
		"version: 1\nbackoff: {b: {retryOn: [reject]}}\n", "version: 1\nqueues: [{name: q, bindings: [{key: a}]}]\n",
	} {
		if misfits := fit(schema, plain(t, []byte(wrong)), "file"); len(misfits) == 0 {
			t.Errorf("the schema takes\n%s", wrong)
		}
		if _, _, err := Decode([]Source{{Name: "f", Data: []byte(wrong)}}, environment()); err == nil {
			t.Errorf("the decoder takes\n%s", wrong)
		}
	}
}

// plain returns a YAML file as JSON would hold it.
func plain(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever a file holds, it becomes a Spec that compiles, or problems that have a
// place and a text; it never panics.
func TestMutatedFiles(t *testing.T) {
	t.Parallel()
	lines := strings.Split(string(read(t, "../../testdata/shop.yaml")), "\n")
	rapid.Check(t, func(t *rapid.T) {
		mutant := slices.Clone(lines)
		for range rapid.IntRange(1, 4).Draw(t, "mutations") {
			i := rapid.IntRange(0, len(mutant)-1).Draw(t, "line")
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				mutant[i] = ""
			case 1:
				mutant = slices.Insert(mutant, i, mutant[i])
			case 2:
				mutant[i] = strings.Replace(mutant[i], ":", ": null #", 1)
			case 3:
				from, to := rapid.SampledFrom([]string{
					"10s", "1m", "topic", "name", "{", "[", "standard", "\"", "key",
					"1",
				}).Draw(t, "from"),
					rapid.SampledFrom([]string{
						"", "~", "[]", "{}", "*a", "&a b", "-1", "99999999999999999999", "${X}", "'", "\t",
						"<<",
					}).Draw(t, "to")
				mutant[i] = strings.Replace(mutant[i], from, to, 1)
			case 4:
				mutant[i] = "  " + mutant[i]
			}
		}
		s, _, err := Decode([]Source{{Name: "f", Data: []byte(strings.Join(mutant, "\n"))}}, environment())
		if err == nil {
			if _, err := Compile(s); err != nil {
				t.Fatalf("Decode takes what Compile refuses: %v", err)
			}
			return
		}
		broken, ok := errors.AsType[*Error](err)
		if !ok || len(broken.Problems) == 0 {
			t.Fatalf("error is %T %v", err, err)
		}
		for _, p := range broken.Problems {
			if p.File != "f" || p.Line < 1 || p.Col < 1 || p.Msg == "" {
				t.Fatalf("problem without a place: %+v", p)
			}
		}
	})
}
