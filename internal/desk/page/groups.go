package page

import (
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
}

// add adds a message to its group and returns the number of the group.
func (g *grouped) add(value string, v deadletter.View) int32 {
	at, ok := g.known[value]
	if !ok {
		if len(g.Groups) >= maxGroups {
			g.Others++
			return noGroup
		}
		at = int32(len(g.Groups)) //nolint:gosec // below maxGroups
		value = strings.Clone(value)
		g.known[value] = at
		g.Groups = append(g.Groups, group{Value: value, Handle: v.Name(), Where: expression(g.by, value, v)})
	}
	one := &g.Groups[at]
	one.Count++
	if t := v.LastFailed; !t.IsZero() {
		one.First, one.Last = span(one.First, one.Last, t)
	}
	return at
}

// sort sorts the groups by size, and returns the new place of each.
func (g *grouped) sort() []int32 {
	order := make([]int32, len(g.Groups))
	for i := range order {
		order[i] = int32(i) //nolint:gosec // below maxGroups
	}
	slices.SortStableFunc(order, func(a, b int32) int { return g.Groups[b].Count - g.Groups[a].Count })
	sorted, place := make([]group, len(order)), make([]int32, len(order))
	for to, from := range order {
		sorted[to], place[from] = g.Groups[from], int32(to) //nolint:gosec // below maxGroups
	}
	g.Groups = sorted
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

// alike returns the regular expression for a group of errors that differ in numbers and ids. The
// value of a group is the first line of its errors, which may be shortened.
func alike(value string) string {
	end := `\s*(?m:$)`
	if short, is := strings.CutSuffix(value, "…"); is {
		value, end = short, ""
	}
	placeholder := regexp.MustCompile(`<(n|id|hex)>`)
	parts := placeholder.Split(value, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return "^" + strings.Join(parts, `[0-9a-fA-Fx.,:-]+`) + end
}
