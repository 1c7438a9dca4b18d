package generate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Dashboard is a Grafana dashboard, as far as dlxctl fills it in. The gallery of Grafana reads what
// it needs: a version of Grafana, a data source and plugins.
type Dashboard struct {
	Inputs        []any          `json:"__inputs"`
	Requires      []Required     `json:"__requires"`
	Description   string         `json:"description"`
	UID           string         `json:"uid"`
	Title         string         `json:"title"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Editable      bool           `json:"editable"`
	Refresh       string         `json:"refresh"`
	Time          map[string]any `json:"time"`
	Templating    map[string]any `json:"templating"`
	Panels        []Panel        `json:"panels"`
}

// Required is what Grafana must have to show a dashboard.
type Required struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Panel is a panel of a dashboard.
type Panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Datasource  map[string]any `json:"datasource"`
	GridPos     Place          `json:"gridPos"`
	FieldConfig map[string]any `json:"fieldConfig"`
	Options     map[string]any `json:"options"`
	Targets     []Target       `json:"targets"`
}

// Place is where a panel is, on a grid 24 wide.
type Place struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant,omitempty"`
}

// MakeDashboard returns the dashboard of a topology in the virtual host vhost: what a person must
// look at first, then how failures flow, then the queues. It shows series that have all labels: see
// [AlertOptions].
func MakeDashboard(t topology.Compiled, vhost string, labels map[string]string) Dashboard {
	d := dashboard{t: t, scope: scope{vhost, labels}}
	id, title := t.Name+" "+vhost, "dlxctl: "+t.Name
	if len(labels) > 0 {
		of := d.matching("", nil)
		id, title = id+" "+of, title+" "+of
	}
	sum := sha256.Sum256([]byte(id))
	d.out = Dashboard{
		Inputs: []any{}, // the variable datasource is one that a person chooses
		Requires: []Required{
			{"grafana", "grafana", "Grafana", "10.0.0"},
			{"datasource", "prometheus", "Prometheus", "1.0.0"},
			{"panel", "stat", "Stat", ""},
			{"panel", "timeseries", "Time series", ""},
		},
		Description: "Dead letters and retries of the topology " + t.Name + ", from 'dlxctl generate dashboard'.",
		UID:         "dlxctl-" + hex.EncodeToString(sum[:8]), Title: title,
		Tags:          []string{"dlxctl", "rabbitmq"},
		SchemaVersion: 39, Editable: true, Refresh: "30s", Time: map[string]any{"from": "now-6h", "to": "now"},
		Templating: map[string]any{"list": []any{map[string]any{
			"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
		}}},
	}
	d.overview()
	d.flow()
	d.delays()
	d.depths()
	return d.out
}

type dashboard struct {
	scope
	t    topology.Compiled
	out  Dashboard
	x, y int // where the next panel comes
	row  int // how high the present row is
}

// panel adds a panel to the right of the last one, or below.
func (d *dashboard) panel(p Panel, w, h int, unit string, targets ...Target) {
	if d.x+w > 24 {
		d.x, d.y, d.row = 0, d.y+d.row, 0
	}
	p.ID = len(d.out.Panels) + 1
	p.Datasource = map[string]any{"type": "prometheus", "uid": "${datasource}"}
	p.GridPos = Place{H: h, W: w, X: d.x, Y: d.y}
	defaults := map[string]any{"unit": unit, "min": 0}
	if p.Type == "stat" {
		defaults["thresholds"] = map[string]any{"mode": "absolute", "steps": []any{
			map[string]any{"color": "green", "value": nil}, map[string]any{"color": "red", "value": 1},
		}}
	}
	p.FieldConfig = map[string]any{"defaults": defaults, "overrides": []any{}}
	if p.Options == nil {
		p.Options = map[string]any{"legend": map[string]any{
			"displayMode": "table", "placement": "right",
			"calcs": []any{"lastNotNull", "max"},
		}}
	}
	for i := range targets {
		targets[i].RefID = string(rune('A' + i))
	}
	p.Targets = targets
	d.out.Panels = append(d.out.Panels, p)
	d.x, d.row = d.x+w, max(d.row, h)
}

