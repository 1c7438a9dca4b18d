package importer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// ReadFrom sets what the name of a definitions file says: where the objects were read, and a name
// for the topology where the file has one that says more than "definitions.json".
func (o *Options) ReadFrom(path string) {
	o.Origin = filepath.Base(path)
	if base, _, _ := strings.Cut(o.Origin, "."); !strings.Contains(base, "definitions") && base != "-" {
		o.Fallback = base
	}
}

// Compile reads the files of an import. lookup returns the variables that they may name.
func Compile(state topology.State, r Result, lookup func(string) (string, bool)) (topology.Compiled, error) {
	var sources []spec.Source
	for _, f := range r.Files {
		if len(f.Data) > spec.MaxFileBytes {
			return topology.Compiled{}, fmt.Errorf("the file for vhost %q would have %d MiB, more than the %d that dlxctl reads; pass --split-by prefix, or --match",
				state.VHost, len(f.Data)>>20, spec.MaxFileBytes>>20)
		}
		sources = append(sources, spec.Source{Name: f.Name, Data: f.Data})
	}
	want, _, err := spec.Load(sources, lookup)
	if err != nil {
		return want, fmt.Errorf("the imported file of vhost %q would be invalid, so nothing was written; please report this: %w", state.VHost, err)
	}
	return want, nil
}

// Prove checks what an import promises before any file is written: the files can be read, and a
// plan of them changes nothing, or replaces queues alone. lookup is as in [Compile].
func Prove(state topology.State, r Result, o Options, lookup func(string) (string, bool)) error {
	want, err := Compile(state, r, lookup)
	if err != nil || o.Adopt && !o.Quorum {
		return err
	}
	changes := slices.DeleteFunc(plan.Make(want, state, plan.Options{}).Changes, func(c plan.Change) bool {
		return slices.Contains(r.Turned, c.Name) && (c.ReplacesQueue() || c.Action == plan.Replace)
	})
	if len(changes) == 0 {
		return nil
	}
	c := changes[0]
	return fmt.Errorf("the imported file of vhost %q would change the broker (%s %s %s), so nothing was written; please report this, and pass --match to leave the object out",
		state.VHost, c.Action, c.Kind, text.Name(c.Name))
}
