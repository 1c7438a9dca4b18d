package topology

import (
	"bytes"
	"fmt"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Definitions returns t in the format that RabbitMQ exports and imports, for
// POST /api/definitions. Every object names vhost, which must exist by then. A new node with
// load_definitions makes no default virtual host and no default user: 4.0.5 and 4.3.6 then end
// their boot, and 3.10.8 starts without either, and without the objects (measured).
//
// External exchanges and queues are left out; the bindings from and to them are
// included. Every flag and every arguments object is written out, because brokers
// differ in what they assume for a missing one (3.10 refuses a queue without
// durable, 4.0 stores an exchange without auto_delete as undefined).
//
// The broker's import skips a queue or exchange that exists, whatever its arguments, and takes no
// binding away: an import has the same result as apply only on an empty broker, or after apply.
func Definitions(t Compiled, vhost string) ([]byte, error) {
	d := definitions{
		Exchanges: []exchangeDefinition{}, Queues: []queueDefinition{},
		Bindings: []bindingDefinition{}, Policies: []policyDefinition{},
	}
	for _, e := range t.Exchanges {
		if !e.External {
			d.Exchanges = append(d.Exchanges, exchangeDefinition{
				e.Name, vhost, e.Type, e.Durable, e.AutoDelete, e.Internal, e.Arguments.OrEmpty(),
			})
		}
	}
	for _, q := range t.Queues {
		if !q.External {
			d.Queues = append(d.Queues, queueDefinition{q.Name, vhost, q.Durable, q.AutoDelete, q.Arguments.OrEmpty()})
		}
	}
	for _, b := range t.Bindings {
		d.Bindings = append(d.Bindings, bindingDefinition{
			b.Source, vhost, b.Destination, b.DestinationType, b.Key, b.Arguments.OrEmpty(),
		})
	}
	for _, p := range t.Policies {
		d.Policies = append(d.Policies, policyDefinition{
			vhost, p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition.OrEmpty(),
		})
	}
	var out bytes.Buffer
	if err := text.WriteJSON(&out, d); err != nil { // such as for a float that is infinite
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	return out.Bytes(), nil
}

type definitions struct {
	Exchanges []exchangeDefinition `json:"exchanges"`
	Queues    []queueDefinition    `json:"queues"`
	Bindings  []bindingDefinition  `json:"bindings"`
	Policies  []policyDefinition   `json:"policies"`
}

type exchangeDefinition struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Internal   bool      `json:"internal"`
	Arguments  Arguments `json:"arguments"`
}

type queueDefinition struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Arguments  Arguments `json:"arguments"`
}

type bindingDefinition struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"`
	Key             string    `json:"routing_key"`
	Arguments       Arguments `json:"arguments"`
}

type policyDefinition struct {
	VHost      string    `json:"vhost"`
	Name       string    `json:"name"`
	Pattern    string    `json:"pattern"`
	ApplyTo    string    `json:"apply-to"`
	Priority   int64     `json:"priority"`
	Definition Arguments `json:"definition"`
}
