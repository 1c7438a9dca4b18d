package deadletter

import (
	"encoding/json"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// rebus reads what DeadletterQueueErrorHandler of Rebus writes. Its details are the message of the
// exception, a colon, and the exception with its stack.
func rebus(h fields) (told, bool) {
	details := h.text("rbs2-error-details")
	if details == "" && !h.has("rbs2-source-queue") {
		return told{}, false
	}
	problem, _, _ := strings.Cut(details, "\n")
	t := told{
		queue: h.text("rbs2-source-queue"), by: "rbs2-source-queue", cause: causeFailed,
		problem: strings.TrimSpace(problem), job: firstType(h.text("rbs2-msg-type")),
	}
	if strings.Contains(details, "\n") {
		t.stack = details
	}
	if n, ok := number(h["rbs2-delivery-count"]); ok && n > 0 && n < maxAttempts {
		t.attempts = int(n)
	}
	return t, true
}

// symfonyStamp begins the names of the headers in which Symfony Messenger keeps stamps, if its
// serializer writes JSON. That of PHP keeps them in the body.
const symfonyStamp = `X-Message-Stamp-Symfony\Component\Messenger\Stamp\`

// symfony reads the stamps of Symfony Messenger. A stamp that was given several times is a list,
// with the last one at its end. They name a transport, which need not be a queue.
func symfony(h fields) (told, bool) {
	last := func(stamp string) fields {
		var list []map[string]any
		if text := h.text(symfonyStamp + stamp); text == "" || json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 {
			return nil
		}
		return fields(list[len(list)-1])
	}
	failure, sent := last("ErrorDetailsStamp"), last("SentToFailureTransportStamp")
	if failure == nil && sent == nil {
		return told{}, false
	}
	t := told{
		cause: causeFailed, problem: failure.text("exceptionMessage"), problemType: failure.text("exceptionClass"),
		job: h.text("type"), stack: table(failure["flattenException"]).text("trace_as_string"),
	}
	if name := sent.text("originalReceiverName"); name != "" {
		t.doubt = "SentToFailureTransportStamp names the transport " + quoted([]string{name}) + ", which need not be a queue"
	}
	// The way to the failure transport sets the count to 0.
	if redelivery := last("RedeliveryStamp"); sent == nil && redelivery != nil {
		t.attempts = afterRetries(redelivery["retryCount"])
	}
	return t, true
}

// laravel reads the table of laravel-queue-rabbitmq, which counts the deliveries before this one.
func laravel(h fields) (told, bool) {
	t := table(h["laravel"])
	if !t.has("attempts") {
		return told{}, false
	}
	return told{attempts: afterRetries(t["attempts"])}, true
}

// brighter reads the headers of Brighter, which counts the deliveries before this one. Where a
// message is rejected, the broker moves it.
func brighter(h fields) (told, bool) {
	if !h.has("HandledCount") || !h.has("MessageType") || !h.has("Topic") {
		return told{}, false
	}
	return told{
		problem: h.text("RejectionReason"), attempts: afterRetries(h["HandledCount"]), job: h.text("cloudEvents_type"),
	}, true
}

// amqp10 is the family of the annotations that clients of AMQP 1.0 write.
const amqp10 = "AMQP 1.0 client"

// amqp10Client reads the annotations with which clients of AMQP 1.0 say why they discard a
// message: those of docs/headers.md, or those of the clients of RabbitMQ. An annotation stays until
// a later one of the same name, so the two are never mixed.
func amqp10Client(h fields) (told, bool) {
	t := told{
		problem: h.text(topology.AnnotatedError), problemType: h.text(topology.AnnotatedErrorType),
		stack: h.text(topology.AnnotatedErrorStack),
	}
	if t.problem+t.problemType+t.stack == "" {
		t = told{problem: h.text("x-opt-dead-letter-reason"), problemType: h.text("x-opt-dead-letter-category")}
	}
	return t, t.problem+t.problemType+t.stack != ""
}
