package retry_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// The first rule that fits counts. A rule fits if the key and all its headers do.
func TestSeverityOfAMessage(t *testing.T) {
	t.Parallel()
	w := topology.WorkQueue{Name: "billing", Severity: "ticket", SeverityRules: []topology.SeverityRule{
		{Key: "campaign.*", Severity: "page"},
		{Header: topology.Arguments{"type": "refund", "copies": int64(2)}, Severity: "info"},
		{Key: "order.#", Header: topology.Arguments{"vip": true}, Severity: "page"},
	}}
	type table = map[string]any
	key := topology.HeaderRoutingKey
	for name, tc := range map[string]struct {
		headers table
		want    string
	}{
		"nothing known":             {nil, "ticket"},
		"another key":               {table{key: "campaign"}, "ticket"},
		"the key":                   {table{key: "campaign.x"}, "page"},
		"the first of two":          {table{key: "campaign.x", "type": "refund", "copies": 2}, "page"},
		"a key with two words":      {table{key: "campaign.x.y"}, "ticket"},
		"all headers":               {table{key: "", "type": "refund", "copies": int32(2)}, "info"},
		"bytes and a float":         {table{"type": []byte("refund"), "copies": 2.0}, "info"},
		"one header of two":         {table{"type": "refund"}, "ticket"},
		"another value":             {table{"type": "refund", "copies": "2"}, "ticket"},
		"a list in place of a text": {table{"type": []any{"refund"}, "copies": 2}, "ticket"},
		"a table":                   {table{"type": table{"refund": 1}, "copies": 2}, "ticket"},
		"a value of no AMQP type":   {table{"type": struct{}{}, "copies": 2}, "ticket"},
		"key and header":            {table{key: "order", "vip": true}, "page"},
		"the key without header":    {table{key: "order.placed", "vip": false}, "ticket"},
		"the header without key":    {table{"vip": true}, "ticket"},
		"a number as key":           {table{key: int64(1), "vip": true}, "ticket"},
	} {
		if got := retry.Severity(w, tc.headers); got != tc.want {
			t.Errorf("%s: %s, not %s", name, got, tc.want)
		}
	}
	if got := retry.Severity(topology.WorkQueue{Severity: "info"}, table{key: "campaign.x"}); got != "info" {
		t.Errorf("without rules: %s", got)
	}
}

// A queue without rules costs nothing.
func BenchmarkSeverity(b *testing.B) {
	w := topology.WorkQueue{Name: "billing", Severity: "ticket"}
	ruled := w
	ruled.SeverityRules = []topology.SeverityRule{
		{Key: "campaign.*", Severity: "page"}, {Header: topology.Arguments{"type": "refund"}, Severity: "info"},
	}
	headers := map[string]any{topology.HeaderRoutingKey: "order.placed", "type": "sale"}
	for name, w := range map[string]topology.WorkQueue{"none": w, "two": ruled} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = retry.Severity(w, headers)
			}
		})
	}
}
