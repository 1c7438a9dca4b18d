package processor_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/spec"
)

const (
	benchPrefetch = 1000
	benchRounds   = 5
)

// contender is one way of moving all messages of the failed queue to the retry
// queue.
type contender struct {
	name string
	// share is which part of the messages it moves, one in so many.
	share int
	// start begins to move n messages and gives what ends it.
	start func(b *testing.B, s *stage, n int) (end func())
}

// BenchmarkProcess compares relay and processor with the floor, in one run on one
// broker with the same messages: bare loops that consume, publish mandatory, and
// acknowledge, without a thought; and a shovel, which is the broker's own. The
// processor returns each message its history, eight headers with which the broker has
// work too: so it is compared with a loop that sets such headers as well.
//
// Their runs are interleaved, and the medians of the rounds are told as ratios:
// relay/bare is how many times as many messages relay moves in the same time. The
// clock runs from when the first messages are seen at their place until all are.
func BenchmarkProcess(b *testing.B) {
	node := brokertest.Node(b)
	node.Plugin(b, "rabbitmq_shovel")
	contenders := []contender{
		{"relay", 1, startRelay},
		{"processor", 1, startProcessor},
		{"bare", 1, bareLoop(true, copied)},
		{"bare-history", 1, bareLoop(true, withHistory)},
		{"unconfirmed", 1, bareLoop(false, copied)},
		{"shovel", 1, startShovel},
		{"one-by-one", 20, oneByOne},
	}
	for _, typ := range []string{"quorum", "classic"} {
		for _, size := range []int{1 << 10, 16 << 10} {
			b.Run(fmt.Sprintf("%s/%dKiB", typ, size>>10), func(b *testing.B) {
				file := strings.Replace(retryInAnHour, "backoff: slow", "backoff: slow, type: "+typ, 1)
				s := newStageOn(b, node.VHost(b), spec.Source{Name: "topology.yaml", Data: []byte(file)},
					func(string) (string, bool) { return "", false })
				total := 20_000
				if size > 4<<10 {
					total = 6_000
				}
				for b.Loop() {
					compare(b, s, contenders, total, size)
				}
			})
		}
	}
}

// compare lets each contender move the messages, round after round.
func compare(b *testing.B, s *stage, contenders []contender, total, size int) {
	b.Helper()
	seconds, cpu := map[string][]float64{}, map[string][]float64{} // for each message
	for round := range benchRounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)] // none is always the first
			n := total / c.share
			s.fillWith(b, n, size)
			before := brokertest.CPUSeconds()
			end := c.start(b, s, n)
			first, took := brokertest.Arrivals(b, s.eyes, retryQueue, n)
			end()
			cpu[c.name] = append(cpu[c.name], (brokertest.CPUSeconds()-before)/float64(n))
			seconds[c.name] = append(seconds[c.name], took.Seconds()/float64(n-first))
			s.purge(b)
		}
	}
	b.ReportMetric(0, "ns/op") // all together mean nothing
	for _, c := range contenders {
		b.ReportMetric(1/brokertest.Median(seconds[c.name]), c.name+"-msg/s")
		if c.name != "shovel" { // that is the broker's
			b.ReportMetric(brokertest.Median(cpu[c.name])*1e5, c.name+"-cpu-s/100k")
		}
	}
	for _, own := range []string{"relay", "processor"} {
		for _, c := range contenders[2:] {
			// Pairs of one round have seen the same broker.
			var ratios []float64
			for i, floor := range seconds[c.name] {
				ratios = append(ratios, floor/seconds[own][i])
			}
			b.ReportMetric(brokertest.Median(ratios), own+"/"+c.name)
			b.ReportMetric(slices.Min(ratios), "least-"+own+"/"+c.name)
			b.ReportMetric(slices.Max(ratios), "most-"+own+"/"+c.name)
		}
	}
}

// fillWith puts n messages of a size into the failed queue.
func (s *stage) fillWith(b *testing.B, n, size int) {
	b.Helper()
	brokertest.Fill(b, s.ch, "shop.slow.failed", "@work", n, size)
}

// purge empties the retry queue: its messages would wait for an hour.
func (s *stage) purge(b *testing.B) {
	b.Helper()
	if _, err := s.eyes.QueuePurge(retryQueue, false); err != nil { // made by this benchmark
		b.Fatal(err)
	}
}

