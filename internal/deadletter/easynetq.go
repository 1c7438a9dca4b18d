package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// EasyNetQ is the framework that puts a failed message into an envelope, which it sends to its
// error queue in place of the message.
const EasyNetQ = "EasyNetQ"

// easyNetQType is the .NET type of the envelope. The property type has it, with its assembly.
const easyNetQType = "EasyNetQ.SystemMessages.Error"

// netError is the envelope of EasyNetQ (SystemMessages/Error.cs).
type netError struct {
	RoutingKey, Exchange, Queue, Exception string
	Message                                *string
	DateTime                               string
	BasicProperties                        netProperties
}

// netProperties are the properties and headers that the message had (MessageProperties.cs).
type netProperties struct {
	ContentType, ContentEncoding, CorrelationID, ReplyTo, MessageID, Type, UserID, AppID string
	DeliveryMode, Priority                                                               uint8
	Timestamp                                                                            int64
	Expiration                                                                           string
	Headers                                                                              map[string]json.RawMessage
}

// easyNetQError returns the envelope of EasyNetQ that the body is, if the property type says so.
func easyNetQError(d amqp091.Delivery) (netError, bool) {
	rest, is := strings.CutPrefix(d.Type, easyNetQType)
	if !is || rest != "" && rest[0] != ',' && rest[0] != ':' || len(d.Body) > decode.MaxBytes {
		return netError{}, false
	}
	var e netError
	if json.Unmarshal(d.Body, &e) != nil || e.Queue == "" {
		return netError{}, false
	}
	return e, true
}

// headers returns the headers that the message had.
func (e netError) headers() fields {
	headers, _ := e.BasicProperties.headers()
	return fields(headers)
}

// told returns what the envelope tells about the failure.
func (e netError) told() told {
	first, _, _ := strings.Cut(strings.TrimSpace(e.Exception), "\n")
	problemType, problem, found := strings.Cut(strings.TrimSpace(first), ": ")
	if !found || strings.ContainsAny(problemType, " \t") {
		problemType, problem = "", strings.TrimSpace(first)
	}
	return told{
		framework: EasyNetQ, queue: e.Queue, by: "Queue of the EasyNetQ error",
		exchange: e.Exchange, key: e.RoutingKey, addressed: e.RoutingKey != "" || e.Exchange != "",
		cause: causeFailed, problem: problem, problemType: problemType, stack: e.Exception,
		failed: timestamp(e.DateTime), job: firstType(e.BasicProperties.Type),
	}
}

// maskedError returns a message with the envelope of EasyNetQ as a person may see it, where it is
// one: what the message tells of its failure is in there.
func maskedError(d amqp091.Delivery, shown decode.Document) amqp091.Delivery {
	if _, is := easyNetQError(d); !is {
		return d
	}
	envelope := shown.Envelope
	if shown.Inside == "" {
		envelope, _ = shown.Value.(map[string]any)
	}
	d.Body, _ = json.Marshal(map[string]any{
		"RoutingKey": envelope["RoutingKey"], "Exchange": envelope["Exchange"], "Queue": envelope["Queue"],
		"Exception": envelope["Exception"], "DateTime": envelope["DateTime"],
		"BasicProperties": envelope["BasicProperties"],
	})
	return d
}

// ErrDamaged is wrapped by the error of [Original] for a message that cannot be restored.
var ErrDamaged = errors.New("the message in the error of EasyNetQ cannot be restored")

// Original returns the message whose failure a message reports: itself, unless it is an error of
// EasyNetQ. That holds the body, the properties and the headers of the message that failed, as
// EasyNetQ's own tool for retries, Hosepipe, restores them.
func Original(d amqp091.Delivery) (amqp091.Delivery, error) {
	e, is := easyNetQError(d)
	if !is {
		return d, nil
	}
	if e.Message == nil {
		return d, fmt.Errorf("%w: it has no Message", ErrDamaged)
	}
	body, ok := decode.EasyNetQMessage(*e.Message)
	if !ok {
		return d, fmt.Errorf("%w: its body was not text, and EasyNetQ has replaced the bytes; register Base64ErrorMessageSerializer, so that the next ones can be",
			ErrDamaged)
	}
	p := e.BasicProperties
	headers, err := p.headers()
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	expiration, err := milliseconds(p.Expiration)
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	out := amqp091.Delivery{
		Headers: headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: expiration,
		MessageId: p.MessageID, Type: p.Type, UserId: p.UserID, AppId: p.AppID, Body: body,
		Exchange: e.Exchange, RoutingKey: e.RoutingKey,
	}
	if p.Timestamp != 0 {
		out.Timestamp = time.Unix(p.Timestamp, 0)
	}
	return out, nil
}

