package generate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// RuleFile is a file of Prometheus rules.
type RuleFile struct {
	Groups []RuleGroup `json:"groups" yaml:"groups"`
}

// RuleGroup is a group of rules that Prometheus evaluates together.
type RuleGroup struct {
	Name  string `json:"name" yaml:"name"`
	Rules []Rule `json:"rules" yaml:"rules"`
}

// Rule is an alerting rule.
type Rule struct {
	Alert string `json:"alert" yaml:"alert"`
	Expr  string `json:"expr" yaml:"expr"`
	// For is how long Expr must hold, as Prometheus writes it.
	For         string            `json:"for,omitempty" yaml:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty" yaml:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty" yaml:"annotations,omitempty"`
}

// Metrics of RabbitMQ's plugin rabbitmq_prometheus, from /metrics/detailed with
// the families queue_coarse_metrics and queue_consumer_count, and those of
// alerts_consumers.go. A node tells of the queues that it leads, so Prometheus
// scrapes each, and of two the larger counts: a queue whose leader has just moved
// may be told of twice.
//
// Dead letters are counted by metricMessages: ready ones, and those that a person or program
// holds at this moment. A look holds a queue's messages for some seconds, and must not look as if
// the queue were empty. Where a consumer is expected to hold messages, metricReady is the backlog.
const (
	metricMessages  = "rabbitmq_detailed_queue_messages"
	metricReady     = "rabbitmq_detailed_queue_messages_ready"
	metricUnacked   = "rabbitmq_detailed_queue_messages_unacked"
	metricConsumers = "rabbitmq_detailed_queue_consumers"
	metricIdentity  = "rabbitmq_identity_info" // of a node, with the label rabbitmq_cluster
)

// AlertOptions says what the rules depend on, next to the topology.
type AlertOptions struct {
	// VHost is the virtual host of the topology.
	VHost string
	// Labels are those by which Prometheus tells environments with the same topology apart. All
	// series have them, and so have the alerts.
	Labels map[string]string
	// Processors is how many processes should consume each failed queue. With fewer than 2
	// there is no alert about a process that is missing while another one runs.
	Processors int
	// Backlog is how many ready messages a work queue with consumers may have for 15 minutes. Zero:
	// there is no alert about more.
	Backlog int
	// RunbookURL is the URL of a page with a section for each alert, such as docs/alerts.md. Empty:
	// the alerts have no link.
	RunbookURL string
}

// Alerts returns the alerting rules for a topology. Those about a queue carry its owner and
// severity as labels, to route them by. Where severity depends on the message, the alert about new
// dead letters has that of the metric. The others know no message, and have the worst severity that
// messages of the queue may have.
func Alerts(t topology.Compiled, o AlertOptions) RuleFile {
	a := alerts{t: t, o: o, scope: scope{o.VHost, o.Labels}}
	a.t.WorkQueues = withMatches(t)
	a.newDeadLetters()
	for i, w := range a.t.WorkQueues {
		a.t.WorkQueues[i].Severity = w.WorstSeverity()
	}
	a.deadLetters()
	a.outages()
	a.unknownOutages()
	a.failedQueues()
	a.standstill()
	a.lateTiers()
	a.lateFailures()
	a.held()
	a.unroutable()
	a.withoutConsumers()
	a.backlog()
	a.consumers()
	a.legacy()
	a.runs()
	a.metricsMissing()
	return RuleFile{Groups: []RuleGroup{{Name: "dlxctl-" + t.Name, Rules: a.rules}}}
}

type alerts struct {
	scope
	t     topology.Compiled
	o     AlertOptions
	rules []Rule
}

// add adds a rule with labels, name and value by turns. Those without a value are
// left out.
func (a *alerts) add(r Rule, labels ...string) {
	r.Labels = map[string]string{"topology": a.t.Name}
	for name, value := range a.labels {
		r.Labels[name] = literal(value)
	}
	for i := 0; i < len(labels); i += 2 {
		if labels[i+1] != "" {
			r.Labels[labels[i]] = literal(labels[i+1])
		}
	}
	if a.o.RunbookURL != "" {
		r.Annotations["runbook_url"] = literal(a.o.RunbookURL + "#" + strings.ToLower(r.Alert))
	}
	a.rules = append(a.rules, r)
}

