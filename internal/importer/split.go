package importer

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/topology"
)

// MainFile is the file that has the name of the topology.
const MainFile = "topology.yaml"

// part is what one file declares.
type part struct {
	name      string
	exchanges []topology.Exchange
	queues    []topology.Queue
}

// split divides the queues, and the exchanges that are named like them. The first part has what
// belongs to no other.
func (w *writer) split() []part {
	parts := []part{{name: MainFile}}
	if w.options.Split == SplitNone {
		parts[0].exchanges, parts[0].queues = w.exchanges, w.queues
		return parts
	}
	index := map[string]int{}
	names := map[string]bool{MainFile: true} // in lower case
	for _, q := range w.queues {
		key := w.partOf(q)
		i, known := index[key]
		if !known && key != "" {
			i = len(parts)
			index[key] = i
			parts = append(parts, part{name: fileName(key, names)})
		}
		parts[i].queues = append(parts[i].queues, q)
	}
	for _, e := range w.exchanges {
		i := 0
		if w.options.Split == SplitPrefix {
			i = index[firstPart(e.Name)]
		}
		parts[i].exchanges = append(parts[i].exchanges, e)
	}
	return parts
}

// partOf returns what decides about the file of a queue. Empty: the first file.
func (w *writer) partOf(q topology.Queue) string {
	if w.options.Split == SplitPrefix {
		if p := firstPart(q.Name); p != q.Name {
			return p
		}
		return ""
	}
	return ownerOf(q)
}

// ownerOf returns the team that an argument of a queue names. Empty: none does.
func ownerOf(q topology.Queue) string {
	for _, name := range arguments.OfTeam() {
		if owner, ok := q.Arguments[name].(string); ok {
			return owner
		}
	}
	return ""
}

// fileName makes a file name that no other part has, also where the case of letters does not count.
func fileName(key string, names map[string]bool) string {
	base := identifier(key)
	if base == "" {
		base = "queues"
	}
	name := base + ".yaml"
	for i := 2; names[strings.ToLower(name)]; i++ {
		name = fmt.Sprintf("%s-%d.yaml", base, i)
	}
	names[strings.ToLower(name)] = true
	return name
}