// stat adds one number that should be 0.
func (d *dashboard) stat(title, description, expr string) {
	d.panel(Panel{
		Type: "stat", Title: title, Description: description,
		Options: map[string]any{"colorMode": "background", "reduceOptions": map[string]any{"calcs": []any{"lastNotNull"}}},
	}, 6, 4, "short", Target{Expr: expr, Instant: true})
}

func (d *dashboard) overview() {
	var dead, failed []string
	for _, w := range withMatches(d.t) {
		dead = append(dead, w.DeadLetterQueue)
	}
	slices.Sort(dead)
	for _, l := range d.t.Backoffs {
		failed = append(failed, l.FailedQueue)
	}
	d.stat("Dead letters", "Messages that wait for a person.",
		"sum(max by (vhost, queue) ("+d.queues(metricMessages, slices.Compact(dead))+"))")
	d.stat("Unroutable", "Messages in the unroutable queue. The header retry-error gives the reason.",
		"sum(max by (vhost, queue) ("+d.queues(metricMessages, []string{topology.UnroutableName(d.t.Name)})+"))")
	if len(failed) == 0 {
		return
	}
	d.stat("Waiting for the processor", "Messages in the failed queues.",
		"sum(max by (vhost, queue) ("+d.queues(metricMessages, failed)+"))")
	d.stat("Queues without a processor", "Failed queues, and queues of delays, that no processor consumes. Should be 0. /readyz of dlxctl process shows the reason.",
		"count(max by (queue) ("+d.selector("dlxctl_consumer_up", "topology", d.t.Name)+") == 0) or vector(0)")
}

func (d *dashboard) flow() {
	if len(d.t.Backoffs) == 0 {
		return
	}
	of := func(metric string) string { return d.selector(metric, "topology", d.t.Name) }
	d.panel(Panel{Type: "timeseries", Title: "New dead letters", Description: "By queue and reason, per minute."}, 12, 8,
		"short",
		Target{
			Expr:         "sum by (queue, reason) (rate(" + of("dlxctl_messages_dead_lettered_total") + "[5m])) * 60",
			LegendFormat: "{{queue}} {{reason}}",
		},
		Target{
			Expr:         "sum by (reason) (rate(" + of("dlxctl_messages_unroutable_total") + "[5m])) * 60",
			LegendFormat: "unroutable {{reason}}",
		})
	d.panel(Panel{Type: "timeseries", Title: "Retries", Description: "By queue and tier, per minute."}, 12, 8, "short",
		Target{
			Expr:         "sum by (queue, tier) (rate(" + of("dlxctl_messages_retried_total") + "[5m])) * 60",
			LegendFormat: "{{queue}} {{tier}}",
		})
	confirm := of("dlxctl_publish_confirm_seconds_bucket")
	d.panel(Panel{
		Type: "timeseries", Title: "Confirms of the broker",
		Description: "Time until the broker confirms the copy of a message.",
	}, 12, 8, "s",
		Target{Expr: quantile("0.5", "backoff", confirm), LegendFormat: "median {{backoff}}"},
		Target{Expr: quantile("0.99", "backoff", confirm), LegendFormat: "99% {{backoff}}"})
	d.panel(Panel{
		Type: "timeseries", Title: "In flight",
		Description: "Messages from failed queues whose copy is not confirmed yet.",
	}, 12, 8, "short",
		Target{Expr: "sum by (backoff) (" + of("dlxctl_in_flight") + ")", LegendFormat: "{{backoff}}"},
		Target{Expr: "max(" + of("dlxctl_connection_blocked") + ")", LegendFormat: "blocked by an alarm"})
}

func quantile(q, by, buckets string) string {
	return "histogram_quantile(" + q + ", sum by (" + by + ", le) (rate(" + buckets + "[5m])))"
}

