package desk

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// A process that is killed while it sends doubles at most what it has in flight, and the next one
// says how many messages that may be. For the process that began the run, the list has its limits.
// One that resumes the run may have others, and may have doubled what an earlier one had in flight.
// So it notes both in the name of an exchange: no policy deletes that, see noteStep.

// inherit notes how many messages may be doubled if the processes were killed that sent before this
// one. send has the limits with which the run was begun. The caller has just inspected the virtual
// host.
func (s *session) inherit(send SendOptions) {
	s.doubledBefore = send.inFlight()
	d := s.worker.desk
	for _, e := range d.last.Load().Have.Exchanges {
		noted, is := strings.CutPrefix(e.Name, stepExchange(d.Topology.Name, s.manifest.Run, recordSending)+".")
		if !is {
			continue
		}
		var earlier, inFlight int
		_, err := fmt.Sscanf(noted, "%d.%d", &earlier, &inFlight)
		switch { // earlier grows with each process that was able to send
		case err != nil, earlier < s.doubledEarlier:
		case earlier > s.doubledEarlier:
			s.doubledEarlier, s.doubledBefore = earlier, inFlight
		default:
			s.doubledBefore = max(s.doubledBefore, inFlight)
		}
	}
}

// noteInFlight notes for the next process how many messages this one may double, and how many
// earlier ones may have doubled. A return finds what an earlier one has returned, see dropReturned.
func (s *session) noteInFlight(ctx context.Context, earlier int) error {
	if !s.resumed || s.manifest.back {
		return nil
	}
	name, run := s.worker.desk.Topology.Name, s.manifest.Run
	step := fmt.Sprintf("%s.%d.%d", recordSending, earlier, s.manifest.Send.inFlight())
	return s.worker.fanout(ctx, stepExchange(name, run, step), topology.HoldName(name, run))
}
