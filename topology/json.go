package topology

// document is a compiled topology as programs read it.
type document struct {
	Version   int             `json:"version"`
	Topology  string          `json:"topology"`
	VHost     string          `json:"vhost"`
	Exchanges []Exchange      `json:"exchanges"`
	Queues    []queueDocument `json:"queues"`
	Bindings  []Binding       `json:"bindings"`
	Policies  []Policy        `json:"policies"`
}

type queueDocument struct {
	Type string `json:"type"`
	queueFields
}

// queueFields has no methods: what embeds it is no [Object].
type queueFields Queue

// JSON returns the objects of c for programs to read, with a version. Their labels say what each
// is for.
func (c Compiled) JSON() any {
	d := document{1, c.Name, c.VHost, c.Exchanges, nil, c.Bindings, c.Policies}
	for _, q := range c.Queues {
		d.Queues = append(d.Queues, queueDocument{q.Type(), queueFields(q)})
	}
	return d
}
