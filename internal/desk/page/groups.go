package page

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

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

// alike returns the regular expression for a group of errors that differ in numbers and ids.
func alike(value string) string {
	placeholder := regexp.MustCompile(`<(n|id|hex)>`)
	parts := placeholder.Split(value, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return "^" + strings.Join(parts, `[0-9a-fA-Fx.,:-]+`)
}
