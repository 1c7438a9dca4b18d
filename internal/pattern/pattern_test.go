package pattern_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/pattern"
)

// A permission covers what a pattern matches, and a part of it only where that is sure.
func TestBegin(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		`^svc\.`: "svc.", `^svc-jobs$`: "svc-jobs", `^svc.`: "svc", `^svc+`: "sv", `^svc\.a|^svc\.b`: "",
		`^svc\.(a|b)`: "svc.", `^(svc|job)-`: "", `^svc|job`: "", `^svc\.a|svc\.b`: "", `svc\.`: "", `.*`: "", `^`: "",
		`(?i)^svc`: "", `^(?!shop|billing)`: "", `^\d`: "",
		`^svc\.(?!mine$)`: "svc.", `^svc\.(?!a|b)`: "svc.", `^svc{2}`: "sv", `^é+`: "", `^\\a`: `\a`, `^svc\`: "svc",
		`^a([)]|b)|c`: "", `^a[(]|b`: "", `^a\(|b`: "", `^a\|b`: "a|b",
	} {
		if got := pattern.Begin(s); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}

// Two patterns match no common name for sure only where they begin with different text.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`^svc\.`, `^job\.`, true},
		{`^svc\.`, `^svc\.x`, false},
		{`^svc\.x`, `^svc\.`, false},
		{`^svc\.`, `x$`, false},
		{`^svc\.`, `^svc\.`, false},
		{`^svc\.x`, `^svc\.y`, true},
	} {
		if got := pattern.Disjoint(tc.a, tc.b); got != tc.want {
			t.Errorf("%s and %s: %t", tc.a, tc.b, got)
		}
	}
}

// Patterns match as those of the broker do (4.3.6, measured), or cannot be read.
func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{`^[[:alpha:]]+\.desk`, "shop.desk.x", true},
		{`^[^[:digit:]]+$`, "abc", true},
		{`^(?!amq\.).*`, "shop", true},
		{`(?i)^SHOP`, "shop", true},
		{`^(?>shop)\.`, "shop.x", true},
		{`(a)\1`, "aa", true},
		{`(?<!x)a`, "ba", true},
		{`^\w+$`, "größe", false},
		{`\d`, "٣", false},
		{`\s`, "\u00a0", false},
	} {
		p, err := pattern.Compile(tc.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Matches(tc.name); err != nil || got != tc.want {
			t.Errorf("%s and %s: %t, %v", tc.pattern, tc.name, got, err)
		}
	}
	for _, s := range []string{`^\Qshop.\Edesk`, `^shop\.++desk`, `^(?|a|b)$`, `^a\Kb`} {
		if _, err := pattern.Compile(s); err == nil {
			t.Errorf("%s can be read", s)
		}
	}
}
