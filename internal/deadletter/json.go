package deadletter

import (
	"math"
	"strconv"
	"time"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// viewJSON is a view as scripts read it. Its fields are a contract, and those that a filter
// knows have the names that they have there. A time, a number or a text that is unknown is
// null or empty.
type viewJSON struct {
	Name     string `json:"name"`
	Handle   Handle `json:"handle"`
	Copy     *bool  `json:"copy"`
	CopyNo   int    `json:"copyNumber"`
	LiesIn   string `json:"liesIn"`
	Position int    `json:"position"`
	Facts
	Properties
	Headers    any           `json:"headers"`
	Body       any           `json:"body"`
	BodyFormat decode.Format `json:"bodyFormat,omitempty"`
	BodySteps  []string      `json:"bodySteps,omitempty"`
	BodyNote   string        `json:"bodyNote,omitempty"`
	Envelope   any           `json:"envelope,omitempty"`
	Size       int           `json:"size" jsondoc:"known"`
}

// MarshalJSON returns the view as scripts read it; docs/looking.md lists the fields.
func (v View) MarshalJSON() ([]byte, error) { return jsondoc.Marshal(v.JSON()) }

// JSON returns what [View.MarshalJSON] writes.
func (v View) JSON() any {
	out := viewJSON{
		Name: v.Name(), Handle: v.Handle, CopyNo: v.Copy, LiesIn: v.Queue, Position: v.Position,
		Facts: v.Facts, Properties: v.Properties, Headers: finite(v.Headers), Body: finite(v.body()),
		BodyFormat: v.Body.Format, BodySteps: v.Body.Steps, BodyNote: v.Body.Note, Size: v.Bytes,
	}
	if equal, known := v.equal(); known {
		out.Copy = &equal
	}
	if len(v.Body.Envelope) > 0 {
		out.Envelope = finite(v.Body.Envelope)
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