// about returns annotations.
func about(summary, description string) map[string]string {
	return map[string]string{"summary": summary, "description": description}
}

// newDeadLetters adds the alerts about dead letters that the processor counts, one for each
// severity that messages may have.
func (a *alerts) newDeadLetters() {
	for _, severity := range topology.Severities() {
		if !slices.ContainsFunc(a.t.WorkQueues,
			func(w topology.WorkQueue) bool {
				return slices.Contains(w.Severities(), severity) && a.t.Processed(w)
			}) {
			continue
		}
		counter := a.selector("dlxctl_messages_dead_lettered_total", "topology", a.t.Name, "severity", severity)
		a.add(Rule{
			Alert: "DlxctlDeadLetters",
			Expr: "sum by (topology, backoff, queue, severity, owner) (" + a.begun(counter) + " or increase(" + counter +
				"[10m])) > 0",
			Annotations: about("{{ $labels.queue }} has new dead letters",
				"About {{ $value | printf \"%.0f\" }} in 10 minutes. To see why: dlxctl desk groups '@{{ $labels.queue }}'. The log of dlxctl process lists each one."),
		}, "severity", severity)
	}
}

// begun returns the series of a counter that did not exist 10 minutes ago. All that they count is
// new, and increase misses what a processor counts before its first scrape, and the message with
// which it begins to count a queue of a match. A gap in the scrapes makes no counter new: the
// process was not scraped 10 minutes ago, and is older than that.
func (a *alerts) begun(counter string) string {
	return counter + " unless " + counter + " offset 10m" +
		" and on (instance, job) (" + a.selector("dlxctl_build_info") + " offset 10m or " +
		a.selector("process_start_time_seconds") + " > time() - 600)"
}

// deadLetters adds the alerts about what dead-letter queues hold. Dead letters of queues without a
// backoff, and of those with a native one, never pass the processor, so only the depth of their
// queue shows them.
func (a *alerts) deadLetters() {
	straight, native, waiting := []topology.WorkQueue{}, []topology.WorkQueue{}, []topology.WorkQueue{}
	for _, w := range a.t.WorkQueues {
		switch {
		case w.Backoff == topology.NoBackoff:
			straight = append(straight, w)
		case !a.t.Processed(w):
			native = append(native, w)
		default:
			w.Severity = byDay(w.Severity) // the page went out when the dead letters arrived
			waiting = append(waiting, w)
		}
	}
	waiting = append(waiting, a.previous()...)
	a.holding("DlxctlDeadLettersNoBackoff", straight, "1m",
		"{{ $value }} messages. Their work queue has no backoff: each was dead-lettered at its first failure.")
	a.holding("DlxctlDeadLettersNative", native, "1m",
		"{{ $value }} messages. RabbitMQ has delivered each as often as the backoff of its work queue allows, or a consumer has rejected it without requeue.")
	a.holding("DlxctlDeadLettersWaiting", waiting, "1h",
		"{{ $value }} messages have been waiting for a person for an hour or more.")
}

// holding adds the alert that the dead-letter queues of some work queues hold messages for a time.
func (a *alerts) holding(alert string, works []topology.WorkQueue, time, what string) {
	for _, g := range grouped(works, func(w topology.WorkQueue) string { return w.DeadLetterQueue }) {
		a.add(Rule{
			Alert: alert, Expr: a.depth(g.queues) + " > 0", For: time,
			Annotations: about("{{ $labels.queue }} holds dead letters",
				what+" To see why: dlxctl desk groups '{{ $labels.queue }}'."),
		}, "severity", g.severity, "owner", g.owner)
	}
}

// previous returns the work queues with the dead-letter queues that they may have had by a previous
// file: their own and the shared one. Each keeps its dead letters until a person has handled them.
// One of another name is not known from the file.
func (a *alerts) previous() []topology.WorkQueue {
	current := map[string]bool{}
	for _, w := range a.t.WorkQueues {
		current[w.DeadLetterQueue] = true
	}
	var out []topology.WorkQueue
	for _, w := range a.t.WorkQueues {
		w.Severity = byDay(w.Severity)
		for _, queue := range []string{topology.DeadLetterQueueName(w.Name), topology.DeadLetterName(a.t.Name)} {
			own := w.Match == "" || queue == topology.DeadLetterName(a.t.Name) // a match has no name
			if own && !current[queue] {
				w.DeadLetterQueue = queue
				out = append(out, w)
			}
		}
	}
	return out
}

