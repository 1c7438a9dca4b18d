package page

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// grouped is the groups of messages in one way.
type grouped struct {
	Groups []group `json:"groups"`
	// Others is how many messages are in groups that are not listed.
	Others int `json:"others"`

	by    string
	known map[string]int32 // groups by their value
	// reached is how many groups have had 1 message, 2 messages, and so on.
	reached []int
}

// group is messages with one value in common.
type group struct {
	Value  string    `json:"value"`
	Count  int       `json:"count"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Handle string    `json:"handle"`
	// Where is the expression that chooses the group; empty if none does.
	Where string `json:"where"`
	// Comment is the last that a person has said about the group. Left out: nothing.
	Comment *deadletter.Note `json:"comment,omitempty"`

	turn  int  // it was the first group, the second and so on that had Count messages
	named bool // Where is known
}

// add adds a message to its group and returns the number of the group. It tells as many groups
// apart as the command line does: which are the largest is known at the end.
func (g *grouped) add(value string, v deadletter.View) int32 {
	at, ok := g.known[value]
	if !ok {
		if len(g.Groups) >= deadletter.MaxGroups {
			g.Others++
			return noGroup
		}
		at = int32(len(g.Groups)) //nolint:gosec // below MaxGroups
		value = strings.Clone(value)
		g.known[value] = at
		g.Groups = append(g.Groups, group{Value: value, Handle: v.Name()})
	}
	one := &g.Groups[at]
	g.count(one)
	// An expression takes a millisecond, and needs a message. A group that comes later to its number
	// of messages than maxGroups others is not listed, unless it gets more.
	if one.turn <= maxGroups && !one.named {
		one.Where, one.named = expression(g.by, one.Value, v), true
	}
	if t := v.LastFailed; !t.IsZero() {
		one.First, one.Last = span(one.First, one.Last, t)
	}
	return at
}

// count counts a message of a group.
func (g *grouped) count(one *group) {
	one.Count++
	if one.Count > len(g.reached) {
		g.reached = append(g.reached, 0)
	}
	g.reached[one.Count-1]++
	one.turn = g.reached[one.Count-1]
}

// sort sorts the groups by size, keeps the largest, and returns the new place of each.
func (g *grouped) sort() []int32 {
	order := make([]int32, len(g.Groups))
	for i := range order {
		order[i] = int32(i) //nolint:gosec // below MaxGroups
	}
	slices.SortFunc(order, func(a, b int32) int {
		one, other := g.Groups[a], g.Groups[b]
		return cmp.Or(other.Count-one.Count, one.turn-other.turn)
	})
	sorted, place := make([]group, 0, min(len(order), maxGroups)), make([]int32, len(order))
	for to, from := range order {
		if to >= maxGroups {
			g.Others += g.Groups[from].Count
			place[from] = noGroup
			continue
		}
		sorted, place[from] = append(sorted, g.Groups[from]), int32(to) //nolint:gosec // below maxGroups
	}
	g.Groups, g.reached = sorted, nil
	return place
}

// commented returns the snapshot with what people have said about the groups by now, or else why
// that is not known.
func (s *snapshot) commented(comments desk.Comments, err error) *snapshot {
	now := *s
	now.Groups = slices.Clone(s.Groups)
	for i, g := range now.Groups {
		now.Groups[i].Comment = comments.Of(s.by, g.Value)
	}
	if err != nil {
		now.Uncommented = "comments on the groups are not shown: " + err.Error()
	}
	return &now
}

// comment writes a comment on a group of a look.
func (p *Page) comment(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask struct {
		Snapshot string `json:"snapshot"`
		Group    int    `json:"group"`
		Text     string `json:"text"`
	}
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	who := personOf(r)
	if len(who.allow) == 0 {
		return nil, refuse(http.StatusForbidden, "this page is read-only; start it with --allow, or use 'dlxctl desk comment'")
	}
	s := p.snapshots.find(ask.Snapshot)
	if s == nil || ask.Group < 0 || ask.Group >= len(s.Groups) {
		return nil, refuse(http.StatusGone, errReplaced.Error())
	}
	c, err := p.engine(who).Comment(r.Context(), desk.Comment{
		Queue: s.Request.Queue, By: s.by, Value: s.Groups[ask.Group].Value, Text: ask.Text,
	})
	if err != nil {
		return nil, err
	}
	return deadletter.Note{Text: c.Text, Author: c.Author, At: c.At}, nil
}

// expression returns the expression that chooses the group of a message. Empty if none does, as
// for a value that is too long to be named.
func expression(by, value string, v deadletter.View) string {
	field := by
	if name, ok := strings.CutPrefix(by, "header:"); ok {
		field = "headers[" + strconv.Quote(name) + "]"
	}
	candidates := []string{field + " == " + strconv.Quote(value), field + " == " + value}
	switch {
	case value == "":
		candidates = []string{field + ` == ""`, field + " == nil"}
	case by == "error":
		candidates = append(candidates, "error matches "+strconv.Quote(alike(value)))
		if rest, typed := strings.CutPrefix(value, v.ErrorType+": "); typed && v.ErrorType != "" {
			is := "errorType == " + strconv.Quote(v.ErrorType) + " && error "
			candidates = append(candidates, is+"== "+strconv.Quote(rest), is+"matches "+strconv.Quote(alike(rest)))
		}
		if value == v.ErrorType {
			candidates = []string{"errorType == " + strconv.Quote(value) + ` && error == ""`}
		}
	}
	for _, candidate := range candidates {
		filter, err := deadletter.NewFilter(candidate)
		if err != nil {
			continue
		}
		if match, err := filter.Matches(v); err == nil && match {
			return candidate
		}
	}
	return ""
}

// placeholders are the regular expressions for what [deadletter.NewAlike] makes equal. An id that
// has digits alone is in the group of numbers. That of ids does not ask for the 8 digits of a
// hexadecimal one: it cannot, and ask for one from a to f too.
var placeholders = map[string]string{ //nolint:gochecknoglobals // a constant table
	"<n>": `\d+(?:[.,:]\d+)*`,
	"<id>": `(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0[xX][0-9a-fA-F]+` +
		`|[A-Za-z]*\d+[A-Za-z]+\d[0-9A-Za-z]*|\d+[a-fA-F]+|[a-fA-F]+\d+[a-fA-F]*)`,
	"<email>": `[\w.+-]+@[\w-]+(?:\.[\w-]+)+`,
}

// alike returns the regular expression for a group of errors, see [deadletter.NewAlike]. The
// value of a group is the first line of its errors, which may be shortened.
func alike(value string) string {
	end := `\s*(?m:$)`
	if short, is := strings.CutSuffix(value, "…"); is {
		value, end = short, ""
	}
	expression := regexp.QuoteMeta(value) // which leaves the placeholders as they are
	for name, matches := range placeholders {
		expression = strings.ReplaceAll(expression, name, matches)
	}
	return "^" + expression + end
}
