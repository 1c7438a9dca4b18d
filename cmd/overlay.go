package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
)

// mostNeighbors is how many files next to those of -f are tried as overlays.
const mostNeighbors = 20

// noteOverlay prints, on stderr, if no overlay is given, which overlay next to the files was
// probably left out: the broker has what the files declare with it, and the plan takes that back.
func (a *app) noteOverlay(p plan.Plan) {
	changes := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Before != nil || c.Reroute != nil })
	if !changes || len(a.overlays) > 0 || slices.Contains(a.paths, "-") {
		return
	}
	l := a.files()
	sources, err := l.read()
	if err != nil {
		return // they were read before
	}
	var left string
	most := 0
	for _, path := range l.neighbors(sources) {
		over, err := l.readOverlay(path)
		if err != nil {
			continue
		}
		if _, _, err := spec.Load([]spec.Source{{Name: over.Name, Data: over.Data}}, l.env); err == nil {
			continue // it is a topology of its own
		}
		t, _, err := spec.Load(append(slices.Clone(sources), over), l.env)
		if err != nil {
			continue // it is not an overlay of these files
		}
		if n := p.Undoes(t); n > most {
			left, most = path, n
		}
	}
	if most > 0 {
		fmt.Fprintf(a.stderr, "note: this plan takes back what %s sets, which the broker has; unless you want that, pass --overlay %s\n",
			text.Name(left), text.ShellQuote(left))
	}
}

// neighbors returns the YAML files in the folders of the files and next to the folders of -f, other
// than those that are read.
func (l loader) neighbors(read []spec.Source) []string {
	var out []string
	for _, path := range l.paths {
		paths, _ := expand(filepath.Dir(filepath.Clean(path))) // without any there is nothing to say
		for _, p := range paths {
			info, err := os.Stat(p)
			known := slices.ContainsFunc(read, func(s spec.Source) bool { return s.Name == filepath.ToSlash(p) })
			if err == nil && info.Mode().IsRegular() && !known && !slices.Contains(out, p) && len(out) < mostNeighbors {
				out = append(out, p)
			}
		}
	}
	return out
}
