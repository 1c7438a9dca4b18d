package processor_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// While one confirm is missing others go on, for up to a quarter of an hour. What
// is moved meanwhile must not stay in memory.
func TestAMissingConfirmKeepsNoBodies(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	node := brokertest.Node(t)
	s := onNode(t, node, retryInAnHour)
	pause(t, time.Second)
	p := s.processor(t)
	p.Log = s.quiet()
	run(t, p)
	s.fill(t, 1) // the channel knows the leader from now on
	s.moved(t, retryQueue, "0")
	s.member(t, node, "sys:suspend(Member)")
	s.fill(t, 1)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc >> 20)
	}
	before, body := heap(), []byte(strings.Repeat("x", 128<<10))
	for _, id := range ids(1, 501) { // 64 MiB
		s.publish(t, "shop.slow.failed", "@gone", amqp091.Publishing{MessageId: id, Body: body})
	}
	for seen := 0; seen < 500; {
		s.bury(t, "shop.unroutable")
		seen++
	}
	if after := heap(); after > before+32 {
		t.Errorf("the heap has %d MiB, and had %d before 64 MiB were moved", after, before)
	}
	s.member(t, node, "sys:resume(Member)")
	s.moved(t, retryQueue, "0")
}

// Bodies of a MiB and of 16 fit the memory that templates/ gives the processor,
// with its defaults: 256 messages, and 32 MiB of them, in flight.
func TestLargeBodiesFitTheMemoryOfTheTemplates(t *testing.T) { //nolint:paralleltest // it needs the memory of the machine
	brokertest.OnNewestLine(t)
	s := newStage(t, retryInAnHour)
	publish := func(from, to, size int) {
		body := bytes.Repeat([]byte("x"), size)
		for _, id := range ids(from, to) {
			s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: id, Body: body})
		}
	}
	publish(0, 100, 1000) // those that come first say nothing of those that come later
	publish(100, 250, 1<<20)
	publish(250, 270, 16<<20-100)
	publish(270, 400, 1000)
	var errs bytes.Buffer
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this test binary
	c.Env = append(os.Environ(), childURL+"="+s.target.URL, childFile+"="+s.file, childPrefetch+"=256")
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	peak := 0
	brokertest.Eventually(t, "all in the tier", func() bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		if n, err := strconv.Atoi(strings.Fields(rest + " 0")[0]); err == nil {
			peak = max(peak, n>>10)
		}
		return s.ready(t, retryQueue) >= 400 && s.ready(t, "shop.slow.failed") == 0
	})
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // interrupted
	t.Logf("peak %d MiB %s", peak, errs.String())
	if peak > 200 {
		t.Errorf("it took %d MiB", peak)
	}
	allowed := 0
	if strings.Contains(errs.String(), "reconnecting") { // a machine that is too busy ends a connection
		allowed = 256 // as many are in flight
	}
	if doubled := s.moved(t, retryQueue, ids(0, 400)...); doubled > allowed {
		t.Errorf("%d are doubled", doubled)
	}
}
