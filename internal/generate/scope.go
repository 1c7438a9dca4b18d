package generate

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// scope is which series rules and queries are about.
type scope struct {
	vhost  string
	labels map[string]string // that all of them have
}

// selector returns the series of a metric with these labels, name and value by turns.
func (s scope) selector(metric string, labels ...string) string {
	var matchers []string
	for i := 0; i < len(labels); i += 2 {
		matchers = append(matchers, labels[i]+"="+strconv.Quote(labels[i+1]))
	}
	return s.matching(metric, matchers)
}

// matching returns the series of a metric that matchers choose.
func (s scope) matching(metric string, matchers []string) string {
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		matchers = append(matchers, name+"="+strconv.Quote(s.labels[name]))
	}
	if len(matchers) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(matchers, ",") + "}"
}

// queues returns a selector of a metric of queues in the virtual host.
func (s scope) queues(metric string, names []string) string {
	if len(names) == 1 {
		return s.selector(metric, "vhost", s.vhost, "queue", names[0])
	}
	quoted := text.Each(names, regexp.QuoteMeta)
	return s.matching(metric, []string{
		"vhost=" + strconv.Quote(s.vhost), "queue=~" + strconv.Quote(strings.Join(quoted, "|")),
	})
}

// holds returns a selector of a metric of the holds of a topology's runs, whatever they are named.
// The queue of the records of runs has such a name too, and so can a failed queue, that of a
// backoff named desk.
func (s scope) holds(t topology.Compiled, metric string) string {
	matchers := []string{
		"vhost=" + strconv.Quote(s.vhost),
		"queue=~" + strconv.Quote(regexp.QuoteMeta(topology.HoldName(t.Name, ""))+"[^.]+"),
		"queue!=" + strconv.Quote(topology.LogName(t.Name)),
	}
	if b, ok := t.Backoff("desk"); ok {
		matchers = append(matchers, "queue!="+strconv.Quote(b.FailedQueue))
	}
	return s.matching(metric, matchers)
}
