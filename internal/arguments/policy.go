package arguments

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Keys and values of policies about delayed retries.
const (
	retryType = topology.KeyDelayedRetryType
	retryMin  = topology.KeyDelayedRetryMin
	retryMax  = topology.KeyDelayedRetryMax
	disabled  = "disabled"
)

// keys are the keys that a policy may have and their values. RabbitMQ refuses a policy with any
// other key. It checks most values as it checks those of the arguments, without the type of the
// queue.
func keys() []rule {
	var (
		since40 = line40 | line43
		anyInt  = from(math.MinInt64, -1)
		leaders = []string{"balanced", "client-local", "least-leaders", "random"}
	)
	return []rule{
		{everyLine, everyType, []string{
			topology.KeyMessageTTL, topology.KeyMaxLength, topology.KeyMaxLengthBytes, topology.PolicyKey(memoryLength),
			topology.PolicyKey(memoryBytes), topology.PolicyKey(clusterSize),
		}, from(0, -1)},
		{everyLine, everyType, []string{topology.KeyExpires}, from(1, -1)},
		{everyLine, everyType, []string{topology.PolicyKey(segmentSize)}, from(0, 3_000_000_000)},
		{everyLine, everyType, []string{
			topology.ArgAlternateExchange, topology.KeyDeadLetterExchange, topology.KeyDeadLetterRoutingKey,
		}, words},
		{everyLine, everyType, []string{topology.KeyDeadLetterStrategy}, among(topology.AtLeastOnce, topology.AtMostOnce)},
		{everyLine, everyType, []string{topology.KeyOverflow}, among(
			"drop-head", topology.RejectPublish, "reject-publish-dlx")},
		{everyLine, everyType, []string{topology.PolicyKey(queueMode)}, among("default", "lazy")},
		{everyLine, everyType, []string{topology.PolicyKey(queueVersion)}, from(1, 2)},
		{everyLine, everyType, []string{topology.PolicyKey(leaderLocator)}, among(leaders...)},
		{everyLine, everyType, []string{topology.PolicyKey(maxAge)}, age},
		{line310, everyType, []string{topology.PolicyKey(masterLocator)}, among("min-masters", "client-local", "random")},
		{line40, everyType, []string{topology.PolicyKey(masterLocator)}, among(append(leaders, "min-masters")...)},
		{line310, everyType, []string{topology.KeyDeliveryLimit}, from(0, -1)},
		{since40, everyType, []string{topology.KeyDeliveryLimit}, anyInt},
		{since40, everyType, []string{topology.KeyConsumerTimeout}, from(0, -1)},
		{since40, everyType, []string{topology.PolicyKey(filterSize)}, from(16, 255)},
		{since40, everyType, []string{"target-group-size"}, from(1, -1)},
		{line43, everyType, []string{topology.PolicyKey(disconnectedTimeout)}, from(0, -1)},
		{line43, everyType, []string{retryType}, among(disabled, "all", "failed", "returned")},
		{line43, everyType, []string{retryMin, retryMax}, from(1, -1)},
	}
}

// elsewhere reports whether a key is of a plugin, of a line after those that were measured, or of
// mirroring, which is not judged here.
func elsewhere(key string) bool {
	return strings.HasPrefix(key, "ha-") || slices.Contains([]string{
		"federation-upstream", "federation-upstream-set", "federation-upstream-pattern", "shards-per-node", "routing-key",
		"member-placement-tag",
	}, key)
}

