package page

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// bodyPath is the path of a value in a decoded body, as body.customer.country.
var bodyPath = regexp.MustCompile(`^body(\.[A-Za-z_][A-Za-z0-9_]*)+$`)

// grouping returns what messages are grouped by.
func grouping(by string) (func(deadletter.View) string, error) {
	switch by {
	case "cause":
		return func(v deadletter.View) string { return v.Cause }, nil
	case "error":
		return func(v deadletter.View) string { return v.Error }, nil
	case "queue":
		return func(v deadletter.View) string { return v.WorkQueue }, nil
	case "key":
		return func(v deadletter.View) string { return v.Key }, nil
	}
	if name, ok := strings.CutPrefix(by, "header:"); ok && name != "" {
		return func(v deadletter.View) string {
			value, has := v.Headers[name]
			if !has {
				return ""
			}
			return headerText(value)
		}, nil
	}
	if bodyPath.MatchString(by) {
		steps := strings.Split(by, ".")[1:]
		return func(v deadletter.View) string { return valueAt(v.Body.Value, steps) }, nil
	}
	return nil, fmt.Errorf("messages cannot be grouped by %q; write cause, error, queue, key, header:NAME or body.PATH", by)
}

// valueAt returns the value at a path of a decoded body as text. Empty: there is none.
func valueAt(value any, steps []string) string {
	for _, step := range steps {
		table, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value, ok = table[step]
		if !ok {
			return ""
		}
	}
	return headerText(value)
}

// expression returns the expression that chooses a group. Empty if none does: a value that was
// cut, or is no text.
func expression(by, value string) string {
	if len(value) >= maxSummary || value == "" {
		return ""
	}
	field := map[string]string{"cause": "cause", "error": "error", "queue": "work_queue", "key": "key"}[by]
	if name, ok := strings.CutPrefix(by, "header:"); ok {
		field = "headers[" + strconv.Quote(name) + "]"
	}
	if strings.HasPrefix(by, "body.") {
		if _, err := strconv.ParseFloat(value, 64); err == nil || value == "true" || value == "false" {
			return by + " == " + value
		}
		field = by
	}
	return field + " == " + strconv.Quote(value)
}
