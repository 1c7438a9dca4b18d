package cmd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	policiesPage = "../docs/policies.md"
	tableBegins  = "<!-- written by make golden from policy.Table -->\n"
	tableEnds    = "<!-- end -->\n"
)

// The page on policies shows the table that plan follows.
func TestPoliciesPage(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile(policiesPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(got), tableBegins)
	_, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("docs/policies.md has no place for the table between %q and %q", tableBegins, tableEnds)
	}
	want := head + tableBegins + policyTable() + tableEnds + tail
	switch {
	case *update:
		if err := os.WriteFile(policiesPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(got):
		t.Error("docs/policies.md differs from policy.Table; run make golden")
	}
}

// policyTable writes the table: first the effects, then the reasons.
func policyTable() string {
	roles := append([]topology.Role{topology.RoleWork}, policy.ProtectedRoles()...)
	cells := map[string]map[topology.Role]policy.Cell{}
	var rows []string
	var exchanges []policy.Cell
	for _, e := range policy.Table() {
		if e.Exchange {
			exchanges = append(exchanges, e)
			continue
		}
		if cells[e.Key] == nil {
			cells[e.Key] = map[topology.Role]policy.Cell{}
			rows = append(rows, e.Key)
		}
		cells[e.Key][e.Role] = e
	}
	var b strings.Builder
	b.WriteString("| key | work queue | failed queue | retry queue | dead-letter queue | unroutable queue |\n|" +
		strings.Repeat(" --- |", 6) + "\n")
	for _, key := range rows {
		fmt.Fprintf(&b, "| `%s` |", key)
		for _, role := range roles {
			effect := string(cells[key][role].Effect)
			if effect == string(policy.Harmful) {
				effect = "**harmful**"
			}
			fmt.Fprintf(&b, " %s |", effect)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhy, and the hazard that needs consent where nothing can override the policy:\n\n| key | role | effect | why | hazard |\n|" + strings.Repeat(" --- |", 5) + "\n")
	for _, w := range reasons(rows, roles, cells) {
		b.WriteString(w)
	}
	for _, e := range exchanges {
		fmt.Fprintf(&b, "| `%s` | exchange: %s | %s | %s | |\n", e.Key, e.Role, e.Effect, e.Why)
	}
	return b.String()
}

// reasons writes a row for each reason: the keys next to each other and the roles
// that share it.
func reasons(rows []string, roles []topology.Role, cells map[string]map[topology.Role]policy.Cell) []string {
	var out []string
	for i := 0; i < len(rows); {
		n := 1
		for i+n < len(rows) && alike(cells[rows[i]], cells[rows[i+n]]) {
			n++
		}
		keys := "`" + strings.Join(rows[i:i+n], "`, `") + "`"
		var done []string
		for _, role := range roles {
			e := cells[rows[i]][role]
			if slices.Contains(done, e.Why) {
				continue
			}
			done = append(done, e.Why)
			var same []string
			for _, other := range roles {
				if cells[rows[i]][other].Why == e.Why {
					same = append(same, string(other))
				}
			}
			hazard := ""
			if e.Hazard != "" {
				hazard = "`" + string(e.Hazard) + "`"
			}
			out = append(out, fmt.Sprintf("| %s | %s | %s | %s | %s |\n", keys, strings.Join(same, ", "), e.Effect, e.Why,
				hazard))
		}
		i += n
	}
	return out
}

// alike reports whether two keys have the same effect on every role.
func alike(a, b map[topology.Role]policy.Cell) bool {
	for role, e := range a {
		if e.Why != b[role].Why || e.Effect != b[role].Effect {
			return false
		}
	}
	return true
}
