package generate_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/generate"
)

// An expression writes once what names have in common.
func TestExpressions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		alternatives []string
		want         string
	}{
		{nil, "^$"},
		{[]string{`shop\..*`}, `^shop\..*$`},
		{[]string{"orders", "events"}, "^(events|orders)$"},
		{[]string{`mail`, `mail\.dead`}, `^mail(\.dead)?$`},
		{
			[]string{`billing\.tax`, `billing\.tax\.dead`, `billing\.fx`, `billing\.fx\.dead`, `orders`, `acme\..*`},
			`^(acme\..*|billing\.(fx|tax)(\.dead)?|orders)$`,
		},
		{[]string{`a\.dead`, `b\.dead`, `c\.b\.dead`}, `^(a|b|c\.b)\.dead$`},
		{[]string{`shop\..*`, `shop\.a`, `shop`}, `^shop(\..*)?$`},
		{[]string{"größe", "grün"}, "^(größe|grün)$"},
	} {
		if got := generate.Expression(tc.alternatives); got != tc.want {
			t.Errorf("%q: %s, not %s", tc.alternatives, got, tc.want)
		}
	}
}

// An expression permits exactly its names, or, if it says so, all names with some prefixes.
func TestExpressionsPermitTheirNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab(é.*-]{1,3}`)
		names := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, "words"), ".")
		}), 1, 300, rapid.ID).Draw(t, "names")
		var alternatives []string
		for _, name := range names {
			alternatives = append(alternatives, regexp.QuoteMeta(name))
		}
		got := regexp.MustCompile(generate.Expression(alternatives))
		for _, name := range names {
			if !got.MatchString(name) {
				t.Fatalf("%s does not permit %q", got, name)
			}
		}
		covered := generate.Covered(alternatives)
		other := strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, "other"), ".")
		belongs := slices.Contains(names, other) || slices.ContainsFunc(covered, func(prefix string) bool {
			return strings.HasPrefix(regexp.QuoteMeta(other), prefix)
		})
		if got.MatchString(other) != belongs {
			t.Fatalf("%s permits %q: %t", got, other, !belongs)
		}
	})
}

// The expressions of a company stay short enough for RabbitMQ 4.3, however many queues it has, if
// their names begin with those of teams.
func TestExpressionsOfCompanies(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{30, 300, 3000} {
		var alternatives []string
		teams := max(5, queues/100)
		for i := range queues {
			name := regexp.QuoteMeta(fmt.Sprintf("team-%02d.orders.%s-%04d", i%teams, []string{"tax", "fx", "mail"}[i%3], i))
			alternatives = append(alternatives, name, name+`\.dead`)
		}
		alternatives = append(alternatives, `acme\..*`, "orders", "customers")
		got, covered := generate.Expression(alternatives), generate.Covered(alternatives)
		t.Logf("%d queues: %d bytes, not %d; %d prefixes", queues, len(got), len(strings.Join(alternatives, "|"))+4,
			len(covered))
		if len(got) > 1024 {
			t.Errorf("%d queues: %d bytes", queues, len(got))
		}
		if exact := queues == 30; exact != (covered == nil) {
			t.Errorf("%d queues: it covers %q", queues, covered)
		}
	}
}
