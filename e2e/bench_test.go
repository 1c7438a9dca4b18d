package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// size is a topology to measure with, and how often.
type size struct {
	queues int
	typ    string
	rounds int
}

func (s size) String() string { return fmt.Sprintf("queues=%d/%s", s.queues, s.typ) }

// sizes are those of the targets. Quorum queues are few: 1,000 of them keep a machine busy for
// minutes, which says nothing about us.
func sizes() []size {
	return []size{{100, "quorum", 3}, {100, "classic", 5}, {1000, "classic", 3}, {5000, "classic", 1}}
}

// file returns a topology of that size: each work queue has a business binding, a
// return path and a way to the dead-letter queue, which all share.
func (s size) file() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {type: %s, backoff: standard}\nbackoff:\n  standard: {tiers: [10s, 1m, 10m]}\nexchanges:\n  - {name: events, type: topic}\nqueues:\n", s.typ)
	for i := range s.queues {
		fmt.Fprintf(&b, "  - {name: service.queue-%04d, dead: shared, bindings: [{exchange: events, key: orders.queue-%04d.*}]}\n", i, i)
	}
	return b.String()
}

// BenchmarkPlan compares dlxctl plan, where nothing is to do, with its floor: the
// GETs of reads from a bare client, all at once, their answers thrown away.
func BenchmarkPlan(b *testing.B) {
	dlxctl := build(b)
	for _, s := range sizes() {
		b.Run(s.String(), func(b *testing.B) {
			target := brokertest.VHost(b)
			p := program{path: dlxctl, target: target, file: filepath.Join(b.TempDir(), "topology.yaml")}
			p.prepare(b, s)
			p.run(b, "apply", "--yes")
			floor := [][]request{reads(target)}
			for b.Loop() {
				compare(b, 4*s.rounds, // reading is quick
					func() time.Duration { return send(b, target, floor) },
					func() usage { return p.run(b, "plan") },
				)
			}
			b.ReportMetric(p.start(b), "start-ms")
		})
	}
}

// reads are the requests that a comparison with the broker needs at least: what there is, without
// any statistics. They are written down here, not recorded from the program: what the program reads
// beyond them counts as its own.
func reads(target brokertest.Target) []request {
	vhost := url.PathEscape(target.VHost)
	return []request{
		{http.MethodGet, "/api/queues/" + vhost + "?disable_stats=true", ""},
		{http.MethodGet, "/api/exchanges/" + vhost + "?disable_stats=true", ""},
		{http.MethodGet, "/api/bindings/" + vhost, ""},
		{http.MethodGet, "/api/policies/" + vhost, ""},
	}
}

// BenchmarkApply compares dlxctl apply, where nothing is there yet, with its
// floor: the same writes from a bare client, rank after rank, 32 at a time.
// Only dlxctl reads the broker before and after, and takes the lock.
func BenchmarkApply(b *testing.B) {
	dlxctl := build(b)
	for _, s := range sizes() {
		b.Run(s.String(), func(b *testing.B) {
			target := brokertest.VHost(b)
			p := program{path: dlxctl, target: target, file: filepath.Join(b.TempDir(), "topology.yaml")}
			p.prepare(b, s)
			floor := writes(b, target, s)
			for b.Loop() {
				compare(b, s.rounds,
					func() time.Duration { target.Empty(b); return send(b, target, floor) },
					func() usage { target.Empty(b); return p.run(b, "apply", "--yes") },
				)
			}
		})
	}
}

// compare measures the floor and the program in turn, and reports medians and
// the largest peak. The ratio is the time of dlxctl divided by that of the floor.
func compare(b *testing.B, rounds int, floor func() time.Duration, tool func() usage) {
	b.Helper()
	var bare, took []time.Duration
	var cpu []time.Duration
	var ratios []float64
	var peak float64
	for range rounds {
		f, o := floor(), tool()
		bare, took, cpu = append(bare, f), append(took, o.Time), append(cpu, o.CPU)
		ratios = append(ratios, o.Time.Seconds()/f.Seconds()) // pairs of one round have seen the same broker
		peak = max(peak, o.PeakMiB)
	}
	b.ReportMetric(0, "ns/op") // the two together mean nothing
	b.ReportMetric(milliseconds(median(bare)), "floor-ms")
	b.ReportMetric(milliseconds(median(took)), "ms")
	b.ReportMetric(brokertest.Median(ratios), "ratio")
	b.ReportMetric(slices.Min(ratios), "least-ratio")
	b.ReportMetric(slices.Max(ratios), "most-ratio")
	b.ReportMetric(milliseconds(median(cpu)), "cpu-ms")
	b.ReportMetric(peak, "peak-MiB")
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// request is one request to the management API.
type request struct{ method, path, body string }

// record returns the requests that use makes. They are answered as by a virtual
// host without anything in it.
func record(b *testing.B, target brokertest.Target, use func(*management.Client) error) []request {
	b.Helper()
	var mu sync.Mutex
	var requests []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.Error(err)
		}
		mu.Lock()
		requests = append(requests, request{r.Method, r.URL.RequestURI(), string(body)})
		mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
			w.WriteHeader(http.StatusCreated)
		case strings.HasPrefix(r.URL.Path, "/api/overview"):
			fmt.Fprintf(w, `{"rabbitmq_version": %q}`, target.Version)
		default:
			fmt.Fprint(w, "[]")
		}
	}))
	defer server.Close()
	endpoint, err := broker.Config{URL: target.URL, API: server.URL}.Resolve()
	if err != nil {
		b.Fatal(err)
	}
	m, err := management.New(endpoint)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if err := use(m); err != nil {
		b.Fatal(err)
	}
	return requests
}

