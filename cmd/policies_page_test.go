package cmd

import (
	"fmt"
	"os"
	"reflect"
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

// policyTable writes the table: a row for each effect but harmless, and its reason, with the keys
// and the roles that share it.
func policyTable() string {
	roles := append([]topology.Role{topology.RoleWork}, policy.ProtectedRoles()...)
	cells := map[string]map[topology.Role]policy.Cell{}
	var keys []string
	var rows []row
	for _, e := range policy.Table() {
		if e.Exchange || e.Part != "" {
			continue
		}
		if cells[e.Key] == nil {
			cells[e.Key] = map[topology.Role]policy.Cell{}
			keys = append(keys, e.Key)
		}
		cells[e.Key][e.Role] = e
	}
	for _, key := range keys {
		for _, r := range rowsOf(key, roles, cells[key]) {
			rows = joined(rows, r, func(r *row) *[]string { return &r.keys })
		}
	}
	var parts []row
	for _, e := range policy.Table() {
		if e.Part != "" {
			parts = joined(parts, row{[]string{e.Key}, []string{string(e.Part)}, e.Effect, e.Why, quoted(e.Hazard)},
				func(r *row) *[]string { return &r.keys })
		}
	}
	for _, r := range parts {
		rows = joined(rows, r, func(r *row) *[]string { return &r.roles })
	}
	for _, e := range policy.Table() {
		if e.Exchange {
			r := row{[]string{e.Key}, []string{"exchange: " + string(e.Role)}, e.Effect, e.Why, string(e.Hazard)}
			rows = joined(rows, r, func(r *row) *[]string { return &r.roles })
		}
	}
	var b strings.Builder
	b.WriteString("| key | queue | effect | why | hazard |\n|" + strings.Repeat(" --- |", 5) + "\n")
	for _, r := range rows {
		if r.effect == policy.Harmless {
			continue // the page says so of what the table leaves out
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
			strings.Join(r.keys, "`, `"), strings.Join(r.roles, ", "), r.effect, r.why, r.hazard)
	}
	return b.String()
}

// row is a row of the table.
type row struct {
	keys, roles []string
	effect      policy.Effect
	why, hazard string
}

// rowsOf returns the rows of a key: the roles that share a reason share a row.
func rowsOf(key string, roles []topology.Role, cells map[topology.Role]policy.Cell) []row {
	var rows []row
	for _, role := range roles {
		e := cells[role]
		rows = joined(rows, row{[]string{key}, []string{string(role)}, e.Effect, e.Why, quoted(e.Hazard)},
			func(r *row) *[]string { return &r.roles })
	}
	return rows
}

// quoted returns a hazard as code; empty for none.
func quoted(h topology.Hazard) string {
	if h == "" {
		return ""
	}
	return "`" + string(h) + "`"
}

// joined returns the rows with one more. A row that differs in the given list alone gets what the
// new one has there.
func joined(rows []row, r row, list func(*row) *[]string) []row {
	for i := range rows {
		same := rows[i]
		*list(&same) = *list(&r)
		if reflect.DeepEqual(same, r) {
			*list(&rows[i]) = append(*list(&rows[i]), *list(&r)...)
			return rows
		}
	}
	return append(rows, r)
}
