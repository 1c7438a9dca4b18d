package retry

import (
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// longestHistory is how many failures the history of a message has.
const longestHistory = 20

// pastOf returns the history that a processor has written, without entries that none would write: a
// consumer publishes what it likes.
func pastOf(h map[string]any) []any {
	list, _ := h[topology.HeaderHistory].([]any)
	list = list[max(0, len(list)-longestHistory):]
	out := make([]any, 0, len(list)+1)
	for _, v := range list {
		if entry, ok := table(v); ok && isEntry(entry) {
			out = append(out, v)
		}
	}
	return out
}

// isEntry reports whether a table is one failure of a history.
func isEntry(entry map[string]any) bool {
	for name, v := range entry {
		switch name {
		case topology.HistoryAt, topology.HistoryReason, topology.HistoryTier, topology.HistoryErrorType,
			topology.HistoryAnnotated:
			if s, ok := v.(string); !ok || len(s) > longestErrorType && firstRunes(s) != s {
				return false
			}
		case topology.HistoryQueue:
			if s, ok := v.(string); !ok || len(s) > topology.MaxNameBytes {
				return false
			}
		case topology.HistoryAttempt:
			if _, ok := topology.Integer(v); !ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// failedElsewhere reports whether the last failure of a history was in another queue.
func failedElsewhere(past []any, queue string) bool {
	if len(past) == 0 {
		return false
	}
	entry, _ := table(past[len(past)-1])
	last := text(entry[topology.HistoryQueue])
	return last != "" && last != queue
}

// record adds the failure to the history of h. A message that has only returned has not failed
// again, and one that was pulled has not either.
func (f failure) record(d Message, h map[string]any, tier topology.Tier, now time.Time) {
	if f.returned || f.pulled {
		return
	}
	entry := map[string]any{
		topology.HistoryAt: now.UTC().Format(topology.HeaderTime), topology.HistoryAttempt: f.attempt,
		topology.HistoryReason: string(f.reason),
	}
	if tier.Queue != "" {
		entry[topology.HistoryTier] = topology.FormatDelay(tier.Delay)
	}
	if f.said.Type != "" {
		entry[topology.HistoryErrorType] = f.said.Type
	}
	if kind := f.annotated(d).Type; kind != "" {
		entry[topology.HistoryAnnotated] = kind
	}
	if h[topology.HeaderFirstQueue] != nil {
		entry[topology.HistoryQueue] = f.origin
	}
	past := f.past[max(0, len(f.past)+1-longestHistory):]
	if d.Table != nil {
		past = append(past, d.Table(entry))
	} else {
		past = append(past, entry)
	}
	h[topology.HeaderHistory] = past
}

// shorten removes the oldest failure of the history, and reports whether there was one.
func shorten(h map[string]any) bool {
	list, _ := h[topology.HeaderHistory].([]any)
	if len(list) < 2 {
		delete(h, topology.HeaderHistory)
		return len(list) > 0
	}
	h[topology.HeaderHistory] = list[1:]
	return true
}