// failedQueues adds the alerts about failed queues that are not consumed fast enough, and about
// queues of delays that are not consumed.
func (a *alerts) failedQueues() {
	for _, l := range a.t.Backoffs {
		if a.mayWait(l.FailedQueue) {
			continue
		}
		severity := a.worst(func(w topology.WorkQueue) bool { return w.Backoff == l.Name })
		ready := a.queues(metricReady, []string{l.FailedQueue})
		a.add(Rule{
			Alert: "DlxctlFailedQueueGrowing",
			Expr: "sum by (vhost, queue) (delta(" + ready + "[10m])) > 0 and sum by (vhost, queue) (min_over_time(" +
				ready + "[10m])) > 0",
			For: "5m",
			Annotations: about("{{ $labels.queue }} is growing",
				"Failures arrive faster than the processor handles them; retries are delayed. Check /readyz and dlxctl_publish_confirm_seconds of dlxctl process, and the services whose queues use the backoff "+literal(l.Name)+"."),
		}, "severity", severity, "backoff", l.Name)
		up := a.selector("dlxctl_consumer_up", "topology", a.t.Name, "queue", l.FailedQueue)
		a.add(Rule{
			Alert: "DlxctlProcessorDown",
			Expr:  "sum by (topology, queue) (" + up + ") == 0 or absent(" + up + ")",
			For:   "5m",
			Annotations: about("no processor is consuming {{ $labels.queue }}",
				"No dlxctl process consumes it, or Prometheus scrapes none: failed messages are not retried. No message is lost; they wait in this queue. /readyz of the process shows the reason."),
		}, "severity", severity, "backoff", l.Name)
	}
	for _, d := range a.t.Delays {
		if a.mayWait(d.Intake) {
			continue
		}
		for _, queue := range d.Read() {
			up := a.selector("dlxctl_consumer_up", "topology", a.t.Name, "queue", queue)
			severity, so := a.worst(anyQueue), "wait there and become late"
			if queue == d.Timer {
				severity, so = byDay(severity), "leave it after "+text.Duration(topology.TimerTTL)+", and may become late"
			}
			a.add(Rule{
				Alert: "DlxctlProcessorDown",
				Expr:  "sum by (topology, queue) (" + up + ") == 0 or absent(" + up + ")",
				For:   "5m",
				Annotations: about("no processor is consuming {{ $labels.queue }}",
					"No dlxctl process consumes it, or Prometheus scrapes none: messages of the delay "+literal(d.Name)+" "+so+". No message is lost. /readyz of the process shows the reason."),
			}, "severity", severity)
		}
	}
}

// mayWait reports whether the file accepts that no processor consumes a queue, as where one runs
// now and then.
func (a *alerts) mayWait(queue string) bool {
	return topology.Accepts(a.t.Accepted, topology.WarnNoProcessor, []string{queue})
}

// unroutable adds the alert about the unroutable queue.
func (a *alerts) unroutable() {
	a.add(Rule{
		Alert: "DlxctlUnroutable", Expr: a.depth([]string{topology.UnroutableName(a.t.Name)}) + " > 0", For: "1m",
		Annotations: about("{{ $labels.queue }} holds unroutable messages",
			"{{ $value }} messages. The header retry-error of each message gives the reason: dlxctl desk list '{{ $labels.queue }}'."),
	}, "severity", byDay(a.worst(anyQueue)))
}

// withoutConsumers adds the alert about work queues in which messages wait and that have no
// consumer. In an empty one nothing waits: thousands of idle queues must not alert.
func (a *alerts) withoutConsumers() {
	for _, g := range grouped(a.named(), func(w topology.WorkQueue) string { return w.Name }) {
		a.add(Rule{
			Alert: "DlxctlQueueWithoutConsumers",
			Expr:  "max by (vhost, queue) (" + a.queues(metricConsumers, g.queues) + ") == 0 and " + a.depth(g.queues) + " > 0",
			For:   "15m",
			Annotations: about("no consumer on {{ $labels.queue }}",
				"Messages wait there, and the queue has had no consumer for 15 minutes. Start its service: dlxctl status '{{ $labels.queue }}' shows how many wait."),
		}, "severity", g.severity, "owner", g.owner)
	}
}

