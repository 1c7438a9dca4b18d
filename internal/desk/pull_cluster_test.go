package desk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// On three nodes, a policy with a message-ttl that comes to the hold while a run takes loses and
// doubles nothing: it is set on one node, the hold is on another, and the policies are read on the
// third.
//
// The node with the leader of a work queue is killed while a pull copies, and around the
// transaction in which it acknowledges. The pull works on that node, or on another one: then it is
// resumed while the node is down. Nothing is lost. Nothing is doubled but what the run says, and of
// a pull on another node nothing.
//
// A dead-letter queue of which no node is up is not called empty, nor absent.
func TestTheDeskOnThreeNodes(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	for _, kind := range ttlKinds() {
		for name, returned := range map[string]bool{"resumed": false, "returned": true} {
			t.Run(kind+", "+name, func(t *testing.T) { setATTLOnAnotherNode(t, nodes, kind, returned) })
		}
	}
	lookWithoutTheNode(t, nodes)
	type round struct {
		at        string
		otherNode bool
	}
	rounds := []round{{"after the record", true}, {"before the commit", false}}
	if brokertest.Rounds(0, 1) > 0 {
		for _, at := range []string{
			"while it copies", "before the record", "soon after the record", "before the commit", "after the commit",
			"soon after the commit",
		} {
			rounds = append(rounds, round{at, true})
		}
		for _, at := range []string{"while it copies", "after the record", "soon after the commit"} {
			rounds = append(rounds, round{at, false})
		}
	}
	for _, r := range rounds { //nolint:paralleltest // one node is killed at a time, and none in the rounds above
		var at moment // the zero moment is while it copies
		for _, m := range moments() {
			if m.name == r.at {
				at = m
			}
		}
		killTheLeader(t, fmt.Sprintf("%s, on another node %t", r.at, r.otherNode), nodes, at, r.otherNode)
	}
}

// setATTLOnAnotherNode sets a message-ttl on the hold of a run that takes.
func setATTLOnAnotherNode(t *testing.T, nodes []*brokertest.Server, kind string, returned bool) {
	t.Helper()
	s := newShopOn(t, nodes[0].VHost(t), shopFile("quorum"))
	second, third := nodes[1].See(t, s.target), &shop{target: nodes[2].See(t, s.target)}
	s.target.URL = second.URL
	s.desk, s.ch = s.deskOn(t, s.target).Holding().Copying(100), s.target.Confirming(t)
	chosen, rest := s.bury(t, 1200)
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == 150 {
			if leader := s.target.Queue(t, "shop.desk."+p.Run)["leader"]; leader != nodes[1].Name(t) {
				t.Errorf("the leader of the hold is %v", leader)
			}
			third.hurry(t, kind, 1)
		}
	})
	if err != nil || !strings.Contains(r.Stopped, "would delete the messages in shop.desk.") {
		t.Fatalf("%+v, %v", r, err)
	}
	s.end(t, kind, r.Run, returned, len(chosen))
	s.whole(t, chosen, rest)
}

// killTheLeader kills the first node at that moment of a pull that works on another node, or not.
func killTheLeader(t *testing.T, name string, nodes []*brokertest.Server, m moment, otherNode bool) {
	t.Helper()
	s := newShopOn(t, nodes[0].VHost(t), shopFile("quorum"))
	// It is where the queue was declared, unless a busy machine made the broker elect another.
	brokertest.Eventually(t, "the first node to lead billing", func() bool {
		if s.target.Queue(t, "billing")["leader"] == nodes[0].Name(t) {
			return true
		}
		nodes[0].Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"billing">>)),
			rabbit_quorum_queue:transfer_leadership(Q, '%s'), ok.`, s.target.VHost, nodes[0].Name(t)))
		return false
	})
	on := s.target
	s.target = nodes[1].See(t, s.target)
	s.desk, s.ch = s.deskOn(t, s.target), s.target.Confirming(t)
	if otherNode {
		on = s.target
	}
	f := s.newFloor(t, paceOf("quorum"))
	dead := make(chan struct{})
	kill := sync.OnceFunc(func() { nodes[0].Kill(t); close(dead) })
	d := s.deskOn(t, on)
	if m.sent != nil {
		d = s.deskOn(t, m.reach(t, on, kill))
	}
	p, err := d.Propose(t.Context(), pullRequest(t))
	if err != nil {
		t.Fatal(err)
	}
	// What the consumer acknowledges in that moment may come back. This one has acknowledged nothing
	// for seconds.
	f.slow.Store(int64(time.Hour))
	r, err := d.Execute(t.Context(), p, func(p desk.Progress) {
		if m.sent == nil && p.Phase == desk.Taking && p.Done == 5 {
			kill()
		}
	})
	<-dead
	first := fmt.Sprintf("%d moved, %v", r.Moved, err)
	f.end()
	s.ch = s.target.Confirming(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	f.slow.Store(int64(paceOf("quorum").consumes))
	f.consume(ctx, t, s.target)
	if !otherNode { // the broker keeps the lock of the run until the node is back
		nodes[0].Start(t)
	}
	run := r.Run
	for tries := 0; err != nil && tries < 20; tries++ { // queues elect new leaders
		r, err = s.desk.Resume(t.Context(), run, nil, nil)
	}
	if err != nil || !r.Ended {
		t.Fatalf("%s: %s; %+v, %v", name, first, r, err)
	}
	lost, doubled, buried := f.ends(t)
	if lost > 0 || doubled > r.DoubledAtMost || otherNode && r.DoubledAtMost > 0 || len(buried) < r.Moved {
		t.Errorf("%s: %d lost, %d doubled, %d dead letters; %s; %+v", name, lost, doubled, len(buried), first, r)
	}
	t.Logf("%s: %d lost, %d doubled, %d dead letters; %s; %+v", name, lost, doubled, len(buried), first, r)
	if otherNode {
		nodes[0].Start(t)
	}
	s.tidy(t)
}
