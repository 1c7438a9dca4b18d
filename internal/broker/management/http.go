package management

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/wait"
)

const (
	// requestTimeout is how long one request may take, its answer included, unless the endpoint says.
	requestTimeout = 30 * time.Second
	// dialTimeout is how long connecting may take.
	dialTimeout = 10 * time.Second
	// idleConns is how many connections are kept for the next request: as many as changes are
	// carried out at a time, with a margin.
	idleConns = 64
	// maxAnswer is the size of the largest answer that is read, in bytes. Some 300,000 queues fit.
	maxAnswer = 256 << 20
	// maxTries is how many times a request is sent that meets a temporary failure.
	maxTries = 4
	// firstPause is the wait before the second try; it doubles from try to try.
	firstPause = 100 * time.Millisecond
)

// pool holds the connections of a client and of its copies.
type pool struct {
	mu        sync.Mutex
	settings  *tls.Config // of transport
	transport *http.Transport
}

// with returns the transport for these TLS settings. When they have changed, connections with the
// previous ones are not used any more.
func (p *pool) with(settings *tls.Config, serverName string) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transport == nil || p.settings != settings {
		if p.transport != nil {
			p.transport.CloseIdleConnections() // one in use closes itself once it was idle for a time
		}
		p.settings, p.transport = settings, newTransport(settings, serverName)
	}
	return p.transport
}

// close closes the idle connections.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
}

// newTransport returns connections with these TLS settings to a server whose certificate has that
// name; empty: that of its URL. It uses HTTP/1.1 only, with one request
// per connection at a time: the management API is used to that.
func newTransport(conf *tls.Config, serverName string) *http.Transport {
	conf = conf.Clone()
	conf.ServerName = serverName
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second,
		Protocols:           protocols,
	}
}

// roundTripper makes a function an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send sends r, several times if necessary, and returns the answer with its whole body in memory: a
// connection that breaks halfway is retried too. Its errors are for the user.
//
// Every request of dlxctl may be sent twice: declaring an object that exists is a success, and so
// is deleting one that is gone.
func (m *Client) send(ctx context.Context, r *http.Request) (*http.Response, error) {
	for part := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		if part == "." || part == ".." { // the broker's HTTP server resolves them as path segments, escaped or not
			return nil, broker.Errorf(broker.ErrRefused, "the management API cannot address a name that is %q", part)
		}
	}
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		resp, err := m.sendOnce(ctx, r)
		if err == nil {
			return resp, nil
		}
		if try == maxTries || !passing(err) && !busyList(r, err) || wait.For(ctx, pause) != nil {
			return nil, m.failed(ctx, err)
		}
	}
}

// sendOnce sends r once, with the password and over TLS as their files say now. An answer other
// than success is a *statusError.
func (m *Client) sendOnce(ctx context.Context, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	connected := false
	r = r.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true }, // called before RoundTrip returns
	}))
	e := m.endpoint.Renew()
	r.SetBasicAuth(e.API.User, e.API.Password())
	r.Close = false // rabbit-hole requests a new connection each time
	if r.GetBody != nil {
		body, err := r.GetBody() // the body of the previous try is consumed
		if err != nil {
			return nil, err
		}
		r.Body = body
	}
	resp, err := m.pool.with(e.TLS, e.API.ServerName).RoundTrip(r)
	var b bytes.Buffer
	if err == nil {
		defer resp.Body.Close()
		if resp.ContentLength > 0 { // else its room doubles until the answer fits
			b.Grow(int(min(resp.ContentLength, maxAnswer)) + bytes.MinRead)
		}
		_, err = b.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	}
	body := b.Bytes()
	switch {
	case err != nil && connected && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, errSlow
	case err != nil:
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	// A redirect is not a success either: if it were followed, a PUT would become a GET of some login
	// page.
	if resp.StatusCode/100 == 2 || json.Valid(body) && (gone(resp) || unhealthy(resp)) {
		return resp, nil
	}
	return nil, newStatusError(resp.StatusCode, body)
}

// errSlow is the error of a request that the broker took, and did not answer in time.
var errSlow = errors.New("no answer in time")

// gone reports whether the object of a deletion does not exist.
func gone(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNotFound && resp.Request.Method == http.MethodDelete
}

// unhealthy reports whether a health check has found something wrong.
func unhealthy(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(resp.Request.URL.Path, "/api/health/")
}

func newStatusError(status int, body []byte) *statusError {
	var told struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"`
	}
	e := &statusError{status: status}
	if json.Unmarshal(body, &told) == nil {
		e.code = broker.OneLine(told.Error)
		if told.Reason != nil {
			e.reason = broker.OneLine(fmt.Sprint(told.Reason))
		}
	}
	return e
}

// busyList reports whether a read failed for a moment: a list of virtual hosts is answered with 500
// while one of them is deleted (4.0.5).
func busyList(r *http.Request, err error) bool {
	status, ok := errors.AsType[*statusError](err)
	return ok && r.Method == http.MethodGet && status.status == http.StatusInternalServerError
}

// passing reports whether a request that failed this way may succeed if it is sent again at once.
func passing(err error) bool {
	if status, ok := errors.AsType[*statusError](err); ok {
		return status.status == http.StatusBadGateway || status.status == http.StatusServiceUnavailable ||
			status.status == http.StatusGatewayTimeout
	}
	// The last has no value of its own: the server closed the connection before it got the request.
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "server closed idle connection")
}
