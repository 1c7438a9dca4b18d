package desk

import (
	"fmt"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// publish notes which queues a message would reach that is published to an exchange with a key and
// with the headers that the run sends. shown is the address as a person may see it.
func (c *choice) publish(m amqp091.Delivery, facts deadletter.Facts, at, shown address) {
	as := m
	if c.kind.Edits {
		if edited, err := deadletter.Apply(as, *c.request.Edited); err == nil {
			as = edited
		}
	}
	sender := router{
		worker: &worker{desk: c.desk}, manifest: &manifest{KeepHistory: c.request.KeepHistory},
	}
	headers := sender.headers(as, facts.Replays)
	if c.request.Target.Original {
		addressed(headers, m.Headers)
	}
	result := c.router.Publish(at.exchange, at.key, headers)
	for _, queue := range result.Queues {
		c.reaches[way{queue, at, shown}]++
		c.says(queue, facts)
	}
	for _, u := range result.Unknown {
		why := u.Why
		if len(u.May) > 0 {
			why += fmt.Sprintf(" (they may reach %s)", strings.Join(u.May, ", "))
		}
		c.unsure[why]++
	}
	if len(result.Queues)+len(result.Unknown) == 0 {
		lost := result.Lost[0]
		if lost.Exchange == at.exchange {
			lost.Exchange = shown.exchange
		}
		if lost.Queue == at.key { // by the default exchange
			lost.Queue = shown.key
		}
		c.nowhere[fmt.Sprintf("exchange %s with key %q leads to no queue, as %s; name another target with --to",
			text.Name(shown.exchange), shown.key, lost)]++
	}
}

// uncertain says where messages go nowhere, and where the router cannot say where they go.
func (c *choice) uncertain(p *Proposal) {
	for why, n := range c.nowhere {
		p.Refusals = append(p.Refusals, fmt.Sprintf("%s: %s", text.Count(n, "message"), why))
	}
	for why, n := range c.unsure {
		p.Notes = append(p.Notes, fmt.Sprintf("where %s would go is not certain: %s", text.Count(n, "message"), why))
	}
	slices.Sort(p.Notes)
}
