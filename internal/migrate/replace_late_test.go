package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// locked returns a runner that has the lock of the topology on a connection of that name, and takes
// it again.
func (s *stage) locked(t *testing.T, target brokertest.Target, name string) *migrate.Runner {
	t.Helper()
	r := s.replacer(t)
	r.Endpoint, r.Management = managementtest.Endpoint(t, target), managementtest.Client(t, target)
	e := r.Endpoint
	e.ConnectionName = name
	r.Relock = func(ctx context.Context) error {
		conn, err := amqp.Dial(ctx, e)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		for err = conn.Lock(topology.LockName("shop")); errors.Is(err, amqp.ErrLocked) && ctx.Err() == nil; {
			wait(t, 50*time.Millisecond)
			err = conn.Lock(topology.LockName("shop"))
		}
		if err == nil {
			r.Management.UseAMQP(conn)
		}
		return err
	}
	if err := r.Relock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// onFrame returns the target as reached through a proxy that calls meet with each piece of data of
// a client in which a text is, and forwards the piece if meet returns true. Otherwise the
// connection ends.
func onFrame(t *testing.T, target brokertest.Target, text string, meet func(server net.Conn, piece []byte) bool,
) brokertest.Target {
	t.Helper()
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		brokertest.Forward(client, server, func(piece []byte) bool {
			return !bytes.Contains(piece, []byte(text)) || meet(server, piece)
		})
	})
}

// basicAck is a frame's length and its method, before the number of the message.
const basicAck = "\x00\x00\x00\x0d\x00\x3c\x00\x50"

// The methods of AMQP before the name of a queue.
const (
	queueDeclare = "\x00\x32\x00\x0a\x00\x00"
	queueDelete  = "\x00\x32\x00\x28\x00\x00"
)

// A deletion that reaches the broker late, after its run has lost the lock, does not meet the queue
// that another run has declared and filled meanwhile: the broker would delete it with its messages.
func TestReplaceDeletionArrivesLate(t *testing.T) {
	t.Parallel()
	for _, types := range brokertest.Share(append(directions(), [2]string{"quorum", "quorum"})) {
		t.Run(types[0]+" to "+types[1], func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), types[0], types[1], amqp091.Table{"x-max-length": 100000})
			sent, arrive := make(chan struct{}), make(chan struct{})
			late := onFrame(t, s.user, queueDelete+"\x03new", func(net.Conn, []byte) bool {
				close(sent)
				<-arrive
				return true
			})
			first := s.locked(t, late, "the first run")
			first.Relock = nil
			ended := make(chan error, 1)
			go func() { ended <- first.Run(t.Context()) }()
			select {
			case <-sent:
			case err := <-ended:
				t.Fatalf("it has deleted nothing: %v", err)
			}
			s.closeConnection(t, "the first run")
			second := s.locked(t, s.user, "the second run")
			if err := second.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.send(t, "f", "", "one", nil)
			close(arrive)
			t.Logf("the first run returns %v", <-ended)
			s.send(t, "f", "", "two", nil)
			ch := s.target.Channel(t)
			for _, id := range []string{"one", "two"} {
				if d := brokertest.Take(t, ch, "new"); d.MessageId != id {
					t.Errorf("the queue has %q, not %q", d.MessageId, id)
				}
			}
			s.replaced(t)
		})
	}
}

// closeConnection lets the broker close a connection.
func (s *stage) closeConnection(t *testing.T, name string) {
	t.Helper()
	brokertest.Eventually(t, "the broker to list "+name, func() bool {
		var list []struct {
			Name   string `json:"name"`
			Client string `json:"user_provided_name"`
			VHost  string `json:"vhost"`
		}
		if err := json.Unmarshal(s.target.Call(t, "GET", "connections", nil), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Client == name && c.VHost == s.target.VHost {
				s.target.Call(t, "DELETE", "connections/"+url.PathEscape(c.Name), nil)
				return true
			}
		}
		return false
	})
}

// A connection that ends while a request of a replacement is under way is no answer: the run takes
// its lock again, goes on from what the broker has, and calls nothing refused.
func TestReplaceGoesOnAfterAnEnd(t *testing.T) {
	t.Parallel()
	trial := topology.SwitchExchangeName("shop", "new") + ".trial"
	hold := topology.ReplacementHoldName("shop", "new")
	for name, tc := range brokertest.ShareNamed(map[string]struct {
		text    string
		arrives bool
		lock    bool // it is the connection with the lock
	}{
		"while it tries the declaration":          {queueDeclare + string(rune(len(trial))) + trial, true, false},
		"while it declares the hold":              {queueDeclare + string(rune(len(hold))) + hold, false, false},
		"before the deletion arrives":             {queueDelete + "\x03new", false, true},
		"after the deletion has arrived":          {queueDelete + "\x03new", true, true},
		"after the declaration anew has arrived":  {queueDeclare + "\x03new\x02", true, false},
		"before the deletion of the hold arrives": {queueDelete + string(rune(len(hold))) + hold, false, true},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
			var ended atomic.Bool
			cut := onFrame(t, s.user, tc.text, func(server net.Conn, piece []byte) bool {
				if ended.Swap(true) {
					return true
				}
				if tc.arrives {
					_, _ = server.Write(piece)
				}
				return false
			})
			r := s.locked(t, cut, "the run")
			var told []string
			said := r.Report
			r.Report = func(format string, args ...any) {
				said(format, args...)
				told = append(told, fmt.Sprintf(format, args...))
			}
			stop := s.consumeThrough(t, "new")
			published := s.publish(t, 100*time.Millisecond)
			err := r.Run(t.Context())
			confirmed := published()
			if err != nil || !ended.Load() {
				t.Fatalf("a connection has ended: %t; it returns %v", ended.Load(), err)
			}
			again := slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, "trying again") })
			if lock := slices.Contains(told, "the connection with the lock has ended; the lock is taken again"); !again ||
				lock != tc.lock {
				t.Errorf("it tried again: %t; it took the lock again: %t", again, lock)
			}
			s.allArrive(t, confirmed)
			stop()
			s.replaced(t)
		})
	}
}
