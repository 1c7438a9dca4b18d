package e2e_test

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
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	writing "github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// alerted is a topology with queues for each alert.
const alerted = `
version: 1
name: shop
defaults: {backoff: standard}
backoff:
  standard: {tiers: [{delay: 1m, attempts: 2}]}
  hourly: {tiers: [1h], outage: {}}
  desk: {tiers: [1h]}
exchanges: [{name: events}]
delays: [{name: shop.later, to: events, engine: native}]
queues:
  - {name: parcels, backoff: desk, owner: team-parcels, severity: info}
  - {name: billing, owner: team-billing, severity: page}
  - {name: reports, owner: team-reports, dead: shared}
  - {name: mail, owner: team-mail, dead: shared, backoff: hourly, severity: info}
  - {name: audit, backoff: none, owner: team-audit, severity: page}
  - {name: invoices.v2, replaces: invoices, owner: team-billing}
`

// odd has names that templates, quotes and regular expressions of rules could misread.
const odd = `
version: 1
name: odd
defaults: {backoff: b}
backoff: {b: {tiers: [1m]}}
queues:
  - {name: 'a "b" \ {{ $labels.queue }} (c|d).*', owner: '{{ .Missing }}'}
  - {name: "a'b", owner: '{{ .Missing }}'}
  - {name: ä, backoff: none, severity: page}
`

// options returns those with which the rules have all that they can have.
func options() generate.AlertOptions {
	return generate.AlertOptions{
		VHost: "/", Processors: 2, Backlog: 10_000, RunbookURL: "https://wiki.example/{{ .Missing }}",
	}
}

// promtool runs promtool in a folder.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	script, err := filepath.Abs("../scripts/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), script, append([]string{"promtool"}, args...)...)
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

