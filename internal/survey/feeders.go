package survey

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Feeder is a queue whose messages can reach another queue by the name of that queue, through
// dead-lettering to the default exchange. No binding shows this, so it does not move along when
// bindings move to a successor: once the other queue is deleted, the broker drops the messages.
type Feeder struct {
	*Queue
	topology.Usage

	// Next is the queue that the feeder dead-letters to: the fed queue, or another feeder.
	Next string
	// AnyKey says that the feeder has no dead-letter routing key: its messages go to the queues that
	// their own routing keys name.
	AnyKey bool
	// Unsure says that no way is known by which messages come to the feeder that go on to the fed
	// queue. It may hold some from before, and publishers may send some through an exchange that lets
	// any key through.
	Unsure bool
	// Open lists the routes by which the feeder can get new messages for the fed queue even after the
	// fed queue stops dead-lettering. Empty: the broker shows none.
	Open []string
	// Others are the other queues that still dead-letter to the feeder, and Returned those of them
	// whose messages come back from it. Both are sorted.
	Others, Returned []string
	// Exchanges route messages to the feeder that are not dead letters. They are sorted.
	Exchanges []string

	keyed bool // only messages with the name of the fed queue as their key come to it from here
}

// Feeders returns the queues from which messages can come to a queue by its name, directly or
// through other queues: by their arguments, and by the policies in effect. They are in the order of
// names.
//
// A queue that dead-letters to a named exchange is not a feeder of the queues that are bound to
// that exchange: their bindings move to the successor. Neither is one without a dead-letter routing
// key in which messages do not wait, if all that come to it have other keys.
func (s *Survey) Feeders(queue string) []Feeder {
	found := map[string]*Feeder{}
	var reach []*Feeder
	add := func(f *Feeder) {
		if known := found[f.Name]; known == nil {
			found[f.Name] = f
		} else if known.keyed && !f.keyed {
			known.keyed = false
		} else {
			return
		}
		reach = append(reach, found[f.Name])
	}
	for _, q := range s.Queues {
		if q.Name == queue || !q.DeadLetters || q.To.Exchange != "" || q.To.HasKey && q.To.Key != queue {
			continue // what is in the fed queue itself is drained
		}
		unsure := !q.To.HasKey && !q.arrived[Keys{Text: queue}]
		if !unsure || q.Waits() || q.Args.HasAny(topology.ArgMessageTTL) {
			add(&Feeder{Queue: q, Next: queue, AnyKey: !q.To.HasKey, Unsure: unsure, keyed: !q.To.HasKey})
		}
	}
	for ; len(reach) > 0; reach = reach[1:] {
		for _, q := range s.Queues {
			if q.Name != queue && s.feeds(q, reach[0], queue) {
				add(&Feeder{
					Queue: q, Next: reach[0].Name, AnyKey: q.To.Exchange == "" && !q.To.HasKey,
					keyed: !q.To.HasKey && reach[0].keyed,
				})
			}
		}
	}
	var out []Feeder
	for _, q := range s.Queues {
		if f := found[q.Name]; f != nil {
			f.Usage = s.State.Usage[q.Name]
			f.Open = s.open(f, found, queue)
			out = append(out, *f)
		}
	}
	s.addUsers(out, queue)
	return out
}

// feeds reports whether dead letters of a queue can come to a feeder, and from there to the fed
// queue. Where headers decide, they can.
func (s *Survey) feeds(q *Queue, next *Feeder, fed string) bool {
	return slices.ContainsFunc(q.Hops, func(h Hop) bool {
		keys := h.with[next.Name]
		if h.Verdict == Unknown && slices.Contains(s.Router.Reachable(q.To.Exchange), next.Name) {
			keys = append(slices.Clone(keys), h.Keys)
		}
		return len(keys) > 0 && !next.keyed || slices.Contains(keys, Keys{Text: fed})
	})
}

// open says by which ways new messages for the fed queue can come to a feeder, other than the
// dead-lettering of the fed queue and of its feeders. Whether a service publishes to it by its name
// does not show.
func (s *Survey) open(f *Feeder, found map[string]*Feeder, fed string) []string {
	if f.Unsure {
		return nil
	}
	var out []string
	if f.Consumers > 0 {
		out = append(out, "it has "+f.ConsumersText())
	}
	for _, b := range f.Bindings {
		e := s.exchanges[b.Source]
		closed := e == nil || len(e.In) == 0 && slices.ContainsFunc(e.DeadLettersOf, func(name string) bool {
			return name == fed || found[name] != nil
		})
		if closed || f.keyed && !slices.Contains(s.keysThrough(b, map[string]bool{}), Keys{Text: fed}) {
			continue
		}
		if way := fmt.Sprintf("the exchange %s routes messages to it", text.Name(b.Source)); !slices.Contains(out, way) {
			out = append(out, way)
		}
	}
	return out
}

// addUsers sets who else uses the feeders of a queue. An unused feeder is not a user of the next
// one.
func (s *Survey) addUsers(list []Feeder, fed string) {
	unused := map[string]bool{fed: true}
	for again := true; again; {
		again = false
		for i := range list {
			f := &list[i]
			f.Others = slices.DeleteFunc(slices.Clone(f.From), func(name string) bool { return unused[name] })
			f.Returned = slices.DeleteFunc(slices.Clone(f.Others), func(name string) bool {
				return !slices.Contains(s.Onward(s.queues[name], f.Queue), name)
			})
			f.Exchanges = nil
			for _, b := range f.Bindings {
				e := s.exchanges[b.Source]
				if e != nil && !s.hasDeadLettersAlone(e) && !slices.Contains(f.Exchanges, e.Name) {
					f.Exchanges = append(f.Exchanges, e.Name)
				}
			}
			slices.Sort(f.Exchanges)
			if !unused[f.Name] && !f.Used() {
				unused[f.Name], again = true, true
			}
		}
	}
}

// Used reports whether other queues, exchanges or consumers use a feeder, as far as the broker
// shows.
func (f *Feeder) Used() bool {
	return len(f.Others) > 0 || len(f.Exchanges) > 0 || f.MayBeConsumed()
}
