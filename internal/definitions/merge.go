package definitions

import (
	"cmp"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// mergeAll makes virtual hosts of all documents.
func (s *set) mergeAll() {
	stated := map[string]bool{}
	for _, doc := range s.documents {
		for _, r := range doc.records {
			if doc.list && r.stated {
				stated[r.vhost] = true
				s.home = r.vhost
			}
		}
	}
	for _, doc := range s.documents {
		if doc.list && len(stated) > 1 && slices.ContainsFunc(doc.records, func(r record) bool { return !r.stated }) {
			s.problems = append(s.problems, doc.whole("its objects do not say their virtual host, and other lists have %d; give the lists of one virtual host at a time",
				len(stated)))
			continue
		}
		s.merge(doc)
	}
}

func (s *set) merge(doc *document) {
	s.version = cmp.Or(s.version, doc.version)
	s.cluster = cmp.Or(s.cluster, doc.cluster)
	if s.types == nil {
		s.types = doc.types
	}
	for name := range doc.defaults {
		s.host(name).named = true
	}
	home, named := doc.home(s.home)
	if !doc.list && len(doc.defaults) == 0 && slices.ContainsFunc(doc.fields, isKind) && !doc.statesHosts() {
		s.host(home).named = s.host(home).named || named
	}
	for _, r := range doc.records {
		name := s.place(doc, &r, home)
		h := s.host(name)
		h.named = h.named || r.stated || named
		if !doc.list {
			h.version = cmp.Or(h.version, doc.version, s.version)
		}
		s.add(doc, h, doc.typed(r, name))
	}
	for _, r := range doc.operator {
		if p, ok := r.object.(topology.Policy); ok {
			h := s.host(s.place(doc, &r, home))
			h.operator = append(h.operator, p)
		}
	}
}

// isKind reports whether a key of a definitions file has objects.
func isKind(key string) bool {
	return key == "queues" || key == "exchanges" || key == "bindings" || key == "policies"
}

func (s *set) host(name string) *host {
	h, ok := s.hosts[name]
	if !ok {
		h = &host{name: name, objects: map[topology.Key]*entry{}, policies: map[topology.Key]string{}}
		s.hosts[name] = h
	}
	return h
}

// home returns the virtual host of objects that state none, and whether a file names it.
// rabbitmqctl names it with policies only: the other lists are then of the same.
func (doc *document) home(lists string) (name string, named bool) {
	if doc.list && lists != "" {
		return lists, true
	}
	if doc.original != "" {
		return doc.original, true
	}
	if len(doc.defaults) == 1 {
		for name := range doc.defaults {
			return name, true
		}
	}
	stated := map[string]bool{}
	for _, r := range doc.records {
		if r.stated {
			stated[r.vhost] = true
			name = r.vhost
		}
	}
	if len(stated) == 1 {
		return name, true
	}
	return "/", false
}

// statesHosts reports whether the objects of the document state their virtual hosts. In the
// definitions of one virtual host, 3.10 writes it with policies only.
func (doc *document) statesHosts() bool {
	return slices.ContainsFunc(doc.records, func(r record) bool {
		return r.stated && r.object.Kind() != topology.KindPolicy
	})
}

// place returns the virtual host of a record. Where other objects of the file state one, none
// may miss.
func (s *set) place(doc *document, r *record, home string) string {
	if r.stated {
		return r.vhost
	}
	if !doc.list && (len(doc.defaults) > 0 || doc.statesHosts()) {
		r.oddities = append(r.oddities, Oddity{Kind: FieldMissing, Object: r.object.ID(), Field: "vhost"})
	}
	return home
}

// typed returns a queue the type that it gets: the default of its virtual host, or classic.
func (doc *document) typed(r record, vhost string) record {
	q, ok := r.object.(topology.Queue)
	if !ok || r.typed {
		return r
	}
	byDefault := doc.defaults[vhost]
	if !doc.list {
		byDefault = cmp.Or(byDefault, doc.defaultType)
	}
	q.Arguments = q.Arguments.With(topology.ArgQueueType, cmp.Or(byDefault, topology.Classic))
	r.object = q
	return r
}

func (s *set) add(doc *document, h *host, r record) {
	if e, ok := r.object.(topology.Exchange); ok && e.Name == "" {
		return // the default exchange
	}
	if b, ok := r.object.(topology.Binding); ok && b.Source == "" {
		return // from the default exchange
	}
	key := r.object.ID()
	if r.policy != "" {
		h.policies[key] = r.policy
	}
	known, twice := h.objects[key]
	switch {
	case !twice:
		h.objects[key] = &entry{r.object, topology.Place{File: doc.file, Line: r.line}}
		h.order = append(h.order, key)
	case equal(known.object, r.object):
		return
	case known.position.File != doc.file:
		s.problems = append(s.problems, doc.problem(r.at, "%s %s differs from the one at %s:%d; give files of the same broker and time",
			key.Kind, quoteShort(r.object.DisplayName()), known.position.File, known.position.Line))
	default:
		h.oddities = append(h.oddities, Oddity{Kind: DefinedTwice, Object: key})
		if key.Kind == topology.KindPolicy {
			*known = entry{r.object, topology.Place{File: doc.file, Line: r.line}}
		}
	}
	h.oddities = append(h.oddities, r.oddities...)
}

// equal reports whether two objects have the same properties.
func equal(a, b topology.Object) bool {
	return slices.EqualFunc(a.Properties(), b.Properties(), func(p, q topology.Property) bool {
		return p.Name == q.Name && topology.FormatValue(p.Value) == topology.FormatValue(q.Value)
	})
}

func (s *set) virtualHost(h *host) VHost {
	h.predefined()
	h.leftOut()
	v := VHost{
		State: topology.State{
			Version: s.version, Cluster: s.cluster, VHost: h.name, ExchangeTypes: s.types,
			OperatorPolicies: h.operator,
		},
		Unnamed: !h.named, Positions: make(map[topology.Key]topology.Place, len(h.objects)), Oddities: h.oddities,
	}
	have := &v.State.Have
	for _, key := range h.order {
		e := h.objects[key]
		if e.position.Line > 0 {
			v.Positions[key] = e.position
		}
		switch o := e.object.(type) {
		case topology.Exchange:
			have.Exchanges = append(have.Exchanges, o)
		case topology.Queue:
			have.Queues = append(have.Queues, o)
		case topology.Binding:
			have.Bindings = append(have.Bindings, o)
		case topology.Policy:
			have.Policies = append(have.Policies, o)
		}
	}
	have.Sort()
	v.State.QueuePolicies, v.State.ExchangePolicies = h.inEffect()
	return v
}

// inEffect returns the policies in effect, by queue and by exchange. Nil where no file tells.
func (h *host) inEffect() (queues, exchanges map[string]string) {
	for key, policy := range h.policies {
		to := &queues
		if key.Kind == topology.KindExchange {
			to = &exchanges
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key.Name] = policy
	}
	return queues, exchanges
}

// predefined adds the exchanges that every virtual host has and exports leave out.
func (h *host) predefined() {
	for _, x := range append(topology.BuiltInExchanges(), topology.TraceExchange()) {
		if h.objects[x.ID()] == nil {
			h.objects[x.ID()] = &entry{object: x}
			h.order = append(h.order, x.ID())
		}
	}
}

// leftOut adds the exchanges that bindings name and an export leaves out; see [ExchangeLeftOut].
// A file that names no version may be written by hand: there a binding may name any exchange.
func (h *host) leftOut() {
	if h.version == "" {
		return
	}
	for _, key := range slices.Clone(h.order) {
		b, ok := h.objects[key].object.(topology.Binding)
		if !ok {
			continue
		}
		names := []string{b.Source}
		if b.DestinationType == topology.ToExchange {
			names = append(names, b.Destination)
		}
		for _, name := range names {
			x := topology.Exchange{Name: name, Durable: true, Internal: true}
			if h.objects[x.ID()] != nil {
				continue
			}
			h.objects[x.ID()] = &entry{object: x, position: h.objects[key].position}
			h.order = append(h.order, x.ID())
			h.oddities = append(h.oddities, Oddity{Kind: ExchangeLeftOut, Object: x.ID()})
		}
	}
}
