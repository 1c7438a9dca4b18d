// Package arguments says which arguments of queues and which keys of policies RabbitMQ refuses and
// which it does not know, by type of queue and line of RabbitMQ.
//
// The table is measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6. TestTableOnABroker declares each
// argument on each type of queue, TestKeysOnABroker puts each key of a policy, and both compare.
// All that tell a user what a broker will say of a queue or of a policy read it here: the topology
// file, plan, the audit, import and migrate.
package arguments

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Problem is an argument for which RabbitMQ refuses to declare a queue, or a key for which it
// refuses a policy.
type Problem struct {
	// Argument is the name of the argument or the key.
	Argument string
	// Misplaced reports that the queue or policy must not have it, whatever its value. Otherwise
	// the value is wrong.
	Misplaced bool
	// Foreign reports that a key of a policy resembles none that RabbitMQ knows: a plugin may know it.
	Foreign bool
	// Msg names the argument and says what is wrong, such as "x-queue-mode is for classic queues".
	Msg string
	// Fix says what to write in a topology file.
	Fix string
}

// String returns the problem and its fix as one sentence.
func (p Problem) String() string { return p.Msg + "; " + p.Fix }

// Refused returns the arguments for which RabbitMQ of that version refuses a queue of that type, by
// name. For a version between two measured lines, they are those that both refuse, and without a
// version those that all lines refuse. It returns nothing for other types of queues than classic,
// quorum and stream.
func Refused(version, queueType string, args topology.Arguments) []Problem {
	var kind types
	switch queueType {
	case topology.Classic:
		kind = classic
	case topology.Quorum:
		kind = quorum
	case topology.Stream:
		kind = stream
	default:
		return nil
	}
	on := linesOf(version)
	var out []Problem
	for _, name := range args.Names() {
		if p, refused := refusal(on, kind, name, args); refused {
			out = append(out, p)
		}
	}
	return out
}

// refusal returns the problem of one argument, if each of the lines refuses it. The fix is that of
// the newest line, whose values the others accept too; the oldest line says for which types of
// queues an argument is.
func refusal(on lines, kind types, name string, args topology.Arguments) (p Problem, refused bool) {
	if _, has := args[topology.ArgDeadLetterExchange]; name == topology.ArgDeadLetterRoutingKey && !has && kind != stream {
		return Problem{
			Argument: name, Misplaced: true, Msg: name + " needs " + topology.ArgDeadLetterExchange,
			Fix: "add that argument, or remove this one",
		}, true
	}
	for _, line := range []lines{line310, line40, line43} {
		if on&line == 0 {
			continue
		}
		here, is := refusalOf(line, kind, name, args[name])
		if !is {
			return Problem{}, false
		}
		if !p.Misplaced {
			p, refused = here, true
		}
	}
	return p, refused
}

func refusalOf(line lines, kind types, name string, value any) (Problem, bool) {
	fits := everyType
	for _, r := range misplaced {
		if r.on&line != 0 && slices.Contains(r.names, name) {
			fits &^= r.queues
		}
	}
	if fits&kind == 0 {
		return Problem{Argument: name, Misplaced: true, Msg: name + " is for " + fits.String(), Fix: fits.fix(name)}, true
	}
	for _, r := range values {
		if r.on&line == 0 || r.queues&kind == 0 || !slices.Contains(r.names, name) {
			continue
		}
		if what, fix := r.wrong(name, value); what != "" {
			return Problem{Argument: name, Msg: name + " is " + what, Fix: fix}, true
		}
	}
	return Problem{}, false
}

// Meant returns the argument that name was probably meant to be. Empty: RabbitMQ knows no similar
// one.
func Meant(name string) string {
	known := Known()
	if slices.Contains(known, "x-"+name) {
		return "x-" + name
	}
	for i := range known {
		known[i] = strings.TrimPrefix(known[i], "x-") // which all names share resembles nothing
	}
	if meant := topology.Nearest(strings.TrimPrefix(strings.ToLower(name), "x-"), known); meant != "" {
		return "x-" + meant
	}
	return ""
}

// OfTeam returns the arguments that name the team of a queue, for import: RabbitMQ ignores them.
func OfTeam() []string { return []string{"x-owner", "owner", "x-team", "team"} }

