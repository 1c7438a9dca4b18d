package page

import (
	"context"
	"sync"
	"time"
)

// Source is the desk behind the page.
type Source struct {
	Engine Engine
	// As returns the engine that writes another name than By into its runs. Nil: all runs are of By.
	As func(by string) Engine
	// Plain makes views in which nothing is masked. The page compares such a view with the
	// redacted one of a message that is to be edited, and never shows it.
	Plain Editor
	// Queues lists the queues of the overview, and Roles names what each queue is for that the
	// page may look at: dead-letter, parked or unroutable.
	Queues Queues
	Roles  map[string]string
	// Notice says how the queues were found. Empty: they are those of a topology file.
	Notice string
}

// sources is the source of a page, as it is now.
type sources struct {
	renew func(context.Context) (Source, error)

	mu   sync.Mutex
	last Source
	at   time.Time // when its last renewal began
}

// renewEvery is how old a source may be that is renewed.
const renewEvery = 10 * time.Second

func (s *sources) start(c Config) { s.renew, s.last, s.at = c.Renew, c.Source, c.Now() }

// now returns the source as it was read last.
func (s *sources) now() Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// renewed returns the source as it is at a time, or was a moment before.
func (s *sources) renewed(ctx context.Context, at time.Time) (Source, error) {
	if !s.due(at) {
		return s.now(), nil
	}
	next, err := s.renew(ctx)
	if err != nil {
		return Source{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next
	return next, nil
}

// due reports whether a request at a time has to renew the source. It tells only one of several.
func (s *sources) due(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.renew != nil && at.Sub(s.at) >= renewEvery
	if due {
		s.at = at
	}
	return due
}
