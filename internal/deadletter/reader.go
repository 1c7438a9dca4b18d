package deadletter

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// Reader turns messages into views. It is safe for concurrent use.
type Reader struct {
	// Decoder decodes bodies; nil knows no schemas.
	Decoder *decode.Decoder
	// Redactor returns the rules for a message that failed in a work queue; nil masks nothing.
	// It is called with an empty name for a message whose work queue is unknown, and must then
	// return rules that mask what those of any queue mask.
	Redactor func(workQueue string) *redact.Redactor
	// Known is what is known about the virtual host; nil is nothing.
	Known *Known
}

// View decodes and redacts a message. All that a person may see passes through it.
//
// The facts of a view are redacted too: where a rule masks a header, they tell what the masked
// header tells. Only the work queue, the cause, the times and the counts are always true. What
// acts on a message calls [Read].
func (r *Reader) View(m Message) View { return r.view(m, true) }

// Head returns the view of a message without its body, which costs much less where no rules
// mask anything. A filter, or a way to group, that needs the body says so: see
// [Filter.NeedsBody] and [By.NeedsBody].
func (r *Reader) Head(m Message) View { return r.view(m, false) }

// Handle returns the handle of a message in a queue, as [Reader.View] shows the message.
func (r *Reader) Handle(d amqp091.Delivery, queue string) Handle {
	if r.Redactor == nil {
		return HandleOf(d)
	}
	facts := Read(d, queue, r.Known)
	if len(r.rules(facts.WorkQueue, r.Known.Owner(queue))) == 0 {
		return HandleOf(d)
	}
	v := r.View(Message{Delivery: d, Queue: queue})
	if !v.Masked {
		return HandleOf(d)
	}
	return v.handle()
}

func (r *Reader) view(m Message, body bool) View {
	d := m.Delivery
	headers, _ := plain(d.Headers, 0).(map[string]any)
	facts := read(d, headers, m.Queue, r.Known)
	v := View{
		Queue: m.Queue, Position: m.Position, Handle: m.Handle, Copy: m.Copy, Facts: facts,
		Properties: Properties{
			MessageID: d.MessageId, Type: d.Type, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
			CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, AppID: d.AppId, UserID: d.UserId, Expiration: d.Expiration,
			Priority: d.Priority, Persistent: d.DeliveryMode == amqp091.Persistent, Published: published(d.Timestamp),
			Redelivered: d.Redelivered,
		},
		Headers: headers, Bytes: len(d.Body), countHeader: r.Known.countHeader(),
	}
	rules := r.rules(facts.WorkQueue, r.Known.Owner(m.Queue))
	if body || len(rules) > 0 || mayTell(d.Body) {
		v.Body = r.Decoder.Decode(r.input(d, facts))
	}
	if len(rules) > 0 {
		r.mask(&v, d, rules)
	}
	v.bodyFacts()
	if !body {
		v.Body = decode.Document{}
	}
	v.Type = cmp.Or(v.Type, v.Body.Type, v.Job)
	return v
}

// Fits returns the message types of the schemas that the body of a message may have, the best
// first. It tells no value of the message.
func (r *Reader) Fits(m Message) []decode.Fit {
	return r.Decoder.Fits(r.input(m.Delivery, Read(m.Delivery, m.Queue, r.Known)))
}

// input returns what the decoder has to know about a message.
func (r *Reader) input(d amqp091.Delivery, facts Facts) decode.Input {
	return decode.Input{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Type: d.Type, Key: facts.Key,
		Queue: facts.WorkQueue, Headers: d.Headers, Body: d.Body,
	}
}

// rules returns the rules for a message. The headers name the work queue, and a publisher can
// write them, so the rules of the queue to which the dead-letter queue belongs apply too.
func (r *Reader) rules(workQueue, owner string) []*redact.Redactor {
	if r.Redactor == nil {
		return nil
	}
	if owner == "" || owner == workQueue {
		return masking(r.Redactor(workQueue))
	}
	if workQueue == "" {
		return masking(r.Redactor(""), r.Redactor(owner))
	}
	return masking(r.Redactor(workQueue), r.Redactor(owner))
}

// masking returns those of some rules that mask anything.
func masking(list ...*redact.Redactor) []*redact.Redactor {
	var out []*redact.Redactor
	for _, r := range list {
		if r.Masks() {
			out = append(out, r)
		}
	}
	return out
}

