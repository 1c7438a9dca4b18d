package spec

import "testing"

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
