package migrate_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// backlog is how many messages of 1 KiB wait in the legacy queue.
	backlog = 200_000
	// fewer is a backlog to compare the peak memory with.
	fewer = 20_000
	// drainRounds is how often each of the two moves them, in turn.
	drainRounds = 3
)

// BenchmarkDrain compares the drain of dlxctl migrate, the real program in a
// process of its own, with its floor, in one run on one broker with the same
// messages: a bare loop that consumes, publishes mandatory to the same exchange,
// with confirms and the same prefetch, and acknowledges many at once.
//
// The clock runs from when the first messages are seen in the new queue until all
// are: so the start of the program, its looks at the broker and the second in
// which it waits for more are not in it. They are in its CPU time.
//
// Its peak memory is measured with a tenth of the messages too: it is flat if the
// two are nearly the same.
func BenchmarkDrain(b *testing.B) {
	dlxctl := brokertest.Program(b)
	for _, typ := range []string{"quorum", "classic"} {
		b.Run(typ, func(b *testing.B) {
			s := newStage(b, typ, nil)
			s.migrate(b, dlxctl, "--until", "cutover", "--yes")
			d := drains{stage: s, dlxctl: dlxctl, fill: s.target.Channel(b), eyes: s.target.Channel(b)}
			if err := d.fill.Confirm(false); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				d.compare(b)
			}
		})
	}
}

// drains measures drains of one legacy queue.
type drains struct {
	*stage
	dlxctl     string
	fill, eyes *amqp091.Channel
}

// drained is what one drain took, for each message, and the peak of its memory.
type drained struct{ seconds, cpu, peakMiB float64 }

func (d *drains) compare(b *testing.B) {
	b.Helper()
	few := d.program(b, fewer)
	var drains, floor, ratio, cpu, floorCPU, peak []float64
	for round := range drainRounds {
		var o, f drained
		if round%2 == 0 { // neither is always the first
			o, f = d.program(b, backlog), d.bare(b, backlog)
		} else {
			f, o = d.bare(b, backlog), d.program(b, backlog)
		}
		drains, cpu, peak = append(drains, o.seconds), append(cpu, o.cpu), append(peak, o.peakMiB)
		floor, floorCPU = append(floor, f.seconds), append(floorCPU, f.cpu)
		ratio = append(ratio, o.seconds/f.seconds) // pairs of one round have seen the same broker
	}
	b.ReportMetric(0, "ns/op") // the two together mean nothing
	b.ReportMetric(1/brokertest.Median(drains), "msg/s")
	b.ReportMetric(1/brokertest.Median(floor), "floor-msg/s")
	b.ReportMetric(brokertest.Median(ratio), "ratio")
	b.ReportMetric(slices.Min(ratio), "least-ratio")
	b.ReportMetric(slices.Max(ratio), "most-ratio")
	b.ReportMetric(brokertest.Median(cpu)*1e5, "cpu-s/100k")
	b.ReportMetric(brokertest.Median(floorCPU)*1e5, "floor-cpu-s/100k")
	b.ReportMetric(brokertest.Median(peak), "peak-MiB")
	b.ReportMetric(few.peakMiB, "peak-MiB-of-a-tenth")
}

// program lets dlxctl migrate drain n messages.
func (d *drains) program(b *testing.B, n int) drained {
	b.Helper()
	brokertest.Fill(b, d.fill, "", "old", n, 1<<10)
	c, out := d.command(b, d.dlxctl, "--until", "drain", "--yes")
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	first, took := brokertest.Arrivals(b, d.eyes, "new", n)
	peak := brokertest.PeakMiB(b, c.Process.Pid)
	if err := c.Wait(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	d.empty(b, n)
	return drained{took.Seconds() / float64(n-first), cpu.Seconds() / float64(n), peak}
}

// bare lets the floor move n messages.
func (d *drains) bare(b *testing.B, n int) drained {
	b.Helper()
	brokertest.Fill(b, d.fill, "", "old", n, 1<<10)
	before := brokertest.CPUSeconds()
	floor := brokertest.Floor{
		From: "old", Exchange: topology.SwitchExchangeName("shop", "old") + ".new", Prefetch: 1000,
		Copy: func(m amqp091.Delivery) amqp091.Publishing {
			return amqp091.Publishing{MessageId: m.MessageId, DeliveryMode: m.DeliveryMode, Body: m.Body}
		},
	}
	end := floor.Start(b, d.target, n)
	first, took := brokertest.Arrivals(b, d.eyes, "new", n)
	end()
	cpu := brokertest.CPUSeconds() - before
	d.empty(b, n)
	return drained{seconds: took.Seconds() / float64(n-first), cpu: cpu / float64(n)}
}

// empty takes the n messages of the benchmark from the new queue, and checks that
// there are neither more nor fewer.
func (d *drains) empty(b *testing.B, n int) {
	b.Helper()
	purged, err := d.eyes.QueuePurge("new", false)
	if err != nil || purged != n {
		b.Fatalf("%d of %d messages came to the new queue: %v", purged, n, err)
	}
	if old, err := d.eyes.QueueDeclarePassive("old", true, false, false, false, nil); err != nil || old.Messages > 0 {
		b.Fatalf("%d messages are left in the legacy queue: %v", old.Messages, err)
	}
}

// migrate runs dlxctl migrate to its end.
func (s *stage) migrate(b *testing.B, dlxctl string, args ...string) {
	b.Helper()
	c, out := s.command(b, dlxctl, args...)
	if err := c.Run(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

// replaceRounds is how many queues BenchmarkReplace replaces in each direction.
const replaceRounds = 5

// BenchmarkReplace replaces queues under their names, one after the other, by the real program,
// with 300 messages a second through four exchanges. It measures what the consumer of each sees,
// which reconnects and subscribes again 100 ms after basic.cancel: how long after the cancel it has
// the next message, and the longest time without one. A lost or doubled message ends it.
func BenchmarkReplace(b *testing.B) {
	dlxctl := brokertest.Program(b)
	for _, types := range [][2]string{{"classic", "quorum"}, {"quorum", "classic"}} {
		b.Run(types[0]+"-"+types[1], func(b *testing.B) {
			for b.Loop() {
				var pauses, gaps []float64
				for range replaceRounds {
					pause, gap := replacePause(b, dlxctl, types)
					pauses, gaps = append(pauses, pause), append(gaps, gap)
				}
				b.ReportMetric(brokertest.Median(pauses), "pause-ms")
				b.ReportMetric(slices.Max(pauses), "worst-pause-ms")
				b.ReportMetric(brokertest.Median(gaps), "gap-ms")
				b.ReportMetric(slices.Max(gaps), "worst-gap-ms")
			}
		})
	}
}

// replacePause replaces one queue, and returns both times in milliseconds.
func replacePause(b *testing.B, dlxctl string, types [2]string) (pause, gap float64) {
	b.Helper()
	f := newFleet(b, brokertest.VHost(b), types[0], types[1], 1, 0)
	stop := f.serve(b, "q00")
	published := f.send(b, 300)
	wait(b, time.Second)
	c, stdout, stderr := f.each(b, dlxctl)
	if err := c.Run(); err != nil {
		b.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	confirmed := published()
	if lost, doubled := f.account(b, confirmed); lost+doubled > 0 {
		b.Fatalf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
	}
	stop()
	found := func(m *sync.Map) float64 {
		v, _ := m.Load("q00")
		d, measured := v.(time.Duration)
		if !measured {
			b.Fatal("the consumer had no message after a cancel")
		}
		return float64(d.Microseconds()) / 1000
	}
	return found(&f.paused), found(&f.gaps)
}
