package cmd

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// The last words of a processor are a sentence, and a record where the log is JSON.
func TestProcessSummary(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		totals monitor.Totals
		passed time.Duration
	}{
		"stopped after 2h3m: 1,204 retried, 17 to dead-letter queues, 0 to unroutable queues; nothing is left unsettled\n": {
			monitor.Totals{Retried: 1204, DeadLettered: 17}, 2*time.Hour + 3*time.Minute + 20*time.Millisecond,
		},
		"stopped after 0s: 0 retried, 0 to dead-letter queues, 1 to unroutable queues; 1 left unsettled: " +
			"the broker delivers it again, and it may be doubled\n": {monitor.Totals{Unroutable: 1, Unsettled: 1}, 0},
		"stopped after 1s: 0 retried, 0 to dead-letter queues, 0 to unroutable queues; 2,000 left unsettled: " +
			"the broker delivers them again, and they may be doubled\n": {monitor.Totals{Unsettled: 2000}, time.Second},
	} {
		var out, log bytes.Buffer
		k := processCommand{app: &app{stdout: &out, stderr: &log, logFormat: "text"}}
		k.summarize(t.Context(), k.app.log(), tc.totals, tc.passed)
		if out.String() != want || log.String() != "" {
			t.Errorf("it prints %q, and logs %q; want %q", out.String(), log.String(), want)
		}
	}
	var out, log bytes.Buffer
	k := processCommand{app: &app{stdout: &out, stderr: &log, logFormat: "json"}}
	k.summarize(t.Context(), k.app.log(), monitor.Totals{Retried: 1204, DeadLettered: 17}, time.Minute)
	var record struct {
		Message      string `json:"msg"`
		After        string
		Retried      int
		DeadLettered int `json:"dead_lettered"`
		Unroutable   *int
		Unsettled    *int
	}
	if err := json.Unmarshal(log.Bytes(), &record); err != nil || out.String() != "" {
		t.Fatalf("%v: it prints %q, and logs %q", err, out.String(), log.String())
	}
	if record.Message != "stopped" || record.After != "1m" || record.Retried != 1204 || record.DeadLettered != 17 ||
		record.Unroutable == nil || record.Unsettled == nil {
		t.Errorf("it logs %s", log.String())
	}
}