// milliseconds returns a TimeSpan of .NET, or milliseconds, as the property expiration has it.
// Empty is none.
func milliseconds(span string) (string, error) {
	if _, err := strconv.ParseUint(span, 10, 64); span == "" || err == nil {
		return span, nil
	}
	days, clock, found := strings.Cut(span, ".")
	if !found || strings.Contains(days, ":") {
		days, clock = "0", span
	}
	var day, hour, minute int64
	var second float64
	numbers := days + " " + strings.ReplaceAll(clock, ":", " ")
	if _, err := fmt.Sscanf(numbers, "%d %d %d %f", &day, &hour, &minute, &second); err != nil {
		return "", errors.New("its Expiration is not a time")
	}
	ms := ((day*24+hour)*60+minute)*60_000 + int64(math.Round(second*1000))
	return strconv.FormatInt(ms, 10), nil
}

func (p netProperties) headers() (amqp091.Table, error) {
	out := amqp091.Table{}
	for name, raw := range p.Headers {
		v, err := netHeader(raw, 0)
		if err != nil {
			return nil, fmt.Errorf("one of its headers: %w", err) // the name may be masked elsewhere
		}
		out[name] = v
	}
	return out, out.Validate()
}

// netHeader returns a header. EasyNetQ 8 writes each value with its type (JsonHeaderType.cs).
// Older releases and Newtonsoft write the value alone, and a text, which the .NET client delivers
// as bytes, in base64.
func netHeader(raw json.RawMessage, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deep")
	}
	var typed struct {
		Type  *int
		Value json.RawMessage
		Net   string          `json:"$type"`
		Bytes json.RawMessage `json:"$value"`
	}
	if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &typed) == nil {
		switch {
		case typed.Type != nil:
			return typedHeader(*typed.Type, typed.Value, depth)
		case strings.HasPrefix(typed.Net, "System.Byte[]"):
			return textOf(typed.Bytes)
		}
	}
	return plainHeader(raw, depth)
}

// typedHeader returns a header with the type that EasyNetQ names.
func typedHeader(kind int, raw json.RawMessage, depth int) (any, error) {
	switch kind {
	case 1:
		return nil, nil
	case 2:
		return as[bool](raw)
	case 3:
		return as[uint8](raw)
	case 4:
		return as[int8](raw)
	case 5:
		return as[int16](raw)
	case 6:
		return as[int32](raw)
	case 7:
		return as[uint32](raw)
	case 8:
		return as[int64](raw)
	case 9:
		return as[float32](raw)
	case 10:
		return as[float64](raw)
	case 12:
		seconds, err := as[int64](raw)
		return time.Unix(seconds, 0), err
	case 13:
		return as[string](raw)
	case 14: // a text: the .NET client delivers texts as bytes, and sends bytes as texts
		return textOf(raw)
	case 15, 16:
		return plainHeader(raw, depth)
	case 17:
		return as[[]byte](raw)
	}
	return nil, fmt.Errorf("dlxctl cannot restore the type %d", kind)
}

// plainHeader returns a header without a type.
func plainHeader(raw json.RawMessage, depth int) (any, error) {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return nil, nil
	case raw[0] == '"':
		return textOf(raw)
	case raw[0] == 't' || raw[0] == 'f':
		return as[bool](raw)
	case raw[0] == '[':
		list, err := as[[]json.RawMessage](raw)
		out := make([]any, len(list))
		for i := 0; err == nil && i < len(list); i++ {
			out[i], err = netHeader(list[i], depth+1)
		}
		return out, err
	case raw[0] == '{':
		members, err := as[map[string]json.RawMessage](raw)
		out := amqp091.Table{}
		for name, member := range members {
			if out[name], err = netHeader(member, depth+1); err != nil {
				return nil, err
			}
		}
		return out, err
	}
	if n, err := as[int64](raw); err == nil {
		return n, nil
	}
	return as[float64](raw)
}

// textOf returns a text that is written in base64, or as it is.
func textOf(raw json.RawMessage) (any, error) {
	s, err := as[string](raw)
	if b, bad := base64.StdEncoding.Strict().DecodeString(s); bad == nil {
		return string(b), err
	}
	return s, err
}

func as[T any](raw json.RawMessage) (v T, err error) {
	if err = json.Unmarshal(raw, &v); err != nil {
		err = errors.New("its value does not fit its type")
	}
	return v, err
}
