package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Nothing returns the topology that has the name of t and wants no object: with
// [Options.Destroy], the plan for it deletes everything that carries the owner mark of t.
func Nothing(t topology.Compiled) topology.Compiled {
	return topology.Compiled{Name: t.Name, VHost: t.VHost, Cluster: t.Cluster, CountHeader: t.CountHeader}
}

// gone is the reason for a deletion in a plan of apply, and leaving is the one in a plan that
// deletes the topology as a whole.
const (
	gone    = "no longer declared"
	leaving = "the whole topology is deleted"
)

// destroyed makes p a plan that deletes a whole topology, with what the desk keeps.
func destroyed(p Plan, d desk) Plan {
	p.Destroy = true
	p.Changes = append(p.Changes, d.removal()...)
	order(p.Changes)
	// Warnings of what stays for now: the file declares it.
	again := strings.NewReplacer("run apply again", "run destroy again", gone, "to be deleted")
	for i, c := range p.Changes {
		if rest, ok := strings.CutPrefix(c.Reason, gone); ok {
			p.Changes[i].Reason = leaving + again.Replace(rest)
		}
	}
	p.Warnings = slices.DeleteFunc(p.Warnings, func(w Warning) bool {
		return w.Name == topology.WarnDeskRun || w.Name == topology.WarnDeskParked // the changes say it
	})
	for i := range p.Warnings {
		p.Warnings[i].Text = again.Replace(p.Warnings[i].Text)
	}
	return p
}

// removal returns the changes that delete what the desk keeps between runs: the queue of parked
// messages, and that of the records of runs, which has no message of a user. A run that has not
// ended is blocked: only the desk knows which of its messages are in the queue that they came from
// too.
func (d desk) removal() []Change {
	var out []Change
	for _, q := range d.list() {
		d.consulted.add(q.Name)
		label := topology.Label{Role: q.Role}
		if q.Role == topology.RoleHold {
			out = append(out, Change{
				Action: Blocked, Kind: topology.KindQueue, Name: q.Name, Before: d.queues[q.Name], Label: label,
				Stake: &q.Usage,
				Reason: fmt.Sprintf("the run %s of the desk has not ended; 'dlxctl desk run list' shows what it does, 'dlxctl desk run resume %[1]s' goes on with that, and 'dlxctl desk run return %[1]s' gives its messages back",
					q.Run),
			})
			continue
		}
		c := deleted(d.queues[q.Name])
		c.Label, c.Stake, c.Phase = label, &q.Usage, phaseDeleteQueues
		if q.Role == topology.RoleLog {
			out = append(out, c)
			continue
		}
		if q.Usage.Ready+q.Usage.Unacknowledged > 0 {
			c.Hazards = append(c.Hazards, topology.LosesMessages)
			c.Reason += "; 'dlxctl desk restore' gives back messages that a person parked"
		}
		if q.Usage.MayBeConsumed() {
			c.Hazards = append(c.Hazards, topology.StopsConsumers)
		}
		out = append(out, c)
	}
	return out
}
