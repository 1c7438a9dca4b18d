package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// upgrades are virtual hosts of RabbitMQ 3.13.7 with one thing that an upgrade is about, and what
// the audit says for 4.0 and for 4.3.
func upgrades() map[string]struct{ definitions, for40, for43 string } {
	queue := func(arguments string) string {
		return `"queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {` + arguments + `}}]`
	}
	policy := func(definition string) string {
		return queue(`"x-queue-version": 2`) + `, "policies": [{"name": "all", "pattern": "^billing$", "apply-to": "queues",
			"priority": 0, "definition": {` + definition + `}}]`
	}
	named := func(name, more string) string {
		return queue(`"x-queue-version": 2`) + `, "policies": [{"name": "` + name + `", "pattern": "^billing$",
			"apply-to": "queues", "priority": 0, "definition": {"ha-mode": "all", "max-length": 5}}` + more + `]`
	}
	const (
		limit  = "warning changed upgrade-delivery-limit"
		order  = "note changed upgrade-priorities"
		nack   = "note changed upgrade-uncounted-nack"
		stored = "note changed upgrade-storage-version"
		lazy   = "note dropped upgrade-lazy-mode"
		taken  = "error refused argument-refused"
	)
	return map[string]struct{ definitions, for40, for43 string }{
		"mirroring": {
			policy(`"ha-mode": "all", "max-length": 5`), "error refused mirroring-policy", "error refused mirroring-policy",
		},
		"mirroring in a copy of dlxctl": {
			named("dlxctl.shop.queue.billing", ""), "error refused mirroring-policy", "error refused mirroring-policy",
		},
		"mirroring in a copy and in its policy": {
			named("dlxctl.shop.queue.billing", `, {"name": "ha", "pattern": ".*", "priority": -1, "definition": {"ha-mode": "all"}}`),
			"error refused mirroring-policy\nerror refused mirroring-policy", "error refused mirroring-policy\nerror refused mirroring-policy",
		},
		"mirroring in an operator policy": {
			queue(`"x-queue-version": 2`) + `, "parameters": [{"component": "operator_policy", "name": "ha", "vhost": "/",
			"value": {"pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {"ha-mode": "all"}}}]`,
			"error refused mirroring-policy", "error refused mirroring-policy",
		},
		"transient": {
			`"queues": [{"name": "billing", "durable": false, "auto_delete": false, "arguments": {}}]`,
			"note changed upgrade-transient-queue", "error refused upgrade-transient-queue",
		},
		"exclusive": {
			`"queues": [{"name": "billing", "durable": false, "auto_delete": false, "exclusive": true, "arguments": {}}]`, "", "",
		},
		"lazy argument": {
			queue(`"x-queue-mode": "lazy", "x-queue-version": 2`), lazy, lazy,
		},
		"lazy policy": {
			policy(`"queue-mode": "lazy"`), lazy, lazy,
		},
		"version 1":        {queue(`"x-queue-version": 1`), stored, "error refused argument-refused\n" + stored},
		"version of 3.x":   {queue(""), stored, stored},
		"version 2":        {queue(`"x-queue-version": 2`), "", ""},
		"master locator":   {queue(`"x-queue-version": 2, "x-queue-master-locator": "min-masters"`), "", taken},
		"locator policy":   {policy(`"queue-master-locator": "min-masters"`), "", "error refused policy-refused"},
		"timeout":          {queue(`"x-queue-version": 2, "x-consumer-timeout": 60000`), "", taken},
		"timeout policy":   {policy(`"consumer-timeout": 60000`), "", "note dropped upgrade-consumer-timeout"},
		"delivery limit":   {queue(`"x-queue-type": "quorum"`), limit + "\n" + order, limit + "\n" + order},
		"limit of its own": {queue(`"x-queue-type": "quorum", "x-delivery-limit": 5`), order, order + "\n" + nack},
		"limit and dead letters": {
			queue(`"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx"`), "note changed upgrade-delivery-limit\n" + order,
			"note changed upgrade-delivery-limit\n" + order,
		},
		"priority argument of a quorum queue": {
			queue(`"x-queue-type": "quorum", "x-delivery-limit": 5, "x-max-priority": 5`),
			"error refused argument-refused\n" + order, "error refused argument-refused\n" + order + "\n" + nack,
		},
		"delayed messages": {
			`"exchanges": [{"name": "later", "type": "x-delayed-message", "durable": true, "auto_delete": false,
			"internal": false, "arguments": {"x-delayed-type": "direct"}}]`, "warning refused delayed-plugin", "error refused delayed-plugin",
		},
		"topic key": {
			`"exchanges": [{"name": "events", "type": "topic", "durable": true, "auto_delete": false, "internal": false}],
			"bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "#.a.#.b.#"}],` +
				queue(`"x-queue-version": 2`), "note refused topic-key-refused", "error refused topic-key-refused",
		},
	}
}

