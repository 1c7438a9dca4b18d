package cmd

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/processor"
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

// A processor follows the overlays as it follows the files.
func TestProcessReadsOverlays(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("a.yaml", "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\nqueues: [{name: q, backoff: b}]\n")
	over := write("o.yaml", "backoff: {b: {tiers: [2s]}}\n")
	k := processCommand{app: &app{
		paths: []string{file}, overlays: []string{over}, stderr: io.Discard, logFormat: "text",
		conn: connection{broker.Config{URL: broker.DefaultURL}},
		env:  func(string) (string, bool) { return "", false },
	}}
	read := func() (content string, delay time.Duration) {
		files, err := k.read(processor.Processor{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		all, err := files.Processors()
		if err != nil {
			t.Fatal(err)
		}
		return files.Content, all[0].Topology.Backoffs[0].Tiers[0].Delay
	}
	before, two := read()
	write("o.yaml", "backoff: {b: {tiers: [3s]}}\n")
	after, three := read()
	if before == after || two != 2*time.Second || three != 3*time.Second {
		t.Errorf("the delays are %s and %s; the same content: %t", two, three, before == after)
	}
}

// Files that could not be used for want of a schema can be used once it is there. They are compiled
// again for that, and their warnings are printed once.
func TestProcessUsesMendedFiles(t *testing.T) {
	t.Parallel()
	folder := protoFolder(t)
	schema := filepath.Join(folder, "protos", "order.proto")
	away := schema + ".away"
	if err := os.Rename(schema, away); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "a.yaml")
	text := "version: 1\nname: shop\nmessages: {proto: [order.proto], importPaths: [" + filepath.Dir(schema) + "]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var warnings bytes.Buffer
	k := processCommand{bodies: true, watch: true, app: &app{
		paths: []string{file}, stderr: &warnings, logFormat: "text",
		conn: connection{broker.Config{URL: broker.DefaultURL}},
		env:  func(string) (string, bool) { return "", false },
	}}
	files, err := k.read(processor.Processor{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Processors(); err == nil {
		t.Error("a missing schema was accepted")
	}
	if err := os.Rename(away, schema); err != nil {
		t.Fatal(err)
	}
	if all, err := files.Processors(); err != nil || len(all) != 1 {
		t.Errorf("with the schema there are %d processors, and the error %v", len(all), err)
	}
	if n := strings.Count(warnings.String(), "warning"); n != 1 {
		t.Errorf("there are %d warnings: %s", n, warnings.String())
	}
}
