package monitor

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table of docs/metrics.md is the code's.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `dlxctl_") {
			table = append(table, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, m := range Metrics() {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help))
	}
	if got, want := strings.Join(table, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("the table of docs/metrics.md is\n%s\nand should be\n%s", got, want)
	}
}