// upgradeOf returns the input of an audit for a line.
func upgradeOf(tb testing.TB, definitions, line string) audit.Input {
	tb.Helper()
	in := read(tb, "old.json", `{"rabbitmq_version": "3.13.7", `+definitions+`}`)
	in.For = line
	return in
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	for name, tc := range upgrades() {
		for line, want := range map[string]string{"4.0": tc.for40, "4.3": tc.for43, "4.4": tc.for43} {
			in := upgradeOf(t, tc.definitions, line)
			report := audit.Run(in)
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Upgrade, f.Rule))
				if f.Source == "" {
					t.Errorf("%s: %s has no source", name, f.Rule)
				}
			}
			if strings.Join(got, "\n") != want {
				t.Errorf("%s for %s: %q, want %q", name, line, got, want)
			}
			if report.Version != "3.13.7" || report.For != line {
				t.Errorf("the report is for %s, of %s", report.For, report.Version)
			}
			checkFixes(t, in)
		}
	}
}

// These findings have fixes, which checkFixes has tried: the audit for the line does not find them
// again.
func TestUpgradesHaveFixes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"mirroring":      "# takes ha-mode from the queues at once",
		"locator policy": "# takes queue-master-locator from the queues at once",
		"delivery limit": `"delivery-limit":2147483647`,
		"master locator": "replaces: billing", "timeout": "replaces: billing", "transient": "replaces: billing",
	} {
		findings := audit.Run(upgradeOf(t, upgrades()[name].definitions, "4.3")).Findings
		if f := findings[0]; len(f.Fix.Changes) == 0 || !strings.Contains(f.Remedy, want) {
			t.Errorf("%s: the fix is %q, want %q", name, f.Remedy, want)
		}
	}
}

