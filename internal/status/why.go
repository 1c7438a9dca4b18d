package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Recently is for how long a dead letter is new.
const Recently = time.Hour

// Why is what the dead letters of a queue died of, as far as a look has seen them.
type Why struct {
	Queue string `json:"queue"`
	// Messages is how many the queue held.
	Messages int `json:"messages"`
	// LookedAt is how many were looked at, from the oldest on.
	LookedAt int `json:"lookedAt"`
	// NotLookedAt says why fewer were looked at than the queue held.
	NotLookedAt string `json:"notLookedAt,omitempty"`
	// InLastHour is how many of the messages failed in the last hour. Null: not all were looked at.
	InLastHour *int `json:"inLastHour"`
	// By is the property by which the messages are grouped: error, or cause where none has an error.
	By string `json:"by"`
	// Groups are what messages died of, largest first: those of the last hour, or else all that were
	// looked at.
	Groups []Reason `json:"groups"`
}

// Reason is messages that died of the same.
type Reason struct {
	// Value is the error or the cause, masked. Empty: it is not known.
	Value string `json:"value"`
	Count int    `json:"count"`
}

// mostReasons is how many groups a line of text names.
const mostReasons = 3

// String says it in one line.
func (w Why) String() string {
	out := ""
	switch {
	case w.LookedAt == 0:
		return "not looked at: " + w.NotLookedAt
	case w.InLastHour == nil:
		out = fmt.Sprintf("of the %s oldest of %s", text.Grouped(int64(w.LookedAt)), text.Grouped(int64(w.Messages)))
	case *w.InLastHour > 0:
		out = fmt.Sprintf("%d in the last hour", *w.InLastHour)
	default:
		out = fmt.Sprintf("%d, none of them known to be of the last hour", w.LookedAt)
	}
	var named []string
	rest := 0
	for i, g := range w.Groups {
		if i >= mostReasons {
			rest += g.Count
			continue
		}
		value := g.Value
		if value == "" {
			value = "no " + w.By
		}
		named = append(named, fmt.Sprintf("%s %d", topology.Printable(text.Fit(value, 60)), g.Count))
	}
	if rest > 0 {
		named = append(named, fmt.Sprintf("others %d", rest))
	}
	return out + ": " + strings.Join(named, ", ")
}
