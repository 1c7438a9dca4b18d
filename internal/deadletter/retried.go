package deadletter

import (
	"maps"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// faults returns the headers with which a framework describes a failure that has passed, and those
// in which it counts attempts: a new try begins without them. A name that ends in * is the
// beginning of several. Nil: all headers stay.
//
// ServiceControl removes those of NServiceBus when it sends a message back (HeaderFilter.cs), and
// its connector those of MassTransit (MassTransitConverter.cs); MT-Fault-Address is the
// publisher's, and a redelivery count that stays leaves no redelivery (RedeliveryRetryFilter.cs).
// Laravel's queue:retry sets the attempts to 0. Spring, Wolverine, Rebus and Brighter write such
// headers anew at the next failure, and count on from the counter that they find. Symfony does not
// send a message to its failure transport that was there before
// (SendFailedMessageToFailureTransportListener.php).
func faults(framework string) []string {
	switch framework {
	case "NServiceBus":
		return []string{
			"NServiceBus.ExceptionInfo.*", "NServiceBus.FailedQ", "NServiceBus.Retries*", "NServiceBus.TimeOfFailure",
			"ServiceControl.EditOf",
		}
	case "MassTransit":
		return []string{
			"MT-Fault-ConsumerType", "MT-Fault-ExceptionType", "MT-Fault-InputAddress", "MT-Fault-Message",
			"MT-Fault-MessageType", "MT-Fault-RedeliveryCount", "MT-Fault-RetryCount", "MT-Fault-StackTrace",
			"MT-Fault-Timestamp", "MT-Reason", "MT-Redelivery-Count",
		}
	case "Rebus":
		return []string{"rbs2-delivery-count", "rbs2-error-details", "rbs2-source-queue"}
	case "Symfony":
		return []string{
			symfonyStamp + "ErrorDetailsStamp", symfonyStamp + "RedeliveryStamp", symfonyStamp + "SentToFailureTransportStamp",
		}
	case "Brighter":
		return []string{"HandledCount", "RejectionReason"}
	case amqp10:
		return []string{
			topology.AnnotatedError, topology.AnnotatedErrorStack, topology.AnnotatedErrorType,
			"x-opt-dead-letter-category", "x-opt-dead-letter-reason",
		}
	case "Spring", "Wolverine", "Laravel":
		return ownNames(framework)
	default:
		return nil
	}
}

// Retried returns a copy of the headers of a message as a new try begins: without those with which
// frameworks describe its failure or count its attempts. gone are the names of these headers,
// sorted; one that ends in * is the beginning of several.
func Retried(h amqp091.Table) (out amqp091.Table, gone []string) {
	out = maps.Clone(h)
	for _, f := range frameworks() {
		if _, ok := f.read(fields(h)); !ok {
			continue
		}
		for _, fault := range faults(f.name) {
			prefix, several := strings.CutSuffix(fault, "*")
			before := len(out)
			maps.DeleteFunc(out, func(name string, _ any) bool {
				return name == fault || several && strings.HasPrefix(name, prefix)
			})
			if len(out) < before {
				gone = append(gone, fault)
			}
		}
	}
	slices.Sort(gone)
	return out, gone
}
