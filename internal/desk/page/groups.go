package page

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
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
