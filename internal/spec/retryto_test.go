package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

const retryToHead = "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}, c: {tiers: [1s]}}\ndefaults: {backoff: b}\n"

func loadRetryTo(t *testing.T, sources ...string) (topology.Compiled, error) {
	t.Helper()
	var all []Source
	for _, s := range sources {
		all = append(all, Source{Name: "a", Data: []byte(s)})
	}
	all[len(all)-1].Overlay = len(all) > 1
	c, _, err := Load(all, func(string) (string, bool) { return "", false })
	return c, err
}

// The processor alone reads retryTo: the objects of the broker are the same.
func TestRetryToChangesNoObject(t *testing.T) {
	t.Parallel()
	with, err := loadRetryTo(t, retryToHead+"queues: [{name: q, retryTo: other}, {name: other, external: true}]")
	if err != nil {
		t.Fatal(err)
	}
	without, err := loadRetryTo(t, retryToHead+"queues: [{name: q, retryTo: other}, {name: other, external: true}]", "queues: [{name: q, retryTo: null}]")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without.Topology, with.Topology); d != "" {
		t.Errorf("-without +with:\n%s", d)
	}
	q, _ := with.WorkQueue("q")
	none, _ := without.WorkQueue("q")
	if q.ReturnsTo() != "other" || none.ReturnsTo() != "q" {
		t.Errorf("retries of q come to %s, and without the key to %s", q.ReturnsTo(), none.ReturnsTo())
	}
}

// A queue may be full if no other retries come out of the retry queues that lead to it.
func TestRetriesToAFullQueue(t *testing.T) {
	t.Parallel()
	for file, ok := range map[string]bool{
		"queues: [{name: q, retryTo: full}, {name: full, backoff: c, arguments: {x-max-length: 10}}]":                                 true,
		"queues: [{name: q, retryTo: full}, {name: full, arguments: {x-max-length: 10}}]":                                             true,
		"queues: [{name: q, retryTo: other, arguments: {x-max-length: 10}}, {name: other}]":                                           true,
		"queues: [{name: q, retryTo: full}, {name: r}, {name: full, backoff: c, arguments: {x-max-length: 10}}]":                      false,
		"queues: [{name: q, retryTo: full}, {name: r, retryTo: s}, {name: s}, {name: full, arguments: {x-max-length: 10}}]":           false,
		"queues: [{name: full, backoff: c, arguments: {x-max-length: 10}}, {name: q}, {name: r, backoff: c, retryTo: q}]":             false,
		"queues: [{name: full, backoff: c, retryTo: q, arguments: {x-max-length: 10}}, {name: q}, {name: r, backoff: c, retryTo: q}]": true,
	} {
		if _, err := loadRetryTo(t, retryToHead+file); (err == nil) != ok {
			t.Errorf("%s\n%v", file, err)
		}
	}
}

// What a queue masks is masked wherever its messages may come, in a circle too. So it is with the
// types of messages.
func TestRetryToAndMessages(t *testing.T) {
	t.Parallel()
	c, err := loadRetryTo(t, retryToHead+`messages: {protoset: [a.binpb]}
queues:
  - {name: p, retryTo: q, messages: {redact: {paths: [body.p], bodies: hidden}, types: [{type: shop.P}]}}
  - {name: q, retryTo: r, messages: {redact: {paths: [body.q], types: [iban]}}}
  - {name: r, retryTo: q}
  - {name: s}
`)
	if err != nil {
		t.Fatal(err)
	}
	masked := func(paths ...string) topology.Redaction {
		return topology.Redaction{Paths: paths, Types: []string{"iban"}, HideBodies: true}
	}
	p, types := topology.QueueMessages{Queue: "p"}, []topology.MessageType{{Type: "shop.P"}}
	p.Types, p.Redact = types, topology.Redaction{Paths: []string{"body.p"}, HideBodies: true}
	want := []topology.QueueMessages{
		p,
		{Queue: "q", Types: types, Redact: masked("body.q", "body.p")},
		{Queue: "r", Types: types, Redact: masked("body.p", "body.q")},
	}
	if d := cmp.Diff(want, c.Messages.Queues); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
