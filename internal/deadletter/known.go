package deadletter

import (
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Known is what is known about the virtual host in which messages are read. A nil Known knows
// nothing. It is read only, and safe for concurrent use.
type Known struct {
	// CountHeader is the header in which the processor counts; empty is "count".
	CountHeader string
	// Route returns the queues to which an exchange would route a key. Nil is unknown, as is a key
	// that may reach more queues than the bindings tell. It must be safe for concurrent use.
	Route func(exchange, key string) []string

	topology topology.Compiled
	work     map[string]topology.WorkQueue
	// keeps maps a dead-letter queue to the work queue that it belongs to; empty is several.
	keeps map[string]string
	// generated are the queues of the topology in which no consumer of the business fails.
	generated map[string]bool
}

// Knows returns what a topology tells about the queues of a virtual host.
func Knows(c topology.Compiled) *Known {
	k := &Known{
		CountHeader: c.CountHeader, topology: c, work: map[string]topology.WorkQueue{},
		keeps: map[string]string{}, generated: map[string]bool{},
	}
	for _, w := range c.WorkQueues {
		k.work[w.Name] = w
		if _, shared := k.keeps[w.DeadLetterQueue]; shared {
			k.keeps[w.DeadLetterQueue] = ""
		} else {
			k.keeps[w.DeadLetterQueue] = w.Name
		}
		k.generated[w.DeadLetterQueue] = true
	}
	for _, b := range c.Backoffs {
		k.generated[b.FailedQueue] = true
	}
	if c.Name != "" {
		k.generated[topology.UnroutableName(c.Name)] = true
		k.generated[topology.ParkedName(c.Name)] = true
		k.generated[topology.LogName(c.Name)] = true
	}
	delete(k.generated, "")
	return k
}

// Owner returns the work queue to which a dead-letter queue belongs. Empty is none or several.
func (k *Known) Owner(deadLetterQueue string) string {
	if k == nil {
		return ""
	}
	return k.keeps[deadLetterQueue]
}

// isWork reports whether the topology has a work queue of that name.
func (k *Known) isWork(queue string) bool {
	if k == nil {
		return false
	}
	_, ok := k.work[queue]
	return ok
}

// isGenerated reports whether dlxctl made the queue for its own use: retry, failed,
// dead-letter and unroutable queues, and those of the desk.
func (k *Known) isGenerated(queue string) bool {
	if k == nil || k.topology.Name == "" {
		return false
	}
	name := k.topology.Name
	return k.generated[queue] || topology.IsRetryQueueName(name, queue) || topology.IsHoldName(name, queue)
}

// isUnroutable reports whether a message lies in the unroutable queue, or was parked from there.
// Where no topology is known, the name of the queue tells.
func (k *Known) isUnroutable(h fields, queue string) bool {
	if k == nil || k.topology.Name == "" {
		return strings.HasSuffix(queue, topology.UnroutableName(""))
	}
	name := k.topology.Name
	if queue == topology.ParkedName(name) {
		queue = h.text(HeaderParkedFrom)
	}
	return queue == topology.UnroutableName(name)
}

// returns reports whether an exchange is the one that returns messages to their work queues. Where
// no topology is known, its name tells.
func (k *Known) returns(exchange string) bool {
	if k == nil || k.topology.Name == "" {
		return strings.HasSuffix(exchange, topology.ReturnExchangeName(""))
	}
	return exchange == topology.ReturnExchangeName(k.topology.Name)
}

// untouched reports whether no processor can have written the headers of a message: it failed in
// its work queue, and had not come from a tier. The processor removes x-death. What was sent to
// that queue by its name may be a dead letter that a drain or a person put back.
func (k *Known) untouched(h fields, exchange string) bool {
	if k == nil || k.topology.Name == "" {
		return false
	}
	name := k.topology.Name
	for _, hop := range deaths(h) {
		switch {
		case topology.IsRetryQueueName(name, hop.Queue):
			return false
		case k.isWork(hop.Queue):
			return hop.Exchange != "" && !k.returns(hop.Exchange)
		}
	}
	return exchange == topology.FailedExchangeName(name) // by its consumer, at its first attempt
}

func (k *Known) countHeader() string {
	if k == nil || k.CountHeader == "" {
		return "count"
	}
	return k.CountHeader
}

// native returns the backoff of a work queue if RabbitMQ does its retries.
func (k *Known) native(workQueue string) (topology.Backoff, bool) {
	if k == nil {
		return topology.Backoff{}, false
	}
	return k.topology.NativeBackoff(k.work[workQueue].Backoff)
}

// tiers returns the tiers in which a message of a work queue waits, the first at first.
func (k *Known) tiers(workQueue string) []topology.Tier {
	if k == nil {
		return nil
	}
	b, _ := k.topology.Backoff(k.work[workQueue].Backoff)
	return b.Tiers
}
