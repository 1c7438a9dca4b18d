package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// described returns what defaults can set on the queues of files, a line for each.
func described(t *testing.T, files ...string) string {
	t.Helper()
	s, _, err := Decode(numbered(files), environment("LIMIT=7"))
	if err != nil {
		t.Fatalf("%v\n%v", err, files)
	}
	var lines []string
	for _, q := range s.Queues {
		limit := "-"
		if q.DeliveryLimit != nil {
			limit = fmt.Sprint(*q.DeliveryLimit)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s limit=%s dead=%s owner=%s %s %s", q.Name, q.Type, q.Backoff, limit,
			q.Dead.Queue, q.Owner, q.Severity, q.Arguments))
	}
	return strings.Join(lines, "\n")
}

// numbered returns the texts of files as files a, b and so on.
func numbered(texts []string) []Source {
	var files []Source
	for i, text := range texts {
		files = append(files, Source{Name: string(rune('a' + i)), Data: []byte(text)})
	}
	return files
}

// A queue has what defaults says, where that fits it and it says nothing else.
func TestDefaults(t *testing.T) {
	t.Parallel()
	got := described(t, `version: 1
name: shop
backoff: {slow: {tiers: [1h]}}
defaults:
  backoff: slow
  deliveryLimit: ${LIMIT}
  dead: {queue: graves, arguments: {x-max-priority-of-mine: 1}}
  arguments: {x-single-active-consumer: true, x-queue-leader-locator: balanced}
  owner: team-a
  severity: page
accept: [unknown-argument]
queues:
  - {name: all}
  - {name: own, backoff: none, deliveryLimit: 3, dead: own, owner: "", severity: info}
  - {name: merged, arguments: {x-single-active-consumer: false, x-queue-leader-locator: null, x-max-length-bytes: 5}, backoff: none}
  - {name: classic, type: classic, arguments: {x-queue-leader-locator: null}}
  - {name: external, external: true}
  - {name: counted, external: true, type: quorum}
  - {name: left, deadLetterBy: unmanaged}
  - {name: left.external, external: true, type: quorum, deadLetterBy: unmanaged}
`)
	want := strings.Join([]string{
		`all quorum slow limit=7 dead=graves owner=team-a page {"x-queue-leader-locator":"balanced","x-single-active-consumer":true}`,
		`own quorum none limit=3 dead=own.dead owner= info {"x-queue-leader-locator":"balanced","x-single-active-consumer":true}`,
		`merged quorum none limit=7 dead=graves owner=team-a page {"x-max-length-bytes":5,"x-single-active-consumer":false}`,
		`classic classic slow limit=- dead=graves owner=team-a page {"x-single-active-consumer":true}`,
		`external  slow limit=- dead=graves owner=team-a page {}`,
		`counted quorum slow limit=7 dead=graves owner=team-a page {}`,
		`left quorum  limit=7 dead= owner=team-a page {"x-queue-leader-locator":"balanced","x-single-active-consumer":true}`,
		`left.external quorum  limit=- dead= owner=team-a page {}`,
	}, "\n")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
}

// The defaults of the file with the name are for the queues of all files. Those of another file
// are for its own queues, and win key by key. The order of the files does not matter.
func TestDefaultsOfSeveralFiles(t *testing.T) {
	t.Parallel()
	common := "version: 1\nname: rail\ndefaults: {backoff: none, deliveryLimit: 20, owner: platform, arguments: {x-max-length: 9, x-max-in-memory-length: 1}}\nqueues: [{name: c}]\n"
	team := "version: 1\ndefaults: {type: classic, owner: crm, severity: page, arguments: {x-max-length: 5, x-max-in-memory-length: null}}\nqueues: [{name: t}, {name: u, type: quorum, owner: ops}]\n"
	plain := "version: 1\nqueues: [{name: p}]\n"
	want := map[string]string{
		"c": `c quorum none limit=20 dead=c.dead owner=platform ticket {"x-max-in-memory-length":1,"x-max-length":9}`,
		"t": `t classic none limit=- dead=t.dead owner=crm page {"x-max-length":5}`,
		"u": `u quorum none limit=20 dead=u.dead owner=ops page {"x-max-length":5}`,
		"p": `p quorum none limit=20 dead=p.dead owner=platform ticket {"x-max-in-memory-length":1,"x-max-length":9}`,
	}
	for _, files := range [][]string{{common, team, plain}, {plain, team, common}} {
		got := map[string]string{}
		for line := range strings.Lines(described(t, files...)) {
			got[line[:1]] = strings.TrimSpace(line)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("queues (-want +got):\n%s", d)
		}
	}
	s, _, err := Decode(numbered([]string{team, common}), environment())
	if err != nil || s.Type != "quorum" {
		t.Errorf("the generated queues are of type %s: %v", s.Type, err)
	}
}

