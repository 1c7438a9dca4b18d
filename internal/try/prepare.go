package try

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// Speed is by how much delays are divided unless the caller says otherwise.
	Speed = 60
	// LeastDelay is the shortest delay that a division gives. A quorum queue passes on a message
	// some 10 to 30 ms after its delay, so that a shorter one would not show which tier it was.
	LeastDelay = 50 * time.Millisecond
	// longestTry is how long the longest backoff may take with a speed that the caller did not choose.
	longestTry = 10 * time.Second
)

// Tier is a delay of a backoff, and what it is in the trial.
type Tier struct {
	Backoff string `json:"backoff"`
	// Queue is the retry queue. Empty: RabbitMQ delays messages in their work queue.
	Queue string `json:"queue"`
	// Delay is that of the file, and Tried the one of the trial.
	Delay time.Duration `json:"delay"`
	Tried time.Duration `json:"tried"`
}

// trial is the topology that is tried: all objects of the file under their own names.
type trial struct {
	// id is in the identifiers of the messages, so that those of another trial are not mistaken.
	id       string
	topology topology.Compiled
	speed    int
	tiers    []Tier
	notes    []string
}

// prepare makes the topology for a virtual host of its own: with shorter delays, and with
// substitutes for what other teams declare. A speed of zero is chosen.
func prepare(c topology.Compiled, speed int) trial {
	t := trial{id: strings.ToLower(rand.Text()[:8]), topology: c, speed: speed}
	if speed == 0 {
		t.speed = chosenSpeed(c)
	}
	t.topology.VHost, t.topology.Cluster, t.topology.Removed = "", "", nil
	t.topology.WorkQueues = slices.Clone(c.WorkQueues)
	for i := range t.topology.WorkQueues {
		t.topology.WorkQueues[i].Replaces = "" // the trial has no legacy queue
	}
	t.shorten()
	t.substitute()
	for _, m := range c.Matches {
		t.note("queues that match %s are not tried: services declare them", text.Name(m.Pattern))
	}
	return t
}

// chosenSpeed returns Speed, or as much more as the longest backoff needs.
func chosenSpeed(c topology.Compiled) int {
	longest := time.Duration(0)
	for _, b := range slices.Concat(c.Backoffs, c.Native) {
		longest = max(longest, b.Wait())
	}
	needed := (longest + longestTry - 1) / longestTry
	return max(Speed, int(needed))
}

// shorter returns a delay of the trial.
func (t *trial) shorter(d time.Duration) time.Duration {
	divided := (d / time.Duration(t.speed)).Round(time.Millisecond)
	if divided > time.Second {
		divided = divided.Round(10 * time.Millisecond)
	}
	return min(d, max(divided, LeastDelay))
}

// shorten divides the delays of all tiers. The retry queues keep their names. Dead letters are not
// deleted.
func (t *trial) shorten() {
	t.topology.Backoffs = slices.Clone(t.topology.Backoffs)
	tried := map[string]time.Duration{}
	for i, b := range t.topology.Backoffs {
		tiers := slices.Clone(b.Tiers)
		for j, tier := range tiers {
			short := t.shorter(tier.Delay)
			if _, known := tried[tier.Queue]; !known {
				t.tiers = append(t.tiers, Tier{b.Name, tier.Queue, tier.Delay, short})
			}
			tried[tier.Queue], tiers[j].Delay = short, short
		}
		t.topology.Backoffs[i].Tiers = tiers
		t.topology.Backoffs[i].Outage = nil // a trial is about one message, which dies
	}
	t.shortenNative()
	t.topology.Queues = slices.Clone(t.topology.Queues)
	for i, q := range t.topology.Queues {
		if short, isRetry := tried[q.Name]; isRetry && q.Label.Role == topology.RoleRetry {
			t.topology.Queues[i].Arguments = q.Arguments.With(topology.ArgMessageTTL, short.Milliseconds())
		}
		if q.Label.Role == topology.RoleDeadLetter && q.Arguments.HasAny(topology.ArgMessageTTL, topology.ArgExpires) {
			t.topology.Queues[i].Arguments = q.Arguments.Without(topology.ArgMessageTTL, topology.ArgExpires)
			t.note("queue %s keeps its dead letters here, to be counted", text.Name(q.Name))
		}
	}
}

// shortenNative divides the delays that RabbitMQ itself follows, in the backoffs and in the
// policies of their queues.
func (t *trial) shortenNative() {
	t.topology.Native, t.topology.Policies = slices.Clone(t.topology.Native), slices.Clone(t.topology.Policies)
	for i, b := range t.topology.Native {
		policy := b.RetryPolicy()
		for _, key := range []string{topology.KeyDelayedRetryMin, topology.KeyDelayedRetryMax} {
			ms, _ := policy[key].(int64)
			policy[key] = t.shorter(time.Duration(ms) * time.Millisecond).Milliseconds()
		}
		short, _ := topology.NativeOf(policy)
		short.Name, short.Place = b.Name, b.Place
		for k, tier := range b.Tiers {
			if k == 0 || tier.Delay != b.Tiers[k-1].Delay {
				t.tiers = append(t.tiers, Tier{b.Name, "", tier.Delay, short.Tiers[k].Delay})
			}
		}
		t.topology.Native[i] = short
		for j, p := range t.topology.Policies {
			if w, _ := t.topology.WorkQueue(p.Label.Queue); w.Backoff == b.Name {
				p.Definition = maps.Clone(p.Definition)
				maps.Copy(p.Definition, policy)
				t.topology.Policies[j] = p
			}
		}
	}
}

// substitute makes the external objects objects of the topology: no other team
// declares them in a virtual host of its own.
func (t *trial) substitute() {
	mark := topology.OwnerMark(t.topology.Name)
	t.topology.Exchanges = slices.Clone(t.topology.Exchanges)
	for i, e := range t.topology.Exchanges {
		if !e.External {
			continue
		}
		if e.Type == "" {
			e.Type = t.guessedType(e.Name)
		}
		e.External, e.Durable = false, true
		e.Arguments = e.Arguments.With(topology.ArgManagedBy, mark)
		t.topology.Exchanges[i] = e
		t.note("exchange %s is external: a %s exchange takes its place", text.Name(e.Name), e.Type)
	}
	for i, q := range t.topology.Queues {
		if !q.External {
			continue
		}
		if q.Type() == "" {
			kind := topology.Classic
			if w, _ := t.topology.WorkQueue(q.Name); !t.topology.Processed(w) && w.Backoff != topology.NoBackoff {
				kind = topology.Quorum // no other queue can have a native backoff
			}
			q.Arguments = q.Arguments.With(topology.ArgQueueType, kind)
		}
		q.External, q.Durable = false, true
		q.Arguments = q.Arguments.With(topology.ArgManagedBy, mark)
		t.topology.Queues[i] = q
		t.note("queue %s is external: a %s queue with the arguments of the file takes its place", text.Name(q.Name), q.Type())
	}
}

// guessedType returns the type of an external exchange whose type the file does not name.
func (t *trial) guessedType(exchange string) string {
	for _, b := range t.topology.Bindings {
		if b.Source == exchange && b.Arguments.HasAny(topology.ArgMatch) {
			return topology.Headers
		}
	}
	return topology.Topic
}

func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}
