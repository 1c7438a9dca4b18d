package processor_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// While one confirm is missing others go on, for up to a quarter of an hour. What
// is moved meanwhile must not stay in memory.
func TestAMissingConfirmKeepsNoBodies(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	node := brokertest.Node(t)
	s := onNode(t, node, parkAtOnce)
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
		s.publish(t, "shop.slow.failed", "@gone", amqp.Publishing{MessageId: id, Body: body})
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
