package audit_test

import (
	"os"
	"path/filepath"
	"slices"
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

// Each rule is in one group of consequences, and each name in a group is a rule.
func TestGroupsOfRules(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, r := range audit.Rules() {
		ids = append(ids, r.ID)
	}
	for _, id := range audit.GroupedRules() {
		if i := slices.Index(ids, id); i < 0 {
			t.Errorf("a group has %s, which is not a rule, or is in two groups", id)
		} else {
			ids = slices.Delete(ids, i, i+1)
		}
	}
	for _, id := range ids {
		t.Errorf("rule %s is in no group of consequences; add it in name.go", id)
	}
}
