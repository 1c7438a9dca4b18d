package plan

import (
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Undoes counts the changes of p that would not be made for t: the broker already has what t
// declares there. It is how a caller finds out that an overlay was left out.
func (p Plan) Undoes(t topology.Compiled) int {
	objects := map[topology.Key]topology.Object{}
	for _, e := range t.Exchanges {
		objects[e.ID()] = e
	}
	for _, q := range t.Queues {
		objects[q.ID()] = q
	}
	for _, b := range t.Bindings {
		objects[b.ID()] = b
	}
	for _, o := range t.Policies {
		objects[o.ID()] = o
	}
	n := 0
	for _, c := range p.Changes {
		var wanted topology.Object
		if c.Before != nil {
			wanted = objects[c.Before.ID()]
		}
		switch {
		case wanted != nil && (c.After == nil || declares(wanted, c.Fields)), c.Reroute != nil && leaves(*c.Reroute, objects):
			n++
		}
	}
	return n
}

// leaves reports whether a route that changes has a binding that is among the objects, and that it
// does not keep.
func leaves(r Reroute, objects map[topology.Key]topology.Object) bool {
	return slices.ContainsFunc(r.From, func(b topology.Binding) bool {
		kept := slices.ContainsFunc(r.To, func(to topology.Binding) bool { return to.ID() == b.ID() })
		return objects[b.ID()] != nil && !kept
	})
}

// declares reports whether o has what one of the fields was before. An argument that it was
// without is one that o is without.
func declares(o topology.Object, fields []Field) bool {
	values := map[string]any{}
	for _, p := range o.Properties() {
		values[p.Name] = p.Value
	}
	for _, f := range fields {
		value, has := values[f.Name]
		if has == (f.Before != nil) && (has || strings.HasPrefix(f.Name, "x-")) && sameValue(value, f.Before) {
			return true
		}
	}
	return false
}