// mask removes from a view what rules mask. A value that a rule names in the body is masked in the
// headers and in the error too.
func (r *Reader) mask(v *View, d amqp091.Delivery, rules []*redact.Redactor) {
	before := *v
	passes := make([]*redact.Pass, len(rules))
	for i, rule := range rules {
		passes[i] = rule.Begin(v.Headers)
		v.Body = passes[i].Document(v.Body)
		v.Headers = passes[i].Headers(pastTypes(passes[i], CutHeaders(passes[i], v.Headers)))
	}
	// What is read from a masked header is masked as well. The rest is not text of the message.
	seen := read(maskedError(d, v.Body), v.Headers, v.Queue, r.Known)
	f := &v.Facts
	f.Exchange, f.Key, f.Error, f.ErrorType, f.Stack = seen.Exchange, seen.Key, seen.Error, seen.ErrorType, seen.Stack
	f.Job, f.Run, f.Hops = seen.Job, seen.Run, seen.Hops
	if f.Doubt != "" {
		f.Doubt = cmp.Or(seen.Doubt, "the header that names the queue is masked")
	}
	texts := []*string{
		&f.Exchange, &f.Key, &f.Error, &f.ErrorType, &f.Stack, &f.Job, &f.Run, &f.Doubt,
		&v.MessageID, &v.Type, &v.ContentType, &v.ContentEncoding, &v.CorrelationID, &v.ReplyTo, &v.AppID, &v.UserID,
	}
	for i := range f.Hops {
		texts = append(texts, &f.Hops[i].ErrorType)
		for j := range f.Hops[i].Keys {
			texts = append(texts, &f.Hops[i].Keys[j])
		}
	}
	for _, pass := range passes {
		for _, text := range texts {
			masked := pass.Text(*text)
			v.Masked = v.Masked || masked != *text
			*text = masked
		}
	}
	if !reflect.DeepEqual(before.Body, v.Body) {
		v.Masked, v.Bytes = true, -1
	}
	v.Masked = v.Masked || !reflect.DeepEqual(before.Headers, v.Headers)
}

// pastTypes returns headers with the types of earlier errors masked as that of the last one is.
func pastTypes(pass *redact.Pass, headers map[string]any) map[string]any {
	list, _ := headers[topology.HeaderHistory].([]any)
	if len(list) == 0 {
		return headers
	}
	past := slices.Clone(list)
	for i, v := range past {
		entry := maps.Clone(table(v))
		for _, name := range []string{topology.HistoryErrorType, topology.HistoryAnnotated} {
			if kind, ok := entry[name]; ok {
				last := map[string]any{topology.HeaderErrorType: kind}
				entry[name] = pass.Headers(CutHeaders(pass, last))[topology.HeaderErrorType]
				past[i] = map[string]any(entry)
			}
		}
	}
	out := maps.Clone(headers)
	out[topology.HeaderHistory] = past
	return out
}

// CutHeaders returns headers in which what a consumer said, and has cut, shows no half of a value
// that rules mask.
func CutHeaders(pass *redact.Pass, headers map[string]any) map[string]any {
	out := maps.Clone(headers)
	for _, name := range []string{topology.HeaderError, topology.HeaderErrorType, topology.HeaderErrorStack} {
		if said, ok := headers[name].(string); ok {
			out[name] = cutSaid(pass, name, said)
		}
	}
	return out
}

// cutSaid returns what a consumer said in a header, without what rules may mask in part where the
// consumer or the processor has cut it. Its length alone says that it is cut. The printed consumer
// in Python keeps the end of a stack, all others keep the beginning.
func cutSaid(pass *redact.Pass, header, said string) string {
	least := map[string]int{ // the limits of the printed consumers, which are the smaller ones
		topology.HeaderError: 1000, topology.HeaderErrorType: 100, topology.HeaderErrorStack: 8000,
	}
	if len(said) < least[header] {
		return said
	}
	return pass.Cut(said, header == topology.HeaderErrorStack)
}

// mayTell reports whether a body may be one of dramatiq: to find that out costs much less than to
// decode it.
func mayTell(body []byte) bool { return bytes.Contains(body, []byte(`"actor_name"`)) }

// bodyFacts fills in what dramatiq tells in the body, where no header tells it.
func (v *View) bodyFacts() {
	body := table(v.Body.Value)
	options := table(body["options"])
	if body.text("actor_name") == "" || body.text("queue_name") == "" || options == nil {
		return
	}
	v.Framework, v.Job = "dramatiq", body.text("actor_name")
	if n := afterRetries(options["retries"]); n > v.Attempts {
		v.Attempts = n
	}
	if trace := strings.TrimSpace(options.text("traceback")); trace != "" && v.Error == "" {
		v.Stack, v.Error = trace, trace[strings.LastIndex(trace, "\n")+1:]
	}
}

// published returns the timestamp of a message in UTC; the zero time if it has none.
func published(t time.Time) time.Time {
	if t.IsZero() || t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

// maxDepth is more than AMQP clients send: the library refuses tables that are nested deeper.
const maxDepth = 64

// plain returns a header in the types that filters and JSON know: map[string]any, []any,
// string, int64, float64, bool, time.Time and nil. Bytes that are not text are hexadecimal.
func plain(v any, depth int) any {
	if depth > maxDepth {
		return nil
	}
	if n, ok := topology.Integer(v); ok {
		return n
	}
	switch v := v.(type) {
	case amqp091.Table:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = plain(e, depth+1)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e, depth+1)
		}
		return out
	case float32:
		return float64(v)
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return "0x" + hex.EncodeToString(v)
	case amqp091.Decimal:
		return float64(v.Value) / math.Pow10(int(v.Scale))
	case time.Time:
		return v.UTC()
	default: // nil, bool, string, float64
		return v
	}
}
