// Package importer writes a topology file for a virtual host that exists.
//
// The file changes nothing: a plan of it on the same broker is empty. Each exchange and work
// queue is external, with its bindings as they are, and keeps the dead-lettering that it has.
// Comments propose what dlxctl could do better, as lines to uncomment. With [Options.Adopt] the
// file declares the queues and exchanges itself.
//
// The package is pure: it gets what was read from a broker or a definitions file, and gives the
// bytes of files. It neither gets nor writes users, permissions and parameters.
package importer

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Split says how the queues are divided into files.
type Split string

// The ways to split.
const (
	// SplitNone writes one file.
	SplitNone Split = ""
	// SplitPrefix writes a file for each first part of the names of queues.
	SplitPrefix Split = "prefix"
	// SplitOwner writes a file for each owning team, as an argument of the queues names it.
	SplitOwner Split = "owner"
)

// Options say what to import, and how to write it.
type Options struct {
	// Name is the name of the topology. Empty: one is made of the names of the objects.
	Name string
	// Match chooses queues by name. Nil: all of them.
	Match *regexp.Regexp
	// Split divides the queues into files.
	Split Split
	// Adopt makes dlxctl declare the queues and exchanges.
	Adopt bool
	// Quorum turns each classic queue that can be one into a quorum queue replaced under its name, and
	// leaves all else as it is. It needs Adopt.
	Quorum bool
	// Keep says by queue, as a sentence, why it is not turned: what only a plan of the file knows.
	Keep map[string]string
	// Origin says in the first line of the file where the objects were read, such as
	// "definitions.json". Empty: from a broker.
	Origin string
	// Fallback is the name of the topology where the virtual host has no name that says more,
	// such as /. Any text is fine. Empty: one is made of the names of the queues.
	Fallback string
}

// File is one file of an import.
type File struct {
	// Name is a file name without a folder, such as topology.yaml.
	Name string
	Data []byte
}

// Result is an import of one virtual host.
type Result struct {
	// Files belong together: the first has the name of the topology.
	Files []File
	// Queues and Exchanges are how many the files declare. LeftOut is how many queues and
	// exchanges only comments name.
	Queues, Exchanges, LeftOut int
	// Turned are the classic queues that the files turn into quorum queues, and Classic is how many
	// stay.
	Turned  []string
	Classic int
}

// Import writes the topology files for what state has.
func Import(state topology.State, o Options) (Result, error) {
	down := slices.DeleteFunc(slices.Clone(state.Down), func(name string) bool {
		return o.Match != nil && !o.Match.MatchString(name)
	})
	if len(down) > 0 {
		return Result{}, fmt.Errorf("the broker does not list queues whose node is down, and the file would lack them: %s; start the node, or leave them out with --match",
			text.Some(down))
	}
	c := choose(state, o)
	for what, n := range map[string]int{"queues": len(c.queues), "exchanges": len(c.exchanges)} {
		if n > spec.MaxObjects {
			return Result{}, fmt.Errorf("the file would declare %d %s, and a topology has at most %d; pass --match to import a part of them",
				n, what, spec.MaxObjects)
		}
	}
	if o.Name == "" {
		o.Name = nameFor(state, c, o.Fallback)
	} else if err := checkName(state, o.Name); err != nil {
		return Result{}, err
	}
	c.options = o
	w := writer{view: c}
	files, err := w.files()
	r := Result{
		Files: files, Queues: len(c.queues), Exchanges: len(c.exchanges), LeftOut: len(c.left),
	}
	for _, q := range c.queues {
		if c.isTurned(q) {
			r.Turned = append(r.Turned, q.Name)
		}
	}
	_, r.Classic = c.turned()
	return r, err
}
