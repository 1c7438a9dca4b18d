package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
)

// detail is a message as the page shows it. It is made of a redacted view alone, and its long texts
// are cut.
type detail struct {
	Handle   string `json:"handle"`
	LiesIn   string `json:"liesIn"`
	Position int    `json:"position"`
	deadletter.Facts
	deadletter.Properties
	// Others are the properties that few messages have.
	Others  []header `json:"others"`
	Headers []family `json:"headers"`
	Body    body     `json:"body"`
	Command string   `json:"command"`
}

// family is headers that the same program wrote.
type family struct {
	Name    string   `json:"name"`
	Headers []header `json:"headers"`
}

type header struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

type body struct {
	Format string   `json:"format"`
	Steps  []string `json:"steps"`
	Text   string   `json:"text"`
	Note   string   `json:"note"`
	Bytes  int      `json:"bytes"` // -1 if the body is masked
	// Left is how many bytes of the text are not shown.
	Left int `json:"left"`
}

// The limits of what the page shows of a message.
const (
	maxBody    = 256 << 10
	maxHeader  = 8 << 10
	maxHeaders = 500
	maxHops    = 500
	maxText    = 16 << 10
)

// newDetail makes what the page shows of a view.
func newDetail(v deadletter.View) detail {
	d := detail{
		Handle: v.Name(), LiesIn: v.Queue, Position: v.Position, Facts: v.Facts, Properties: v.Properties,
		Others: others(v), Headers: families(v),
		Body: body{
			Format: string(v.Body.Format), Steps: v.Body.Steps, Text: cut(v.Body.Text, maxBody),
			Note: v.Body.Note, Bytes: v.Bytes,
		},
	}
	for _, text := range []*string{&d.Cause, &d.Error, &d.ErrorType, &d.Doubt, &d.FirstQueue, &d.Stack} {
		*text = cut(*text, maxText)
	}
	d.Body.Left = len(v.Body.Text) - len(d.Body.Text)
	d.Hops = v.Hops[:min(len(v.Hops), maxHops)]
	return d
}

// size is about how many bytes a detail holds.
func (d detail) size() int {
	n := 500 + len(d.Error) + len(d.ErrorType) + len(d.Stack) + len(d.Body.Text) + 100*len(d.Hops)
	for _, f := range d.Headers {
		for _, h := range f.Headers {
			n += 50 + len(h.Name) + len(h.Value)
		}
	}
	return n
}

// cut returns the first bytes of a text, whole characters only. What it returns does not keep
// the rest alive.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit])
}

// others returns the properties that few messages have.
func others(v deadletter.View) []header {
	priority := ""
	if v.Priority > 0 {
		priority = strconv.Itoa(int(v.Priority))
	}
	var out []header
	for _, h := range []header{
		{Name: "Framework", Value: v.Framework},
		{Name: "Content encoding", Value: v.ContentEncoding},
		{Name: "Correlation-id", Value: v.CorrelationID},
		{Name: "Reply to", Value: v.ReplyTo},
		{Name: "App-id", Value: v.AppID},
		{Name: "User-id", Value: v.UserID},
		{Name: "Expiration", Value: v.Expiration},
		{Name: "Priority", Value: priority},
	} {
		if h.Value != "" {
			out = append(out, h)
		}
	}
	return out
}

// summary is the one line of a message in the list: the error, and otherwise the body.
func summary(v deadletter.View) string {
	text := v.Problem()
	if strings.TrimSpace(text) == "" {
		text = cut(v.Body.Text, 8*maxSummary)
		if v.Body.Format == decode.Binary {
			text = ""
		}
	} else {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	}
	return cut(strings.Join(strings.Fields(text), " "), maxSummary)
}

// families returns the headers by their author.
func families(v deadletter.View) []family {
	var out []family
	left := maxHeaders
	for _, f := range v.Families() {
		shown := family{Name: f.Name}
		for _, name := range f.Headers[:min(len(f.Headers), left)] {
			value := v.Headers[name]
			shown.Headers = append(shown.Headers, header{Name: cut(name, 256), Type: typeName(value), Value: headerText(value)})
		}
		if left -= len(shown.Headers); len(shown.Headers) < len(f.Headers) {
			shown.Headers = append(shown.Headers, header{
				Name: fmt.Sprintf("%d more headers", len(f.Headers)-len(shown.Headers)), Value: "not shown",
			})
		}
		out = append(out, shown)
	}
	return out
}

// headerText shows the value of a header on one line, up to a limit.
func headerText(v any) string {
	switch v := v.(type) {
	case string:
		return shorten(strings.ToValidUTF8(v, "\uFFFD"))
	case []byte:
		if utf8.Valid(v) {
			return shorten(string(v))
		}
		return shorten(fmt.Sprintf("%x", v))
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case nil:
		return "null"
	}
	line, err := text.JSON(v)
	if err != nil { // tables with values that JSON has no form for
		return shorten(fmt.Sprint(v))
	}
	return shorten(line)
}

