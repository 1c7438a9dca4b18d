package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// renamed warns of a work queue that goes while another one comes with the same bindings: as a
// rule the queue was renamed, and its messages would block the plan or be lost.
func (r resolved) renamed(changes []Change) []Warning {
	goes := func(c Change) bool {
		return c.Kind == topology.KindQueue && c.Action == Delete && c.Label.Role == topology.RoleWork &&
			!topology.Accepts(r.want.Accepted, topology.WarnRenamed, []string{c.Name})
	}
	if !slices.ContainsFunc(changes, goes) {
		return nil
	}
	works := byName(r.want.WorkQueues, func(w topology.WorkQueue) string { return w.Name })
	wanted, found := routesOf(r.want.Bindings), routesOf(r.have.Bindings)
	coming := map[string][]string{} // queues that are created, by their bindings
	for _, c := range changes {
		if w, ok := works[c.Name]; ok && c.Kind == topology.KindQueue && c.Action == Create && w.Replaces == "" {
			coming[wanted[c.Name]] = append(coming[wanted[c.Name]], c.Name)
		}
	}
	var out []Warning
	for _, c := range changes {
		heirs := coming[found[c.Name]]
		if !goes(c) || found[c.Name] == "" || len(heirs) == 0 {
			continue
		}
		coming[found[c.Name]] = heirs[1:]
		out = append(out, Warning{Name: topology.WarnRenamed, Text: fmt.Sprintf(
			"%s is deleted, and %s is created with the same bindings; if it was renamed, add replaces: %s to the queue %s: then 'dlxctl migrate %s' keeps its messages",
			text.Name(c.Name), text.Name(heirs[0]), flowName(c.Name), text.Name(heirs[0]), text.ShellQuote(c.Name))})
	}
	return out
}

// routesOf returns, by queue, a text that is equal for queues with the same bindings from declared
// exchanges.
func routesOf(bindings []topology.Binding) map[string]string {
	lines := map[string][]string{}
	for _, b := range bindings {
		if b.DestinationType != topology.ToQueue || b.Label.Role != topology.RoleBusiness {
			continue
		}
		queue := b.Destination
		b.Destination, b.Arguments = "", b.Arguments.Without(topology.ArgManagedBy)
		lines[queue] = append(lines[queue], b.Identity())
	}
	out := make(map[string]string, len(lines))
	for queue, list := range lines {
		slices.Sort(list)
		out[queue] = strings.Join(list, "\n")
	}
	return out
}
