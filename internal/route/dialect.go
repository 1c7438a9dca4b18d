package route

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// dialect is how the line of RabbitMQ routes, where lines differ. The lines 3.10, 4.0 and 4.3 are
// measured. Those between them are read from the source; what is not certain there is unsure.
type dialect struct {
	// floats is whether a header 2.0 matches the integer 2. It does up to 3.12, and does not
	// since 4.0.
	floats verdict
	// headerDeaths: the broker counts deaths in the header x-death, also in one that a client
	// published, and a dead-letter routing key removes the header CC. So up to 3.12. Since 3.13
	// the deaths are kept apart from the headers, and CC stays a header that is not used again.
	headerDeaths bool
	// orderedDeaths: the deaths are known from the newest to the oldest one. Without, as in 3.13
	// and with the feature flag message_containers_deaths_v2 disabled, a cycle through a queue
	// that rejected is not certain.
	orderedDeaths bool
	// millis: a header of type timestamp is compared in milliseconds, and a binding has seconds.
	millis bool
	// atLeastOnce: dead-lettering at least once is available.
	atLeastOnce bool
}

func dialectOf(state topology.State) dialect {
	d := dialect{
		floats: no, orderedDeaths: !slices.Contains(state.DisabledFlags, "message_containers_deaths_v2"),
		millis: true, atLeastOnce: !slices.Contains(state.DisabledFlags, "stream_queue"),
	}
	switch major, minor := versionOf(state.Version); {
	case state.Version == "" || major >= 4:
	case minor >= 13:
		d.floats, d.orderedDeaths = unsure, false
	default:
		d.floats, d.headerDeaths, d.orderedDeaths, d.millis = yes, true, true, false
	}
	return d
}

// versionOf returns the first two numbers of a version, 0 for what is not a number.
func versionOf(version string) (major, minor int) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, _ = strconv.Atoi(first)
	minor, _ = strconv.Atoi(second)
	return major, minor
}
