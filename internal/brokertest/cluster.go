package brokertest

import (
	"context"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
)

// members is the number of nodes of a cluster: the smallest that can lose one.
const members = 3

// Cluster starts three nodes of the test's own that form one cluster. They are
// stopped, and their data deleted, when the test ends. It needs a broker that
// does not run in Docker. On a line before 4.3 the test is skipped: clusters are
// tested on one line; see [UpgradedCluster].
func Cluster(tb testing.TB) []*Server {
	tb.Helper()
	if !shared(tb).AtLeast("4.3") {
		tb.Skip("clusters are tested on line 4.3 only")
	}
	return cluster(tb)
}

// UpgradedCluster is [Cluster] on any line. On 4.3 it lacks the feature flag that nodes do not
// enable when they are upgraded, by which a queue knows its members.
func UpgradedCluster(tb testing.TB) []*Server {
	tb.Helper()
	if shared(tb).AtLeast("4.3") {
		return cluster(tb, "--env", "RABBITMQ_FEATURE_FLAGS=-track_qq_members_uids")
	}
	return cluster(tb)
}

func cluster(tb testing.TB, options ...string) []*Server {
	tb.Helper()
	whole, err := start(tb.Context(), append(options, "--nodes", strconv.Itoa(members))...)
	if err != nil {
		tb.Fatalf("brokertest: no cluster: %v", err)
	}
	tb.Cleanup(func() {
		if err := whole.remove(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("brokertest: %v", err)
		}
	})
	nodes := make([]*Server, members)
	for i := range nodes {
		out, err := script(tb.Context(), "print", filepath.Join(whole.dir, strconv.Itoa(i+1)))
		if err != nil {
			tb.Fatalf("brokertest: %v", err)
		}
		s := read(out)
		target, err := connect(tb.Context(), s.url, s.api)
		if err != nil {
			tb.Fatalf("brokertest: %v", err)
		}
		nodes[i] = &Server{server: s, target: target}
	}
	return nodes
}

// Name returns the name of the node in its cluster.
func (s *Server) Name(tb testing.TB) string {
	tb.Helper()
	about, err := s.target.overview(tb.Context())
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	return about.Node
}

// See returns a virtual host of another node of the cluster as reached through
// this one.
func (s *Server) See(tb testing.TB, other Target) Target {
	tb.Helper()
	u, err := url.Parse(other.URL)
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	here, err := url.Parse(s.server.url)
	if err != nil {
		tb.Fatalf("brokertest: %v", err)
	}
	u.Host = here.Host
	other.URL, other.API = u.String(), s.target.API
	return other
}
