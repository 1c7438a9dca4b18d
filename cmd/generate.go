package cmd

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

func newGenerate(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "generate",
		Short: "Generate alerts, a dashboard, permissions and more",
		Long: `Generate what other programs and people need, most of it from the topology files. No broker
is needed. 'dlxctl compile' is short for 'dlxctl generate compile'; so are 'dlxctl rights',
'dlxctl schema' and 'dlxctl man'.`,
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAlerts(a), newDashboard(a), newArgs(a))
	c.AddCommand(generators(a)...)
	return c
}

// generators returns the commands that also have a short form, without generate.
func generators(a *app) []*cobra.Command {
	return []*cobra.Command{newRights(a), newCompile(a), newSchema(a), newMan(a)}
}

type alertsCommand struct {
	app     *app
	options generate.AlertOptions
	labels  []string
}

func newAlerts(a *app) *cobra.Command {
	k := alertsCommand{app: a}
	c := &cobra.Command{
		Use:   "alerts",
		Short: "Print alerting rules for Prometheus",
		Long: `Print alerting rules for Prometheus: new and waiting dead letters, by severity and owner;
retries that are blocked by an alarm, stand still or are late; messages that cannot be
retried; a growing failed queue; no processor; unroutable messages; waiting messages without
a consumer; consumers that do not keep up, loop or stand still; legacy queues that are not deleted yet;
missing metrics.

The rules use the metrics of 'dlxctl process --listen', and those of RabbitMQ's plugin
rabbitmq_prometheus. Prometheus must scrape
/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=queue_delivery_metrics
on each node.`,
		Example: "  dlxctl generate alerts > dlxctl.rules.yml\n" +
			"  dlxctl generate alerts --processors 2 --runbook-url https://wiki.example/dlxctl-alerts > dlxctl.rules.yml\n" +
			"  promtool check rules dlxctl.rules.yml",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(*cobra.Command, []string) error { return k.run() },
	}
	c.Flags().IntVar(&k.options.Processors, "processors", 1, "`NUMBER` of processors that run; alert when one of them is missing")
	c.Flags().IntVar(&k.options.Backlog, "backlog", 10_000,
		"alert when more than `NUMBER` messages of a work queue with consumers wait for 15 minutes; 0 never alerts")
	c.Flags().StringVar(&k.options.RunbookURL, "runbook-url", "",
		"`URL` of a page with a section for each alert, such as a copy of docs/alerts.md")
	labelFlag(c, &k.labels)
	return c
}

// labelFlag adds the flag for labels of an environment.
func labelFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, "label", nil,
		"use only series with the label `NAME=VALUE`, such as env=prod, where one Prometheus has several environments; may be repeated")
}

// parseLabels returns the labels that the flag names. Those of the metrics say something else.
func parseLabels(flag []string) (map[string]string, error) {
	out := map[string]string{}
	valid := regexp.MustCompile(`^_?[a-zA-Z][a-zA-Z0-9_]*$`) // Prometheus keeps names that begin with __ to itself
	taken := []string{"topology", "backoff", "queue", "vhost", "severity", "owner", "alertname"}
	for _, label := range flag {
		name, value, ok := strings.Cut(label, "=")
		switch {
		case !ok || value == "" || !valid.MatchString(name):
			return nil, usageError{fmt.Errorf("--label is %q; write NAME=VALUE, such as env=prod", label)}
		case slices.Contains(taken, name):
			return nil, usageError{fmt.Errorf("--label is %q, but the rules use this label themselves; write one that "+
				"Prometheus adds to all series of an environment, such as env=prod", label)}
		}
		out[name] = value
	}
	return out, nil
}

func (k *alertsCommand) run() error {
	o := k.options
	if o.Processors < 1 {
		return usageError{fmt.Errorf("--processors is %d; write 1 or more", o.Processors)}
	}
	if o.Backlog < 0 {
		return usageError{fmt.Errorf("--backlog is %d; write 0 or more", o.Backlog)}
	}
	if u, err := url.Parse(o.RunbookURL); err != nil || o.RunbookURL != "" && (u.Host == "" || u.Fragment != "") {
		return usageError{fmt.Errorf(
			"--runbook-url is %q; write the URL of a page, such as https://wiki.example/dlxctl-alerts, without #", o.RunbookURL)}
	}
	var err error
	if o.Labels, err = parseLabels(k.labels); err != nil {
		return err
	}
	t, vhost, err := k.app.loadPlaced()
	if err != nil {
		return err
	}
	o.VHost = vhost
	if k.app.output == "json" {
		return text.WriteJSON(k.app.stdout, generate.Alerts(t, o)) // Prometheus reads JSON too
	}
	return generate.WriteAlerts(k.app.stdout, generate.Alerts(t, o))
}

