package management_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// However many queues are asked for, RabbitMQ answers. All queues of the virtual host are read only
// for very many, or where no path can end with a name.
func TestDeliveriesOfManyQueues(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	for _, name := range []string{"first", "last"} {
		brokertest.Declare(t, target.Channel(t), name, nil)
	}
	api, err := url.Parse(target.API)
	if err != nil {
		t.Fatal(err)
	}
	var list atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(api)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.EscapedPath()) == target.VHost {
			list.Store(true)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	m := resolve(t, broker.Config{URL: target.URL, VHost: target.VHost, API: proxy.URL})
	deliveries := func(all bool, names []string) {
		t.Helper()
		list.Store(false)
		got, err := m.Deliveries(t.Context(), append([]string{"first"}, append(names, "last")...))
		_, first := got["first"]
		_, last := got["last"]
		if err != nil || !first || !last || len(got) > 2 || list.Load() != all {
			t.Errorf("with %d others: %v, %v; all were read: %t, not %t", len(names), got, err, list.Load(), all)
		}
	}
	deliveries(true, []string{".."})
	deliveries(true, []string{""})
	for _, odd := range []string{"\xff", "a\nb", "a\x00", "%2F", "#?", "/", "a/../b"} {
		deliveries(false, []string{odd})
	}
	deliveries(true, []string{strings.Repeat("long", 10_000)})
	var names []string
	for _, count := range []int{0, 43, 60, 200} {
		for len(names) < count {
			names = append(names, fmt.Sprintf("invoicing/europe.%04d", len(names)))
		}
		deliveries(false, names)
	}
	deliveries(true, slices.Repeat(names, 3))
}