// Promtool accepts the rules and each query of the dashboard.
func TestPromtoolAcceptsRulesAndQueries(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	none := "version: 1\nname: none\nqueues: [{name: q, backoff: none}]\n"
	for name, text := range map[string]string{"alerted": alerted, "odd": odd, "without backoff": none} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, top := t.TempDir(), compiled(t, text)
			var out strings.Builder
			if err := generate.WriteAlerts(&out, generate.Alerts(top, options())); err != nil {
				t.Fatal(err)
			}
			writeTo(t, filepath.Join(dir, "rules.yml"), out.String())
			promtool(t, dir, "check", "rules", "rules.yml")

			queries := generate.RuleGroup{Name: "dashboard"}
			for _, p := range generate.MakeDashboard(top, "/", nil).Panels {
				for _, target := range p.Targets {
					name := fmt.Sprintf("Panel%d%s", p.ID, target.RefID)
					queries.Rules = append(queries.Rules, generate.Rule{Alert: name, Expr: target.Expr})
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

// Rules and dashboard query only metrics that the processor exports. For those of RabbitMQ see
// TestAlertsUseMetricsThatRabbitMQExports.
func TestQueriesUseMetricsThatTheProcessorExports(t *testing.T) {
	t.Parallel()
	exported := map[string]bool{}
	for _, m := range monitor.Metrics() {
		exported[m.Name] = true
		if m.Type == "histogram" {
			exported[m.Name+"_bucket"] = true
		}
	}
	named := map[string]bool{}
	for _, q := range queries(compiled(t, alerted)) {
		for _, name := range regexp.MustCompile(`\bdlxctl_\w+`).FindAllString(q, -1) {
			named[name] = true
		}
	}
	if len(named) < 6 || !named["dlxctl_delayed_late_seconds_bucket"] {
		t.Errorf("the queries name only %v", named)
	}
	for name := range named {
		if !exported[name] {
			t.Errorf("the queries name %s, which the processor does not export", name)
		}
	}
}

// queries returns the expressions of rules and dashboard.
func queries(top topology.Compiled) []string {
	var out []string
	for _, r := range generate.Alerts(top, options()).Groups[0].Rules {
		out = append(out, r.Expr)
	}
	for _, p := range generate.MakeDashboard(top, "/", nil).Panels {
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	return out
}

// depth returns the series of all messages of a queue, ready or not.
func depth(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_messages{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

// ready returns the series of the ready messages of a queue.
func ready(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_messages_ready{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

// unacked returns the series of the messages that consumers of a queue hold.
func unacked(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_messages_unacked{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

// up returns the series of the consumer of a failed queue, of the first processor.
func up(backoff string) string { return upOf(backoff, "p-1") }

// upOf returns that of any processor.
func upOf(backoff, processor string) string {
	return fmt.Sprintf("dlxctl_consumer_up{topology=%q,backoff=%q,queue=%q,instance=%q}", "shop", backoff,
		"shop."+backoff+".failed", processor)
}

// upAt returns the series of a processor at a queue of the delay.
func upAt(queue string) string {
	return fmt.Sprintf("dlxctl_consumer_up{topology=%q,backoff=%q,queue=%q,instance=%q}", "shop", "shop.later",
		"shop.delay."+queue+".shop.later", "p-1")
}

// heldIn returns the series of the messages that are too large to leave the failed queue.
func heldIn(backoff string) string {
	return fmt.Sprintf("dlxctl_held_messages{topology=%q,backoff=%q,queue=%q,reason=%q,instance=%q}", "shop", backoff,
		"shop."+backoff+".failed", "too_large", "p-1")
}

// retried returns the series of the messages that were put into a tier.
func retried(backoff, queue, tier string) string {
	return fmt.Sprintf("dlxctl_messages_retried_total{topology=%q,backoff=%q,queue=%q,tier=%q,instance=%q}", "shop",
		backoff, queue, tier, "p-1")
}

// tiersOf returns the series of the tiers that a processor has for the backoff standard.
func tiersOf(tiers, processor string) string {
	return fmt.Sprintf("dlxctl_backoff_info{topology=%q,backoff=%q,tiers=%q,instance=%q}", "shop", "standard", tiers, processor)
}

// blocked is the series of an alarm of the broker.
const blocked = `dlxctl_connection_blocked{topology="shop",instance="p-1"}`

// inOutage is the series of a work queue that may be in outage.
const inOutage = `dlxctl_queue_in_outage{topology="shop",backoff="hourly",queue="mail",severity="info",owner="team-mail",instance="p-1"}`

// unread is the series of the statistics that tell of outages.
const unread = `dlxctl_statistics_unread{topology="shop",backoff="hourly",instance="p-1"}`

// built and startedAt are series of a processor that begin with it.
const (
	built     = `dlxctl_build_info{instance="p-1"}`
	startedAt = `process_start_time_seconds{instance="p-1"}`
)

// scraped returns the series that Prometheus writes of each scrape of a node of the broker.
func scraped(node string) string { return fmt.Sprintf("up{instance=%q}", node) }

// identity returns the series by which a node says to which cluster it belongs.
func identity(node, cluster string) string {
	return fmt.Sprintf("rabbitmq_identity_info{instance=%q,rabbitmq_cluster=%q}", node, cluster)
}

// consumersOf returns the series of the number of consumers of a queue.
func consumersOf(queue string) string {
	return fmt.Sprintf("rabbitmq_detailed_queue_consumers{vhost=%q,queue=%q,instance=%q}", "/", queue, "node-1")
}

// traffic returns the series of what a queue delivers: redelivered, acknowledged and delivered
// messages in all, and those that consumers hold.
func traffic(queue, redelivered, acked, delivered, held string) map[string]string {
	of := func(metric string) string {
		return fmt.Sprintf("rabbitmq_detailed_queue_messages_%s{vhost=%q,queue=%q,instance=%q}", metric, "/", queue, "node-1")
	}
	return map[string]string{
		of("redelivered_total"): redelivered, of("acked_total"): acked,
		of("delivered_ack_total"): delivered, of("unacked"): held,
	}
}

// deadLettered returns the series of the dead letters of a queue.
func deadLettered(queue, severity, owner string) string {
	return fmt.Sprintf("dlxctl_messages_dead_lettered_total{topology=%q,backoff=%q,queue=%q,reason=%q,"+
		"severity=%q,owner=%q,instance=%q}",
		"shop", "standard", queue, "rejected", severity, owner, "p-1")
}

// long is for all the time that a case takes.
const long = "x2000"

// played is what promtool lets rules see.
type played struct {
	series map[string]string
	quiet  string   // a time at which nothing fires yet; empty means no check
	at     string   // the time at which these fire:
	fire   []string // name, queue, severity and owner
}

// Each alert fires under its condition, with queue, severity and owner, and none fires otherwise.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	well := map[string]string{
		up("standard"): "1" + long, up("hourly"): "1" + long, up("desk"): "1" + long,
		upAt("in"): "1" + long, upAt("due"): "1" + long, upAt("timer"): "1" + long,
		depth("shop.unroutable"): "0" + long, ready("shop.standard.failed"): "0" + long, depth("billing.dead"): "0" + long,
		depth("audit.dead"): "0" + long, depth("shop.dead"): "0" + long,
		depth("shop.standard.failed"): "0" + long, depth("shop.hourly.failed"): "0" + long,
		depth("shop.desk.failed"): "0" + long, depth("shop.desk.retry.1h"): "0" + long,
		depth("shop.standard.retry.1m"): "5" + long, ready("shop.standard.retry.1m"): "5" + long,
		depth("shop.hourly.retry.1h"): "5" + long, ready("shop.hourly.retry.1h"): "5" + long,
		depth("shop.hourly.retry.outage"): "0" + long, ready("shop.hourly.retry.outage"): "0" + long, inOutage: "0" + long,
		unread:                  "0" + long,
		upOf("standard", "p-2"): "1" + long, upOf("hourly", "p-2"): "1" + long, upOf("desk", "p-2"): "1" + long,
		tiersOf("1m ×2", "p-1"): "1" + long, tiersOf("1m ×2", "p-2"): "1" + long,
		heldIn("standard"): "0" + long, blocked: "0" + long, retried("standard", "billing", "1m"): "3" + long,
		consumersOf("billing"): "2" + long, consumersOf("audit"): "1" + long, depth("billing"): "7" + long,
		deadLettered("billing", "page", "team-billing"): "7" + long, built: "1" + long, startedAt: "-3600" + long,
	}
	// with changes series of what is well, name and values by turns; an empty value removes one.
	with := func(changes ...string) map[string]string {
		out := maps.Clone(well)
		for i := 0; i < len(changes); i += 2 {
			if out[changes[i]] = changes[i+1]; changes[i+1] == "" {
				delete(out, changes[i])
			}
		}
		return out
	}
	// looked holds all n messages of a queue for two minutes of each ten: none of them is ready.
	looked := func(queue string, n int) map[string]string {
		out := with(depth(queue), fmt.Sprintf("%d%s", n, long))
		out[ready(queue)] = strings.Repeat(fmt.Sprintf("%dx7 0 0 ", n), 20)
		return out
	}
	dead := func(queue, severity string, values string) map[string]string {
		return with(deadLettered(queue, severity, "team-"+queue), values+long)
	}
	flows := func(redelivered, acked, delivered, held string) map[string]string {
		out := maps.Clone(well)
		maps.Copy(out, traffic("billing", redelivered+long, acked+long, delivered+long, held+long))
		return out
	}
	// dying has 100 ready and 7 unacknowledged messages of a queue, of all that it has.
	dying := func(queue, all string, changes ...string) map[string]string {
		out := with(append(changes, depth(queue), all+long)...)
		out[ready(queue)], out[unacked(queue)] = "100"+long, "7"+long
		return out
	}
	tests := map[string]played{
		"nothing is wrong": {series: well, quiet: "1m", at: "33h"},
		"a dead letter": {
			series: dead("billing", "page", "0x10 1"), quiet: "10m", at: "12m",
			fire: []string{"DlxctlDeadLetters billing page team-billing"},
		},
		"the first dead letter of a queue of a match": {
			series: dead("billing", "page", "_x10 1"), quiet: "9m", at: "19m",
			fire: []string{"DlxctlDeadLetters billing page team-billing"},
		},
		"the first dead letter of a queue of a match, half an hour ago": {series: dead("billing", "page", "_x10 1"), at: "40m"},
		"dead letters before the first scrape": {
			series: with(deadLettered("billing", "page", "team-billing"), "7x5 stale _x20 40"+long,
				built, "1x5 stale _x20 1"+long, startedAt, "-3600x5 stale _x20 1600"+long),
			quiet: "26m", at: "30m", fire: []string{"DlxctlDeadLetters billing page team-billing"},
		},
		"a gap in the scrapes": {
			series: with(deadLettered("billing", "page", "team-billing"), "7x5 stale _x20 7"+long,
				built, "1x5 stale _x20 1"+long, startedAt, "-3600x5 stale _x20 -3600"+long), at: "30m",
		},
		"dead letters of severity ticket": {
			series: dead("reports", "ticket", "0x10 3"), quiet: "10m", at: "12m",
			fire: []string{"DlxctlDeadLetters reports ticket team-reports"},
		},
		"consumers requeue each message": {
			series: flows("0x10 0+200", "7", "0x10 0+200", "1"), quiet: "21m", at: "24m",
			fire: []string{"DlxctlLoop billing page team-billing"},
		},
		"a restart":                     {series: flows("0x10 2500", "0+1", "0+1", "1"), quiet: "15m", at: "24m"},
		"requeues among other messages": {series: flows("0+200", "0+300", "0+500", "1"), at: "40m"},
		"consumers stand still": {
			series: flows("0", "0+3x10 30", "0+3x10 30", "9"), quiet: "28m", at: "33m",
			fire: []string{"DlxctlStuck billing page team-billing"},
		},
		"consumers of AMQP 1.0 are busy": {series: flows("0", "7", "7", strings.Repeat("9 8x3 ", 10)+"9"), at: "40m"},
		"consumers do not keep up": {
			series: with(ready("billing"), "10000x20 10001"+long), quiet: "34m", at: "37m",
			fire: []string{"DlxctlBacklog billing ticket team-billing"},
		},
		"a backlog without a consumer": {
			series: with(ready("billing"), "10001"+long, consumersOf("billing"), "0"+long), quiet: "14m", at: "16m",
			fire: []string{"DlxctlQueueWithoutConsumers billing page team-billing"},
		},
		"consumers are slow":                {series: flows("0", "0+0.2", "0+0.2", "9"), at: "50m"},
		"no message, and no consumer acts":  {series: flows("0", "7", "7", "0"), at: "50m"},
		"a dead letter of half an hour ago": {series: dead("billing", "page", "0x10 1"), at: "40m"},
		"a dead letter of a queue without backoff": {
			series: with(depth("audit.dead"), "0x10 1"+long), quiet: "11m", at: "13m",
			fire: []string{"DlxctlDeadLettersNoBackoff audit.dead page team-audit"},
		},
		"dead letters wait": {
			series: with(depth("billing.dead"), "2"+long), quiet: "59m", at: "61m",
			fire: []string{"DlxctlDeadLettersWaiting billing.dead ticket team-billing"},
		},
		"a look at dead letters that wait": {
			series: looked("billing.dead", 2), quiet: "59m", at: "61m",
			fire: []string{"DlxctlDeadLettersWaiting billing.dead ticket team-billing"},
		},
		"a look at dead letters of a queue without backoff": {
			series: looked("audit.dead", 3), at: "50m",
			fire: []string{"DlxctlDeadLettersNoBackoff audit.dead page team-audit"},
		},
		"a look at unroutable messages": {
			series: looked("shop.unroutable", 4), at: "50m",
			fire: []string{"DlxctlUnroutable shop.unroutable ticket "},
		},
		"dead letters wait in a shared queue": {
			series: with(depth("shop.dead"), "2"+long), quiet: "59m", at: "61m",
			fire: []string{"DlxctlDeadLettersWaiting shop.dead ticket "},
		},
		"a failed queue grows": {
			series: with(ready("shop.standard.failed"), "10+10"+long), quiet: "4m", at: "30m",
			fire: []string{"DlxctlFailedQueueGrowing shop.standard.failed page "},
		},
		"a failed queue is not empty and does not grow": {series: with(ready("shop.standard.failed"), "10"+long), at: "30m"},
		"no processor is scraped": {
			series: with(up("hourly"), "", upOf("hourly", "p-2"), ""), quiet: "4m", at: "6m",
			fire: []string{"DlxctlProcessorDown shop.hourly.failed info "},
		},
		"no processor has a consumer": {
			series: with(up("standard"), "1x10 0"+long, upOf("standard", "p-2"), "0"+long), quiet: "14m", at: "17m",
			fire: []string{"DlxctlProcessorDown shop.standard.failed page "},
		},
		"no processor consumes a queue of a delay": {
			series: with(upAt("in"), "1x10 0"+long, upAt("due"), ""), quiet: "4m", at: "17m",
			fire: []string{
				"DlxctlProcessorDown shop.delay.due.shop.later page ", "DlxctlProcessorDown shop.delay.in.shop.later page ",
			},
		},
		"no processor reads a timer": {
			series: with(upAt("timer"), "1x10 0"+long), quiet: "14m", at: "17m",
			fire: []string{"DlxctlProcessorDown shop.delay.timer.shop.later ticket "},
		},
		"one of two processors is gone": {
			series: with(upOf("standard", "p-2"), "1x10 stale"), quiet: "14m", at: "17m",
			fire: []string{"DlxctlProcessorRedundancyLost shop.standard.failed ticket "},
		},
		"a processor has another file": {
			series: with(tiersOf("1m ×2", "p-2"), "", tiersOf("1m", "p-2"), "1x10 stale"), quiet: "4m", at: "9m",
			fire: []string{"DlxctlProcessorOutdated  ticket "},
		},
		"a processor is restarted": {
			series: with(tiersOf("1m ×2", "p-2"), "_x4 1"+long, tiersOf("1m", "p-2"), "1x3 stale"), at: "30m",
		},
		"an alarm": {
			series: with(blocked, "0x10 1"+long), quiet: "12m", at: "14m", fire: []string{"DlxctlBrokerBlocked  page "},
		},
		"failed messages stand still": {
			series: with(depth("shop.standard.failed"), "0x10 9"+long), quiet: "15m", at: "17m",
			fire: []string{"DlxctlRetriesStalled shop.standard.failed page "},
		},
		"failed messages move, and others come": {
			series: with(depth("shop.standard.failed"), "9"+long, retried("standard", "billing", "1m"), "0+1"+long), at: "30m",
		},
		"a message must stay in the failed queue, and others move": {
			series: with(depth("shop.standard.failed"), "1x100 0"+long, heldIn("standard"), "1x100 0"+long), quiet: "30s",
			at:   "17m",
			fire: []string{"DlxctlMessagesHeld shop.standard.failed ticket "},
		},
		"a message must stay in the failed queue, and another stands still": {
			series: with(depth("shop.standard.failed"), "2"+long, heldIn("standard"), "1"+long), at: "17m",
			fire: []string{
				"DlxctlMessagesHeld shop.standard.failed ticket ", "DlxctlRetriesStalled shop.standard.failed page ",
			},
		},
		"a work queue is in outage": {
			series: with(inOutage, "0x10 1x20 0"+long), quiet: "10m", at: "12m",
			fire: []string{"DlxctlOutage mail info team-mail"},
		},
		"nothing tells of outages": {
			series: with(unread, "0x10 1x20 0"+long), quiet: "14m", at: "17m",
			fire: []string{"DlxctlOutagesUnknown  info "},
		},
		"statistics are read again": {series: with(unread, "0x10 1x20 0"+long), at: "33m"},
		"an outage is over":         {series: with(inOutage, "0x10 1x20 0"+long), at: "33m"},
		"a tier does not return its messages": {
			series: with(depth("shop.standard.retry.1m"), "0x10 68"+long, ready("shop.standard.retry.1m"), "0"+long),
			quiet:  "15m", at: "17m", fire: []string{"DlxctlTierLate shop.standard.retry.1m page "},
		},
		"a tier is 9 seconds late": {
			series: with(depth("shop.standard.retry.1m"), "1150"+long, ready("shop.standard.retry.1m"), "1000"+long), at: "30m",
		},
		"a tier is 11 seconds late": {
			series: with(depth("shop.standard.retry.1m"), "1184"+long, ready("shop.standard.retry.1m"), "1000"+long),
			quiet:  "4m", at: "6m", fire: []string{"DlxctlTierLate shop.standard.retry.1m page "},
		},
		"a long tier under load": {
			series: with(depth("shop.hourly.retry.1h"), "3600060"+long, ready("shop.hourly.retry.1h"), "3600000"+long),
			at:     "30m",
		},
		"failed messages do not reach the failed queue": {
			series: dying("billing", "107x10 108"), quiet: "15m", at: "17m",
			fire: []string{"DlxctlFailuresLate billing page team-billing"},
		},
		"failed messages do not reach the dead-letter queue": {
			series: dying("audit", "107x10 108"), quiet: "15m", at: "17m",
			fire: []string{"DlxctlFailuresLate audit page team-audit"},
		},
		"failed messages reach the processor 9 seconds late": { // 20 a second
			series: dying("billing", "287", retried("standard", "billing", "1m"), "0+1200"+long), at: "30m",
		},
		"failed messages reach the processor 11 seconds late": {
			series: dying("billing", "327", retried("standard", "billing", "1m"), "0+1200"+long), quiet: "4m", at: "30m",
			fire: []string{"DlxctlFailuresLate billing page team-billing"},
		},
		"failed messages reach the failed queue, where no processor is": {
			series: dying("mail", "287", depth("shop.hourly.failed"), "0+1200"+long,
				retried("hourly", "mail", "1h"), "0+1"+long), at: "30m",
		},
		"dead letters reach their queue": {
			series: dying("audit", "287", depth("audit.dead"), "0+1200"+long), at: "30m",
			fire: []string{"DlxctlDeadLettersNoBackoff audit.dead page team-audit"},
		},
		"a message is unroutable": {
			series: with(depth("shop.unroutable"), "0x10 1"+long), quiet: "11m", at: "13m",
			fire: []string{"DlxctlUnroutable shop.unroutable ticket "},
		},
		"a work queue has no consumer": {
			series: with(consumersOf("billing"), "1x10 0"+long), quiet: "25m", at: "27m",
			fire: []string{"DlxctlQueueWithoutConsumers billing page team-billing"},
		},
		"an empty work queue has no consumer": {
			series: with(consumersOf("billing"), "0"+long, depth("billing"), "0"+long), at: "1h",
		},
		"a legacy queue still exists": {
			series: with(depth("invoices"), "0"+long), quiet: "23h", at: "25h",
			fire: []string{"DlxctlLegacyQueue invoices info team-billing"},
		},
		"a run that stopped": {
			series: with(depth("shop.desk.20261122-101530-1a2b"), "40-1x19 20"+long), quiet: "1h15m", at: "1h25m",
			fire: []string{"DlxctlDeskRunWaiting shop.desk.20261122-101530-1a2b ticket "},
		},
		"a run that sends slowly": {series: with(depth("shop.desk.1"), "4000-1"+long), at: "10h"},
		"the failed queue of a backoff named desk": {
			series: with(depth("shop.desk.failed"), "3"+long), at: "10h",
			fire: []string{"DlxctlRetriesStalled shop.desk.failed info "}, // and no run of the desk
		},
		"one node of the broker is not scraped": {
			series: with(depth("shop.hourly.retry.1h"), ""), quiet: "14m", at: "16m",
			fire: []string{"DlxctlBrokerMetricsMissing  ticket "},
		},
		"a node that leads no generated queue is not scraped": {
			series: with(scraped("node-1"), "1"+long, identity("node-1", "shop"), "1"+long,
				scraped("node-2"), "1x10 0"+long, identity("node-2", "shop"), "1x10 stale"),
			quiet: "24m", at: "27m", fire: []string{"DlxctlBrokerMetricsMissing  ticket "},
		},
		"a node of another cluster is not scraped": {
			series: with(scraped("node-1"), "1"+long, identity("node-1", "shop"), "1"+long,
				scraped("other-1"), "1x10 0"+long, identity("other-1", "other"), "1x10 stale"),
			at: "1h",
		},
		"a node was removed": {
			series: with(scraped("node-1"), "1"+long, identity("node-1", "shop"), "1"+long,
				scraped("node-2"), "1x10 stale", identity("node-2", "shop"), "1x10 stale"),
			at: "1h",
		},
		"the broker is not scraped": {
			series: map[string]string{
				up("standard"): "1" + long, up("hourly"): "1" + long, up("desk"): "1" + long,
				upAt("in"): "1" + long, upAt("due"): "1" + long, upAt("timer"): "1" + long,
				upOf("standard", "p-2"): "1" + long, upOf("hourly", "p-2"): "1" + long, upOf("desk", "p-2"): "1" + long,
			}, quiet: "14m", at: "16m",
			fire: []string{"DlxctlBrokerMetricsMissing  ticket "},
		},
	}
	alerts := generate.Alerts(compiled(t, alerted), options())
	names := play(t, alerts, tests)
	for _, r := range alerts.Groups[0].Rules {
		if !names[r.Alert] {
			t.Errorf("no case makes %s fire", r.Alert)
		}
		if link := r.Annotations["runbook_url"]; !strings.HasSuffix(link, "#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s links to %q", r.Alert, link)
		}
	}
}

// play lets promtool check when rules fire. It returns the names of those that do.
func play(t *testing.T, alerts generate.RuleFile, tests map[string]played) map[string]bool {
	t.Helper()
	// By how often promtool evaluates the rules. Each minute of a day takes it ten seconds.
	files := map[string][]map[string]any{}
	names := map[string]bool{}
	for name, tc := range tests {
		end, err := time.ParseDuration(tc.at)
		if err != nil {
			t.Fatal(err)
		}
		// promtool reads all samples, and evaluates the rules for as long.
		enough := fmt.Sprintf("x%d", int(end.Minutes()))
		var inputs []map[string]string
		for _, s := range slices.Sorted(maps.Keys(tc.series)) {
			inputs = append(inputs, map[string]string{"series": s, "values": strings.ReplaceAll(tc.series[s], long, enough)})
		}
		var samples []map[string]any
		for _, f := range tc.fire {
			parts := strings.SplitN(f, " ", 4)
			names[parts[0]] = true
			labels := fmt.Sprintf("{alertname=%q,queue=%q,severity=%q,owner=%q}", parts[0], parts[1], parts[2], parts[3])
			labels = strings.NewReplacer(`,owner=""`, "", `,queue=""`, "").Replace(labels)
			samples = append(samples, map[string]any{"labels": labels, "value": 1})
		}
		const firing = `max by (alertname, queue, severity, owner) (ALERTS{alertstate="firing"})`
		checks := []map[string]any{{"expr": firing, "eval_time": tc.at, "exp_samples": samples}}
		if tc.quiet != "" {
			checks = append(checks, map[string]any{"expr": firing, "eval_time": tc.quiet})
		}
		interval := "1m"
		if end > 2*time.Hour {
			interval = "10m"
		}
		files[interval] = append(files[interval], map[string]any{
			"interval": "1m", "name": name, "input_series": inputs, "promql_expr_test": checks,
		})
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yml"), alerts)
	for interval, cases := range files {
		file := "test-" + interval + ".yml"
		write(t, filepath.Join(dir, file), map[string]any{
			"rule_files": []string{"rules.yml"}, "evaluation_interval": interval, "tests": cases,
		})
		promtool(t, dir, "test", "rules", file)
	}
	return names
}

// Where processors run now and then, as the file accepts, failed messages may wait for the next
// run, and for a day at most.
func TestAlertsWhereProcessorsRunNowAndThen(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	top := compiled(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1m]}}
exchanges: [{name: events}]
delays: [{name: shop.later, to: events, engine: native}]
queues: [{name: billing, severity: page}]
accept: [no-processor=shop.standard.failed, no-processor=shop.delay.in.shop.later]
`)
	series := func(failed string) map[string]string {
		return map[string]string{
			depth("shop.unroutable"): "0" + long, depth("shop.standard.retry.1m"): "0" + long,
			ready("shop.standard.retry.1m"): "0" + long,
			depth("shop.standard.failed"):   failed, ready("shop.standard.failed"): failed,
		}
	}
	play(t, generate.Alerts(top, options()), map[string]played{
		"runs empty the failed queue": {series: series(strings.Repeat("0+1x200 ", 10)), quiet: "3h", at: "25h"},
		"the runs have ended": {
			series: series("0x10 2" + long), quiet: "24h", at: "25h",
			fire: []string{"DlxctlRetriesStalled shop.standard.failed ticket "},
		},
	})
}

// Where one Prometheus has staging and production, the alerts of one are not about the other.
func TestAlertsOfAnEnvironment(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	o := options()
	o.Labels = map[string]string{"env": "prod"}
	series := map[string]string{}
	add := func(env, processors, dead string, queues string) {
		of := func(series string) string { return strings.TrimSuffix(series, "}") + fmt.Sprintf(",env=%q}", env) }
		series[of(upOf("standard", "p-1"))], series[of(upOf("standard", "p-2"))] = processors+long, processors+long
		series[of(deadLettered("billing", "ticket", "team-billing"))] = dead + long
		for _, queue := range []string{"shop.unroutable", "shop.standard.failed", "shop.standard.retry.1m"} {
			series[of(depth(queue))], series[of(ready(queue))] = queues+long, queues+long
		}
	}
	add("prod", "0", "0", "0")
	add("staging", "1", "0x10 0+1", "3")
	top := compiled(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1m]}}
queues: [{name: billing, owner: team-billing}]
`)
	play(t, generate.Alerts(top, o), map[string]played{"only staging has processors": {
		series: series, quiet: "4m", at: "30m", fire: []string{"DlxctlProcessorDown shop.standard.failed ticket "},
	}})
	matching := regexp.MustCompile(`\{[^}]*env="prod"\}`)
	for _, p := range generate.MakeDashboard(top, "/", o.Labels).Panels {
		for _, target := range p.Targets {
			if selectors := strings.Count(target.Expr, "{"); len(matching.FindAllString(target.Expr, -1)) != selectors {
				t.Errorf("%q shows other environments: %s", p.Title, target.Expr)
			}
		}
	}
}

// Alertmanager accepts the sample, where amtool is installed. Each alert that it names exists, and
// has the labels that must be equal for one alert to inhibit the other.
func TestTheSampleOfAlertmanager(t *testing.T) {
	t.Parallel()
	const sample = "../templates/prometheus/alertmanager.yml"
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	if amtool, err := exec.LookPath("amtool"); err == nil {
		if out, err := exec.CommandContext(t.Context(), amtool, "check-config", sample).CombinedOutput(); err != nil {
			t.Errorf("amtool: %v\n%s", err, out)
		}
	}
	var config struct {
		Inhibit []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
			Equal  []string
		} `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Inhibit) < 3 {
		t.Fatalf("it has %d inhibition rules", len(config.Inhibit))
	}
	rules := generate.Alerts(compiled(t, alerted), options()).Groups[0].Rules
	for _, inhibit := range config.Inhibit {
		for _, matcher := range slices.Concat(inhibit.Source, inhibit.Target) {
			for _, name := range regexp.MustCompile(`Dlxctl\w+`).FindAllString(matcher, -1) {
				i := slices.IndexFunc(rules, func(r generate.Rule) bool { return r.Alert == name })
				if i < 0 {
					t.Errorf("no alert is called %s", name)
					continue
				}
				for _, label := range inhibit.Equal {
					if rules[i].Labels[label] == "" {
						t.Errorf("%s has no label %s", name, label)
					}
				}
			}
		}
	}
}

// Grafana can draw the dashboard: each panel has an id and a place of its own. The gallery of
// Grafana knows what it needs: the plugin of each panel, and where its data are from.
func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := writing.WriteJSON(&out, generate.MakeDashboard(compiled(t, alerted), "/", nil)); err != nil {
		t.Fatal(err)
	}
	var d generate.Dashboard
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	required := map[string]bool{}
	for _, r := range d.Requires {
		required[r.Type+" "+r.ID] = true
	}
	if len(required) != 4 || !required["grafana grafana"] || d.Description == "" {
		t.Errorf("the dashboard %q needs %v", d.Description, d.Requires)
	}
	for _, p := range d.Panels {
		if !required["panel "+p.Type] || !required[fmt.Sprint("datasource ", p.Datasource["type"])] {
			t.Errorf("%q needs more than %v", p.Title, d.Requires)
		}
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q overlaps panel %q, or the right edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(d.UID) > 40 || d.UID == "" {
		t.Errorf("Grafana does not accept the uid %q", d.UID)
	}
}
