package retry

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Published is a message as its publisher sent it, as far as its headers tell.
type Published struct {
	// Headers are never nil. They are without those of the broker and of processors, and without CC
	// and BCC. The count header has the value of the publisher.
	Headers map[string]any
	// CC and BCC are the routing keys that the publisher added. Nil: none. An address of a work
	// queue, which begins with @, is not among them: a processor has set it.
	CC, BCC []any
	// UserID and Expiration are the properties of these names. Empty: not kept.
	UserID, Expiration string
}

// Undo takes back what Decide has done to the headers of a message, whatever the number of its
// failures. What a publisher had set under the names of the processor's headers is not kept.
func Undo(headers map[string]any, countHeader string) Published {
	h := stripped(headers)
	unaddressed(h)
	if counted(h, countHeader) {
		delete(h, countHeader)
		if v, ok := h[topology.HeaderOriginalCount]; ok {
			h[countHeader] = v
		}
	}
	out := Published{Headers: h, CC: keys(h[topology.HeaderCC]), BCC: keys(h[topology.HeaderBCC])}
	out.UserID, _ = h[topology.HeaderUserID].(string)
	out.Expiration, _ = h[topology.HeaderExpiration].(string)
	for _, name := range topology.RetryHeaders() {
		delete(h, name)
	}
	return out
}

// counted reports whether a processor, or a desk that knows in which header it counts, has written
// the count of a message. An unroutable message may never have been counted. A pulled one has the
// count of a dead letter, unless the desk had no topology file.
func counted(h map[string]any, countHeader string) bool {
	if _, failed := h[topology.HeaderQueue]; !failed || countHeader == "" {
		return false
	}
	n, _ := topology.Integer(h[countHeader])
	return h[topology.HeaderReason] != string(topology.ReasonPulled) || n == topology.DeadLetterCount
}

// keys returns the routing keys of a list, without addresses.
func keys(list any) []any {
	all, _ := list.([]any)
	out := slices.DeleteFunc(slices.Clone(all), func(v any) bool {
		key, ok := v.(string)
		return !ok || strings.HasPrefix(key, topology.AddressKey(""))
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
