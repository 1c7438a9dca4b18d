// Package notify sends notices of dead letters to webhooks, chats and mailboxes. It never blocks
// its caller: each target has a bounded queue of its own, and notices that arrive faster than they
// may be sent are counted and dropped. It knows neither brokers nor topologies.
package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/notice"
)

// Notice describes what happened to one message or to several.
type Notice = notice.Notice

const (
	// BodyCap is how many bytes of a body a notice carries at most.
	BodyCap = 4 << 10
	// errorCap is how many bytes of an error and of its type a notice carries at most.
	errorCap = 1 << 10
	// groupTime is how long messages that failed alike share a notice.
	groupTime = time.Minute
	// mostGroups is how many groups are told apart. Messages beyond have a notice each.
	mostGroups = 1000
)

// Counter counts what became of notices, as many as the messages that they are about. Reasons for
// dropping are full, refused, failed and stopped.
type Counter interface {
	Sent(n int)
	Dropped(n int, reason string)
}

// Notifier groups notices, and sends them to its targets. Of messages that failed alike, the first
// has a notice at once, and those of each minute after it share one. It must be made by New.
type Notifier struct {
	bodies  bool
	targets []*target

	mu     sync.Mutex
	groups map[groupKey]*group
	window time.Duration
	look   time.Duration // how often Run looks for notices that are due
}

// groupKey is what messages have in common that share a notice.
type groupKey struct{ event, topology, queue, severity, alike string }

// group is messages that failed alike.
type group struct {
	due  time.Time // when the next notice may go
	held *Notice   // that of the messages since the last notice; nil: none came
}

// New returns a notifier for targets. With bodies, notices carry the beginning of the messages'
// bodies. counter returns the counter of a target, by its name.
func New(targets []Target, bodies bool, log *slog.Logger, counter func(target string) Counter) *Notifier {
	n := &Notifier{bodies: bodies, groups: map[groupKey]*group{}, window: groupTime, look: time.Second}
	for _, t := range targets {
		named, counts := log.With("target", t.Name), counter(t.Name)
		for _, one := range t.apart() {
			n.targets = append(n.targets, newTarget(one, named, counts))
		}
	}
	return n
}

// Notify takes a notice, to be sent soon. It returns at once: if too many wait already, the notice
// is dropped and counted. The body is not kept, but for its beginning if bodies are asked for.
func (n *Notifier) Notify(notice Notice, body []byte) {
	n.NotifyShown(notice, Message{Body: body}, nil)
}

// NotifyShown takes a notice as Notify does, with what show returns of the message. A nil show
// shows the message as it is.
func (n *Notifier) NotifyShown(notice Notice, m Message, show func(Message) Shown) {
	wanted := n.wanting(notice)
	if len(wanted) == 0 {
		return
	}
	if notice.Messages > 0 && n.joins(notice, m, show) {
		return
	}
	free := false
	for _, t := range wanted {
		free = free || !t.full()
	}
	if free { // else nothing is decoded in vain
		notice = n.complete(notice, m, show)
	}
	for _, t := range wanted {
		t.take(notice)
	}
}

func (n *Notifier) wanting(notice Notice) []*target {
	var out []*target
	for _, t := range n.targets {
		if t.wants(notice) {
			out = append(out, t)
		}
	}
	return out
}

// joins reports whether a message shares a later notice with others that failed alike.
func (n *Notifier) joins(notice Notice, m Message, show func(Message) Shown) bool {
	key := groupKey{notice.Event, notice.Topology, notice.Queue, notice.Severity, m.Alike}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch g := n.groups[key]; {
	case g == nil:
		if len(n.groups) < mostGroups {
			n.groups[key] = &group{due: time.Now().Add(n.window)}
		}
		return false
	case g.held == nil:
		held := n.complete(notice, m, show)
		g.held = &held
	default:
		g.held.Messages += notice.Messages
	}
	return true
}

// complete adds to a notice what is shown of the message.
func (n *Notifier) complete(notice Notice, m Message, show func(Message) Shown) Notice {
	if n.bodies {
		notice.BodyBytes = len(m.Body)
		notice.Body, notice.BodyBase64 = beginning(m.Body)
	}
	if show != nil {
		m.SendsBody = n.bodies
		m.ID, m.Error, m.ErrorType = notice.MessageID, notice.Error, notice.ErrorType
		notice = shown(notice, show(m))
	}
	// Only now: no rule finds a part of a value.
	notice.Error, notice.ErrorType = first(notice.Error), first(notice.ErrorType)
	return notice
}

// flush sends the notices that are due, or all.
func (n *Notifier) flush(all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for key, g := range n.groups {
		switch {
		case !all && now.Before(g.due):
		case g.held == nil:
			delete(n.groups, key)
		default:
			for _, t := range n.wanting(*g.held) {
				t.take(*g.held)
			}
			g.held, g.due = nil, now.Add(n.window)
		}
	}
}

// Run sends notices until ctx ends, and then for a few seconds what still waits. No goroutine
// outlives it. A nil Notifier has nothing to send.
func (n *Notifier) Run(ctx context.Context) {
	if n == nil {
		return
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	var targets sync.WaitGroup
	defer targets.Wait()
	defer end()
	for _, t := range n.targets {
		targets.Go(func() { t.run(running) })
	}
	tick := time.NewTicker(n.look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			n.flush(true)
			return
		case <-tick.C:
			n.flush(false)
		}
	}
}
