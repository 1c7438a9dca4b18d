package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/goldentest"
)

// rulePages is the folder of the pages.
const rulePages = "../../docs/rules"

// The pages of the rules match the rules, and there are no others.
func TestRulePages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"README.md": audit.RuleIndexMarkdown()}
	for _, r := range audit.Rules() {
		page, err := audit.RulePageMarkdown(r)
		if err != nil {
			t.Fatal(err)
		}
		pages[r.ID+".md"] = page
	}
	if *goldentest.Update {
		if err := os.RemoveAll(rulePages); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(rulePages, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range pages {
			if err := os.WriteFile(filepath.Join(rulePages, name), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for name, want := range pages {
		if got, err := os.ReadFile(filepath.Join(rulePages, name)); err != nil || string(got) != want {
			t.Errorf("docs/rules/%s differs from the rule (%v); run make golden", name, err)
		}
	}
	files, err := os.ReadDir(rulePages)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, wanted := pages[f.Name()]; !wanted {
			t.Errorf("docs/rules/%s is of no rule; run make golden", f.Name())
		}
	}
}

// Each rule is in one of the groups, which the index has.
func TestGroupsOfRules(t *testing.T) {
	t.Parallel()
	index := audit.RuleIndexMarkdown()
	for _, r := range audit.Rules() {
		if !strings.Contains(index, "["+r.ID+"]") {
			t.Errorf("rule %s is in no group of consequences", r.ID)
		}
	}
}
