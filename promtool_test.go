package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/generate"
	"github.com/dlxctl/dlxctl/processor"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// alerted is a topology with something for each alert.
const alerted = `
version: 1
name: shop
defaults: {backoff: standard}
backoff:
  standard: {tiers: [1m]}
  patient: {tiers: [1h]}
queues:
  - {name: billing, owner: team-billing, severity: page}
  - {name: reports, owner: team-reports, dead: shared}
  - {name: letters, owner: team-letters, dead: shared, backoff: patient, severity: info}
  - {name: audit, backoff: none, owner: team-audit, severity: page}
  - {name: invoices_with_dlx, replaces: invoices, owner: team-billing}
`

// odd has names that rules could stumble over.
const odd = `
version: 1
name: odd
defaults: {backoff: b}
backoff: {b: {tiers: [1m]}}
queues:
  - {name: 'a "b" \ {{ $labels.queue }} (c|d).*', owner: '{{ .Nobody }}'}
  - {name: "a'b", owner: '{{ .Nobody }}'}
  - {name: ä, backoff: none, severity: page}
`

func topologyOf(t *testing.T, text string) topology.Topology {
	t.Helper()
	top, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(text)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// promtool runs promtool in a folder.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	script, err := filepath.Abs("scripts/promtool")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), script, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Prometheus takes the rules, and each query of the dashboard.
func TestPromtoolTakesRulesAndQueries(t *testing.T) {
	t.Parallel()
	none := "version: 1\nname: none\nqueues: [{name: q, backoff: none}]\n"
	for name, text := range map[string]string{"alerted": alerted, "odd": odd, "without backoff": none} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, top := t.TempDir(), topologyOf(t, text)
			var out strings.Builder
			if err := generate.WriteAlerts(&out, generate.Alerts(top, "/")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(out.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			promtool(t, dir, "check", "rules", "rules.yml")

			queries := generate.RuleGroup{Name: "dashboard"}
			for _, p := range generate.MakeDashboard(top, "/").Panels {
				for _, target := range p.Targets {
					queries.Rules = append(queries.Rules, generate.Rule{Alert: fmt.Sprintf("Panel%d%s", p.ID, target.RefID), Expr: target.Expr})
				}
			}
			if len(queries.Rules) < 5 {
				t.Errorf("the dashboard has %d queries", len(queries.Rules))
			}
			write(t, filepath.Join(dir, "dashboard.yml"), generate.RuleFile{Groups: []generate.RuleGroup{queries}})
			promtool(t, dir, "check", "rules", "dashboard.yml")
		})
	}
}

// Rules and dashboard name only metrics and labels that there are. Those of
// RabbitMQ are checked on a real node by TestAlertsUseMetricsThatRabbitMQHas.
func TestQueriesNameMetricsOfTheProcessor(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, m := range processor.Metrics() {
		there[m.Name] = true
		if m.Type == "histogram" {
			there[m.Name+"_bucket"] = true
		}
	}
	named := map[string]bool{}
	for _, q := range queries(topologyOf(t, alerted)) {
		for _, name := range regexp.MustCompile(`\bdlxctl_\w+`).FindAllString(q, -1) {
			named[name] = true
		}
	}
	if len(named) < 6 {
		t.Errorf("only %v are named", named)
	}
	for name := range named {
		if !there[name] {
			t.Errorf("%s is named and does not exist", name)
		}
	}
}

