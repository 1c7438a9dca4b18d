package generate_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// Of a file that manages no queue, as import writes it, apply creates no queue whose metrics could
// be missing.
func TestNoMetricsAreMissingOfAFileThatManagesNothing(t *testing.T) {
	t.Parallel()
	compiled := spectest.Compile(t, `version: 1
name: shop
defaults: {deadLetterBy: unmanaged, backoff: none}
queues: [{name: billing, external: true}]
`)
	for _, r := range generate.Alerts(compiled, generate.AlertOptions{VHost: "/"}).Groups[0].Rules {
		if r.Alert == "DlxctlBrokerMetricsMissing" || strings.Contains(r.Expr, "absent(") {
			t.Errorf("%s fires without an end: %s", r.Alert, r.Expr)
		}
	}
}

// An alarm stops the processor of a file with delays alone, too.
func TestAnAlarmIsToldWithDelaysAlone(t *testing.T) {
	t.Parallel()
	compiled := spectest.Compile(t, `version: 1
name: shop
exchanges: [{name: events, type: topic}]
delays: [{name: shop.later, to: events}]
`)
	for _, r := range generate.Alerts(compiled, generate.AlertOptions{VHost: "/"}).Groups[0].Rules {
		if r.Alert != "DlxctlBrokerBlocked" {
			continue
		}
		if severity := r.Labels["severity"]; severity != topology.SeverityTicket {
			t.Errorf("its severity is %s", severity)
		}
		return
	}
	t.Error("there is no DlxctlBrokerBlocked")
}
