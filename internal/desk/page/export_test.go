package page

import (
	"context"
	"net"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Routes returns the least role of each route. Empty: it needs none.
func (p *Page) Routes() map[string]string {
	out := map[string]string{}
	for _, r := range p.table(nil) {
		out[r.pattern] = r.least.String()
	}
	return out
}

// SignInAs begins a session of a person whom a provider has signed in, and returns its cookie.
func (p *Page) SignInAs(name, word string, life time.Duration) string {
	role := reader
	for role.String() != word {
		role++
	}
	now := p.Now()
	return p.sessions.add(session{who: person{name, name, role, role.allows(), true}, begun: now, ends: now.Add(life)})
}

// Who returns the name and the role that the claims of a person give.
func Who(claims map[string]any, claim string, grants []Grant) (name, role string) {
	return nameOf(claims, "1234"), roleOf(grants, texts(claims[claim])).String()
}

// Sessions returns how many browsers are signed in.
func (p *Page) Sessions() int { return len(p.sessions.all) }

// Part returns the part of the page to which a sign-in leads back.
func Part(to string) string { return part(to) }

// BaseOn returns the URL of a page that listens on this port of all addresses.
func (b Binding) BaseOn(port int) (string, error) {
	pair, err := b.pair()
	if err != nil {
		return "", err
	}
	return b.base(pair, &net.TCPAddr{IP: net.IPv6unspecified, Port: port})
}

// JobsAfter returns the names of the jobs that a page remembers when so many have ended, one after
// the other, the newest first. The first goes on.
func JobsAfter(ctx context.Context, n int) (names []string) {
	l := &jobs{lifetime: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }}
	l.changed = sync.NewCond(&l.mu)
	l.all = []*job{{ID: "first"}}
	for range n {
		j := &job{}
		l.begin(j, time.Now, func(context.Context, func(desk.Progress)) (desk.Result, error) { //nolint:contextcheck // the page gives its own
			return desk.Result{}, nil
		})
		l.mu.Lock()
		for j.Ended == nil {
			l.changed.Wait()
		}
		l.mu.Unlock()
	}
	for _, j := range l.list() {
		names = append(names, j.ID)
	}
	return names
}

// TurnAfter returns how long a look may take that had to wait for its turn.
func TurnAfter(ctx context.Context, waited time.Duration) (time.Duration, error) {
	p := &Page{looking: make(chan struct{}, 1)}
	p.looking <- struct{}{}
	time.AfterFunc(waited, func() { <-p.looking })
	looking, done, err := p.turn(ctx, httptest.NewRecorder())
	if err != nil {
		return 0, err
	}
	defer done()
	deadline, _ := looking.Deadline()
	return time.Until(deadline), nil
}
