package desk

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// A digest is one table, whatever errors say, and names what was not looked at.
func TestWriteDigest(t *testing.T) {
	t.Parallel()
	d := Digest{
		Topology: "shop", Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Messages: 14,
		Queues: []DigestQueue{
			{Queue: "billing", Owner: "team-billing", Messages: 13, By: "error", Groups: []DigestGroup{
				{Value: "a|b\n[x](http://evil) <!here>", Count: 2},
				{Value: "", Count: 1},
				{"c", 1},
				{"d", 1},
				{"e", 1},
				{"f", 1},
				{"g", 1},
				{"h", 1},
				{"i", 1},
				{"j", 1},
				{"k", 1},
				{"l", 1},
			}},
			{Queue: "", Messages: 1, By: "cause", Groups: []DigestGroup{{"rejected", 1}}},
		},
		Undated:     []Undated{{"crm.dead", 5000}, {"sms.dead", 1}},
		NotLookedAt: []Unlooked{{Queue: "mail.dead", Why: "it has consumers"}},
	}
	var text, markdown strings.Builder
	if err := errors.Join(d.Write(&text, 0), d.WriteMarkdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"shop: 14 messages died since 2026-01-02T00:00:00Z\n", "billing     team-billing  2         \"a|b\\n[x](http://evil) <!here>\"\n",
		"(no error)\n", "billing     team-billing  2         (others)\n", "(unknown)   -             1         rejected\n",
		"crm.dead: 5000 messages do not tell when they failed, and are not counted\n",
		"sms.dead: 1 message does not tell when it failed, and is not counted\n",
		"not fully looked at: mail.dead: it has consumers\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	for _, want := range []string{
		"### shop: 14 messages died", `| billing | team-billing | 2 | a\|b\n\[x](http://evil) &lt;!here> |`,
		"\n\n- crm.dead: 5000 messages do not tell when they failed, and are not counted\n",
		"- not fully looked at: mail.dead: it has consumers\n",
	} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("the Markdown lacks %q:\n%s", want, &markdown)
		}
	}
	if err := d.Err(); !errors.Is(err, ErrUnreached) {
		t.Error(err)
	}
	if empty := (Digest{Topology: "shop"}); empty.Summary() != "shop: no message died since -" || empty.Err() != nil {
		t.Errorf("%s %v", empty.Summary(), empty.Err())
	}
	undated := Digest{Topology: "shop", Undated: d.Undated}
	if undated.Summary() != "shop: no message is known to have died since -" || undated.Err() != nil {
		t.Errorf("%s %v", undated.Summary(), undated.Err())
	}
}

// A digest passes over a queue only if the broker counts no message there.
func TestWhatADigestPassesOver(t *testing.T) {
	t.Parallel()
	state := topology.State{Down: []string{"down.dead"}, Usage: map[string]topology.Usage{
		"empty.dead": {}, "full.dead": {Ready: 1}, "held.dead": {Unacknowledged: 1}, "uncounted.dead": {Uncounted: true},
	}}
	for queue, want := range map[string]struct {
		why  string
		skip bool
	}{
		"down.dead": {nodeIsDown, true}, "gone.dead": {"it does not exist; run 'dlxctl apply'", true},
		"empty.dead": {"", true}, "full.dead": {}, "held.dead": {}, "uncounted.dead": {},
	} {
		if why, skip := passOver(state, queue); why != want.why || skip != want.skip {
			t.Errorf("%s: %q, %t", queue, why, skip)
		}
	}
}