// What is wrong with a default is said once, at its place, however many queues have it.
func TestDefaultsAreRefused(t *testing.T) {
	t.Parallel()
	const three = "queues: [{name: q, backoff: b}, {name: r, backoff: b}, {name: s, backoff: none}]\n"
	for _, test := range []struct{ defaults, queues, want string }{
		{"owner: 5", "", `a:4:19: owner is the number 5, not text; put it in quotes: "5"`},
		{
			"severity: loud", "queues: [{name: q, severity: page, backoff: b}]\n",
			`a:4:22: severity is "loud"; write page, ticket or info`,
		},
		{"deliveryLimit: -1", "", `a:4:27: deliveryLimit is -1; write 2147483647 for no limit: RabbitMQ before 4.0 reads -1 as 0`},
		{"deliveryLimit: many", "", `a:4:27: deliveryLimit is the text "many", not a whole number; write a number without quotes`},
		{"type: classic, deliveryLimit: 3", "", `a:4:27: defaults has a deliveryLimit, but it applies to no quorum queue; only quorum queues count deliveries: remove it, or write type: quorum, on external queues too`},
		{"dead: mine", "", `a:4:18: dead is "mine"; write own, shared, {queue: NAME} or {keep: 30d}`},
		{"dead: {external: true}", "", `a:4:12: dead has external: true and names no queue; write queue: NAME next to it`},
		{"dead: {keep: 30}", "", `a:4:25: keep is "30"; write 1m or longer, such as 30d, or remove keep`},
		{"dead: {keep: 59s}", "", `a:4:25: keep is "59s"; write 1m or longer, such as 30d, or remove keep`},
		{"dead: {keep: 200000d}", "", `a:4:25: keep is "200000d"; write 1m or longer, such as 30d, or remove keep`},
		{"dead: {keep: 30d, arguments: {x-message-ttl: 604800000}}", "", `a:4:25: keep is 30d, and x-message-ttl deletes each dead letter after 7d; remove x-message-ttl, which deletes them without parking, or write a shorter keep`},
		{"dead: {queue: d, arguments: {x-max-priority: 5}}", "", `a:4:41: x-max-priority is for classic queues; remove it, or write type: classic`},
		{"arguments: 5", "", `a:4:23: arguments is the number 5, not a mapping; write key: value pairs, or {key: value}`},
		{"arguments: {x-max-priority: 5}", "", `a:4:24: x-max-priority is for classic queues; a default must fit all queues that it is for: write it on the queues that it fits, or remove it, or write type: classic`},
		{"arguments: {x-message-ttl: -1}", "", `a:4:39: x-message-ttl is -1; write 0 or more`},
		{"arguments: {x-queue-type: classic}", "", `a:4:24: arguments must not contain x-queue-type; write type: on the queue or in defaults`},
		{"arguments: {x-dead-letter-exchange: e}", "", `a:4:24: arguments must not contain x-dead-letter-exchange; the queue's backoff sets where it dead-letters to`},
		{"arguments: {x-max-length: 5}", "", `a:4:24: queue "q" has x-max-length and shares the backoff "b" with "r"; while it is full it would delay the retries of the other queues: give it a backoff of its own`},
		{"arguments: {x-max-length: null}", "", `a:4:38: x-max-length has no value; give it a value, or remove it`},
		{"backof: b", "", `a:4:12: defaults has no key "backof"; did you mean "backoff"?`},
	} {
		queues := test.queues
		if queues == "" {
			queues = three
		}
		file := "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {" + test.defaults + "}\n"
		for _, files := range [][]string{{file + queues}, {file, "version: 1\n" + queues}} { // the queues in another file too
			_, _, err := Decode(numbered(files), environment())
			if err == nil || err.Error() != test.want {
				t.Errorf("%s:\n%v, not\n%s", test.defaults, err, test.want)
			}
		}
	}
}

// An argument of defaults that RabbitMQ does not know is one warning, and can be accepted.
func TestAnUnknownDefaultArgument(t *testing.T) {
	t.Parallel()
	file := "version: 1\nname: shop\ndefaults: {backoff: none, arguments: {x-foo: 1}}\nqueues: [{name: q}, {name: r}]\n"
	_, warnings, err := Decode(numbered([]string{file}), environment())
	if err != nil || len(warnings) != 1 || warnings[0].Pos != (Pos{"a", 3, 39}) {
		t.Errorf("%v %v", err, warnings)
	}
	_, warnings, err = Decode(numbered([]string{file + "accept: [unknown-argument=defaults]\n"}), environment())
	if err != nil || len(warnings) > 0 {
		t.Errorf("%v %v", err, warnings)
	}
}