func shorten(s string) string {
	if short := cut(s, maxHeader); len(short) < len(s) {
		return fmt.Sprintf("%s … %d more bytes", short, len(s)-len(short))
	}
	return s
}

// typeName names the type of a header in the words of AMQP.
func typeName(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case []byte:
		return "bytes"
	case bool:
		return "boolean"
	case int8, uint8, int16, uint16, int, int32, uint32, int64, uint64:
		return "integer"
	case float32, float64:
		return "float"
	case time.Time:
		return "time"
	case nil:
		return "null"
	case []any:
		return "list"
	default:
		return "table"
	}
}

// messageRequest names a message of a snapshot: by its row, or by its handle, as a link does.
type messageRequest struct {
	Snapshot string `json:"snapshot"`
	Row      int    `json:"row"`
	Handle   string `json:"handle"`
}

// place returns the snapshot that a request names, and the row of the message in it.
func (p *Page) place(ask messageRequest) (s *snapshot, at int, err error) {
	s, at = p.snapshots.find(ask.Snapshot), ask.Row
	if s != nil && ask.Handle != "" {
		at = slices.IndexFunc(s.rows, func(r row) bool { return r.name() == ask.Handle })
	}
	switch {
	case s == nil, ask.Handle == "" && (at < 0 || at >= len(s.rows)):
		err = refuse(http.StatusGone, errReplaced.Error())
	case at < 0:
		err = refuse(http.StatusNotFound, fmt.Sprintf("message %s is not in this list: it was moved, or the filter leaves it out",
			ask.Handle))
	}
	return s, at, err
}

// message answers with one message: from the snapshot, or from a new look if the message is too
// large to be kept.
func (p *Page) message(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask messageRequest
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	s, at, err := p.place(ask)
	if err != nil {
		return nil, err
	}
	d, kept := s.views[at]
	if !kept {
		err = p.again(r.Context(), w, s, at, func(_ deadletter.Message, v deadletter.View) { d = newDetail(v) })
		if err != nil {
			return nil, err
		}
	}
	d.Command = p.Line("desk", "show", d.Handle, s.Request.Queue)
	return d, nil
}

// errFound ends a look.
var errFound = errors.New("found")

// again looks at the queue until it meets the message of a row.
func (p *Page) again(ctx context.Context, w http.ResponseWriter, s *snapshot, at int,
	found func(deadletter.Message, deadletter.View),
) error {
	row := s.rows[at]
	name := row.name()
	whole := fmt.Sprintf("%s#%d", string(row.handle), row.copies)
	choice := desk.Request{Queue: s.Request.Queue, Handles: []string{whole}, Look: p.Look}
	// Messages before it may have been removed since, but none are ever added there.
	choice.Look.Messages = int(row.position) + 1
	err := p.pick(ctx, w, choice, func(m deadletter.Message, v deadletter.View) error {
		found(m, v)
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%w: message %s is no longer in the first %d messages of %s; look again", desk.ErrRefused, name,
			row.position+1, s.Request.Queue)
	}
}

// maxEdit is the largest body that the page edits.
const maxEdit = 256 << 10

// sourceAnswer is a message to edit.
type sourceAnswer struct {
	Text string `json:"text"`
	// Fixed says why the body cannot be edited. It has no text then. Empty: it can.
	Fixed string `json:"fixed"`
	// Key is the routing key of the publisher, as the person may see it.
	Key     string        `json:"key"`
	Headers []draftHeader `json:"headers"`
	// Types are the types that a header may have.
	Types []string `json:"types"`
}

type draftHeader struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Text string `json:"text"`
	// Fixed says why the header cannot be edited. Its text is then what a person may see. Empty: it
	// can.
	Fixed string `json:"fixed"`
}

// source answers with a message to edit. What is masked cannot be edited here: the page would have
// to show it.
func (p *Page) source(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask messageRequest
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	if who := personOf(r); !who.allow.permits(desk.Edit) {
		return nil, refuse(http.StatusForbidden, who.refusal(desk.Edit))
	}
	s, at, err := p.place(ask)
	if err != nil {
		return nil, err
	}
	out := sourceAnswer{Types: deadletter.HeaderTypes()}
	err = p.again(r.Context(), w, s, at, func(m deadletter.Message, v deadletter.View) {
		out.Text, out.Fixed = p.editable(m, v)
		out.Key, out.Headers = v.Key, draftHeaders(m, v)
	})
	return out, err
}

// maxFixed is how many bytes the form shows of a header that it does not edit.
const maxFixed = 200

