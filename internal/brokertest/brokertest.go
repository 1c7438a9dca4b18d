// Package brokertest gives tests a real RabbitMQ.
//
// [VHost] creates a virtual host of the test's own on a node that the tests of a
// package share. [Node] starts a node of the test's own, which it may stop and
// kill. A package whose tests use either has
//
//	func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }
//
// The shared node is the one of DLXCTL_TEST_URL and DLXCTL_TEST_API, which
// "make test" sets. Without them scripts/broker starts a node for the test
// binary, which ends with it. DLXCTL_TEST_LINE is the line of RabbitMQ (3.10, 4.0,
// 4.3) of the nodes that are started here; empty is any. No other broker is
// touched: this package does not read RABBITMQ_URL.
//
// Without a broker tests fail. They are never skipped for that.
package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	envURL  = "DLXCTL_TEST_URL"
	envAPI  = "DLXCTL_TEST_API"
	envLine = "DLXCTL_TEST_LINE"
)

// node is the shared node of this test binary. It is started when the first
// test asks for it, so a run that needs none starts none.
//
//nolint:gochecknoglobals // a test binary has one, and cannot pass it to its tests
var node struct {
	sync.Mutex
	asked  bool
	server *server // nil unless started here
	target Target
	err    error
}

// Main runs the tests of a package, then the checks (for example that no
// goroutine is left), then stops the shared node if it was started here. It
// returns the exit code.
func Main(m *testing.M, checks ...func() error) int {
	code := m.Run()
	for _, check := range checks {
		if err := check(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, "brokertest:", err)
			code = 1
		}
	}
	if err := errors.Join(stopShared(), removeProgram()); err != nil {
		fmt.Fprintln(os.Stderr, "brokertest:", err)
		return 1
	}
	return code
}

// MainTrying is [Main] for a package whose properties need a broker: rapid tries so many cases
// unless -rapid.checks says otherwise.
func MainTrying(m *testing.M, cases int) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", strconv.Itoa(cases)); err != nil {
			panic(err)
		}
	}
	return Main(m)
}

func stopShared() error {
	node.Lock()
	defer node.Unlock()
	if node.server == nil {
		return deleteAllLeft()
	}
	err := node.server.remove(context.Background())
	node.asked, node.server = false, nil
	return err
}

// shared returns the shared node, and starts it when it is first needed. The virtual
// host of the target is the one in the broker's URL.
func shared(tb testing.TB) Target {
	tb.Helper()
	node.Lock()
	defer node.Unlock()
	if !node.asked {
		node.asked = true
		node.target, node.server, node.err = findShared(tb)
	}
	if node.err != nil {
		tb.Fatalf("brokertest: no broker: %v", node.err)
	}
	return node.target
}

func findShared(tb testing.TB) (Target, *server, error) {
	tb.Helper()
	// The node outlives the test that happens to ask first.
	ctx := context.WithoutCancel(tb.Context())
	amqpURL, api := os.Getenv(envURL), os.Getenv(envAPI)
	switch {
	case amqpURL != "" && api != "":
		target, err := connect(ctx, amqpURL, api)
		return target, nil, err
	case amqpURL != "" || api != "":
		return Target{}, nil, fmt.Errorf("set both %s and %s, or neither", envURL, envAPI)
	}
	s, err := start(ctx)
	if err != nil {
		return Target{}, nil, err
	}
	target, err := connect(ctx, s.url, s.api)
	return target, s, err
}

// connect returns the target of a broker and reads its version.
func connect(ctx context.Context, amqpURL, api string) (Target, error) {
	u, err := url.Parse(amqpURL)
	if err != nil {
		return Target{}, errors.New("the AMQP URL of the test broker is not a URL")
	}
	x := Target{URL: amqpURL, API: strings.TrimSuffix(api, "/"), VHost: "/", admin: u.User}
	if x.admin == nil {
		x.admin = url.UserPassword("guest", "guest")
	}
	about, err := x.overview(ctx)
	if err == nil {
		err = about.ticks()
	}
	x.Version = about.Version
	return x, err
}

// standardTick is how often a node counts its messages, unless its settings say otherwise.
const standardTick = 5 * time.Second

// ticks returns an error if the program was built for a node that counts more often than this one,
// or less often. A program that takes counts for newer than they are deletes queues that hold
// messages. The name that scripts/broker gave the node says how often it counts.
func (o overview) ticks() error {
	counts := standardTick
	if _, rest, ok := strings.Cut(o.Node, "dlxctl-tick"); ok {
		ms, _, _ := strings.Cut(rest, "-")
		counts, _ = time.ParseDuration(ms + "ms")
	}
	if counts == tick {
		return nil
	}
	return fmt.Errorf("the node %s counts its messages every %s, and the tests are built for %s; "+
		"the build tag shortticks and \"scripts/broker start --tick 1000\" belong together", o.Node, counts, tick)
}

// overview is the part of GET /api/overview that the tests use.
type overview struct {
	Version string `json:"rabbitmq_version"`
	Node    string `json:"node"`
}

func (x Target) overview(ctx context.Context) (overview, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var about overview
	answer, err := x.request(ctx, "GET", "overview", nil)
	if err != nil {
		return about, err
	}
	if err := json.Unmarshal(answer, &about); err != nil {
		return about, fmt.Errorf("overview of the test broker: %w", err)
	}
	return about, nil
}
