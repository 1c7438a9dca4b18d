package brokertest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// starting is how long the processes of a queue may still start after its declaration, on a busy
// machine.
const starting = 5 * time.Second

// left are the virtual hosts that are still there though their tests have ended, the first of them
// first.
//
//nolint:gochecknoglobals // a test binary has one, and cannot pass it to its tests
var left struct {
	sync.Mutex
	vhosts []departure
}

// departure is a virtual host whose test ended then.
type departure struct {
	target Target
	at     time.Time
}

// leave deletes the virtual host at once. Before 4.0 it does so when a test ends later, or all
// tests: a queue that is deleted while it begins to dead-letter at least once can end that for the
// whole node (see [Fragile]), and the other tests there would fail.
func (x Target) leave() error {
	if x.AtLeast("4.0") {
		return x.deleteVHost()
	}
	left.Lock()
	left.vhosts = append(left.vhosts, departure{x, time.Now()})
	left.Unlock()
	return deleteLeft(time.Now().Add(-starting))
}

// deleteLeft deletes the virtual hosts whose tests ended before that moment.
func deleteLeft(before time.Time) error {
	left.Lock()
	n := 0
	for n < len(left.vhosts) && left.vhosts[n].at.Before(before) {
		n++
	}
	gone := left.vhosts[:n:n]
	left.vhosts = left.vhosts[n:]
	left.Unlock()
	var errs []error
	for _, d := range gone {
		errs = append(errs, d.target.deleteVHost())
	}
	return errors.Join(errs...)
}

// deleteAllLeft deletes what all tests have left, once the last queue has started.
func deleteAllLeft() error {
	if n := len(left.vhosts); n > 0 {
		<-time.After(time.Until(left.vhosts[n-1].at.Add(starting)))
	}
	return deleteLeft(time.Now())
}

// deleteVHost deletes the virtual host. The broker ends a request after 60 seconds, and goes on
// deleting: with hundreds of queues on a busy node it needs longer. So a request that failed is
// made again, until the virtual host is gone.
func (x Target) deleteVHost() error {
	path := "vhosts/" + url.PathEscape(x.VHost)
	var err error
	for range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		_, err = x.request(ctx, http.MethodDelete, path, nil)
		cancel()
		if err == nil || strings.Contains(err.Error(), "404") {
			return nil
		}
	}
	return err
}