// startProcessor is what is measured.
func startProcessor(b *testing.B, s *stage, _ int) (end func()) {
	b.Helper()
	p := s.processor(b)
	p.Prefetch, p.Log = benchPrefetch, s.quiet()
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

// startRelay is the mover by itself: what it publishes is as bare as that of the
// bare loop.
func startRelay(b *testing.B, s *stage, _ int) (end func()) {
	b.Helper()
	in, err := amqp.DialToConsume(b.Context(), s.endpoint(b, s.target))
	if err != nil {
		b.Fatal(err)
	}
	out, err := amqp.Dial(b.Context(), s.endpoint(b, s.target))
	if err != nil {
		b.Fatal(err)
	}
	source, err := in.Consume("shop.slow.failed", benchPrefetch, 32<<20)
	if err != nil {
		b.Fatal(err)
	}
	sink, err := out.Publisher(benchPrefetch)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	r := relay.Relay{Source: source, Sink: sink, Handler: bareHandler{}, Grace: time.Minute}
	go func() { ended <- r.Run(ctx) }()
	return func() {
		stop()
		if err := errors.Join(<-ended, in.Close(), out.Close()); err != nil {
			b.Error(err)
		}
	}
}

// bareHandler moves the messages without a thought.
type bareHandler struct{}

func (bareHandler) Move(d amqp091.Delivery) relay.Move {
	return relay.Move{Exchange: "shop.slow.dlx", Key: d.RoutingKey, Message: copied(d)}
}

func (bareHandler) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move { return m }

func (bareHandler) Moved(amqp091.Delivery, relay.Move) {}

// withHistory returns a message the headers that a processor gives it.
func withHistory(d amqp091.Delivery) amqp091.Publishing {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	m := copied(d)
	m.Headers = amqp091.Table{
		"count": int32(1), "retry-queue": "work", "retry-exchange": "", "retry-routing-key": "", "retry-first-failed-at": now,
		"retry-last-failed-at": now, "retry-reason": "unknown", "retry-attempts": int64(1),
		"retry-history": []any{amqp091.Table{"at": now, "attempt": int64(1), "reason": "unknown", "tier": "10s"}},
	}
	return m
}

// copied is what the bare loops make of a message: a header to route by, and
// nothing of its history.
func copied(d amqp091.Delivery) amqp091.Publishing {
	return amqp091.Publishing{
		MessageId: d.MessageId, DeliveryMode: d.DeliveryMode,
		Headers: amqp091.Table{"count": int32(1)}, Body: d.Body,
	}
}

// bareLoop is the floor. Without confirms it may lose messages.
func bareLoop(confirmed bool, made func(amqp091.Delivery) amqp091.Publishing) func(*testing.B, *stage, int) func() {
	return func(b *testing.B, s *stage, n int) func() {
		b.Helper()
		return brokertest.Floor{
			From: "shop.slow.failed", Exchange: "shop.slow.dlx", Prefetch: benchPrefetch,
			Unconfirmed: !confirmed, Copy: made,
		}.Start(b, s.target, n)
	}
}

// oneByOne waits for each confirm before it takes the next message.
func oneByOne(b *testing.B, s *stage, n int) func() {
	b.Helper()
	in, out := s.target.Channel(b), s.target.Channel(b)
	if err := errors.Join(out.Confirm(false), in.Qos(1, 0, false)); err != nil {
		b.Fatal(err)
	}
	deliveries := brokertest.Consume(b, in, "shop.slow.failed", 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range n {
			d := <-deliveries
			confirm, err := out.PublishWithDeferredConfirm("shop.slow.dlx", d.RoutingKey, true, false, copied(d))
			if err != nil || !confirm.Wait() {
				b.Errorf("not confirmed: %v", err)
				return
			}
			if err := d.Ack(false); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	return func() {
		<-ended
		if err := errors.Join(in.Close(), out.Close()); err != nil {
			b.Error(err)
		}
	}
}

// startShovel lets the broker move the messages, straight into the queue.
func startShovel(b *testing.B, s *stage, _ int) func() {
	b.Helper()
	path := "parameters/shovel/" + url.PathEscape(s.target.VHost) + "/bench"
	s.target.Call(b, "PUT", path, map[string]any{"value": map[string]any{
		"src-protocol": "amqp091", "src-uri": s.target.URL, "src-queue": "shop.slow.failed",
		"src-prefetch-count": benchPrefetch,
		"dest-protocol":      "amqp091", "dest-uri": s.target.URL, "dest-queue": retryQueue, "ack-mode": "on-confirm",
	}})
	return func() { s.target.Call(b, "DELETE", path, nil) }
}

// BenchmarkMemory measures the peak memory of dlxctl process with messages of
// 1 KiB, in a process of its own.
func BenchmarkMemory(b *testing.B) {
	s := newStage(b, retryInAnHour)
	dir := b.TempDir()
	binary, file := filepath.Join(dir, "dlxctl"), filepath.Join(dir, "topology.yaml")
	if err := os.WriteFile(file, []byte(s.file), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "../..").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var peaks []float64
	for b.Loop() {
		for range benchRounds {
			s.fillWith(b, 50_000, 1<<10)
			c := exec.CommandContext(b.Context(), binary, "process", "-f", file, "--prefetch",
				fmt.Sprint(benchPrefetch)) //nolint:gosec // built above
			c.Env = append(os.Environ(), "RABBITMQ_URL="+s.target.URL)
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
			brokertest.Arrivals(b, s.eyes, retryQueue, 50_000)
			// The peak that the system tells of a process that has ended counts its parent.
			peaks = append(peaks, brokertest.PeakMiB(b, c.Process.Pid))
			if err := errors.Join(c.Process.Signal(syscall.SIGTERM), c.Wait()); err != nil {
				b.Fatal(err)
			}
			s.purge(b)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(brokertest.Median(peaks), "peak-MiB")
	b.ReportMetric(slices.Max(peaks), "highest-peak-MiB")
}
