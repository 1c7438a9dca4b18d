package spec

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Successors edits topology files in memory, so that queues replace legacy queues. The
// files that it is given stay as they are.
type Successors struct {
	sources  []Source
	edited   map[int]bool
	declared map[string]bool // exchanges
	backoff  string          // for what was external. Empty: the default one
}

// NewSuccessors begins to edit files. declared names the exchanges that they declare.
func NewSuccessors(sources []Source, declared []topology.Exchange) *Successors {
	s := &Successors{
		sources: slices.Clone(sources), edited: map[int]bool{}, declared: map[string]bool{}, backoff: backoffOf(sources),
	}
	for _, e := range declared {
		s.declared[e.Name] = true
	}
	return s
}

// Sources returns all files, as edited.
func (s *Successors) Sources() []Source { return s.sources }

// Edited returns the files that have changed.
func (s *Successors) Edited() []Source {
	var edited []Source
	for i, f := range s.sources {
		if s.edited[i] {
			edited = append(edited, f)
		}
	}
	return edited
}

// Rename changes the name of the queue legacy to successor, and makes it replace legacy, as
// [Replace] does, also in the overlays that change it. It returns the changed lines, and reports
// false if no file has that queue.
func (s *Successors) Rename(legacy, successor string) (lines string, ok bool) {
	for i, f := range s.sources {
		if ok && !f.Overlay || !ok && f.Overlay {
			continue
		}
		if data, changed, replaced := Replace(f, legacy, successor, s.backoff); replaced {
			s.sources[i].Data, s.edited[i] = data, true
			if ok {
				lines += "\n"
			}
			lines, ok = lines+f.Name+": "+changed, true
		}
	}
	return lines, ok
}

// Add adds an entry to the queues of the first file that has some, and the exchanges of
// its bindings that no file declares to the exchanges, as external: they exist, and dlxctl
// does not manage them until a person decides so. It returns the entries of these exchanges,
// and fails with ErrNotEditable.
func (s *Successors) Add(entry string, bindings []topology.Binding) (exchanges []string, err error) {
	at := max(0, s.with("queues"))
	if err := s.append(at, "queues", entry); err != nil {
		return nil, err
	}
	for _, b := range bindings {
		if s.declared[b.Source] {
			continue
		}
		s.declared[b.Source] = true
		exchange := fmt.Sprintf("{name: %s, external: true}", text.YAML(b.Source))
		in := s.with("exchanges")
		if in < 0 {
			in = at
		}
		if err := s.append(in, "exchanges", exchange); err != nil {
			return nil, err
		}
		exchanges = append(exchanges, exchange)
	}
	return exchanges, nil
}

// with returns the index of the first file that has a list, -1 if none has.
func (s *Successors) with(list string) int {
	return slices.IndexFunc(s.sources, func(f Source) bool { return !f.Overlay && HasList(f, list) })
}

// append adds an entry to a list of a file.
func (s *Successors) append(i int, list, entry string) error {
	data, ok := Append(s.sources[i], list, entry)
	if !ok {
		return fmt.Errorf("%s cannot be edited in place: add this to its %s by hand: %s", s.sources[i].Name, list, entry)
	}
	s.sources[i].Data, s.edited[i] = data, true
	return nil
}
