package topology

// JSON returns t for programs to read, in a stable form with a version. Lists are
// never null, and labels say what each object is for. An empty vhost means the
// one of the AMQP URL.
func JSON(t Compiled, vhost string) ([]byte, error) {
	t.VHost = vhost
	return encode(t.JSON())
}

// JSON returns what [JSON] writes, with the vhost of the file.
func (t Compiled) JSON() any {
	d := document{
		Version: 1, Topology: t.Name, VHost: t.VHost,
		Exchanges: []exchangeJSON{}, Queues: []queueJSON{}, Bindings: []bindingJSON{}, Policies: []policyJSON{},
	}
	for _, e := range t.Exchanges {
		d.Exchanges = append(d.Exchanges, exchangeJSON{
			e.Name, e.Type, e.Durable, e.AutoDelete, e.Internal, e.External, table(e.Arguments), labelJSON(e.Label),
		})
	}
	for _, q := range t.Queues {
		d.Queues = append(d.Queues, queueJSON{
			q.Name, q.Type(), q.Durable, q.AutoDelete, q.External, table(q.Arguments), labelJSON(q.Label),
		})
	}
	for _, b := range t.Bindings {
		d.Bindings = append(d.Bindings, bindingJSON{
			b.Source, b.Destination, b.DestinationType, b.Key, table(b.Arguments), labelJSON(b.Label),
		})
	}
	for _, p := range t.Policies {
		d.Policies = append(d.Policies, policyJSON{
			p.Name, p.Pattern, p.ApplyTo, p.Priority, table(p.Definition), labelJSON(p.Label),
		})
	}
	return d
}

type document struct {
	Version   int            `json:"version"`
	Topology  string         `json:"topology"`
	VHost     string         `json:"vhost"`
	Exchanges []exchangeJSON `json:"exchanges"`
	Queues    []queueJSON    `json:"queues"`
	Bindings  []bindingJSON  `json:"bindings"`
	Policies  []policyJSON   `json:"policies"`
}

type exchangeJSON struct {
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"autoDelete"`
	Internal   bool      `json:"internal"`
	External   bool      `json:"external"`
	Arguments  Arguments `json:"arguments"`
	labelJSON
}

type queueJSON struct {
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"autoDelete"`
	External   bool      `json:"external"`
	Arguments  Arguments `json:"arguments"`
	labelJSON
}

type bindingJSON struct {
	Source          string    `json:"source"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destinationType"`
	Key             string    `json:"key"`
	Arguments       Arguments `json:"arguments"`
	labelJSON
}

type policyJSON struct {
	Name       string    `json:"name"`
	Pattern    string    `json:"pattern"`
	ApplyTo    string    `json:"applyTo"`
	Priority   int64     `json:"priority"`
	Definition Arguments `json:"definition"`
	labelJSON
}

type labelJSON struct {
	Role    Role   `json:"role"`
	Backoff string `json:"backoff"`
	Queue   string `json:"queue"`
}
