package management_test

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// Behind a proxy that decodes and cleans paths, as nginx does by default, the lists of the virtual
// host "/" are those of all virtual hosts. They are not taken for its own, and neither are
// statistics. Here they are those of the test's own virtual host, as of a broker that has no other:
// what other tests make and delete meanwhile can make the broker answer with another error.
func TestAProxyThatDecodesPaths(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	api, err := url.Parse(target.API)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(api)
		r.Out.URL.Path, r.Out.URL.RawPath = path.Clean(r.In.URL.Path), ""
		if strings.HasSuffix(r.In.URL.Path, "//") { // a list of the virtual host "/"
			r.Out.URL.Path += "/" + target.VHost
		}
	}})
	t.Cleanup(proxy.Close)
	c := broker.Config{URL: target.URL, VHost: "/", API: target.API}
	if _, err := resolve(t, c).Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.API = proxy.URL
	_, err = resolve(t, c).Inspect(t.Context())
	decodes := "a proxy in front of " + proxy.URL + ` decodes %2F in paths, so that objects ` +
		`of vhost "/" cannot be addressed; let it pass on paths as they are (nginx: proxy_pass with $request_uri)`
	checkError(t, err, broker.ErrUnreachable, decodes)
	brokertest.Declare(t, target.Channel(t), "elsewhere", nil)
	for _, times := range []int{1, 500} { // for so many the list is read
		got, err := resolve(t, c).Deliveries(t.Context(), slices.Repeat([]string{"elsewhere"}, times))
		if checkError(t, err, broker.ErrUnreachable, decodes); len(got) > 0 {
			t.Errorf("the statistics of another virtual host: %v", got)
		}
	}
	c.VHost = target.VHost
	if _, err := resolve(t, c).Inspect(t.Context()); err != nil {
		t.Errorf("a virtual host without a slash: %v", err)
	}
}
