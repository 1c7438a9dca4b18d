package amqp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The methods of class basic that a client sends to subscribe and to end a subscription.
const (
	basicConsume = 20
	basicCancel  = 30
)

// clientFrame returns the next frame that a client sends, or the protocol header. method is that of
// a frame of class basic, and zero for all others.
func clientFrame(client io.Reader, first bool) (frame []byte, method uint16, err error) {
	frame = make([]byte, 8) // the protocol header; or the head of a frame and a byte
	if _, err := io.ReadFull(client, frame); err != nil || first {
		return frame, 0, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(frame[3:])) // without that byte, with the last octet
	if _, err := io.ReadFull(client, rest); err != nil {
		return frame, 0, err
	}
	frame = append(frame, rest...)
	if frame[0] == 1 && binary.BigEndian.Uint16(frame[7:]) == 60 {
		method = binary.BigEndian.Uint16(frame[9:])
	}
	return frame, method, nil
}

// filtered returns the target as reached through a proxy that asks pass about each frame of the
// client. pass returns what to send in its place.
func filtered(t *testing.T, target brokertest.Target, pass func(frame []byte, method uint16) []byte) brokertest.Target {
	t.Helper()
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		for first := true; ; first = false {
			frame, method, err := clientFrame(client, first)
			if err != nil {
				return
			}
			if _, err := server.Write(pass(frame, method)); err != nil {
				return
			}
		}
	})
}

// takes takes and releases, and fails the test if that takes too long.
func takes(t *testing.T, ctx context.Context, h *amqp.Holder) (took, released error) { //nolint:revive // as testing
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		took = h.Take(ctx, func(amqp.Held) error { return nil })
		released = h.Release() //nolint:contextcheck // everything goes back also after ctx has ended
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the Holder waits for an answer that does not come")
	}
	return took, released
}

// The end of the context while a subscription begins: the Holder ends it only once the broker has
// answered, since a broker that receives both at once answers only one of them.
func TestAHolderEndsWhileItSubscribes(t *testing.T) {
	t.Parallel()
	const n = 100
	target := brokertest.VHost(t)
	queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	for range 3 {
		ctx, end := context.WithCancelCause(t.Context())
		late := errors.New("too late")
		var mu sync.Mutex
		var held []byte
		canceled := make(chan struct{})
		through := brokertest.NewFilter(t, target, func(client, server net.Conn) {
			send := func(frame []byte) error {
				mu.Lock()
				defer mu.Unlock()
				frame = append(held, frame...)
				held = nil
				_, err := server.Write(frame)
				return err
			}
			for first := true; ; first = false {
				frame, method, err := clientFrame(client, first)
				if err != nil {
					return
				}
				switch method {
				case basicConsume: // the broker receives it together with the next request, or a moment later
					mu.Lock()
					held = frame
					mu.Unlock()
					end(late)
					go func() {
						select {
						case <-canceled:
						case <-time.After(300 * time.Millisecond):
							_ = send(nil) // the test fails if it does not arrive
						}
					}()
					continue
				case basicCancel:
					close(canceled)
				}
				if send(frame) != nil {
					return
				}
			}
		})
		conn := dial(t, through)
		h := conn.Holder(queue, amqp.HolderOptions{Messages: n})
		took, released := takes(t, ctx, h)
		// From the second round on the messages are returned ones: if Take saw some before it saw the
		// end of the context, Release cannot know whether it had all of them.
		if !errors.Is(took, late) || released != nil && !errors.Is(released, amqp.ErrReordered) || conn.Closed() {
			t.Errorf("Take: %v; Release: %v; connection closed: %t", took, released, conn.Closed())
		}
		brokertest.Eventually(t, "the messages to be back", func() bool { return ready(t, ch, queue) == n })
	}
}

// A broker that does not answer the end of a subscription loses its connection, and so it takes all
// messages back.
func TestAHolderWaitsForNoAnswerForever(t *testing.T) {
	t.Parallel()
	const n = 100
	target := brokertest.VHost(t)
	queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	for name, silent := range map[string]uint16{"no consume-ok": basicConsume, "no cancel-ok": basicCancel} {
		through := filtered(t, target, func(frame []byte, method uint16) []byte {
			if method == silent {
				return nil
			}
			return frame
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		conn := dial(t, through)
		h := conn.Holder(queue, amqp.HolderOptions{Messages: n}.AnswerTime(500*time.Millisecond))
		if took, released := takes(t, ctx, h); took == nil || released != nil || !conn.Closed() {
			t.Errorf("%s: Take: %v; Release: %v; connection closed: %t", name, took, released, conn.Closed())
		}
		cancel()
		brokertest.Eventually(t, "the messages to be back", func() bool { return ready(t, ch, queue) == n })
	}
	if got := drained(t, target, queue, n); !slices.IsSorted(got) {
		t.Errorf("came back in another order: %v", got)
	}
}
