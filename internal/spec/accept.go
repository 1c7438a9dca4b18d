package spec

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// accept reads the warnings that the file settles. The lists of several files join.
func (d *decoder) accept(f fields) {
	for _, n := range d.list(f, "accept") {
		if d.full() || !d.room(n, "accept", len(d.spec.Accept)) {
			break
		}
		entry, ok := d.textOf(n, "an entry of accept")
		if !ok {
			continue
		}
		a, known := topology.ParseAcceptance(entry), topology.AcceptableWarnings()
		switch {
		case !slices.Contains(known, a.Warning):
			d.problem(d.at(n), fmt.Sprintf("accept lists %q, which is not a warning that can be accepted", entry),
				d.didYouMean(a.Warning, known, "write "+text.Or(known)))
		case a.Object == "" && topology.NeedsObject(a.Warning):
			d.problem(d.at(n), fmt.Sprintf("accept lists %q without an object", entry),
				fmt.Sprintf("name what the warning is about: %s=NAME", a.Warning))
		default:
			d.spec.Accept = append(d.spec.Accept, a)
		}
	}
}

// unaccepted returns the warnings that the files do not settle.
func (d *decoder) unaccepted() []Problem {
	return slices.DeleteFunc(d.warnings, func(w Problem) bool {
		return topology.Accepts(d.spec.Accept, w.Name, []string{w.About})
	})
}
