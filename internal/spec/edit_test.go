package spec

import "testing"

// The text is edited in place: comments, quotes and layout stay.
func TestReplace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, want string }{
		"a block": {
			"queues:\n  # the bills\n  - name: old # keep\n    backoff: none\n  - name: other\n",
			"queues:\n  # the bills\n  - name: old.v2 # keep\n    replaces: old\n    backoff: none\n  - name: other\n",
		},
		"a block whose name comes last": {
			"queues:\n- backoff: none\n  name: old",
			"queues:\n- backoff: none\n  name: old.v2\n  replaces: old\n",
		},
		"a flow": {
			"queues: [{name: a}, {backoff: none, name: old, owner: é}] # end\n",
			"queues: [{name: a}, {backoff: none, name: old.v2, replaces: old, owner: é}] # end\n",
		},
		"after non-ASCII text": {
			"queues: [{owner: éé, name: old}]\n",
			"queues: [{owner: éé, name: old.v2, replaces: old}]\n",
		},
		"as import writes it": {
			"queues:\n  - name: old\n    # Failed messages go to wait. To limit the retries, uncomment:\n" +
				"    # replaces: old\n    # type: classic\n    # deadLetterBy: arguments\n    # backoff: as-today\n    # Kept.\n" +
				"    external: true # as it is\n    bindings: [{exchange: e}]\n\n  - name: other\n    # replaces: other\n",
			"queues:\n  - name: old.v2\n    replaces: old\n" +
				"    # Failed messages go to wait. To limit the retries, uncomment:\n" +
				"    type: classic\n    deadLetterBy: arguments\n    backoff: as-today\n    # Kept.\n" +
				"    # as it is\n    bindings: [{exchange: e}]\n\n  - name: other\n    # replaces: other\n",
		},
		"external, without a proposal": {
			"queues:\n  - external: true\n    name: old\n    deadLetterBy: unmanaged # for now\n    owner: a\n  - name: b",
			"",
		},
		"external, with the name first": {
			"queues:\n  - name: old\n    external: true\n    deadLetterBy: unmanaged # for now\n    owner: a",
			"queues:\n  - name: old.v2\n    replaces: old\n    # for now\n    owner: a\n" +
				"    deadLetterBy: arguments\n    backoff: standard\n",
		},
		"external, in a flow": {
			"queues: [{name: old, external: true, owner: é}, {name: b, external: true}]\n",
			"queues: [{name: old.v2, replaces: old, deadLetterBy: arguments, backoff: standard, owner: é}, " +
				"{name: b, external: true}]\n",
		},
		"in quotes":            {"queues: [{name: 'old'}]\n", "queues: [{name: old.v2, replaces: old}]\n"},
		"no such queue":        {"queues: [{name: older}]\n", ""},
		"a name by an alias":   {"x-n: &n old\nqueues: [{name: *n}]\n", ""},
		"a name by a variable": {"queues: [{name: \"${OLD}\"}]\n", ""},
		"no queues":            {"name: shop\n", ""},
		"not YAML":             {"queues: [", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, ok := Replace(Source{Name: "f", Data: []byte(tc.file)}, "old", "old.v2", "standard")
			if ok != (tc.want != "") || string(got) != tc.want {
				t.Errorf("it is %t:\n%s\nnot:\n%s", ok, got, tc.want)
			}
		})
	}
	got, _, ok := Replace(Source{Data: []byte("queues: [{name: \"a: b\"}]\n")}, "a: b", "c, d", "")
	if want := "queues: [{name: \"c, d\", replaces: \"a: b\"}]\n"; !ok || string(got) != want {
		t.Errorf("names that need quotes: %s", got)
	}
}