func newDashboard(a *app) *cobra.Command {
	var labels []string
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Print a dashboard for Grafana",
		Long: `Print a dashboard for Grafana, as JSON to import: what needs attention, the flow of failed
messages, and the depth of each queue. It uses the same metrics as 'dlxctl generate
alerts'.`,
		Example:     "  dlxctl generate dashboard > dlxctl.json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			with, err := parseLabels(labels)
			if err != nil {
				return err
			}
			t, vhost, err := a.loadPlaced()
			if err != nil {
				return err
			}
			return text.WriteJSON(a.stdout, generate.MakeDashboard(t, vhost, with))
		},
	}
	labelFlag(c, &labels)
	return c
}

type argsCommand struct {
	app  *app
	lang string
}

func newArgs(a *app) *cobra.Command {
	k := argsCommand{app: a}
	languages := strings.Join(generate.Languages(), "|")
	c := &cobra.Command{
		Use:   "args QUEUE",
		Short: "Print how a service declares a queue and consumes from it",
		Long: `Print a small program for the service that consumes QUEUE: the declare call with exactly
the arguments of the queue, so that neither the service nor dlxctl gets an error 406, and
a consumer that acknowledges a message, or fails it: it publishes the message, with the
reason, to where the queue dead-letters. Where the broker does not accept that, the
consumer rejects the message without requeue. A signal ends it safely.

A queue that is external or dead-lettered by policy keeps the arguments that it was
declared with. The program does not declare such a queue: it checks that it exists.`,
		Example:     "  dlxctl generate args billing\n  dlxctl generate args --lang python billing\n  dlxctl generate args billing -o json",
		Args:        k.queue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(_ *cobra.Command, args []string) error { return k.run(args[0]) },
	}
	c.Flags().StringVar(&k.lang, "lang", "go", "`LANGUAGE`: "+languages)
	return c
}

func (k *argsCommand) run(queue string) error {
	if !slices.Contains(generate.Languages(), k.lang) {
		return usageError{fmt.Errorf("--lang is %q; write one of %s", k.lang, strings.Join(generate.Languages(), ", "))}
	}
	t, err := k.app.files().load()
	if err != nil {
		return err
	}
	d, ok := generate.Declare(t, queue)
	switch {
	case !ok:
		return noWorkQueue(t, queue)
	case k.app.output == "json":
		return jsondoc.Write(k.app.stdout, d)
	default:
		return generate.WriteDeclaration(k.app.stdout, d, k.lang)
	}
}

// queue checks that there is one argument, and suggests queues of the file if there is
// none.
func (k *argsCommand) queue(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 1:
		return nil
	case len(args) > 1:
		return usageError{fmt.Errorf("%s accepts one queue, but got %d; run it once for each", c.CommandPath(), len(args))}
	}
	err := fmt.Errorf("no queue is named; write %s QUEUE", c.CommandPath())
	// The files are read before the flags are checked, only to suggest queues.
	if k.app.fromEnvironment(c) != nil || slices.Contains(k.app.paths, "-") {
		return usageError{err}
	}
	if sources, broken := k.app.files().read(); broken == nil {
		if t, _, broken := spec.Load(sources, k.app.env); broken == nil && len(t.WorkQueues) > 0 {
			err = fmt.Errorf("%w, where QUEUE is one of %s", err, firstQueues(t))
		}
	}
	return usageError{err}
}

func firstQueues(t topology.Compiled) string {
	const shown = 5
	var names []string
	for _, w := range t.WorkQueues[:min(len(t.WorkQueues), shown)] {
		names = append(names, topology.Printable(w.Name))
	}
	if len(t.WorkQueues) > shown {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// noWorkQueue returns the error for a queue that no service declares, with a suggestion.
func noWorkQueue(t topology.Compiled, name string) error {
	if slices.ContainsFunc(t.Queues, func(q topology.Queue) bool { return q.Name == name }) {
		return fmt.Errorf("queue %q is generated and declared by dlxctl apply; name a work queue", name)
	}
	names := t.WorkQueueNames()
	return fmt.Errorf("the topology %q has no queue %q; %s", t.Name, name,
		topology.DidYouMean(name, names, "'dlxctl status --all' lists its queues"))
}

// loadPlaced reads the topology, and its virtual host.
func (a *app) loadPlaced() (topology.Compiled, string, error) {
	t, err := a.files().load()
	if err != nil {
		return t, "", err
	}
	vhost, err := a.conn.vhost(t)
	return t, vhost, err
}
