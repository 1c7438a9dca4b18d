package deadletter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expr-lang/expr"

	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// MaxGroups limits how many groups are told apart. The messages of further groups are counted
// together.
const MaxGroups = 10_000

// longestValue is how many characters of a value name a group.
const longestValue = 200

// Group is messages that have something in common.
type Group struct {
	// By is the property that they have in common, as [ParseBy] reads it. Empty: several.
	By string
	// Value is what they have in common, redacted. Empty if Missing or Others.
	Value string
	// Missing reports that these are the messages without such a value, and Others that these
	// are those of all groups beyond the first 10,000.
	Missing, Others bool
	Count           int
	// Share is the part of all messages, from 0 to 1.
	Share float64
	// First and Last are when the first and the last of them failed; zero is unknown.
	First, Last time.Time
	// Example is the handle of one of them.
	Example Handle
	// Note is the last that a person has said about them; nil is nothing.
	Note *Note
}

// Masked reports whether all that is known of the messages' value is that rules mask it.
func (g Group) Masked() bool { return g.Value == redact.Mask }

// Note is what a person says.
type Note struct {
	// Text is what was said.
	Text string `json:"text"`
	// Author is who said it.
	Author string `json:"author"`
	// At is when.
	At time.Time `json:"at"`
}

// By is a way to group messages.
type By struct {
	source string
	value  func(View) any
	body   bool
}

// ParseBy reads a way to group: cause, error, queue, key, exchange, type, header:NAME, or
// body.PATH in the language of filters.
func ParseBy(s string) (By, error) {
	if name, ok := strings.CutPrefix(s, "header:"); ok {
		if name == "" {
			return By{}, errors.New("header: names no header; write it as in header:x-tenant")
		}
		return By{source: s, value: func(v View) any { return v.Headers[name] }}, nil
	}
	if strings.HasPrefix(s, "body.") || strings.HasPrefix(s, "body[") {
		path, err := compile(s, expr.AsAny())
		if err != nil {
			return By{}, fmt.Errorf("cannot group by %q: %w", s, err)
		}
		value := func(v View) any {
			found, err := path.value(v, &state{masked: v.Masked})
			if errors.Is(err, errMasked) {
				return redact.Mask // as in a body that is hidden whole, which may have it or not
			}
			if err != nil {
				return nil
			}
			return found
		}
		return By{source: s, value: value, body: true}, nil
	}
	values := map[string]func(View) any{
		"cause":    func(v View) any { return v.Cause },
		"queue":    func(v View) any { return v.WorkQueue },
		"key":      func(v View) any { return v.Key },
		"exchange": func(v View) any { return v.Exchange },
		"type":     func(v View) any { return v.Type },
		"error":    alikeError(),
	}
	value, ok := values[s]
	if !ok {
		names := []string{"cause", "error", "queue", "key", "exchange", "type"}
		return By{}, fmt.Errorf("cannot group by %q; %s", s,
			topology.DidYouMean(s, names, "use "+strings.Join(names, ", ")+", header:NAME or body.PATH"))
	}
	return By{source: s, value: value, body: s == "type"}, nil
}

// String returns the way to group as [ParseBy] read it.
func (b By) String() string { return b.source }

// NeedsBody reports whether grouping needs the body. If not, the view of [Reader.Head] is
// enough.
func (b By) NeedsBody() bool { return b.body }

// alikeError returns a function that returns the error by which a message is grouped.
func alikeError() func(View) any {
	alike := NewAlike()
	return func(v View) any {
		problem := v.Problem()
		switch rest, typed := strings.CutPrefix(problem, v.ErrorType+": "); {
		case v.Error == "":
			return problem // a type has a name, such as OAuth2Exception
		case typed && rest == v.Error:
			return v.ErrorType + ": " + alike(rest)
		}
		return alike(problem)
	}
}

