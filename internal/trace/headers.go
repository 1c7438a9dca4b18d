package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// headerLines returns what a consumer of a queue sees, a line each.
func headerLines(s Stop) []string {
	out := []string{fmt.Sprintf("exchange %q, key %q", s.Exchange, s.Key)}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if topology.IsDeathHeader(name) {
			continue
		}
		out = append(out, fmt.Sprintf("%s=%s", topology.Printable(name), headerValue(name, s.Headers[name])))
	}
	for _, d := range s.Deaths {
		out = append(out, fmt.Sprintf("x-death: %s in %s %s, from exchange %q with key %q",
			d.Reason, topology.Printable(d.Queue), often(int(d.Count)), d.Exchange, strings.Join(d.Keys, ", ")))
	}
	return out
}

// headerValue returns the value of a header for people. Of the history it is the length: the other
// headers tell the last failure, and those before it are in the stops before.
func headerValue(name string, v any) string {
	if past, ok := v.([]any); ok && name == topology.HeaderHistory {
		return text.Count(len(past), "failure")
	}
	return formatValue(v)
}

func formatHeaders(headers map[string]any) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		out = append(out, topology.Printable(name)+"="+formatValue(headers[name]))
	}
	return strings.Join(out, " ")
}

// formatValue returns a value for people. A time of the processor is the time since the publish.
func formatValue(v any) string {
	if s, ok := v.(string); ok {
		if at, err := time.Parse(topology.HeaderTime, s); err == nil {
			return "publish+" + text.Duration(at.Sub(publishTime()))
		}
	}
	return topology.Printable(topology.FormatValue(v))
}

// plain returns headers for programs, with the times of the processor as those since the publish.
func plain(headers map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range headers {
		switch v := v.(type) {
		case string:
			if _, err := time.Parse(topology.HeaderTime, v); err == nil {
				out[name] = formatValue(v)
				continue
			}
		case []any:
			if name == topology.HeaderHistory {
				out[name] = text.Each(v, func(e any) any {
					entry, _ := e.(map[string]any)
					return plain(entry)
				})
				continue
			}
		}
		out[name] = v
	}
	return out
}
