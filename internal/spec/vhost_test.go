package spec_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec"
)

func TestGuessVHost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files []string
		vhost string
		known bool
	}{
		"none":                 {[]string{"version: 1\nname: shop\n"}, "", true},
		"plain":                {[]string{"version: 1\nvhost: /a/b\nname: shop\n"}, "/a/b", true},
		"in quotes, a comment": {[]string{"version: 1\r\nvhost: \"a b\" # of the shop\r\n"}, "a b", true},
		"in the second file":   {[]string{"version: 1\n", "version: 1\nvhost: b"}, "b", true},
		"by the environment":   {[]string{"vhost: ${VHOST}\n"}, "${VHOST}", false},
		"the name of a queue":  {[]string{"queues:\n  - name: vhost\n    vhost: a\n"}, "", true},
		"no text":              {[]string{"vhost: [\n"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files []spec.Source
			for _, data := range tc.files {
				files = append(files, spec.Source{Name: "f.yaml", Data: []byte(data)})
			}
			if vhost, known := spec.GuessVHost(files); vhost != tc.vhost || known != tc.known {
				t.Errorf("it is %q, %t", vhost, known)
			}
		})
	}
}
