package topology

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// MaxPatternBytes is the length in bytes up to which dlxctl lets the pattern of a policy grow
// that names several queues. RabbitMQ 4.3 refuses a pattern above 1,024 bytes, 3.10 and 4.0
// take 30,000 and more (measured). The longest name of one queue fits in it.
const MaxPatternBytes = 1000

// MaxPriority is the highest priority of a policy of dlxctl. RabbitMQ itself has no
// limit: it accepts 2^63, 1e30 and 1.5 (measured on 3.10.8, 4.0.5 and 4.3.6).
const MaxPriority int64 = 1 << 62

// Overridable reports whether a policy of dlxctl can have a higher priority.
func Overridable(priority int64) bool { return priority <= MaxPriority-2 }

const protection = ".protect."

// ProtectionName names the nth policy, from 1, that keeps the policy base from
// harming the generated queues of a role.
func ProtectionName(topology string, role Role, n int, base string) string {
	return policyPrefix + topology + protection + string(role) + "." + strconv.Itoa(n) + "." + base
}

// ProtectionOf returns what ProtectionName made a name of. It reports false for
// the name of any other policy.
func ProtectionOf(topology, name string) (role Role, n int, base string, ok bool) {
	rest, ok := strings.CutPrefix(name, policyPrefix+topology+protection)
	if !ok {
		return "", 0, "", false
	}
	first, rest, _ := strings.Cut(rest, ".")
	number, base, ok := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 {
		return "", 0, "", false
	}
	return Role(first), n, base, true
}

// QueuesPattern returns the pattern of a policy that matches these queues and no
// other. It lists the names sorted, each once.
func QueuesPattern(names []string) string {
	quoted := text.Each(slices.Compact(slices.Sorted(slices.Values(names))), regexp.QuoteMeta)
	if len(quoted) == 1 {
		return "^" + quoted[0] + "$"
	}
	return "^(?:" + strings.Join(quoted, "|") + ")$"
}

// PatternQueues returns the queues that QueuesPattern made a pattern of. It gives
// nil for any other pattern.
func PatternQueues(pattern string) []string {
	list, begins := strings.CutPrefix(pattern, "^")
	list, ends := strings.CutSuffix(list, "$")
	if inner, several := strings.CutPrefix(list, "(?:"); several {
		list = strings.TrimSuffix(inner, ")")
	}
	if !begins || !ends {
		return nil
	}
	var names []string
	var name strings.Builder
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == '\\' && i+1 < len(list):
			i++
			name.WriteByte(list[i])
		case list[i] == '|':
			names = append(names, name.String())
			name.Reset()
		default:
			name.WriteByte(list[i])
		}
	}
	names = append(names, name.String())
	if QueuesPattern(names) != pattern {
		return nil
	}
	return names
}
