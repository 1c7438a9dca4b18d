package spec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec"
)

// removed lists what is gone: lists of several files join, and what is still there is
// refused.
func TestRemoved(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nname: shop\ndefaults: {backoff: none}\nexchanges: [{name: e}]\nqueues: [{name: q, dead: {queue: graves}}, {name: new, replaces: old}]\n"
	for name, tc := range map[string]struct {
		text string
		want []string
		errs string
	}{
		"none": {"", nil, ""},
		"some": {"removed: [a, b.c]\n", []string{"a", "b.c", "more"}, ""},
		"a queue of the file": {
			"removed: [q]\n", nil,
			`a:6:11: removed lists "q", which the file declares as a queue at a:5:17; remove it from removed, or remove it elsewhere in the file`,
		},
		"an exchange": {
			"removed: [e]\n", nil,
			`a:6:11: removed lists "e", which the file declares as an exchange at a:4:20; remove it from removed, or remove it elsewhere in the file`,
		},
		"a delay": {
			"delays: [{name: later, to: e}]\nremoved: [later]\n", nil,
			`a:7:11: removed lists "later", which the file declares as a delay at a:6:17; remove it from removed, or remove it elsewhere in the file`,
		},
		"a dead-letter queue": {
			"removed: [graves]\n", nil,
			`a:6:11: removed lists "graves", which is the dead-letter queue of "q"; remove it from removed, or remove it elsewhere in the file`,
		},
		"a legacy queue": {
			"removed: [old]\n", nil,
			`a:6:11: removed lists "old", which the queue "new" replaces: migrate deletes it; remove it from removed, or remove it elsewhere in the file`,
		},
		"a name twice": {"removed: [more]\n", nil, `b:2:11: removed already lists "more", at a:6:11; keep one`},
		"an empty name": {
			"removed: ['']\n", nil,
			`a:6:11: a name under removed is empty; write the name of a queue or an exchange, or remove the entry`,
		},
		"a number": {
			"removed: [7]\n", nil,
			`a:6:11: a name under removed is the number 7, not text; put it in quotes: "7"`,
		},
		"a name without a list": {
			"removed: a\n", nil,
			`a:6:10: removed is the text "a", not a list; write a list: [a, b], or one line with - per entry`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := []spec.Source{{Name: "a", Data: []byte(head + tc.text)}}
			if tc.text != "" {
				files = append(files, spec.Source{Name: "b", Data: []byte("version: 1\nremoved: [more]\n")})
			}
			top, _, err := spec.Load(files, func(string) (string, bool) { return "", false })
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.errs {
				t.Errorf("error is\n%s, not\n%s", got, tc.errs)
			}
			if d := cmp.Diff(tc.want, top.Removed); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
