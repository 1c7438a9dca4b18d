package page

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/jsondoc/jsondoctest"
)

// All that the page answers with has keys in camelCase, as the outputs of the commands.
func TestKeys(t *testing.T) {
	t.Parallel()
	answers := []any{refusal{}}
	for _, r := range (&Page{}).table(nil) {
		if len(r.answers) == 0 && strings.Contains(r.pattern, "/api/") {
			t.Errorf("%s does not say what it answers with", r.pattern)
		}
		answers = append(answers, r.answers...)
	}
	for _, problem := range jsondoctest.Problems(answers...) {
		t.Error(problem)
	}
}
