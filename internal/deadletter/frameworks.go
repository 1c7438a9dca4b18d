package deadletter

import (
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// framework is a framework that writes into headers why a message failed.
type framework struct {
	name string
	// read returns what the headers tell, and false if none of them are of the framework.
	read func(h fields) (told, bool)
}

// frameworks returns the frameworks in the order in which they are asked.
func frameworks() [13]framework {
	return [...]framework{
		{"NServiceBus", nServiceBus},
		{"MassTransit", massTransit},
		{"Rebus", rebus},
		{"Spring", spring},
		{"Wolverine", wolverine},
		{"Symfony", symfony},
		{"Laravel", laravel},
		{"Brighter", brighter},
		{"Rascal", rascal},
		{"Kicks", kicks},
		{"Watermill", watermill},
		{"Celery", celery},
		{amqp10, amqp10Client},
	}
}

// isOf reports whether a header belongs to a framework. Some have names that any publisher may
// use, so it is asked only for the framework that a message is of.
func isOf(framework, header string) bool {
	switch framework {
	case "NServiceBus":
		return strings.HasPrefix(header, "NServiceBus.") || strings.HasPrefix(header, "ServiceControl.") ||
			strings.HasPrefix(header, "$.diagnostics.")
	case "MassTransit":
		return strings.HasPrefix(header, "MT-")
	case "Rebus":
		return strings.HasPrefix(header, "rbs2-")
	case "Symfony":
		return strings.HasPrefix(header, "X-Message-Stamp-")
	case amqp10:
		return strings.HasPrefix(header, "x-opt-")
	default:
		return slices.Contains(ownNames(framework), header)
	}
}

func ownNames(framework string) []string {
	switch framework {
	case "Spring":
		return []string{
			"x-exception-message", "x-exception-stacktrace", "x-original-exchange", "x-original-routingKey", "retry-count",
		}
	case "Wolverine":
		return []string{
			"exception-type", "exception-message", "exception-stack", "failed-at", "original-destination", "attempts",
		}
	case "Laravel":
		return []string{"laravel"}
	case "Brighter":
		return []string{
			"MessageType", "MessageId", "CorrelationId", "Topic", "HandledCount", "RejectionReason", "x-delay",
			"x-original-message-id", "DeliveryTag",
		}
	case "Rascal":
		return []string{"rascal"}
	case "Kicks":
		return []string{"retry_info"}
	case "Watermill":
		return []string{
			"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned", "_watermill_requeuer_retries",
		}
	case "Celery":
		return []string{
			"task", "id", "root_id", "parent_id", "group", "group_index", "argsrepr", "kwargsrepr", "retries", "timelimit",
			"origin", "ignore_result", "stamped_headers", "stamps", "shadow", "eta", "expires", "lang", "replaced_task_nesting",
		}
	default:
		return nil
	}
}

// nServiceBus reads what FaultMetadataExtractor of NServiceBus writes. How often it was tried is
// unknown: MoveToError removes the counters before the message goes to the error queue.
func nServiceBus(h fields) (told, bool) {
	const exception = "NServiceBus.ExceptionInfo."
	if !h.has("NServiceBus.FailedQ") && !h.has(exception+"Message") && !h.has(exception+"ExceptionType") {
		return told{}, false
	}
	t := told{
		queue: h.text("NServiceBus.FailedQ"), by: "NServiceBus.FailedQ",
		problem: h.text(exception + "Message"), problemType: h.text(exception + "ExceptionType"),
		stack: h.text(exception + "StackTrace"), failed: timestamp(h.text("NServiceBus.TimeOfFailure")),
		job: firstType(h.text("NServiceBus.EnclosedMessageTypes")),
	}
	if t.queue == "" && t.problem == "" && t.problemType == "" {
		return told{}, false
	}
	t.cause = causeFailed
	return t, true
}

// massTransit reads the headers that MassTransit writes into its queues _error and _skipped.
func massTransit(h fields) (told, bool) {
	if !h.has("MT-Reason") && !h.has("MT-Fault-InputAddress") && !h.has("MT-Fault-Message") {
		return told{}, false
	}
	t := told{
		queue: inputQueue(h.text("MT-Fault-InputAddress")), by: "MT-Fault-InputAddress",
		problem: h.text("MT-Fault-Message"), problemType: h.text("MT-Fault-ExceptionType"),
		stack:  h.text("MT-Fault-StackTrace"),
		failed: timestamp(h.text("MT-Fault-Timestamp")), job: h.text("MT-Fault-MessageType"),
	}
	// Each delivery is tried and retried, and so is each redelivery. A counter of 0 is not written.
	retries := afterRetries(h["MT-Fault-RetryCount"])
	deliveries := max(afterRetries(h["MT-Redelivery-Count"]), afterRetries(h["MT-Fault-RedeliveryCount"]))
	if retries > 0 || deliveries > 0 {
		t.attempts = min(max(retries, 1)*max(deliveries, 1), maxAttempts)
	}
	switch h.text("MT-Reason") {
	case "dead-letter":
		t.cause = causeSkipped
		return t, true
	case "fault":
		t.cause = causeFailed
		return t, true
	}
	return t, t.queue != "" || t.problem != ""
}

// spring reads what RepublishMessageRecoverer of Spring AMQP writes. It names the exchange and
// the key by which the message came, and no queue.
func spring(h fields) (told, bool) {
	if !h.has("x-exception-message") && !h.has("x-original-exchange") {
		return told{}, false
	}
	return told{
		by: "x-original-exchange", sentTo: h.has("x-original-exchange"),
		exchange: h.text("x-original-exchange"), key: h.text("x-original-routingKey"),
		addressed: h.has("x-original-exchange"),
		problem:   h.text("x-exception-message"), stack: h.text("x-exception-stacktrace"),
		cause: causeFailed, attempts: afterRetries(h["retry-count"]),
	}, true
}

// wolverine reads what Wolverine writes into its dead-letter queue.
func wolverine(h fields) (told, bool) {
	if !h.has("exception-type") || !h.has("failed-at") && !h.has("original-destination") {
		return told{}, false
	}
	t := told{
		queue: inputQueue(h.text("original-destination")), by: "original-destination",
		problem: h.text("exception-message"), problemType: h.text("exception-type"), stack: h.text("exception-stack"),
		cause: causeFailed, attempts: afterRetries(h["attempts"]) - 1,
	}
	if ms, ok := number(h["failed-at"]); ok {
		t.failed = time.UnixMilli(ms)
	}
	return t, true
}

// rascal reads the nested table that Rascal keeps.
func rascal(h fields) (told, bool) {
	r := table(h["rascal"])
	if r == nil {
		return told{}, false
	}
	queue, problem := r.text("originalQueue"), table(r["error"])
	recovery := table(table(r["recovery"])[queue])
	if recovery == nil {
		recovery = table(r[queue]) // up to version 4
	}
	t := told{
		queue: queue, by: "rascal.originalQueue", exchange: r.text("originalExchange"), key: r.text("originalRoutingKey"),
		addressed: r.has("originalRoutingKey"), problem: problem.text("message"), problemType: problem.text("code"),
		attempts: afterRetries(recovery["republished"]),
	}
	if problem != nil {
		t.cause = causeFailed
	}
	return t, queue != "" || problem != nil
}

// kicks reads the JSON that Maxretry of Kicks writes: an object, or a list of them with the
// newest first. Its properties have the headers that the message had.
func kicks(h fields) (told, bool) {
	type info struct {
		Error      string `json:"error"`
		Class      string `json:"error_class"`
		Message    string `json:"error_message"`
		Attempts   int    `json:"num_attempts"`
		FailedAt   string `json:"failed_at"`
		Backtrace  []string
		Properties struct{ Headers map[string]any }
	}
	text := h.text("retry_info")
	if text == "" { // as a rule
		return told{}, false
	}
	var list []info
	if json.Unmarshal([]byte(text), &list) != nil {
		var one info
		if json.Unmarshal([]byte(text), &one) != nil {
			return told{}, false
		}
		list = []info{one}
	}
	if len(list) == 0 {
		return told{}, false
	}
	last := list[0]
	t := told{
		by: "retry_info", cause: causeFailed, problem: last.Message, problemType: last.Class,
		stack: strings.Join(last.Backtrace, "\n"), attempts: last.Attempts, failed: timestamp(last.FailedAt),
	}
	if t.problem == "" {
		t.problem = last.Error
	}
	for _, hop := range deaths(last.Properties.Headers) {
		if hop.failed() && t.queue == "" {
			t.queue = hop.Queue
		}
	}
	return t, true
}

// watermill reads what the middleware PoisonQueue writes. Its topic is the name of a queue only
// with some configurations.
func watermill(h fields) (told, bool) {
	if !h.has("reason_poisoned") {
		return told{}, false
	}
	return told{
		doubt:   "topic_poisoned names the topic " + strconv.Quote(h.text("topic_poisoned")) + ", which need not be a queue",
		problem: h.text("reason_poisoned"), cause: causeFailed, job: h.text("handler_poisoned"),
		attempts: afterRetries(h["_watermill_requeuer_retries"]),
	}, true
}

// celery reads the headers of a task. They tell nothing about a failure but how often the task
// was tried.
func celery(h fields) (told, bool) {
	if !h.has("task") || !h.has("id") || !h.has("argsrepr") {
		return told{}, false
	}
	return told{job: h.text("task"), attempts: afterRetries(h["retries"])}, true
}

// inputQueue returns the last part of the path of an address, such as
// rabbitmq://host/vhost/billing?durable=true. Empty if the address is none.
func inputQueue(address string) string {
	if address == "" { // as a rule
		return ""
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	last := path.Base(u.EscapedPath())
	if u.Opaque != "" { // queue:billing
		last = u.Opaque
	}
	name, err := url.PathUnescape(last)
	if err != nil || name == "." || name == "/" {
		return ""
	}
	return name
}

// firstType returns the name of the first type in a list of .NET types with their assemblies.
func firstType(list string) string {
	first, _, _ := strings.Cut(list, ";")
	name, _, _ := strings.Cut(first, ",")
	return strings.TrimSpace(name)
}

// number returns an integer, or a text that is one.
func number(v any) (int64, bool) {
	if n, ok := topology.Integer(v); ok {
		return n, true
	}
	switch v := v.(type) {
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	case []byte:
		return number(string(v))
	case float64:
		return int64(v), v == float64(int64(v))
	default:
		return 0, false
	}
}

// maxAttempts is more than any message was tried.
const maxAttempts = 1_000_000

// afterRetries returns how many deliveries failed after that number of retries. 0 is
// unknown.
func afterRetries(v any) int {
	n, ok := number(v)
	if !ok || n < 0 || n >= maxAttempts {
		return 0
	}
	return int(n) + 1
}
