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
		case slices.Contains([]string{"durable", "auto-delete", "exclusive"}, f.Name):
			return "declare it with external: true, which keeps it as it is"
		case f.Name == topology.ArgQueueType:
			write = append(write, "type: "+text.Name(have.Type()))
		case f.Name == topology.ArgDeadLetterExchange && f.Before != nil ||
			f.Name == topology.ArgDeadLetterRoutingKey && f.Before != nil:
			return "" // an argument overrides every policy
		case byPolicy(f.Name) && f.Before == nil && want.Arguments.HasAny(topology.ArgDeadLetterExchange):
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

// byPolicy reports whether a policy can bring what this argument does to a queue that
// was made without it.
func byPolicy(argument string) bool {
	return slices.Contains([]string{
		topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy,
		topology.ArgOverflow,
	}, argument)
}