// queries gives what rules and dashboard ask of Prometheus.
func queries(top topology.Topology) []string {
	var out []string
	for _, r := range generate.Alerts(top, "/").Groups[0].Rules {
		out = append(out, r.Expr)
	}
	for _, p := range generate.MakeDashboard(top, "/").Panels {
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	return out
}

// ready gives a series of the depth of a queue, up that of a consumer of a failed
// queue.
func ready(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_messages_ready{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

func up(backoff string) string {
	return fmt.Sprintf("dlxctl_consumer_up{topology=%q,backoff=%q,queue=%q,instance=%q}", "shop", backoff, "shop."+backoff+".failed", "p-1")
}

func consumersOf(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_consumers{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

func deadLettered(queue, severity, owner string) string {
	return fmt.Sprintf("dlxctl_messages_dead_lettered_total{topology=%q,backoff=%q,queue=%q,reason=%q,severity=%q,owner=%q,instance=%q}",
		"shop", "standard", queue, "rejected", severity, owner, "p-1")
}

// Each alert fires when it should, with whom to call, and none when all is well.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	const long = "x2000"
	well := map[string]string{
		up("standard"): "1" + long, up("patient"): "1" + long,
		ready("shop.unroutable"): "0" + long, ready("shop.standard.failed"): "0" + long, ready("billing.dead"): "0" + long,
		ready("audit.dead"): "0" + long, ready("shop.dead"): "0" + long, consumersOf("billing"): "2" + long, consumersOf("audit"): "1" + long,
		deadLettered("billing", "page", "team-billing"): "7" + long,
	}
	// with gives what is well but for one series; an empty value takes it out.
	with := func(series, values string) map[string]string {
		out := maps.Clone(well)
		if out[series] = values; values == "" {
			delete(out, series)
		}
		return out
	}
	type test struct {
		series map[string]string
		quiet  string   // a moment at which nothing fires yet; empty: none is looked at
		at     string   // the moment at which these fire:
		fire   []string // name, queue, severity and owner
	}
	tests := map[string]test{
		"all is well":      {well, "1m", "33h", nil},
		"a dead letter":    {with(deadLettered("billing", "page", "team-billing"), "0x10 1"+long), "10m", "12m", []string{"DlxctlDeadLetters billing page team-billing"}},
		"of no page":       {with(deadLettered("reports", "ticket", "team-reports"), "0x10 3"+long), "10m", "12m", []string{"DlxctlDeadLetters reports ticket team-reports"}},
		"long ago":         {with(deadLettered("billing", "page", "team-billing"), "0x10 1"+long), "", "40m", nil},
		"straight":         {with(ready("audit.dead"), "0x10 1"+long), "11m", "13m", []string{"DlxctlDeadLettersNoBackoff audit.dead page team-audit"}},
		"they wait":        {with(ready("billing.dead"), "2"+long), "59m", "61m", []string{"DlxctlDeadLettersWaiting billing.dead ticket team-billing"}},
		"of several":       {with(ready("shop.dead"), "2"+long), "59m", "61m", []string{"DlxctlDeadLettersWaiting shop.dead ticket "}},
		"it grows":         {with(ready("shop.standard.failed"), "10+10"+long), "4m", "30m", []string{"DlxctlFailedQueueGrowing shop.standard.failed page "}},
		"full and still":   {with(ready("shop.standard.failed"), "10"+long), "", "30m", nil},
		"no processor":     {with(up("patient"), ""), "4m", "6m", []string{"DlxctlProcessorDown shop.patient.failed info "}},
		"it is not up":     {with(up("standard"), "1x10 0"+long), "14m", "17m", []string{"DlxctlProcessorDown shop.standard.failed page "}},
		"fits nowhere":     {with(ready("shop.unroutable"), "0x10 1"+long), "11m", "13m", []string{"DlxctlUnroutable shop.unroutable page "}},
		"nobody consumes":  {with(consumersOf("billing"), "1x10 0"+long), "25m", "27m", []string{"DlxctlQueueWithoutConsumers billing page team-billing"}},
		"the legacy queue": {with(ready("invoices"), "0"+long), "23h", "25h", []string{"DlxctlLegacyQueue invoices info team-billing"}},
		"nothing scraped":  {with(ready("shop.unroutable"), ""), "14m", "16m", []string{"DlxctlBrokerMetricsMissing shop.unroutable ticket "}},
	}
	var file []map[string]any
	names := map[string]bool{}
	for name, tc := range tests {
		var inputs []map[string]string
		for _, s := range slices.Sorted(maps.Keys(tc.series)) {
			inputs = append(inputs, map[string]string{"series": s, "values": tc.series[s]})
		}
		var samples []map[string]any
		for _, f := range tc.fire {
			parts := strings.SplitN(f, " ", 4)
			names[parts[0]] = true
			labels := fmt.Sprintf("{alertname=%q,queue=%q,severity=%q,owner=%q}", parts[0], parts[1], parts[2], parts[3])
			samples = append(samples, map[string]any{"labels": strings.Replace(labels, `,owner=""`, "", 1), "value": 1})
		}
		const firing = `max by (alertname, queue, severity, owner) (ALERTS{alertstate="firing"})`
		checks := []map[string]any{{"expr": firing, "eval_time": tc.at, "exp_samples": samples}}
		if tc.quiet != "" {
			checks = append(checks, map[string]any{"expr": firing, "eval_time": tc.quiet})
		}
		file = append(file, map[string]any{"interval": "1m", "name": name, "input_series": inputs, "promql_expr_test": checks})
	}
	alerts := generate.Alerts(topologyOf(t, alerted), "/")
	for _, r := range alerts.Groups[0].Rules {
		if !names[r.Alert] {
			t.Errorf("no test lets %s fire", r.Alert)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yml"), alerts)
	write(t, filepath.Join(dir, "test.yml"), map[string]any{"rule_files": []string{"rules.yml"}, "evaluation_interval": "1m", "tests": file})
	promtool(t, dir, "test", "rules", "test.yml")
}

// The dashboard is one that Grafana can draw: each panel has a number and a place
// of its own.
func TestDashboardPanelsHaveAPlace(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := generate.WriteDashboard(&out, generate.MakeDashboard(topologyOf(t, alerted), "/")); err != nil {
		t.Fatal(err)
	}
	var d generate.Dashboard
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d is there twice", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(d.UID) > 40 || d.UID == "" {
		t.Errorf("the uid %q is none that Grafana takes", d.UID)
	}
}
