package spec

import "fmt"

// removed reads the names of what was taken out on purpose. The lists of several
// files join.
func (d *decoder) removed(f fields) {
	for _, n := range d.list(f, "removed") {
		if d.full() || !d.room(n, "removed", len(d.spec.Removed)) {
			break
		}
		name, ok := d.textOf(n, "a name under removed")
		if ok && name == "" {
			d.problem(d.at(n), "a name under removed is empty", "write the name of a queue or an exchange, or remove the entry")
		} else if ok {
			d.spec.Removed = append(d.spec.Removed, Removed{Name: name, Pos: d.at(n)})
		}
	}
}

// removed checks that nothing is taken out and there at the same time, which would
// let a later deletion of it pass unseen.
func (n *names) removed() {
	first := map[string]Pos{}
	there := n.declared()
	for _, r := range n.spec.Removed {
		if pos, twice := first[r.Name]; twice {
			n.add(r.Pos, "keep one", "removed already lists %q, at %s", r.Name, pos)
			continue
		}
		first[r.Name] = r.Pos
		if what := there[r.Name]; what != "" {
			n.add(r.Pos, "remove it from removed, or remove it elsewhere in the file", "removed lists %q, %s", r.Name, what)
		}
	}
}

// declared says, by name, what the file says of queues and exchanges.
func (n *names) declared() map[string]string {
	there := map[string]string{}
	if len(n.spec.Removed) == 0 {
		return there
	}
	for _, e := range n.spec.Exchanges {
		there[e.Name] = fmt.Sprintf("which the file declares as an exchange at %s", e.Pos)
	}
	for _, x := range n.spec.Delays {
		there[x.Name] = fmt.Sprintf("which the file declares as a delay at %s", x.Pos)
	}
	for _, q := range n.spec.Queues {
		there[q.Dead.Queue] = fmt.Sprintf("which is the dead-letter queue of %q", q.Name)
	}
	for _, q := range n.spec.Queues {
		if q.Replaces != "" {
			there[q.Replaces] = fmt.Sprintf("which the queue %q replaces: migrate deletes it", q.Name)
		}
	}
	for _, q := range n.spec.Queues {
		there[q.Name] = fmt.Sprintf("which the file declares as a queue at %s", q.Pos)
	}
	return there
}
