package processor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// childURL and childFile tell the test binary to be a processor that a test can
// kill: they hold the AMQP URL and the topology.
const (
	childURL  = "DLXCTL_TEST_CHILD_URL"
	childFile = "DLXCTL_TEST_CHILD_TOPOLOGY"
	// childAPI is the URL of the management API, if it reads that.
	childAPI = "DLXCTL_TEST_CHILD_API"
	// childPrefetch is its prefetch, if not that of the tests.
	childPrefetch = "DLXCTL_TEST_CHILD_PREFETCH"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := child(url, os.Getenv(childFile)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(brokertest.Main(m, func() error {
		return goleak.Find(goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock")) // it ends a second after the last match
	}))
}

// child is a processor until it is told to stop, or killed.
func child(url, file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	t, err := compile(file)
	if err != nil {
		return err
	}
	e, err := broker.Config{URL: url, API: os.Getenv(childAPI)}.Resolve()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p := processor.Processor{
		Topology: t, Endpoint: e, Prefetch: prefetch, PrefetchBytes: 32 << 20,
		Grace: 10 * time.Second, Log: log,
	}
	if n, err := strconv.Atoi(os.Getenv(childPrefetch)); err == nil {
		p.Prefetch = n
	}
	go tellVitals()
	return p.Run(ctx)
}

// tellVitals prints a line at each SIGUSR1.
func tellVitals() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for range asked {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		resident := 0
		if status, err := os.ReadFile("/proc/self/status"); err == nil {
			_, rest, _ := strings.Cut(string(status), "VmRSS:")
			resident, _ = strconv.Atoi(strings.Fields(rest + " 0")[0])
		}
		line, _ := json.Marshal(vitals{
			Goroutines: runtime.NumGoroutine(), Heap: int(m.HeapAlloc >> 10),
			Resident: resident,
		}) //nolint:gosec // it is small
		fmt.Println(string(line))
	}
}

// prefetch is that of the processors under test.
const prefetch = 100

func compile(file string) (topology.Compiled, error) {
	t, _, err := spec.Load([]spec.Source{{Name: "topology.yaml", Data: []byte(file)}},
		func(string) (string, bool) { return "", false })
	return t, err
}
