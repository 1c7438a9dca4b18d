package spec

import (
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

// An entry is added to the text in place: comments, quotes and layout stay.
func TestAppend(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, want string }{
		"a block": {
			"queues:\n  # the bills\n  - name: a # keep\n    backoff: none\n\n# the end\nname: shop\n",
			"queues:\n  # the bills\n  - name: a # keep\n    backoff: none\n  - {name: new}\n\n# the end\nname: shop\n",
		},
		"a block at the end, without a line break": {"queues:\n- name: a", "queues:\n- name: a\n- {name: new}\n"},
		"a block scalar last": {
			"queues:\n  - name: a\n    owner: |\n      b\n\n      c\nname: shop\n",
			"queues:\n  - name: a\n    owner: |\n      b\n\n      c\n  - {name: new}\nname: shop\n",
		},
		"entries on one line each": {
			"queues:\n  - {name: a,\n     bindings: [\n     ]}\nname: shop\n",
			"queues:\n  - {name: a,\n     bindings: [\n     ]}\n  - {name: new}\nname: shop\n",
		},
		"a flow": {
			"queues: [{name: a, x: [1]}] # ]\n",
			"queues: [{name: a, x: [1]}, {name: new}] # ]\n",
		},
		"a flow with a bracket in quotes": {"queues: [{name: \"a]\"}]\n", "queues: [{name: \"a]\"}, {name: new}]\n"},
		"a flow that is empty":            {"queues: []\nname: shop\n", "queues: [{name: new}]\nname: shop\n"},
		"a flow with a last comma": {
			"queues: [\n  {name: a},\n]\n",
			"queues: [\n  {name: a},\n{name: new}]\n",
		},
		"no list":       {"name: shop\n", "name: shop\nqueues:\n  - {name: new}\n"},
		"no value":      {"queues:\nname: shop\n", ""},
		"all in a flow": {"{name: shop}\n", ""},
		"not YAML":      {"queues: [", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Append(Source{Name: "f", Data: []byte(tc.file)}, "queues", "{name: new}")
			if ok != (tc.want != "") || string(got) != tc.want {
				t.Errorf("it is %t:\n%s\nnot:\n%s", ok, got, tc.want)
			}
		})
	}
}

// An entry has what the defaults of a file that import wrote lack for a successor.
func TestEntryOfAnImportedFile(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {deadLetterBy: unmanaged}\nqueues:\n"
	entry, err := Entry([]Source{{Name: "a.yaml", Data: []byte(file)}}, "new", "old", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadRetryTo(t, file+"  - "+entry+"\n"); err != nil {
		t.Errorf("%s: %v", entry, err)
	}
}

// An entry has the bindings of the legacy queue, whatever their exchange is, and the file is valid.
func TestEntry(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]topology.Binding{
		"a key":              {Source: "direct", Key: "a"},
		"a key and more":     {Source: "direct", Key: "a", Arguments: topology.Arguments{"note": "of a team"}},
		"no key, and more":   {Source: "fanout", Arguments: topology.Arguments{"note": "of a team"}},
		"headers":            {Source: "headers", Arguments: topology.Arguments{"x-match": "any", "pages": int64(2)}},
		"headers with x-":    {Source: "headers", Arguments: topology.Arguments{"x-match": "all-with-x", "x-a": "b"}},
		"no header":          {Source: "headers", Arguments: topology.Arguments{"x-match": "all"}},
		"headers and no key": {Source: "headers", Key: "a", Arguments: topology.Arguments{"x-match": "all", "c": "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry, err := Entry(nil, "new", "old", []topology.Binding{b})
			if err != nil {
				t.Fatal(err)
			}
			want, err := loadRetryTo(t, "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nexchanges: "+
				"[{name: direct, type: direct}, {name: fanout, type: fanout}, {name: headers, type: headers}]\nqueues:\n  - "+entry+"\n")
			if err != nil {
				t.Fatalf("%s: %v", entry, err)
			}
			for _, got := range want.Bindings {
				if got.Source == b.Source && got.Key == b.Key && got.Arguments.Without(topology.ArgManagedBy).Equal(b.Arguments) {
					return
				}
			}
			t.Errorf("%s has not the binding %s", entry, b)
		})
	}
}