// backlog adds the alert about work queues whose consumers do not keep up. One without consumers
// has an alert of its own.
func (a *alerts) backlog() {
	if a.o.Backlog == 0 {
		return
	}
	for _, g := range grouped(a.named(), func(w topology.WorkQueue) string { return w.Name }) {
		a.add(Rule{
			Alert: "DlxctlBacklog",
			Expr: fmt.Sprintf("max by (vhost, queue) (%s) > %d and max by (vhost, queue) (%s) > 0",
				a.queues(metricReady, g.queues), a.o.Backlog, a.queues(metricConsumers, g.queues)),
			For: "15m",
			Annotations: about("{{ $labels.queue }} has a backlog",
				"{{ $value }} messages wait: the consumers of the queue do not keep up. dlxctl status '{{ $labels.queue }}' shows how many there are, and how many messages are being retried."),
		}, "severity", byDay(g.severity), "owner", g.owner)
	}
}

// legacy adds the alert about legacy queues that a migration has not removed.
func (a *alerts) legacy() {
	replaced := slices.DeleteFunc(slices.Clone(a.t.WorkQueues),
		func(w topology.WorkQueue) bool { return w.Replaces == "" })
	for _, g := range grouped(replaced, func(w topology.WorkQueue) string { return w.Replaces }) {
		a.add(Rule{
			Alert: "DlxctlLegacyQueue", Expr: a.depth(g.queues) + " >= 0", For: "1d",
			Annotations: about("legacy queue {{ $labels.queue }} still exists",
				"Another queue replaces it: dlxctl migrate status shows what the migration is waiting for."),
		}, "severity", "info", "owner", g.owner)
	}
}

// runs adds the alert about messages that a run of the desk took out of a dead-letter queue and
// has not sent on for half an hour: while they are in its hold, no alert about the dead-letter
// queue counts them.
func (a *alerts) runs() {
	holds := a.holds(a.t, metricMessages)
	a.add(Rule{
		Alert: "DlxctlDeskRunWaiting",
		Expr: "max by (vhost, queue) (" + holds + ") > 0 and max by (vhost, queue) (changes(" + holds +
			"[30m])) == 0",
		For: "30m",
		Annotations: about("a run of dlxctl desk has not ended: {{ $labels.queue }}",
			"It sends no messages, and those that it took out of a dead-letter queue are in its hold. dlxctl desk run list shows what it does; dlxctl desk run resume goes on with that, and dlxctl desk run return gives them back."),
	}, "severity", topology.Severities()[1])
}

// metricsMissing adds the alerts that the broker's metrics of some generated queue are missing, or
// those of a node: without them other alerts cannot fire. Each node reports the queues that it
// leads, so that one which is not scraped need not lead a generated queue. It is a node of this
// broker if it said so within a week. A file that manages no queue has no generated queues: apply
// creates none whose metrics could be missing.
func (a *alerts) metricsMissing() {
	queues := []string{topology.UnroutableName(a.t.Name)}
	if !slices.Contains(a.t.QueueNames(), queues[0]) {
		return
	}
	for _, b := range a.t.Backoffs {
		queues = append(queues, b.FailedQueue)
		for _, tier := range tiers(b) {
			queues = append(queues, tier.Queue)
		}
	}
	series, identity := a.queues(metricMessages, queues), a.selector(metricIdentity)
	a.add(Rule{
		Alert: "DlxctlBrokerMetricsMissing",
		Expr:  fmt.Sprintf("count(count by (queue) (%s)) < %d or absent(%[1]s)", series, len(queues)), For: "15m",
		Annotations: about("Prometheus lacks metrics of queues of "+literal(a.t.Name),
			"Other alerts of this topology cannot fire. Scrape /metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_delivery_metrics of each RabbitMQ node, and apply the topology."),
	}, "severity", topology.Severities()[1])
	a.add(Rule{
		Alert: "DlxctlBrokerMetricsMissing",
		Expr: a.selector("up") + " == 0 and on (instance, job) (last_over_time(" + identity +
			"[7d]) and on (rabbitmq_cluster) (" + identity + " and on (instance, job) " + series + "))",
		For: "15m",
		Annotations: about("Prometheus cannot scrape the RabbitMQ node {{ $labels.instance }}",
			"Alerts about the queues that this node leads cannot fire."),
	}, "severity", topology.Severities()[1])
}

