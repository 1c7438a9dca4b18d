package brokertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/cputime"
)

// Floor moves messages in a plain loop, without any decision: many at a time, and
// acknowledged many at a time. Benchmarks compare dlxctl with it.
type Floor struct {
	From     string // the queue
	Exchange string // where the messages are published, each with its own routing key
	Prefetch int
	// Unconfirmed publishes without confirms: it may lose messages.
	Unconfirmed bool
	// Copy makes the message that is published. It must be set.
	Copy func(amqp091.Delivery) amqp091.Publishing
}

// Start starts to move n messages on two connections of its own. end waits until
// they are acknowledged.
func (f Floor) Start(tb testing.TB, x Target, n int) (end func()) {
	tb.Helper()
	in, out := x.Channel(tb), x.Channel(tb)
	var confirms chan amqp091.Confirmation
	if !f.Unconfirmed {
		if err := out.Confirm(false); err != nil {
			tb.Fatal(err)
		}
		confirms = out.NotifyPublish(make(chan amqp091.Confirmation, f.Prefetch))
	}
	if err := in.Qos(f.Prefetch, 0, false); err != nil {
		tb.Fatal(err)
	}
	deliveries, err := in.Consume(f.From, "", false, false, false, false, nil)
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.move(in, out, deliveries, confirms, n) }()
	return func() {
		tb.Helper()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
		for _, ch := range []*amqp091.Channel{in, out} {
			if err := ch.Close(); err != nil {
				tb.Error(err)
			}
		}
	}
}

// move acknowledges what is confirmed. Without confirms it acknowledges what was
// published, after every quarter of the prefetch.
func (f Floor) move(
	in, out *amqp091.Channel, deliveries <-chan amqp091.Delivery, confirms <-chan amqp091.Confirmation, n int,
) error {
	published, done := 0, 0
	for done < n {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return fmt.Errorf("the broker ended the subscription to %s", f.From)
			}
			if err := out.Publish(f.Exchange, d.RoutingKey, true, false, f.Copy(d)); err != nil {
				return err
			}
			published++
			if !f.Unconfirmed || published%(f.Prefetch/4) != 0 && published < n {
				continue
			}
			done = published
		case c, ok := <-confirms:
			for more := true; more; { // all confirms that have arrived lead to one acknowledgement
				if !ok || !c.Ack {
					return fmt.Errorf("message %d was not confirmed", done+1)
				}
				done++
				select {
				case c, ok = <-confirms:
				default:
					more = false
				}
			}
		}
		// The confirms come in the order of the deliveries, whose tags count from one.
		if err := in.Ack(uint64(done), true); err != nil { //nolint:gosec // it counts
			return err
		}
	}
	return nil
}

// Fill publishes n persistent messages of size bytes and waits for their confirms.
// Their message-ids count from 0. The channel must have publisher confirms enabled.
func Fill(tb testing.TB, ch *amqp091.Channel, exchange, key string, n, size int) {
	tb.Helper()
	body := []byte(strings.Repeat("x", size))
	confirms := make([]*amqp091.DeferredConfirmation, n)
	for i := range n {
		m := amqp091.Publishing{MessageId: fmt.Sprint(i), DeliveryMode: amqp091.Persistent, Body: body}
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
		if err != nil {
			tb.Fatal(err)
		}
		confirms[i] = c
	}
	for _, c := range confirms {
		if ok, err := c.WaitContext(tb.Context()); err != nil || !ok {
			tb.Fatalf("the broker did not confirm a message: %v", err)
		}
	}
}

// Arrivals waits until n messages are in a queue. It returns how many it saw first,
// and how long the others took.
func Arrivals(tb testing.TB, ch *amqp091.Channel, queue string, n int) (first int, took time.Duration) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var begin time.Time
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-tick.C {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			tb.Fatal(err)
		}
		if first == 0 && q.Messages > 0 {
			first, begin = q.Messages, time.Now()
		}
		if q.Messages >= n {
			return min(first, n-1), time.Since(begin)
		}
	}
	tb.Fatalf("%d messages did not arrive in %s within two minutes", n, queue)
	return 0, 0
}

// CPUSeconds returns the processor time that this process has used.
func CPUSeconds() float64 { return cputime.Process().Seconds() }

// PeakMiB returns the largest resident size of a process so far. The process must
// still run: the system's figure for one that has ended includes the process that
// started it. It needs Linux.
func PeakMiB(tb testing.TB, pid int) float64 {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " ?")[0], 64)
	if err != nil {
		tb.Fatal(err)
	}
	return kib / 1024
}

// Median returns the middle of a list that is not empty.
func Median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// Used is what the process of a node has used.
type Used struct {
	CPUSeconds, WrittenMiB float64 // since its start; what a node writes to memory is not counted
	MiB                    float64 // resident now
}

// Used returns what the node has used. It needs Linux, and a node that does not run in Docker.
func (s *Server) Used(tb testing.TB) Used {
	tb.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	}
	proc := "/proc/" + strings.TrimSpace(read(filepath.Join(s.server.dir, "node.pid")))
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	_, stat, _ := strings.Cut(read(proc+"/stat"), ") ") // from the third field on, see proc(5)
	_, written, _ := strings.Cut(read(proc+"/io"), "\nwrite_bytes: ")
	written, _, _ = strings.Cut(written, "\n")
	const ticks = 100 // of a second, as on each Linux
	fields := strings.Fields(stat)
	return Used{
		CPUSeconds: (number(fields[11]) + number(fields[12])) / ticks, WrittenMiB: number(written) / (1 << 20),
		MiB: number(fields[21]) * float64(os.Getpagesize()) / (1 << 20),
	}
}

// Since returns what was used since before.
func (u Used) Since(before Used) Used {
	return Used{u.CPUSeconds - before.CPUSeconds, u.WrittenMiB - before.WrittenMiB, u.MiB - before.MiB}
}
