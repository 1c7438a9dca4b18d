package relay

import (
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Republish returns d as a message to publish, with other headers. It leaves out what a copy
// must not have: the user-id, since the broker accepts only the user of the connection there,
// and the expiration, since the copy would expire where it has to stay. Callers that need them
// keep the user-id in a header, and the expiration in a header or in the result.
//
// The headers are for the caller to choose: see [IsCount] and [IsHistory] for those that the
// broker writes.
func Republish(d amqp091.Delivery, headers amqp091.Table) amqp091.Publishing {
	return amqp091.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: d.DeliveryMode, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type,
		AppId: d.AppId, Body: d.Body,
	}
}
