package spec

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// matchFile is a file with an entry that covers queues by a pattern.
const matchFile = `version: 1
name: shop
backoff: {standard: {tiers: [10s]}, other: {tiers: [20s]}}
defaults: {backoff: standard, dead: own, deliveryLimit: 7}
queues:
  - {name: billing}
`

// An entry with match makes a policy for each type of queues, and no queue.
func TestMatch(t *testing.T) {
	t.Parallel()
	const entries = `  - {match: '^svc\.', external: true, owner: platform, severity: page}
  - {match: '^job-', external: true, type: classic, dead: {queue: jobs.dead}}
`
	got, _, err := Load([]Source{{Name: "f", Data: []byte(matchFile + entries)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"billing"}, got.WorkQueueNames()); d != "" {
		t.Errorf("work queues (-want +got):\n%s", d)
	}
	policies := text.Each(got.Policies, func(p topology.Policy) string {
		return fmt.Sprintf("%s %s %s %d %s", p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition)
	})
	if d := cmp.Diff([]string{
		`dlxctl.shop.match.classic.^job- ^job- classic_queues 1000 {"dead-letter-exchange":"shop.failed","dead-letter-routing-key":"@"}`,
		`dlxctl.shop.match.classic.^svc\. ^svc\. classic_queues 1002 {"dead-letter-exchange":"shop.failed","dead-letter-routing-key":"@"}`,
		`dlxctl.shop.match.quorum.^svc\. ^svc\. quorum_queues 1002 {"dead-letter-exchange":"shop.failed","dead-letter-routing-key":"@","dead-letter-strategy":"at-least-once","delivery-limit":7,"overflow":"reject-publish"}`,
	}, policies); d != "" {
		t.Errorf("policies (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]topology.Match{
		{
			Pattern: `^svc\.`, Backoff: "standard", DeadLetterQueue: "shop.dead", Owner: "platform", Severity: "page",
			Place: topology.Place{File: "f", Line: 7},
		},
		{
			Pattern: "^job-", Type: topology.Classic, Backoff: "standard", DeadLetterQueue: "jobs.dead", Severity: "ticket",
			Place: topology.Place{File: "f", Line: 8},
		},
	}, got.Matches); d != "" {
		t.Errorf("matches (-want +got):\n%s", d)
	}
}

// What an entry with match cannot be is refused at its place.
func TestMatchIsRefused(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string][]string{
		`{match: "^svc", external: true, name: q}`: {
			`7:37: the match "^svc" has name; it is for queues that services declare: remove it, or write an entry with name for one queue`,
		},
		`{match: "^svc"}`: {
			`7:13: the match "^svc" is not external; it is for queues that services declare: add external: true`,
		},
		`{match: "(", external: true}`: {
			`7:13: the match "(" is not a regular expression of a policy; write one as in RabbitMQ's policies, such as ^svc\.`,
		},
		`{match: "^svc", external: true, deadLetterBy: arguments}`: {
			`7:51: the match "^svc" has deadLetterBy: arguments; only a policy covers queues by a pattern: write deadLetterBy: policy, or remove it`,
		},
		`{match: "^svc", external: true, dead: own}`: {
			`7:43: the match "^svc" has dead: own; the queues that it covers are not known beforehand: write dead: shared, or name a queue`,
		},
		`{match: "^svc", external: true, backoff: none}`: {
			`7:46: the match "^svc" has backoff: none; only the processor tells in which queue a message failed: name a backoff; one with tiers: [] retries nothing`,
		},
		`{match: "^svc", external: true, dead: {queue: svc.dead}}`: {
			`7:13: the match "^svc" covers the queue "svc.dead", which is for dead letters; its policy would change that queue: write a pattern that matches only queues of services, or another name under dead`,
		},
		`{match: "bill", external: true}`: {
			`7:13: the match "bill" covers the queue "billing", which is at f:6; one policy applies to a queue: exclude it from the pattern, as in ^svc\.(?!mine(\.dead)?$), or remove the queue`,
		},
		`{match: "^shop", external: true}`: {
			`7:13: the match "^shop" covers the queue "shop.dead", which is for dead letters; its policy would change that queue: write a pattern that matches only queues of services, or another name under dead`,
		},
		`{match: "desk", external: true}`: {
			`7:13: the match "desk" covers the queue "shop.desk.lock.8e35c2cd3bf6", which is for the locks of dlxctl desk; its policy would change that queue: write a pattern that matches only queues of services, or another name under dead`,
		},
		"{match: \"^a\", external: true}\n  - {match: \"^c\", external: true, backoff: other}": {
			`8:44: the match "^c" has the backoff "other", and "^a" has "standard"; all entries with match have one backoff, as failures of their queues come to one failed queue`,
		},
		"{match: \"^a\", external: true, type: classic}\n  - {match: \"^ab\", external: true}": {
			`8:13: the match "^ab" may match a queue that "^a" matches too, and that has type: classic; the first entry that matches a queue applies, whatever type the queue has: give both the same type, or patterns that begin with different text`,
		},
		"{match: \"^a\", external: true}\n  - {match: \"^a\", external: true}": {
			`8:13: the match "^a" is already at f:7:13; keep one of them`,
		},
		`{external: true}`: {
			`7:5: queue has no name; add name: …, or match: … for the queues that services declare`,
		},
	} {
		_, _, err := Decode([]Source{{Name: "f", Data: []byte(matchFile + "  - " + entry + "\n")}}, environment())
		if d := cmp.Diff(want, problems(t, err)); d != "" {
			t.Errorf("problems of %s (-want +got):\n%s", entry, d)
		}
	}
}

// A pattern that matches any queue of the topology is refused: its policy would change the queue.
func TestAMatchCoversNoQueueOfTheTopology(t *testing.T) {
	t.Parallel()
	const delays = "exchanges: [{name: events}]\n" +
		"delays: [{name: shop-jobs, to: events}, {name: later, to: events, engine: native}]\n"
	file := delays + strings.Replace(matchFile, "{standard:", "{shaky: {tiers: [10s], outage: {}}, standard:", 1) +
		"  - {name: mail, backoff: shaky, dead: shared, replaces: post}\n"
	load := func(more string) (topology.Compiled, error) {
		out, _, err := Load([]Source{{Name: "f", Data: []byte(file + more)}}, environment())
		return out, err
	}
	all, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all.Queues {
		_, err := load(fmt.Sprintf("  - {match: '^%s$', external: true, dead: {queue: graves}}\n", regexp.QuoteMeta(q.Name)))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("covers the queue %q", q.Name)) {
			t.Errorf("a match of %s: %v", q.Name, err)
		}
	}
}
