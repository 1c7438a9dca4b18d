package deadletter

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// viewJSON is a view as scripts read it. Its fields are a contract, and those that a filter
// knows have the names that they have there. A time, a number or a text that is unknown is
// null or empty.
type viewJSON struct {
	Name    string `json:"name"`
	Handle  Handle `json:"handle"`
	Copy    *bool  `json:"copy"`
	CopyNo  int    `json:"copyNumber"`
	LiesIn  string `json:"liesIn"`
	Place   int    `json:"position"`
	Cause   string `json:"cause"`
	Error   string `json:"error"`
	ErrorIs string `json:"errorType,omitempty"`
	Stack   string `json:"stack,omitempty"`

	Attempts    *int       `json:"attempts"`
	FirstFailed *time.Time `json:"firstFailed"`
	LastFailed  *time.Time `json:"lastFailed"`
	Queue       string     `json:"queue"`
	Doubt       string     `json:"doubt,omitempty"`
	Exchange    string     `json:"exchange"`
	Key         string     `json:"key"`
	Replays     int        `json:"replays"`
	Run         string     `json:"run"`
	Framework   string     `json:"framework,omitempty"`
	Hops        []hopJSON  `json:"hops"`

	ID              string     `json:"id"`
	Type            string     `json:"type"`
	Published       *time.Time `json:"published"`
	ContentType     string     `json:"contentType"`
	ContentEncoding string     `json:"contentEncoding,omitempty"`
	CorrelationID   string     `json:"correlationId,omitempty"`
	ReplyTo         string     `json:"replyTo,omitempty"`
	AppID           string     `json:"appId,omitempty"`
	UserID          string     `json:"userId,omitempty"`
	Expiration      string     `json:"expiration,omitempty"`
	Priority        uint8      `json:"priority,omitempty"`
	Persistent      bool       `json:"persistent"`
	Redelivered     bool       `json:"redelivered"`

	Headers    any      `json:"headers"`
	Body       any      `json:"body"`
	BodyFormat string   `json:"bodyFormat,omitempty"`
	BodySteps  []string `json:"bodySteps,omitempty"`
	BodyNote   string   `json:"bodyNote,omitempty"`
	Envelope   any      `json:"envelope,omitempty"`
	Size       *int     `json:"size"`
}

type hopJSON struct {
	Queue    string     `json:"queue"`
	Reason   string     `json:"reason"`
	Count    int64      `json:"count"`
	Time     *time.Time `json:"time"`
	Exchange string     `json:"exchange"`
	Keys     []string   `json:"keys"`
	Assumed  bool       `json:"assumed,omitempty"`
}

// MarshalJSON returns the view as scripts read it; docs/looking.md lists the fields.
func (v View) MarshalJSON() ([]byte, error) { return json.Marshal(v.JSON()) }

// JSON returns what [View.MarshalJSON] writes.
func (v View) JSON() any {
	out := viewJSON{
		Name: v.Name(), Handle: v.Handle, CopyNo: v.Copy, LiesIn: v.Queue, Place: v.Position,
		Cause: v.Cause, Error: v.Error, ErrorIs: v.ErrorType, Stack: v.Stack,
		FirstFailed: moment(v.FirstFailed), LastFailed: moment(v.LastFailed), Queue: v.WorkQueue, Doubt: v.Doubt,
		Exchange: v.Exchange, Key: v.Key, Replays: v.Replays, Run: v.Run, Framework: v.Framework, Hops: []hopJSON{},
		ID: v.MessageID, Type: v.Type, Published: moment(v.Published), ContentType: v.ContentType,
		ContentEncoding: v.ContentEncoding, CorrelationID: v.CorrelationID, ReplyTo: v.ReplyTo, AppID: v.AppID,
		UserID: v.UserID, Expiration: v.Expiration, Priority: v.Priority, Persistent: v.Persistent,
		Redelivered: v.Redelivered, Headers: finite(v.Headers), Body: finite(v.body()), BodyFormat: string(v.Body.Format),
		BodySteps: v.Body.Steps, BodyNote: v.Body.Note,
	}
	if equal, known := v.equal(); known {
		out.Copy = &equal
	}
	if v.Bytes >= 0 {
		out.Size = &v.Bytes
	}
	if len(v.Body.Envelope) > 0 {
		out.Envelope = finite(v.Body.Envelope)
	}
	if v.Attempts >= 0 {
		out.Attempts = &v.Attempts
	}
	for _, h := range v.Hops {
		out.Hops = append(out.Hops, hopJSON{
			h.Queue, h.Reason, h.Count, moment(h.Time), h.Exchange, append([]string{}, h.Keys...), h.Assumed,
		})
	}
	return out
}

// equal reports whether an equal message is before it. That is not known where rules mask a part of
// the message: messages that differ only there have the same handle.
func (v View) equal() (equal, known bool) { return v.Copy > 1, !v.Masked }

// body returns the body as filters and scripts see it: its tree, or its text.
func (v View) body() any {
	if v.Body.Tree {
		return v.Body.Value
	}
	return v.Body.Text
}

// moment returns a time that can be null, within the years that JSON can write.
func moment(t time.Time) *time.Time {
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}

// finite returns a copy of a tree that JSON can write: without infinite numbers and NaN, which
// become texts, and with times that have four digits for the year.
func finite(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = finite(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = finite(e)
		}
		return out
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return v
	case time.Time:
		if t := moment(v); t != nil {
			return *t
		}
		return v.Unix()
	default:
		return v
	}
}