// RabbitMQ 4.3 takes only nodes that were on 4.2: most audits for it are of a broker of 4.2.
func TestUpgradeFrom42To43(t *testing.T) {
	t.Parallel()
	const both = "upgrade-priorities upgrade-uncounted-nack "
	for name, want := range map[string]string{"delivery limit": both, "limit of its own": both, "version 2": ""} {
		in := upgradeOf(t, upgrades()[name].definitions, "4.3")
		in.State.Version = "4.2.5"
		got := ""
		for _, f := range audit.Run(in).Findings {
			got += f.Rule + " "
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Between lines that were measured only what both refuse is said to be refused, and that is said.
func TestUpgradeToALineThatWasNotMeasured(t *testing.T) {
	t.Parallel()
	in := upgradeOf(t, upgrades()["master locator"].definitions, "4.2")
	report := audit.Run(in)
	unseen := strings.Join(report.Unseen, "\n")
	if len(report.Findings) > 0 || !strings.Contains(unseen, "4.2 refuses: it was not measured") {
		t.Errorf("%v, %q", report.Findings, report.Unseen)
	}
	for _, line := range []string{"4.3", "4.4"} {
		in.For = line
		if unseen := strings.Join(audit.Run(in).Unseen, "\n"); !strings.Contains(unseen, "basic.qos with global true") {
			t.Errorf("for %s: %s", line, unseen)
		}
	}
}

// Without --for an audit says nothing about upgrades.
func TestNoUpgrade(t *testing.T) {
	t.Parallel()
	for name, tc := range upgrades() {
		for _, f := range audit.Run(upgradeOf(t, tc.definitions, "")).Findings {
			if f.Upgrade != "" || f.Source != "" || strings.HasPrefix(f.Rule, "upgrade-") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// refuses reports whether a broker refuses one of the objects of definitions, over HTTP.
func refuses(t *testing.T, target brokertest.Target, have topology.Topology) bool {
	t.Helper()
	var changes []audit.Change
	for _, e := range have.Exchanges {
		changes = append(changes, audit.Change{Object: e})
	}
	for _, q := range have.Queues {
		changes = append(changes, audit.Change{Object: q})
	}
	for _, b := range have.Bindings {
		changes = append(changes, audit.Change{Object: b})
	}
	for _, p := range have.Policies {
		changes = append(changes, audit.Change{Object: p})
	}
	refused := false
	for _, c := range changes {
		r, _ := c.Request(target.VHost)
		body, err := json.Marshal(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), r.Method, target.API+"/api/"+r.Path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(target.Username, target.Password)
		req.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch {
		case err != nil:
			t.Fatal(err)
		case answer.StatusCode == http.StatusBadRequest:
			refused = true
		case answer.StatusCode >= http.StatusBadRequest:
			t.Errorf("%s: %d %s", r.Path, answer.StatusCode, said)
		}
	}
	return refused
}

// What the audit for a line says to be refused, a broker of that line refuses, and nothing else.
// What it says to be dropped, the broker takes.
func TestUpgradesOnABroker(t *testing.T) {
	t.Parallel()
	shared := brokertest.VHost(t)
	if !shared.AtLeast("4.0") {
		t.Skip("no upgrade leads to this line")
	}
	line := strings.Join(strings.Split(shared.Version, ".")[:2], ".")
	if !slices.Contains([]string{"4.0", "4.3"}, line) {
		t.Skip("this line was not measured")
	}
	for name, tc := range upgrades() {
		if name == "transient" || name == "exclusive" || name == "mirroring in an operator policy" {
			continue // see TestDeprecatedFeatures; the API declares no exclusive queue; 4.x refuses the operator policy
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := upgradeOf(t, tc.definitions, line)
			says := slices.ContainsFunc(audit.Run(in).Findings, func(f audit.Finding) bool {
				return f.Upgrade == audit.Refused && f.Severity != audit.Note
			})
			target := brokertest.VHost(t)
			if refused := refuses(t, target, in.State.Have); refused != says {
				t.Fatalf("the audit says refused: %t, the broker: %t", says, refused)
			}
			switch name {
			case "version 1", "version of 3.x", "lazy argument", "lazy policy":
				if !says { // the key or argument is there, and the queue is stored like any other
					brokertest.Eventually(t, "a queue of version 2", func() bool {
						return fmt.Sprint(target.Queue(t, "billing")["storage_version"]) == "2"
					})
				}
			case "delivery limit":
				brokertest.Eventually(t, "the limit 20", func() bool {
					return fmt.Sprint(target.Queue(t, "billing")["delivery_limit"]) == "20"
				})
			}
		})
	}
}

// RabbitMQ 4.3 with the default of 4.3.0 refuses a queue that is neither durable nor exclusive. It
// gives the prefetch of a whole channel to each consumer.
func TestDeprecatedFeatures(t *testing.T) {
	t.Parallel()
	if !brokertest.VHost(t).AtLeast("4.3") {
		t.Skip("an older node does not know the setting")
	}
	target := brokertest.NodeWith(t, "--set", "deprecated_features.permit.transient_nonexcl_queues = false").VHost(t)
	in := upgradeOf(t, upgrades()["transient"].definitions, "4.3")
	if !refuses(t, target, in.State.Have) {
		t.Error("the broker takes the transient queue")
	}
	ch := target.Channel(t)
	if err := ch.Qos(1, 0, true); err != nil {
		t.Fatal(err)
	}
	brokertest.Declare(t, ch, "reports", nil)
	brokertest.PublishConfirmed(t, target.Confirming(t), "", "reports", amqp091.Publishing{}, amqp091.Publishing{})
	for range 2 { // each gets one, and acknowledges nothing
		deliveries := brokertest.Consume(t, ch, "reports", 0)
		brokertest.Eventually(t, "a message for each consumer", func() bool {
			select {
			case <-deliveries:
				return true
			default:
				return false
			}
		})
	}
}
