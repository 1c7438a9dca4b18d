package migrate_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// What a page gives to copy works for each name that RabbitMQ allows.
func TestPageQuotesNames(t *testing.T) {
	t.Parallel()
	odd := migrate.Preview{}
	odd.Legacy, odd.New = "it's: a|b", "new"
	var out strings.Builder
	if err := migrate.WritePages(&out, topology.Compiled{}, []migrate.Preview{odd}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"write `{name: \"it's: a|b\", external: true, deadLetterBy: policy}`",
		`| at any time before | ` + "`" + `dlxctl migrate 'it'\''s: a\|b' --until prepare --yes` + "` |",
		"\n`dlxctl migrate abort 'it'\\''s: a|b' --yes`",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("it does not say %s:\n%s", text, &out)
		}
	}
}
