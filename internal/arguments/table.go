package arguments

import (
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// lines are lines of RabbitMQ that were measured.
type lines uint8

const (
	line310 lines = 1 << iota
	line40
	line43
	before43  = line310 | line40
	everyLine = before43 | line43
)

// linesOf returns the line of a version, or those around it.
func linesOf(version string) lines {
	state := topology.State{Version: version}
	switch {
	case version == "":
		return everyLine
	case state.AtLeast(4, 3):
		return line43
	case state.AtLeast(4, 1):
		return line40 | line43
	case state.AtLeast(4, 0):
		return line40
	case state.AtLeast(3, 11):
		return line310 | line40
	default:
		return line310
	}
}

type types uint8

const (
	classic types = 1 << iota
	quorum
	stream
	everyType = classic | quorum | stream
)

// String returns the types in words, "no queue" for none.
func (t types) String() string {
	var out []string
	for _, one := range []struct {
		kind types
		text string
	}{{classic, "classic queues"}, {quorum, "quorum queues"}, {stream, "streams"}} {
		if t&one.kind != 0 {
			out = append(out, one.text)
		}
	}
	if out == nil {
		return "no queue of this line"
	}
	return strings.Join(out, " and ")
}

// fix returns what to write in place of an argument that is for queues of these types. A topology
// file declares no streams.
func (t types) fix(name string) string {
	switch {
	case name == masterLocator:
		return "remove it, or write x-queue-leader-locator"
	case t&classic != 0:
		return "remove it, or write type: classic"
	case t&quorum != 0:
		return "remove it, or write type: quorum"
	default:
		return "remove it"
	}
}

// Names of arguments that only this package reads.
const (
	consumerTimeout     = "x-consumer-timeout"
	disconnectedTimeout = "x-consumer-disconnected-timeout"
	masterLocator       = "x-queue-master-locator"
	leaderLocator       = "x-queue-leader-locator"
	queueMode           = "x-queue-mode"
	queueVersion        = "x-queue-version"
	filterSize          = "x-stream-filter-size-bytes"
	segmentSize         = "x-stream-max-segment-size-bytes"
	maxAge              = "x-max-age"
	clusterSize         = "x-initial-cluster-size"
	groupSize           = "x-quorum-initial-group-size"
	memoryLength        = "x-max-in-memory-length"
	memoryBytes         = "x-max-in-memory-bytes"
)

// maxTime is the longest time of messages and queues, in milliseconds.
const maxTime = 315_360_000_000

// rule is what RabbitMQ demands of some arguments on lines and types of queues.
type rule struct {
	on     lines
	queues types
	names  []string
	// wrong is nil where the queue must not have the argument.
	wrong check
}

// check says what a value of an argument is and what to write, both empty if RabbitMQ accepts it.
type check func(name string, v any) (what, fix string)

// misplaced are the arguments that queues of some types must not have. Before 4.3, RabbitMQ did
// not know the arguments of the second part, and ignores what it does not know.
//
//nolint:gochecknoglobals // nothing changes it; a plan asks it for each queue
var misplaced = []rule{
	{on: everyLine, queues: quorum | stream, names: []string{
		topology.ArgMaxPriority, queueMode, queueVersion, masterLocator,
	}},
	{on: everyLine, queues: classic | stream, names: []string{
		topology.ArgDeadLetterStrategy, topology.ArgDeliveryLimit, groupSize, memoryLength, memoryBytes,
	}},
	{on: everyLine, queues: classic | quorum, names: []string{maxAge, clusterSize, segmentSize}},
	{on: everyLine, queues: stream, names: []string{
		topology.ArgMessageTTL, topology.ArgExpires, topology.ArgMaxLength, topology.ArgOverflow,
		topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgSingleActiveConsumer,
	}},
	{on: line310, queues: classic, names: []string{leaderLocator}},

	{on: line43, queues: classic | stream, names: []string{
		consumerTimeout, disconnectedTimeout, "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max",
	}},
	{on: line43, queues: classic | quorum, names: []string{filterSize}},
	// A deprecated feature that 4.3 denies unless its configuration permits it.
	{on: line43, queues: classic, names: []string{masterLocator}},
}

// values are the values that arguments may have. RabbitMQ accepts any other: it reads the wrong
// type of an x-delivery-limit, for example, as no limit.
//
//nolint:gochecknoglobals // nothing changes it; a plan asks it for each queue
var values = []rule{
	{everyLine, everyType, []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes}, from(0, -1)},
	{everyLine, everyType, []string{memoryLength, memoryBytes}, from(0, -1)},
	{everyLine, everyType, []string{topology.ArgMessageTTL}, from(0, maxTime)},
	{everyLine, everyType, []string{topology.ArgExpires}, from(1, maxTime)},
	{everyLine, everyType, []string{topology.ArgMaxPriority}, from(0, 255)},
	{everyLine, everyType, []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey}, words},
	{everyLine, everyType, []string{topology.ArgDeadLetterStrategy}, among(topology.AtLeastOnce, topology.AtMostOnce)},
	{everyLine, quorum, []string{topology.ArgOverflow}, overflow},
	{everyLine, classic, []string{topology.ArgOverflow}, among(
		"drop-head", topology.RejectPublish, "reject-publish-dlx")},
	{everyLine, everyType, []string{topology.ArgSingleActiveConsumer}, truth},
	{everyLine, everyType, []string{groupSize, clusterSize}, from(1, -1)},
	{everyLine, everyType, []string{segmentSize}, from(0, 3_000_000_000)},
	{everyLine, everyType, []string{maxAge}, age},
	{line310, everyType, []string{leaderLocator}, among("client-local", "balanced", "least-leaders", "random")},
	{line40 | line43, everyType, []string{leaderLocator}, among(
		"client-local", "balanced", "least-leaders", "random", "min-masters")},
	{before43, classic, []string{queueMode}, among("default", "lazy")},
	{before43, classic, []string{queueVersion}, from(1, 2)},
	{line43, classic, []string{queueVersion}, from(2, 2)},
	{line310, classic, []string{masterLocator}, among("min-masters", "client-local", "random")},
	{line40 | line43, stream, []string{filterSize}, from(16, 255)},
	{line43, quorum, []string{consumerTimeout, disconnectedTimeout}, from(0, -1)},
}