// KnownKeys returns the keys of policies that RabbitMQ knows on a measured line.
func KnownKeys() []string {
	var out []string
	for _, r := range keys() {
		out = append(out, r.names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// RefusedKeys returns the keys for which RabbitMQ of that version refuses a policy, by name. For a
// version between two measured lines, and without a version, they are as in [Refused]. It says
// nothing about keys of plugins and of mirroring.
func RefusedKeys(version string, definition topology.Arguments) []Problem {
	on := linesOf(version)
	var out []Problem
	for _, key := range definition.Names() {
		if elsewhere(key) {
			continue
		}
		var last Problem
		refused := true
		for _, line := range []lines{line310, line40, line43} {
			if on&line == 0 || !refused {
				continue
			}
			last, refused = refusalOfKey(line, key, definition)
		}
		if refused {
			out = append(out, last)
		}
	}
	return out
}

// OutdatedKeys returns the keys of a stored policy that have no effect on RabbitMQ of that version,
// which refuses a new policy with them: those that only other lines know, and since 4.0 those of
// mirroring.
func OutdatedKeys(version string, definition topology.Arguments) []string {
	out := slices.DeleteFunc(definition.Names(), func(key string) bool {
		return !strings.HasPrefix(key, "ha-") || !(topology.State{Version: version}).AtLeast(4, 0)
	})
	for _, p := range RefusedKeys(version, definition) {
		if p.Misplaced && slices.Contains(KnownKeys(), p.Argument) {
			out = append(out, p.Argument)
		}
	}
	return out
}

func refusalOfKey(line lines, key string, definition topology.Arguments) (p Problem, refused bool) {
	for _, r := range keys() {
		if r.on&line == 0 || !slices.Contains(r.names, key) {
			continue
		}
		what, fix := r.wrong(key, definition[key])
		if what == "" {
			what, fix = delays("", key, definition)
		}
		return Problem{Argument: key, Msg: key + " is " + what, Fix: fix}, what != ""
	}
	p = Problem{Argument: key, Misplaced: true, Msg: key + " is not a key of a policy", Fix: "remove it"}
	switch meant := topology.Nearest(topology.PolicyKey(key), KnownKeys()); {
	case slices.Contains(KnownKeys(), key):
		p.Msg += " on this line"
	case slices.Contains(Known(), "x-"+key):
		p.Fix = fmt.Sprintf("remove it: only the argument x-%s of a queue exists", key)
	case slices.Contains(KnownKeys(), topology.PolicyKey(key)):
		p.Fix = "write " + topology.PolicyKey(key)
	case meant != "":
		p.Fix = fmt.Sprintf("did you mean %s?", meant)
	default:
		p.Foreign = true
	}
	return p, true
}

// delays says what is wrong with the keys of a delayed retry together, whose values are right. The
// prefix is how their names begin in the definition.
func delays(prefix, key string, definition topology.Arguments) (what, fix string) {
	least, hasLeast := definition[prefix+retryMin].(int64)
	most, hasMost := definition[prefix+retryMax].(int64)
	switch {
	case key == prefix+retryType && definition[key] != disabled && !hasLeast:
		return fmt.Sprintf("%q without %s", definition[key], prefix+retryMin), "add " + prefix + retryMin
	case key == prefix+retryMax && hasLeast && hasMost && most < least:
		return fmt.Sprintf("%d, less than %s %d", most, prefix+retryMin, least), fmt.Sprintf("write %d or more", least)
	}
	return "", ""
}

// Disregarded returns the arguments of a delayed retry that RabbitMQ accepts for a quorum queue and
// does not follow. A policy with such keys is refused. Measured on 4.3.6: with a wrong type
// or minimum it does not delay, a wrong maximum is none, and one below the minimum is the delay.
func Disregarded(queueType string, args topology.Arguments) []Problem {
	if queueType != topology.Quorum {
		return nil
	}
	const prefix = "x-"
	var out []Problem
	for _, name := range args.Names() {
		if !slices.Contains(DelayedRetry(), topology.PolicyKey(name)) {
			continue
		}
		for _, r := range keys() {
			if !slices.Contains(r.names, topology.PolicyKey(name)) {
				continue
			}
			what, fix := r.wrong(name, args[name])
			if what == "" {
				what, fix = delays(prefix, name, args)
			}
			if what != "" {
				out = append(out, Problem{Argument: name, Msg: name + " is " + what, Fix: fix})
			}
		}
	}
	_, typed := args[prefix+retryType]
	if _, least := args[prefix+retryMin]; least && !typed {
		out = append(out, Problem{
			Argument: prefix + retryMin, Msg: prefix + retryMin + " has no " + prefix + retryType,
			Fix: "add " + prefix + retryType,
		})
	}
	return out
}

// DelayedRetry returns the keys of policies for delayed retries.
func DelayedRetry() []string { return []string{retryType, retryMin, retryMax} }