// draftHeaders returns the headers of a message to edit, as far as the page shows them.
func draftHeaders(m deadletter.Message, v deadletter.View) []draftHeader {
	all := v.DraftHeaders(m.Delivery)
	out := make([]draftHeader, 0, min(len(all), maxHeaders))
	for _, h := range all[:cap(out)] {
		if h.Fixed == "" && len(h.Text)+len(h.Name) > maxHeader {
			h.Fixed = fmt.Sprintf("the page edits headers of up to %d bytes", maxHeader)
		}
		d := draftHeader{cut(h.Name, 256), h.Type, h.Text, h.Fixed}
		if h.Fixed != "" {
			shown := v.Headers[h.Name]
			d.Type, d.Text = typeName(shown), cut(headerText(shown), maxFixed)
		}
		out = append(out, d)
	}
	return out
}

// editable returns the body of a message as text that can be sent back, or why there is none.
func (p *Page) editable(m deadletter.Message, v deadletter.View) (text, refusal string) {
	const fix = "; edit it with 'dlxctl desk edit'"
	open, raw := p.sources.now().Plain.View(m), m.Delivery.Body
	switch {
	case v.Body.Text != open.Body.Text || v.Body.Format != open.Body.Format:
		return "", "values of the body are masked, and the page never shows these" + fix
	case len(v.Body.Steps) > 0 || v.Body.Format != decode.JSON && v.Body.Format != decode.Text:
		return "", fmt.Sprintf("the body is %s, and the page edits plain JSON and text only%s",
			strings.Join(append(v.Body.Steps, string(v.Body.Format)), ", "), fix)
	case len(raw) > maxEdit:
		return "", fmt.Sprintf("the body has %d bytes, and the page edits up to %d%s", len(raw), maxEdit, fix)
	case !utf8.Valid(raw):
		return "", "the body is not valid UTF-8" + fix
	}
	draft, err := p.sources.now().Plain.Draft(m)
	if err != nil {
		return "", err.Error() + fix
	}
	return string(draft), ""
}

// edited is a message as a person wants it.
type edited struct {
	deadletter.Edited
	// headers are the changes, with the line ends of the message.
	headers []deadletter.HeaderChange
	// from is the digest of the message that was read.
	from deadletter.Digest
	diff string
	// refusal says why the message cannot be edited so.
	refusal string
}

// edited reads the message again, and changes what the form has changed: what the form does not
// show, such as line ends, the style of JSON, and masked headers, is that of the message.
func (p *Page) edited(ctx context.Context, w http.ResponseWriter, ask Ask, key string) (out edited, err error) {
	found := false
	choice := desk.Request{Queue: ask.Queue, Handles: ask.Handles, Look: p.Look}
	err = p.pick(ctx, w, choice, func(m deadletter.Message, v deadletter.View) error {
		found = true
		out.from = deadletter.DigestOf(m.Delivery).Whole(m.Delivery)
		out.headers = lineEnds(m, v, ask.Headers)
		if out.Edited, err = v.Change(m.Delivery, out.headers); err != nil {
			out.refusal = err.Error()
			return errFound
		}
		out.diff = deadletter.DiffHeaders(m.Delivery, out.Edited, v.Key, key)
		if ask.Body != nil {
			p.editBody(&out, m, v, *ask.Body)
		}
		if out.refusal == "" && out.Unchanged(m.Delivery) && (key == "" || key == v.Key) {
			out.refusal = "the message is unchanged, and nothing was sent; change it, or replay the message"
		}
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		return out, nil
	case err == nil && !found:
		out.refusal = fmt.Sprintf("message %s is no longer in %s; look again", ask.Handles[0], ask.Queue)
	}
	return out, err
}

// editBody makes the text of the form the body of an edit.
func (p *Page) editBody(out *edited, m deadletter.Message, v deadletter.View, text string) {
	draft, refusal := p.editable(m, v)
	if out.refusal = refusal; refusal != "" {
		return
	}
	plain := p.sources.now().Plain
	e, err := plain.FromDraft(m, deadletter.LineEnds([]byte(draft), []byte(text)))
	if err != nil {
		out.refusal = err.Error()
		return
	}
	if e.Body == nil || bytes.Equal(e.Body, m.Delivery.Body) {
		return
	}
	after := m
	after.Delivery.Body = e.Body
	out.Body = bytes.Clone(e.Body)
	out.diff += deadletter.Diff("before", v.Body.Text, "after", plain.View(after).Body.Text)
}

// lineEnds returns changes of headers in which lines that were not changed have the line ends of
// the message: a form knows line feeds alone.
func lineEnds(m deadletter.Message, v deadletter.View, changes []deadletter.HeaderChange) []deadletter.HeaderChange {
	before := map[string]string{}
	for _, h := range v.DraftHeaders(m.Delivery) {
		before[h.Name] = h.Text
	}
	out := slices.Clone(changes)
	for i, c := range out {
		out[i].Text = string(deadletter.LineEnds([]byte(before[c.Name]), []byte(c.Text)))
	}
	return out
}