// writes returns the requests of an apply from nothing, phase by phase.
func writes(b *testing.B, target brokertest.Target, s size) [][]request {
	b.Helper()
	var ranks [][]request
	empty := topology.State{Version: target.Version, VHost: target.VHost}
	changes := plan.Make(compiled(b, s.file()), empty, plan.Options{}).Changes
	for len(changes) > 0 {
		n := slices.IndexFunc(changes, func(c plan.Change) bool { return c.Phase != changes[0].Phase })
		if n < 0 {
			n = len(changes)
		}
		rank := changes[:n]
		ranks = append(ranks, record(b, target, func(m *management.Client) error {
			for _, c := range rank {
				if err := m.Apply(b.Context(), c); err != nil {
					return err
				}
			}
			return nil
		}))
		changes = changes[n:]
	}
	return ranks
}

// atOnce is how many requests are sent at a time, as apply does.
const atOnce = 32

// send sends requests, rank after rank, and returns the time that takes. As the
// program, it begins without connections.
func send(b *testing.B, target brokertest.Target, ranks [][]request) time.Duration {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
	defer client.CloseIdleConnections()
	start := time.Now()
	for _, requests := range ranks {
		var wg sync.WaitGroup
		var next atomic.Int64
		for range min(atOnce, len(requests)) {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(len(requests)); i = next.Add(1) {
					sendOne(b, client, target, requests[i-1])
				}
			})
		}
		wg.Wait()
	}
	return time.Since(start)
}

func sendOne(b *testing.B, client *http.Client, target brokertest.Target, r request) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), r.method, target.API+r.path, strings.NewReader(r.body))
	if err != nil {
		b.Error(err)
		return
	}
	req.SetBasicAuth(target.Username, target.Password)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode/100 != 2 {
		b.Errorf("%s %s: %s %v", r.method, r.path, resp.Status, err)
	}
}

// program is the real one, as a process of its own.
type program struct {
	path, file string
	target     brokertest.Target
}

// build builds it.
func build(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "dlxctl")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "..").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func (p program) prepare(b *testing.B, s size) {
	b.Helper()
	if err := os.WriteFile(p.file, []byte(s.file()), 0o600); err != nil {
		b.Fatal(err)
	}
}

// usage is what one run of the program took.
type usage struct {
	Time    time.Duration
	CPU     time.Duration
	PeakMiB float64
}

// run runs the program and returns what it took.
func (p program) run(b *testing.B, args ...string) usage {
	b.Helper()
	c := exec.CommandContext(b.Context(), "measure", append([]string{p.path}, args...)...)
	c.Env = append(os.Environ(), "RABBITMQ_URL="+p.target.URL, "RABBITMQ_API_URL="+p.target.API, "DLXCTL_FILE="+p.file)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		b.Fatalf("dlxctl %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var u usage
	if err := json.Unmarshal(out, &u); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return u
}

// start returns how many milliseconds of each run are the start of the process.
func (p program) start(b *testing.B) float64 {
	b.Helper()
	var took []time.Duration
	for range 9 {
		took = append(took, p.run(b, "version").Time)
	}
	return milliseconds(median(took))
}

// measure is a program of its own: it runs the one that its arguments name and
// prints what that took. Linux counts the peak memory of the process that starts a
// process as that of the new one, so the starter has to be small, unlike a
// benchmark with thousands of requests in its hands.
func measure() {
	c := exec.Command(os.Args[1], os.Args[2:]...) //nolint:noctx // it ends with its parent's
	c.Stderr = os.Stderr
	start := time.Now()
	err := c.Run()
	u := usage{Time: time.Since(start)}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	u.CPU = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if r, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.PeakMiB = float64(r.Maxrss) / 1024 // from KiB
		if runtime.GOOS == "darwin" {
			u.PeakMiB /= 1024 // from bytes
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(u); err != nil {
		os.Exit(1)
	}
}
