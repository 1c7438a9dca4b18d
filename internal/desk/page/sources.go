package page

import (
	"context"
	"errors"
	"fmt"
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
	// Queues lists the queues and delays of the overview, which the page may look at. Roles names what
	// those of them are for of which the broker need not be asked.
	Queues Queues
	Roles  map[string]string
	// Notice says how the queues were found. Empty: they are those of a topology file.
	Notice string
}

// sources is the source of a page, as it is now.
type sources struct {
	renew func(context.Context) (Source, error)
	clock Clock

	mu   sync.Mutex
	last Source
	at   time.Time // when its last renewal began

	opening sync.Mutex // one request reads the source for the first time
	failed  error      // why that failed last; nil: it has not
	tried   time.Time
}

// The limits of the first reading of a source: how long it may take, and for how long its failure
// answers the next requests too.
const (
	openTime   = 10 * time.Second
	failedTime = 3 * time.Second
)

// opened reads the source if it was never read. A broker that cannot be reached is tried again by a
// later request.
func (s *sources) opened(ctx context.Context) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	switch {
	case s.now().Engine != nil:
		return nil
	case s.failed != nil && s.clock().Sub(s.tried) < failedTime:
		return s.failed
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, fmt.Errorf("no answer within %s", openTime))
	defer cancel()
	next, err := s.renew(ctx)
	if s.failed, s.tried = err, s.clock(); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) { // the browser has gone
			s.failed = nil
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = next
	return nil
}

// renewEvery is how old a source may be that is renewed.
const renewEvery = 10 * time.Second

func (s *sources) start(c Config) {
	s.renew, s.clock, s.last, s.at = c.Renew, c.Now, c.Source, c.Now()
}

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
