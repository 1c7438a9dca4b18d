package text_test

import (
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/text"
)

func TestYAML(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"billing.v2": "billing.v2", "_a/b-c": "_a/b-c", "注文": "注文", "": `""`, "1e3": `"1e3"`, "No": `"No"`, "null": `"null"`,
		"a: b": `"a: b"`, "*": `"*"`, "a\nb": `"a\nb"`, "<<": `"<<"`, "TRUE": `"TRUE"`,
	} {
		if got := text.YAML(in); got != want {
			t.Errorf("YAML(%q) is %s, want %s", in, got, want)
		}
	}
}

// What is written is read back, in each position.
func TestYAMLIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-zA-Z0-9_.~+:#-]{0,5}`)).Draw(t, "text")
		var got map[string][]string
		if err := yaml.Unmarshal([]byte("{key: ["+text.YAML(want)+"]}"), &got); err != nil || got["key"][0] != want {
			t.Fatalf("%q is written %s, which reads %q (error %v)", want, text.YAML(want), got, err)
		}
	})
}