// Ignored returns the arguments that RabbitMQ does not know, and that name no team.
func Ignored(args topology.Arguments) []string {
	return slices.DeleteFunc(args.Names(), func(name string) bool {
		return slices.Contains(known, name) || slices.Contains(OfTeam(), name)
	})
}

// Known returns the arguments of queues that RabbitMQ, its plugins or dlxctl know, in order.
func Known() []string { return slices.Clone(known) }

//nolint:gochecknoglobals // nothing changes it; a file asks it for each queue
var known = func() []string {
	out := []string{
		topology.ArgQueueType, topology.ArgManagedBy, topology.ArgMaxLengthBytes, "x-queue-leader-locator",
		"x-quorum-target-group-size", "x-internal-purpose", "x-internal-exchange-name", "x-message-deduplication",
		"x-cache-size", "x-cache-ttl", "x-cache-persistence",
	}
	for _, r := range misplaced {
		out = append(out, r.names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}()

// describe returns a value of an argument for people.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("the text %q", v)
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	case []any:
		return "a list"
	case topology.Arguments:
		return "a mapping"
	case nil:
		return "empty"
	default:
		return "the number " + topology.FormatValue(v)
	}
}

// whole returns the fix for a value that is not a whole number. The broker takes times in
// milliseconds.
func whole(name string, value any) string {
	const plain = "write a number without quotes"
	times := []string{
		topology.ArgMessageTTL, topology.ArgExpires, consumerTimeout, disconnectedTimeout, "x-" + retryMin, "x-" + retryMax,
	}
	if !slices.Contains(times, "x-"+topology.PolicyKey(name)) {
		return plain
	}
	s, _ := value.(string)
	delay, err := topology.ParseDelay(s)
	if err != nil {
		return plain + ", in milliseconds"
	}
	return fmt.Sprintf("write it in milliseconds: %d", delay.Milliseconds())
}

// among returns a check for one of these words.
func among(words ...string) check {
	return func(_ string, v any) (what, fix string) {
		s, ok := v.(string)
		switch {
		case !ok:
			return describe(v) + ", not text", "write " + text.Or(words)
		case slices.Contains(words, s):
			return "", ""
		}
		return fmt.Sprintf("%q", s), topology.DidYouMean(s, words, "write "+text.Or(words))
	}
}

// from returns a check for a whole number from least to most; most -1 means no limit.
func from(least, most int64) check {
	return func(name string, v any) (what, fix string) {
		n, ok := v.(int64)
		switch {
		case !ok:
			return describe(v) + ", not a whole number", whole(name, v)
		case n >= least && (n <= most || most < 0):
			return "", ""
		}
		switch {
		case most == least:
			fix = fmt.Sprintf("write %d", least)
		case n < least:
			fix = fmt.Sprintf("write %d or more", least)
		case most == maxTime:
			fix = fmt.Sprintf("write a number from %d to %d, which is ten years", least, most)
		default:
			fix = fmt.Sprintf("write a number from %d to %d", least, most)
		}
		return strconv.FormatInt(n, 10), fix
	}
}

// overflow refuses what is not an overflow of a quorum queue. RabbitMQ accepts reject-publish-dlx
// there and does not do what it says, so that it is not in the fix.
func overflow(name string, v any) (what, fix string) {
	if v == "reject-publish-dlx" {
		return "", ""
	}
	return among("drop-head", topology.RejectPublish)(name, v)
}

// truth refuses what is neither true nor false.
func truth(_ string, v any) (what, fix string) {
	if _, ok := v.(bool); ok {
		return "", ""
	}
	return describe(v) + ", not true or false", "write true or false, without quotes"
}

// words refuses what is not a text.
func words(_ string, v any) (what, fix string) {
	if _, ok := v.(string); ok {
		return "", ""
	}
	return describe(v) + ", not text", "put it in quotes"
}

// age refuses what is not an age of a stream.
func age(_ string, v any) (what, fix string) {
	s, _ := v.(string)
	digits := strings.TrimRight(s, "YMDhms")
	if len(s) == len(digits)+1 && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return "", ""
	}
	return describe(v), "write a whole number and one of Y, M, D, h, m, s, such as 7D"
}