// depth returns the expression of how many messages are in queues, ready or not.
func (a *alerts) depth(queues []string) string {
	return "max by (vhost, queue) (" + a.queues(metricMessages, queues) + ")"
}

// literal keeps Prometheus from reading a name as a template.
func literal(s string) string { return strings.ReplaceAll(s, "{{", `{{ "{{" }}`) }

// byDay returns the severity of what can wait until morning: ticket at most.
func byDay(severity string) string {
	if severity == topology.Severities()[0] {
		return topology.Severities()[1]
	}
	return severity
}

// withMatches returns the work queues of a topology, and one for each match. The name of that one
// is the pattern, which names no queue: what is said by the names of work queues leaves it out.
func withMatches(t topology.Compiled) []topology.WorkQueue {
	works := slices.Clone(t.WorkQueues)
	for _, m := range t.Matches {
		works = append(works, m.WorkQueue(m.Pattern))
	}
	return works
}

// named returns the work queues that the file names.
func (a *alerts) named() []topology.WorkQueue {
	return slices.DeleteFunc(slices.Clone(a.t.WorkQueues), func(w topology.WorkQueue) bool { return w.Match != "" })
}

// anyQueue chooses all work queues.
func anyQueue(topology.WorkQueue) bool { return true }

// worst returns the worst severity of some work queues. Without any it is the one that a queue has
// by default, as what a delay needs is not less urgent.
func (a *alerts) worst(of func(topology.WorkQueue) bool) string {
	worst := len(topology.Severities())
	for _, w := range a.t.WorkQueues {
		if i := slices.Index(topology.Severities(), w.Severity); i >= 0 && of(w) {
			worst = min(worst, i)
		}
	}
	if worst == len(topology.Severities()) {
		return topology.SeverityTicket
	}
	return topology.Severities()[worst]
}

// group is queues of one owner and severity.
type group struct {
	owner, severity string
	queues          []string
}

// grouped returns the queues that name says for each work queue, by owner and
// severity. One that several share has the worst severity of them, and an owner
// if it is the same for all.
func grouped(works []topology.WorkQueue, name func(topology.WorkQueue) string) []group {
	type who struct{ owner, severity string }
	of, names := map[string]who{}, []string{}
	for _, w := range works {
		queue := name(w)
		have, shared := of[queue]
		if !shared {
			of[queue] = who{w.Owner, w.Severity}
			names = append(names, queue)
			continue
		}
		if have.owner != w.Owner {
			have.owner = ""
		}
		if slices.Index(topology.Severities(), w.Severity) < slices.Index(topology.Severities(), have.severity) {
			have.severity = w.Severity
		}
		of[queue] = have
	}
	var groups []group
	for _, queue := range names {
		w := of[queue]
		i := slices.IndexFunc(groups, func(g group) bool { return g.owner == w.owner && g.severity == w.severity })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{owner: w.owner, severity: w.severity})
		}
		groups[i].queues = append(groups[i].queues, queue)
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Compare(slices.Index(topology.Severities(), a.severity), slices.Index(topology.Severities(), b.severity))
	})
	return groups
}

// WriteAlerts writes rules as Prometheus reads them.
func WriteAlerts(w io.Writer, f RuleFile) error {
	fmt.Fprint(w, `# Generated by 'dlxctl generate alerts'. Prometheus must scrape
#   - dlxctl process --listen
#   - /metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_delivery_metrics
#     of each RabbitMQ node (plugin rabbitmq_prometheus, port 15692)
# Labels to route by: topology, severity (page, ticket, info), owner.
`)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(f); err != nil {
		return err
	}
	return enc.Close()
}
