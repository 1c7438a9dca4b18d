package deadletter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// A new try begins without the headers of the failure that has passed. What the publisher wrote
// stays, also under names that look alike, and so do all headers of a message that no framework
// gave up.
func TestANewTryBeginsWithoutTheFailure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ headers, want amqp091.Table }{
		"NServiceBus": {
			amqp091.Table{
				"NServiceBus.FailedQ": "q", "NServiceBus.TimeOfFailure": "t", "NServiceBus.ExceptionInfo.Message": "boom",
				"NServiceBus.ExceptionInfo.Data.a": "b", "NServiceBus.Retries.Timestamp": "t", "ServiceControl.EditOf": "x",
				"NServiceBus.EnclosedMessageTypes": "T", "NServiceBus.ProcessingEndpoint": "e", "$.diagnostics.x": "y",
			},
			amqp091.Table{
				"NServiceBus.EnclosedMessageTypes": "T", "NServiceBus.ProcessingEndpoint": "e", "$.diagnostics.x": "y",
			},
		},
		"MassTransit": {
			amqp091.Table{
				"MT-Reason": "fault", "MT-Fault-Message": "boom", "MT-Fault-InputAddress": "q", "MT-Fault-RetryCount": int32(1),
				"MT-Redelivery-Count": int32(2), "MT-Fault-Address": "rabbitmq://h/faults", "MT-Host-MachineName": "m",
			},
			amqp091.Table{"MT-Fault-Address": "rabbitmq://h/faults", "MT-Host-MachineName": "m"},
		},
		"Spring": {
			amqp091.Table{
				"x-exception-message": "boom", "x-exception-stacktrace": "s", "x-original-exchange": "e",
				"x-original-routingKey": "k", "retry-count": int64(3), "x-tenant": "acme",
			},
			amqp091.Table{"x-tenant": "acme"},
		},
		"Wolverine": {
			amqp091.Table{
				"exception-type": "E", "exception-message": "boom", "failed-at": "1", "attempts": "3", "message-type": "T",
			},
			amqp091.Table{"message-type": "T"},
		},
		"Rebus": {
			amqp091.Table{
				"rbs2-error-details": "boom", "rbs2-source-queue": "q", "rbs2-delivery-count": "5", "rbs2-msg-id": "1",
				"rbs2-defer-count": "1",
			},
			amqp091.Table{"rbs2-msg-id": "1", "rbs2-defer-count": "1"},
		},
		"Symfony": {
			amqp091.Table{
				stamp + "ErrorDetailsStamp": `[{"exceptionMessage":"boom"}]`, stamp + "RedeliveryStamp": "[]",
				stamp + "SentToFailureTransportStamp": "[]", stamp + "BusNameStamp": "[]", "type": "App",
			},
			amqp091.Table{stamp + "BusNameStamp": "[]", "type": "App"},
		},
		"Laravel": {
			amqp091.Table{"laravel": amqp091.Table{"attempts": int32(3)}, "x": "y"}, amqp091.Table{"x": "y"},
		},
		"Brighter": {
			amqp091.Table{"MessageType": "MT_EVENT", "Topic": "t", "HandledCount": int32(3)},
			amqp091.Table{"MessageType": "MT_EVENT", "Topic": "t"},
		},
		"AMQP 1.0": {
			amqp091.Table{
				"x-opt-dead-letter-reason": "boom", "x-opt-error": "boom", "x-opt-error-type": "E", "x-opt-error-stack": "at A",
				"x-opt-tenant": "acme",
			},
			amqp091.Table{"x-opt-tenant": "acme"},
		},
		"two frameworks": {
			amqp091.Table{"x-exception-message": "boom", "MT-Fault-Message": "boom", "MT-Reason": "fault", "id": "1"},
			amqp091.Table{"id": "1"},
		},
		"a publisher's own": {
			amqp091.Table{"attempts": int32(1), "exception-type": "business", "RejectionReason": "no", "retry-count": int32(2)},
			amqp091.Table{"attempts": int32(1), "exception-type": "business", "RejectionReason": "no", "retry-count": int32(2)},
		},
		"Celery": {
			amqp091.Table{"task": "t", "id": "1", "argsrepr": "()", "retries": int8(3)},
			amqp091.Table{"task": "t", "id": "1", "argsrepr": "()", "retries": int8(3)},
		},
		"none": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := len(tc.headers)
			got, gone := deadletter.Retried(tc.headers)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("headers (-want +got):\n%s", d)
			}
			if len(tc.headers) != before || (len(gone) > 0) != (len(got) < before) {
				t.Errorf("%d of %d headers are left, gone: %s", len(tc.headers), before, strings.Join(gone, ", "))
			}
			if _, again := deadletter.Retried(got); len(again) > 0 {
				t.Errorf("a second time loses %v", again)
			}
		})
	}
}
