package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/generate"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

func (a *app) generateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "generate",
		Short: "Make alerts, a dashboard, or the declare call of a service",
		Long: `Make what others need from the file: rules for Prometheus, a dashboard for Grafana, the
call by which a service declares its queue. It needs no broker.`,
		Args:                       noCommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.alertsCommand(), a.dashboardCommand(), a.argsCommand())
	return c
}

func (a *app) alertsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "alerts",
		Short: "Print alerting rules for Prometheus",
		Long: `Print alerting rules for Prometheus: new dead letters and dead letters that wait, by
severity and owner; a failed queue that grows; no processor; messages that fitted nowhere;
queues without consumers; legacy queues that are still there; missing metrics.

They use the metrics of dlxctl process --listen, and those of RabbitMQ's plugin
rabbitmq_prometheus, of which Prometheus must scrape
/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count on each node.`,
		Example:     "  dlxctl generate alerts > dlxctl.rules.yml\n  promtool check rules dlxctl.rules.yml",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			t, vhost, err := a.loadPlaced()
			if err != nil {
				return err
			}
			if a.output == "json" {
				return generate.WriteAlertsJSON(a.stdout, generate.Alerts(t, vhost))
			}
			return generate.WriteAlerts(a.stdout, generate.Alerts(t, vhost))
		},
	}
}

func (a *app) dashboardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dashboard",
		Short: "Print a dashboard for Grafana",
		Long: `Print a dashboard for Grafana, as JSON to import: what a person must look at, how failures
flow, and the depth of each queue. It uses the same metrics as dlxctl generate alerts.`,
		Example:     "  dlxctl generate dashboard > dlxctl.json",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			t, vhost, err := a.loadPlaced()
			if err != nil {
				return err
			}
			return generate.WriteDashboard(a.stdout, generate.MakeDashboard(t, vhost))
		},
	}
}

func (a *app) argsCommand() *cobra.Command {
	var lang string
	languages := strings.Join(generate.Languages(), "|")
	c := &cobra.Command{
		Use:   "args QUEUE",
		Short: "Print how a service declares a queue and consumes from it",
		Long: `Print a small program for the service that consumes from QUEUE: the declare call with exactly
the arguments that the queue has, so that neither the service nor dlxctl gets an error 406,
and the consumer, which acknowledges a message or rejects it without requeue.

Where a queue is external or dead-lettered by policy, no arguments change, and it says so.`,
		Example:     "  dlxctl generate args billing\n  dlxctl generate args --lang python billing\n  dlxctl generate args billing -o json",
		Args:        a.oneQueue,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(generate.Languages(), lang) {
				return usageError{fmt.Errorf("--lang is %q; write one of %s", lang, strings.Join(generate.Languages(), ", "))}
			}
			t, err := a.load()
			if err != nil {
				return err
			}
			d, ok := generate.Declare(t, args[0])
			switch {
			case !ok:
				return noWorkQueue(t, args[0])
			case a.output == "json":
				return generate.WriteDeclarationJSON(a.stdout, d)
			default:
				return generate.WriteDeclaration(a.stdout, d, lang)
			}
		},
	}
	c.Flags().StringVar(&lang, "lang", "go", "`LANGUAGE`: "+languages)
	return c
}

// oneQueue takes the name of one queue, and names some of the file where there is
// none.
func (a *app) oneQueue(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 1:
		return nil
	case len(args) > 1:
		return usageError{fmt.Errorf("%s takes one queue, and was given %d: run it once for each", c.CommandPath(), len(args))}
	}
	err := fmt.Errorf("name a queue: %s QUEUE", c.CommandPath())
	// The files are read before the flags are checked, and only to be helpful.
	if a.fromEnvironment(c) != nil || slices.Contains(a.files, "-") {
		return usageError{err}
	}
	if sources, broken := a.sources(a.files...); broken == nil {
		if t, _, broken := spec.Load(sources, a.env); broken == nil && len(t.Works) > 0 {
			err = fmt.Errorf("%w; the file has %s", err, firstQueues(t))
		}
	}
	return usageError{err}
}

// firstQueues names the first work queues of a topology.
func firstQueues(t topology.Topology) string {
	const shown = 5
	var names []string
	for _, w := range t.Works[:min(len(t.Works), shown)] {
		names = append(names, topology.Printable(w.Queue))
	}
	if len(t.Works) > shown {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// noWorkQueue says that no service declares the queue, and which one may be meant.
func noWorkQueue(t topology.Topology, name string) error {
	if slices.ContainsFunc(t.Queues, func(q topology.Queue) bool { return q.Name == name }) {
		return fmt.Errorf("queue %q is made by dlxctl apply: no service declares it", name)
	}
	var names []string
	for _, w := range t.Works {
		names = append(names, w.Queue)
	}
	return fmt.Errorf("the topology %q has no queue %q; %s", t.Name, name, spec.DidYouMean(name, names, "dlxctl status lists those it has"))
}

// loadPlaced reads the topology and says in which virtual host it is.
func (a *app) loadPlaced() (topology.Topology, string, error) {
	t, err := a.load()
	if err != nil {
		return t, "", err
	}
	if vhost := cmp.Or(a.conn.VHost, t.VHost); vhost != "" {
		return t, vhost, nil
	}
	endpoint, err := a.conn.Resolve()
	return t, endpoint.VHost, err
}
