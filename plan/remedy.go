package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// asFound says what to write in the file so that a queue can stay as it was found,
// for exactly the fields that differ. It is empty where no file can say that.
func asFound(have topology.Queue, after topology.Object, fields []Field) string {
	want, isQueue := after.(topology.Queue)
	if !isQueue || want.Label.Role != topology.RoleWork {
		return "" // of generated queues the file says less
	}
	var write, values, leave []string
	for _, f := range fields {
		switch {
		case followsType(f, fields):
		case slices.Contains([]string{"durable", "auto-delete", "exclusive"}, f.Name):
			return "declare it with external: true, which keeps it as it is"
		case f.Name == topology.ArgQueueType:
			write = append(write, "type: "+text.Name(have.Type()))
		case f.Name == topology.ArgDeadLetterExchange && f.Before != nil ||
			f.Name == topology.ArgDeadLetterRoutingKey && f.Before != nil:
			return "" // an argument overrides every policy
		case byPolicy(f.Name) && f.Before == nil && want.Arguments.HasAny(topology.ArgDeadLetterExchange):
			write = append(write, "deadLetterBy: policy")
		case limitByPolicy(have, want, f):
			write = append(write, "deadLetterBy: policy")
		case f.Name == topology.ArgDeliveryLimit && f.Before != nil:
			write = append(write, fmt.Sprintf("deliveryLimit: %v", f.Before))
		case f.Name == topology.ArgDeliveryLimit:
			leave = append(leave, "deliveryLimit")
		case f.Before == nil:
			leave = append(leave, f.Name)
		default:
			values = append(values, f.Name+": "+topology.FormatValue(f.Before))
		}
	}
	slices.Sort(write)
	write = slices.Compact(write)
	if len(values) > 0 {
		write = append(write, "arguments: {"+strings.Join(values, ", ")+"}")
	}
	var ways []string
	if len(write) > 0 {
		ways = append(ways, "set "+strings.Join(write, " and ")+" in the file")
	}
	if len(leave) > 0 {
		ways = append(ways, "remove "+strings.Join(leave, ", "))
	}
	return strings.Join(ways, ", and ")
}

// followsType reports whether a field differs only because the type of the queue does: dlxctl sets
// it on quorum queues.
func followsType(f Field, fields []Field) bool {
	return f.After == nil && slices.Contains([]string{topology.ArgDeadLetterStrategy, topology.ArgOverflow}, f.Name) &&
		slices.ContainsFunc(fields, func(o Field) bool { return o.Name == topology.ArgQueueType })
}

// byPolicy reports whether a policy can bring what this argument does to a queue that
// was made without it.
func byPolicy(argument string) bool {
	return slices.Contains([]string{
		topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy,
		topology.ArgOverflow,
	}, argument)
}

// fixes says, for each field that differs, what to write in the file so that the object can stay
// as it was found. It is nil if no file can say all of that.
func fixes(have, want topology.Object, fields []Field) map[string]string {
	out := map[string]string{}
	switch have := have.(type) {
	case topology.Queue:
		wanted, _ := want.(topology.Queue)
		if asFound(have, want, fields) == "" {
			return nil
		}
		for _, f := range fields {
			if followsType(f, fields) {
				continue
			}
			out[f.Name] = queueFix(have, wanted, f)
			if isLimit(f.Name) && f.Before != nil && !policySets(have, f.Name, f.After) {
				out[f.Name] += "; no policy can raise or remove it, as the smaller one of an argument and a policy applies"
			}
		}
	case topology.Exchange:
		if want.Purpose().Role != topology.RoleBusiness {
			return nil // the file does not say how generated exchanges are
		}
		for _, f := range fields {
			out[f.Name] = exchangeFix(f)
		}
	case topology.Binding, topology.Policy: // they are never blocked for what they are
	}
	return out
}

// queueFix says what to write in the file for one field of a queue.
func queueFix(have, want topology.Queue, f Field) string {
	switch {
	case isFlag(f.Name):
		return "write external: true"
	case f.Name == topology.ArgQueueType:
		return "write type: " + text.Name(have.Type())
	case byPolicy(f.Name) && f.Before == nil && want.Arguments.HasAny(topology.ArgDeadLetterExchange):
		return "write deadLetterBy: policy"
	case limitByPolicy(have, want, f):
		return "write deadLetterBy: policy"
	case f.Name == topology.ArgDeliveryLimit && f.Before != nil:
		return fmt.Sprintf("write deliveryLimit: %v", f.Before)
	case f.Name == topology.ArgDeliveryLimit:
		return "remove deliveryLimit"
	}
	return argumentFix(f)
}

// limitByPolicy reports whether a limit of a queue with dead-lettering by arguments could be as the
// file wants it with deadLetterBy: policy.
func limitByPolicy(have, want topology.Queue, f Field) bool {
	return isLimit(f.Name) && want.Arguments.HasAny(topology.ArgDeadLetterExchange) && policySets(have, f.Name, f.After)
}

// isLimit reports whether RabbitMQ applies the smaller one of this argument and a policy.
func isLimit(name string) bool {
	return slices.Contains([]string{topology.ArgMaxLength, topology.ArgMaxLengthBytes, topology.ArgDeliveryLimit}, name)
}

// exchangeFix says what to write in the file for one field of an exchange.
func exchangeFix(f Field) string {
	switch {
	case isFlag(f.Name):
		return "write external: true"
	case f.Name == "type" || f.Name == "internal":
		return fmt.Sprintf("write %s: %v", f.Name, f.Before)
	}
	return argumentFix(f)
}

// isFlag reports whether a field is a property for which topology files have no key.
func isFlag(name string) bool {
	return slices.Contains([]string{"durable", "auto-delete", "exclusive"}, name)
}

func argumentFix(f Field) string {
	if f.Before == nil {
		return "remove " + f.Name
	}
	return fmt.Sprintf("write arguments: {%s: %s}", f.Name, topology.FormatValue(f.Before))
}
