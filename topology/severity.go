package topology

import "slices"

// Severities of alerts, log lines and notices.
const (
	SeverityPage   = "page"
	SeverityTicket = "ticket"
	SeverityInfo   = "info"
)

// Severities returns the severities, the worst first.
func Severities() []string { return []string{SeverityPage, SeverityTicket, SeverityInfo} }

// SeverityRule is the severity of some messages of a work queue. A message fits the rule if its key
// and all headers do.
type SeverityRule struct {
	// Key is a pattern for the routing key of the publisher, as in a binding to a topic exchange.
	// Empty: any key.
	Key string `json:"key,omitempty"`
	// Header are the names and values of headers, each of which the message must have. Empty: any.
	Header   Arguments `json:"header,omitempty"`
	Severity string    `json:"severity"`
}

// Severities returns the severities that messages of the work queue may have, the worst first.
func (w WorkQueue) Severities() []string {
	return slices.DeleteFunc(Severities(), func(s string) bool {
		return s != w.Severity && !slices.ContainsFunc(w.SeverityRules, func(r SeverityRule) bool { return r.Severity == s })
	})
}

// WorstSeverity returns the worst severity that messages of the work queue may have: that of alerts
// and notices about the queue, which know no message. Empty: the work queue has none.
func (w WorkQueue) WorstSeverity() string {
	if all := w.Severities(); len(all) > 0 {
		return all[0]
	}
	return ""
}