// NewAlike returns a function that makes errors equal which differ in numbers, ids and e-mail
// addresses alone. An id is a word with digits in two places, such as 8f3a2, or a hexadecimal
// number. Of another word, such as C17, 30s or OAuth2Exception, only the digits count as different:
// the rest may say what went wrong.
func NewAlike() func(problem string) string {
	varying := regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+` +
		`|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}` +
		`|\b0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b` +
		`|[A-Za-z]*\d+[A-Za-z]+\d[0-9A-Za-z]*` +
		`|\d+(?:[.,:]\d+)*`)
	return func(problem string) string {
		first, _, _ := strings.Cut(strings.TrimSpace(problem), "\n")
		return varying.ReplaceAllStringFunc(cut(first, 4*longestValue), func(found string) string {
			switch {
			case strings.Contains(found, "@"):
				return "<email>"
			case !strings.ContainsAny(found, "0123456789"):
				return found // a word such as "deadbeef"
			case strings.Trim(found, "0123456789.,:") == "":
				return "<n>"
			default:
				return "<id>"
			}
		})
	}
}

// Value returns the value by which a message is grouped, redacted. Empty is none.
func (b By) Value(v View) string { return groupValue(b.value(v)) }

// Groups counts messages by what they have in common. It keeps at most 10,000 groups.
type Groups struct {
	by     By
	groups map[string]*Group
	// missing and others are the groups without a value.
	missing, others Group
	total           int
}

// NewGroups returns an empty count.
func NewGroups(by By) *Groups {
	return &Groups{by: by, groups: map[string]*Group{}, missing: Group{Missing: true}, others: Group{Others: true}}
}

// Add counts a message.
func (g *Groups) Add(v View) { g.AddValue(g.by.Value(v), v) }

// AddValue counts a message whose value is known already.
func (g *Groups) AddValue(value string, v View) {
	g.total++
	g.group(value).add(v)
}

func (g *Groups) group(value string) *Group {
	if value == "" {
		return &g.missing
	}
	group, ok := g.groups[value]
	if !ok {
		if len(g.groups) >= MaxGroups {
			return &g.others
		}
		value = strings.Clone(value) // the body of the message is not kept
		group = &Group{Value: value}
		g.groups[value] = group
	}
	return group
}

func (g *Group) add(v View) {
	g.Count++
	if g.Example == "" {
		g.Example = v.Handle
	}
	if at := v.LastFailed; !at.IsZero() {
		if g.First.IsZero() || at.Before(g.First) {
			g.First = at
		}
		if at.After(g.Last) {
			g.Last = at
		}
	}
}

// Total returns how many messages were counted.
func (g *Groups) Total() int { return g.total }

// List returns the groups, the largest first. What has no value and what exceeds the limit
// comes last.
func (g *Groups) List() []Group {
	out := make([]Group, 0, len(g.groups)+2)
	for _, group := range g.groups {
		out = append(out, *group)
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Value, b.Value)) })
	for _, group := range []Group{g.missing, g.others} {
		if group.Count > 0 {
			out = append(out, group)
		}
	}
	for i := range out {
		out[i].By = g.by.source
		out[i].Share = float64(out[i].Count) / float64(g.total)
	}
	return out
}

// groupValue returns a value as the name of a group. Empty is none.
func groupValue(v any) string {
	if v == nil {
		return ""
	}
	text, ok := toText(v).(string)
	if !ok {
		raw, err := json.Marshal(finite(v))
		if err != nil {
			return ""
		}
		text = string(raw)
	}
	return cut(text, longestValue)
}

// cut returns the first characters of a text, with "…" in place of the rest.
func cut(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := 0
	for i := range s {
		if runes++; runes == most {
			return s[:i] + "…"
		}
	}
	return s
}

// groupJSON is a group as scripts read it.
type groupJSON struct {
	// By is the property that the messages have in common, as --by names it. Left out: several.
	By string `json:"by,omitempty"`
	// Value is what the messages have in common, redacted. Null: they have no such value, or are in
	// other groups.
	Value *string `json:"value"`
	// Others reports that these are the messages of all groups beyond the first 10,000.
	Others bool `json:"others,omitempty"`
	Count  int  `json:"count"`
	// Share is the part of all messages, from 0 to 1.
	Share float64 `json:"share"`
	// First and Last are when the first and the last of them failed.
	First *time.Time `json:"first"`
	Last  *time.Time `json:"last"`
	// Example is the handle of one of them.
	Example Handle `json:"example"`
	// Comment is the last that a person has said about them. Left out: nothing.
	Comment *Note `json:"comment,omitempty"`
}

// MarshalJSON returns the group as scripts read it.
func (g Group) MarshalJSON() ([]byte, error) { return json.Marshal(g.JSON()) }

// JSON returns what [Group.MarshalJSON] writes.
func (g Group) JSON() any {
	out := groupJSON{g.By, nil, g.Others, g.Count, g.Share, moment(g.First), moment(g.Last), g.Example, g.Note}
	if !g.Missing && !g.Others {
		out.Value = &g.Value
	}
	return out
}
