package retry

import (
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// Severity returns the severity of a message that failed in a work queue: that of the first rule
// that fits, or else that of the queue. The headers are those of a decision, which have the routing
// key of the publisher where it is known. It is the only place that decides it: logs, metrics and
// notices all ask here.
func Severity(w topology.WorkQueue, headers map[string]any) string {
	if len(w.SeverityRules) == 0 {
		return w.Severity
	}
	key, known := headers[topology.HeaderRoutingKey].(string)
	for _, r := range w.SeverityRules {
		if (r.Key == "" || known && route.TopicMatches(r.Key, key)) && hasAll(headers, r.Header) {
			return r.Severity
		}
	}
	return w.Severity
}

// hasAll reports whether headers have these values. Integers of all widths are equal, and so are
// texts and bytes, as AMQP libraries differ in what they write.
func hasAll(headers map[string]any, wanted topology.Arguments) bool {
	for name, want := range wanted {
		value, has := headers[name]
		have, err := topology.CanonicalValue(value)
		if !has || err != nil || have != want {
			return false
		}
	}
	return true
}
