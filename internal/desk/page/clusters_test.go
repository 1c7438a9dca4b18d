package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
)

// serveClusters serves a page of two clusters that have the same queues, messages and runs. A third
// one cannot be reached.
func serveClusters(t *testing.T, allow ...string) (s *server, prod, test *engine) {
	t.Helper()
	runs := func() []desk.Run {
		return []desk.Run{{ID: "m2p4", Action: desk.Replay, Queue: "billing.dead", Phase: desk.Sending, Chosen: 5, Holds: 5}}
	}
	prod, test = &engine{views: orders(3), runs: runs()}, &engine{views: orders(3), runs: runs()}
	s = serveWith(t, &engine{}, func(c *page.Config) {
		single := c.Source
		c.Source = page.Source{}
		for name, e := range map[string]*engine{"prod": prod, "test/2 ü": test} {
			source := single
			source.Engine, source.Plain, source.Queues = e, e, e.queues
			c.Clusters = append(c.Clusters, page.Config{
				Cluster: name, Source: source, VHost: "shop", Broker: name + ".example.com",
				Line: func(words ...string) string { return "CLUSTER=" + name + " " + line(words...) },
			})
		}
		c.Clusters = append(c.Clusters, page.Config{
			Cluster: "gone", VHost: "/", Broker: "gone.example.com", Line: line,
			Renew: func(context.Context) (page.Source, error) { return page.Source{}, errors.New("dial tcp: refused") },
		})
	}, allow...)
	return s, prod, test
}

// in returns the path of a request to a cluster.
func in(path, cluster string) string { return path + "?cluster=" + url.QueryEscape(cluster) }

// Each request goes to the cluster that it names. What one cluster gave out, a look, a proposal or
// a run, is unknown in another one.
func TestARequestStaysInItsCluster(t *testing.T) {
	t.Parallel()
	s, prod, test := serveClusters(t, "replay", "park", "discard", "edit")
	s.signIn(t)
	begin(t, s.Page)
	ask := map[string]any{"action": "replay", "queue": "billing.dead"}
	shown := s.post(t, http.StatusOK, in("/api/propose", "test/2 ü"), ask)
	if shown["at"] != "test/2 ü, vhost shop" || !strings.HasPrefix(fmt.Sprint(shown["command"]), "CLUSTER=test/2 ü ") {
		t.Errorf("the proposal is of %v: %v", shown["at"], shown["command"])
	}
	execute := map[string]any{"proposal": shown["id"], "expect": 37}
	s.post(t, http.StatusGone, in("/api/execute", "prod"), execute)
	s.post(t, http.StatusNotFound, "/api/execute", execute)
	s.post(t, http.StatusNotFound, in("/api/execute", "test"), execute)
	s.post(t, http.StatusOK, in("/api/execute", "test/2 ü"), execute)
	snapshot := s.post(t, http.StatusOK, in("/api/look", "prod"), map[string]any{"queue": "billing.dead"})["id"]
	row := map[string]any{"snapshot": snapshot, "row": 0}
	s.post(t, http.StatusOK, in("/api/message", "prod"), row)
	s.post(t, http.StatusGone, in("/api/message", "test/2 ü"), row)
	s.post(t, http.StatusGone, in("/api/source", "test/2 ü"), row)
	s.get(t, http.StatusGone, in("/api/rows", "test/2 ü")+"&snapshot="+fmt.Sprint(snapshot))
	run := map[string]any{"run": "m2p4"}
	s.post(t, http.StatusOK, in("/api/runs/cancel", "test/2 ü"), run)
	s.post(t, http.StatusOK, in("/api/runs/return", "test/2 ü"), run)
	brokertest.Eventually(t, "the run and the return end", func() bool {
		test.mu.Lock()
		defer test.mu.Unlock()
		return test.executed == 1 && len(test.returned) == 1
	})
	test.mu.Lock()
	defer test.mu.Unlock()
	prod.mu.Lock()
	defer prod.mu.Unlock()
	if prod.executed > 0 || len(prod.canceled)+len(prod.returned)+len(prod.resumed) > 0 || prod.looks != 1 ||
		test.looks > 0 {
		t.Errorf("prod has done %+v, and test has looked %d times", prod, test.looks)
	}
	if !slices.Equal(test.canceled, []string{"m2p4"}) {
		t.Errorf("test has canceled %v", test.canceled)
	}
}

// One cluster that cannot be reached says why, and hides no other.
func TestAClusterThatIsDownHidesNoOther(t *testing.T) {
	t.Parallel()
	s, _, _ := serveClusters(t)
	s.signIn(t)
	session := s.get(t, http.StatusOK, "/api/session")
	if got := fmt.Sprint(session["clusters"]); !strings.Contains(got, "name:gone") || !strings.Contains(got, "name:prod") {
		t.Errorf("the clusters are %s", got)
	}
	for _, path := range []string{"/api/queues", "/api/runs"} {
		down := s.get(t, http.StatusBadGateway, in(path, "gone"))
		if down["error"] != "dial tcp: refused" {
			t.Errorf("%s: %v", path, down)
		}
		s.get(t, http.StatusOK, in(path, "prod"))
		s.get(t, http.StatusOK, in(path, "test/2 ü"))
	}
}

// The role of a person holds in each cluster.
func TestRolesHoldInEachCluster(t *testing.T) {
	t.Parallel()
	s, prod, test := serveClusters(t)
	for _, cluster := range []string{"prod", "test/2 ü", "gone", ""} {
		s.as(t, "")
		s.get(t, http.StatusUnauthorized, in("/api/queues", cluster))
		if cluster == "" {
			continue
		}
		s.as(t, "reader")
		ask := map[string]any{"action": "replay", "queue": "billing.dead"}
		s.post(t, http.StatusForbidden, in("/api/propose", cluster), ask)
		s.post(t, http.StatusForbidden, in("/api/source", cluster), map[string]any{"snapshot": "x", "row": 0})
		s.post(t, http.StatusForbidden, in("/api/runs/return", cluster), map[string]any{"run": "m2p4"})
		if cluster == "gone" {
			continue
		}
		s.as(t, "operator")
		s.post(t, http.StatusOK, in("/api/propose", cluster), ask)
		ask["action"] = "discard"
		s.post(t, http.StatusForbidden, in("/api/propose", cluster), ask)
		csrf := s.csrf
		s.csrf = "wrong"
		ask["action"] = "replay"
		s.post(t, http.StatusForbidden, in("/api/propose", cluster), ask)
		s.csrf = csrf
	}
	if len(prod.returned)+len(test.returned) > 0 {
		t.Error("a reader has returned a run")
	}
}
