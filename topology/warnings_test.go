package topology_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

// The list of docs/plan.md has each warning, and no other.
func TestWarningsOfThePage(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "warnings.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names, listed []string
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok {
			name, _ := strconv.Unquote(l.Value)
			names = append(names, name)
		}
		return true
	})
	page, err := os.ReadFile("../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Warnings\n")
	section, _, _ = strings.Cut(section, "\nA warning that is understood")
	for _, item := range regexp.MustCompile("(?m)^- (`[a-z-]+`(?:,\\s+)?)+:").FindAllString(section, -1) {
		listed = append(listed, regexp.MustCompile("[a-z-]{2,}").FindAllString(item, -1)...)
	}
	slices.Sort(names)
	slices.Sort(listed)
	if d := cmp.Diff(names, listed); d != "" {
		t.Errorf("docs/plan.md (-constants +page):\n%s", d)
	}
	for _, name := range topology.AcceptableWarnings() {
		if !slices.Contains(names, name) {
			t.Errorf("%s can be accepted, and is not a warning", name)
		}
	}
}

// The hazards of docs/plan.md are those that need consent.
func TestHazardsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Hazards and consent\n")
	sentence, _, _ := strings.Cut(section, "needs consent")
	var want []string
	for _, h := range topology.Hazards() {
		want = append(want, "`"+string(h)+"`")
	}
	if d := cmp.Diff(want, regexp.MustCompile("`[a-z-]+`").FindAllString(sentence, -1)); d != "" {
		t.Errorf("docs/plan.md (-constants +page):\n%s", d)
	}
}
