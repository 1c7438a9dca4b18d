package migrate_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// A preview says that new messages wait in a successor that nothing consumes, where the legacy
// queue has consumers.
func TestPreviewOfASuccessorWithoutConsumers(t *testing.T) {
	t.Parallel()
	queue := func(name string) topology.Queue { return topology.Queue{Name: name, Durable: true} }
	want := topology.Compiled{Name: "shop", WorkQueues: []topology.WorkQueue{{Name: "new", Replaces: "old"}}}
	want.Queues = []topology.Queue{queue("new")}
	for name, tc := range map[string]struct {
		legacy, successor topology.Usage
		said              bool
	}{
		"none":                    {topology.Usage{Consumers: 1}, topology.Usage{}, true},
		"one":                     {topology.Usage{Consumers: 1}, topology.Usage{Consumers: 1}, false},
		"not known":               {topology.Usage{Consumers: 1}, topology.Usage{ConsumersUnknown: true}, false},
		"nor of the legacy queue": {topology.Usage{}, topology.Usage{}, false},
	} {
		state := topology.State{Version: "4.3.6", Usage: map[string]topology.Usage{"old": tc.legacy, "new": tc.successor}}
		state.Have.Queues = []topology.Queue{queue("old"), queue("new")}
		said := false
		for _, o := range migrate.Previews(want, state, nil) {
			for _, n := range o.Notes {
				said = said || strings.HasPrefix(n.Text, "no consumer reads new: from the cutover on, new messages wait there")
			}
		}
		if said != tc.said {
			t.Errorf("%s: it is said: %t", name, said)
		}
	}
}

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
