package deadletter

import (
	"maps"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// Headers that the desk writes. They begin with [deskPrefix], and are not part of a [Digest].
const (
	// HeaderReplays counts, as an int64, how often a desk has sent the message to work.
	HeaderReplays = "desk-replays"
	// HeaderRun names the run that sent the message last.
	HeaderRun = "desk-run"
	// HeaderHandle is the handle of the dead letter that was sent, with the number of its copy.
	HeaderHandle = "desk-handle"
	// HeaderCC and HeaderBCC keep CC and BCC, see [Aside] and [Unaddressed].
	HeaderCC  = "desk-cc"
	HeaderBCC = "desk-bcc"
	// HeaderAside is a table with the headers that a message had already under names of the desk.
	HeaderAside = "desk-aside"

	deskPrefix = "desk-"
)

// isReserved reports whether a header has a name under which the desk keeps something while it
// moves a message. The marks of a replay are not: they belong to the message, and stay with it.
func isReserved(header string) bool {
	switch header {
	case HeaderReplays, HeaderRun, HeaderHandle:
		return false
	default:
		return strings.HasPrefix(header, deskPrefix)
	}
}

// Aside returns headers for a message that moves to a queue of the desk, in which no name of the
// desk is in use, except for what Aside has put aside itself:
//
//   - CC and BCC, since RabbitMQ routes a message to each key in them too, and would put a copy
//     into other queues.
//   - What the message had under names of the desk. Any publisher can write such headers, and the
//     desk believes only its own.
//
// [Restore] is the inverse. [DigestOf] returns the same for both forms.
func Aside(h amqp091.Table) amqp091.Table {
	out, aside := make(amqp091.Table, len(h)), amqp091.Table{}
	for name, v := range h {
		switch {
		case isReserved(name):
			aside[name] = v
		case name == topology.CC:
			out[HeaderCC] = v
		case name == topology.BCC:
			out[HeaderBCC] = v
		default:
			out[name] = v
		}
	}
	if len(aside) > 0 {
		out[HeaderAside] = aside
	}
	return out
}

// Restore returns the headers that [Aside] was called with, without all that the desk has added
// since. Publishing them routes to the keys in CC and BCC again.
func Restore(h amqp091.Table) amqp091.Table {
	out := make(amqp091.Table, len(h))
	for name, v := range h {
		switch {
		case name == HeaderCC:
			out[topology.CC] = v
		case name == HeaderBCC:
			out[topology.BCC] = v
		case !isReserved(name):
			out[name] = v
		}
	}
	maps.Copy(out, amqp091.Table(table(h[HeaderAside])))
	return out
}

// Unaddressed returns headers for a message that is published to one queue by its name. CC and BCC
// would route it to other queues too, so they are under [HeaderCC] and [HeaderBCC]. A message
// without them keeps all its headers. [DigestOf] returns the same for both forms.
func Unaddressed(h amqp091.Table) amqp091.Table {
	out := make(amqp091.Table, len(h))
	maps.Copy(out, h)
	for _, name := range [][2]string{{topology.CC, HeaderCC}, {topology.BCC, HeaderBCC}} {
		if v, ok := h[name[0]]; ok {
			delete(out, name[0])
			Set(out, name[1], v)
		}
	}
	return out
}

// Set sets a header of the desk. What a message has under that name already is kept in
// [HeaderAside].
func Set(h amqp091.Table, name string, v any) {
	if old, ok := h[name]; ok {
		aside := amqp091.Table{name: old}
		if before, ok := h[HeaderAside]; ok {
			aside[HeaderAside] = before
		}
		h[HeaderAside] = aside
	}
	h[name] = v
}

// keptOf returns the header name, CC or BCC, or what a desk has put aside of it. Each form that
// Aside and Unaddressed make of headers has the same.
func keptOf(h amqp091.Table, name, aside string) (any, bool) {
	if v, ok := h[name]; ok {
		return v, true
	}
	for within := fields(h); within != nil; within = table(within[HeaderAside]) {
		if v, ok := within[aside]; ok {
			return v, true
		}
	}
	return nil, false
}
