package templates_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/templates"
)

// Each starter is valid as it is, and no backoff in it is for show only.
func TestStarters(t *testing.T) {
	t.Parallel()
	for _, name := range templates.Starters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, ok := templates.Starter(name)
			if !ok {
				t.Fatalf("there is no starter %q", name)
			}
			top, warnings, err := spec.Load([]spec.Source{{Name: name + ".yaml", Data: data}}, func(string) (string, bool) { return "", false })
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Error(w)
			}
			if len(top.Works) == 0 {
				t.Error("it has no work queue")
			}
		})
	}
}

func TestNoSuchStarter(t *testing.T) {
	t.Parallel()
	if _, ok := templates.Starter("../templates"); ok {
		t.Error("a name that is no starter was found")
	}
}
