package notify

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/notice"
)

// The sample of docs/metrics.md has the text that a notice of its fields has.
func TestSampleOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	sample, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/metrics.md has no JSON block")
	}
	var post struct {
		Text    string
		Notices []Notice
	}
	if err := json.Unmarshal([]byte(sample), &post); err != nil {
		t.Fatal(err)
	}
	if len(post.Notices) != 1 {
		t.Fatalf("the sample has %d notices, not 1", len(post.Notices))
	}
	if want := post.Notices[0].Line(notice.Escape); post.Text != want {
		t.Errorf("the text of the sample is %q, and should be %q", post.Text, want)
	}
}