// delays adds what waits in the delays, and how late it comes.
func (d *dashboard) delays() {
	if len(d.t.Delays) == 0 {
		return
	}
	var queues []string
	for _, x := range d.t.Delays {
		queues = append(queues, x.Queues()...)
		for _, l := range x.Levels {
			queues = append(queues, l.Queue)
		}
	}
	slices.Sort(queues)
	d.panel(Panel{
		Type: "timeseries", Title: "Delayed messages",
		Description: "In the intake queue until the processor reads them, in a level until their time is " +
			"over, or in the timer, and in the due queue between them.",
	}, 12, 8, "short",
		Target{
			Expr:         "max by (queue) (" + d.queues(metricMessages, queues) + ") > 0",
			LegendFormat: "{{queue}}",
		})
	late := d.selector("dlxctl_delayed_late_seconds_bucket", "topology", d.t.Name)
	d.panel(Panel{
		Type: "timeseries", Title: "How late delayed messages come",
		Description: "Up to a second is usual with engine: levels, as messages wait in whole seconds there.",
	}, 12, 8, "s",
		Target{Expr: quantile("0.5", "delay", late), LegendFormat: "median {{delay}}"},
		Target{Expr: quantile("0.99", "delay", late), LegendFormat: "99% {{delay}}"})
}

func (d *dashboard) depths() {
	var work, dead, waiting []string
	for _, w := range withMatches(d.t) {
		dead = append(dead, w.DeadLetterQueue)
		if w.Match == "" {
			work = append(work, w.Name)
		}
	}
	for _, l := range d.t.Backoffs {
		waiting = append(waiting, l.FailedQueue)
		for _, s := range l.AllTiers() {
			waiting = append(waiting, s.Queue)
		}
	}
	moving := slices.Concat(work, waiting)
	for _, p := range []struct {
		title, metric string
		queues        []string
	}{
		{"Work queues", metricMessages, work},
		{"Dead letters by queue", metricMessages, append(dead, topology.UnroutableName(d.t.Name))},
		{"Tiers and failed queues", metricMessages, waiting},
		{"Consumers", metricConsumers, work},
	} {
		slices.SortFunc(p.queues, cmp.Compare[string])
		if p.queues = slices.Compact(p.queues); len(p.queues) == 0 {
			continue
		}
		d.panel(Panel{Type: "timeseries", Title: p.title}, 12, 8, "short",
			Target{Expr: "max by (queue) (" + d.queues(p.metric, p.queues) + ")", LegendFormat: "{{queue}}"})
	}
	slices.Sort(moving)
	if moving = slices.Compact(moving); len(moving) > 0 {
		delayed := ""
		if len(d.t.Native) > 0 {
			delayed = " In a work queue with engine: native they are those that RabbitMQ delays, too."
		}
		d.panel(Panel{
			Type: "timeseries", Title: "On the way to another queue",
			Description: "Messages that RabbitMQ is dead-lettering: neither ready nor unacknowledged. Where they stay in a tier, it is late. Where they grow in a work queue, it fails faster than RabbitMQ moves its messages." + delayed,
		}, 12, 8, "short",
			Target{
				Expr: "max by (queue) (" + d.queues(metricMessages, moving) + " - " +
					d.queues(metricReady, moving) + " - " + d.queues(metricUnacked, moving) + ") > 0",
				LegendFormat: "{{queue}}",
			})
	}
	d.panel(Panel{
		Type: "timeseries", Title: "dlxctl desk",
		Description: "Messages in the holds of runs, and parked ones. dlxctl desk run list lists the runs.",
	}, 12, 8, "short",
		Target{Expr: "max by (queue) (" + d.holds(d.t, metricMessages) + ")", LegendFormat: "{{queue}}"},
		Target{
			Expr:         "max by (queue) (" + d.queues(metricMessages, []string{topology.ParkedName(d.t.Name)}) + ")",
			LegendFormat: "{{queue}}",
		})
}
