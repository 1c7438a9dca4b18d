package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

const (
	// requestTimeout is how long one request may take, its answer included.
	requestTimeout = 30 * time.Second
	// dialTimeout is how long a connection may take.
	dialTimeout = 10 * time.Second
	// idleConns is how many connections are kept for the next request: as many
	// as changes are carried out at a time, and some.
	idleConns = 64
	// maxAnswer is the size of the largest answer that is read. Some 300,000 queues
	// fit.
	maxAnswer = 256 << 20
	// maxTries is how often a request is sent that meets a passing failure.
	maxTries = 4
	// firstPause is the wait before the second try; it doubles from try to try.
	firstPause = 100 * time.Millisecond
)

// newTransport gives the connection pool. It speaks HTTP/1.1 alone, one request
// per connection at a time, as the management API is used to.
func newTransport(conf *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     conf.Clone(),
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second,
		Protocols:           protocols,
	}
}

// roundTripper makes a function an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send carries out r, several times if it has to, and gives the answer with its
// whole body in memory: a connection that breaks halfway is tried again too. An
// answer other than success is a *statusError.
//
// Every request that dlxctl makes may be sent twice: a declaration or binding
// that is there already is a success, so is the deletion of what is gone.
func (m *Management) send(ctx context.Context, r *http.Request) (*http.Response, error) {
	for part := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		if part == "." || part == ".." { // the broker's HTTP server takes them for steps, escaped or not
			return nil, tell(ErrRefused, "the management API cannot address a name that is %q", part)
		}
	}
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		resp, err := m.sendOnce(ctx, r)
		if err == nil || try == maxTries || ctx.Err() != nil || !passing(err) {
			return resp, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

func (m *Management) sendOnce(ctx context.Context, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	r = r.Clone(ctx)
	r.Close = false // rabbit-hole asks for a connection of its own each time
	if r.GetBody != nil {
		body, err := r.GetBody() // the one of the request before is read
		if err != nil {
			return nil, err
		}
		r.Body = body
	}
	resp, err := m.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	// Neither a redirect is success: followed, a PUT would become a GET of
	// somebody's login page.
	if resp.StatusCode/100 == 2 || r.Method == http.MethodDelete && gone(resp, body) {
		return resp, nil
	}
	return nil, newStatusError(resp.StatusCode, body)
}

// gone reports whether what a deletion is for is not there.
func gone(resp *http.Response, body []byte) bool {
	return resp.StatusCode == http.StatusNotFound && json.Valid(body)
}

func newStatusError(status int, body []byte) *statusError {
	var told struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"`
	}
	e := &statusError{status: status}
	if json.Unmarshal(body, &told) == nil {
		e.code = oneLine(told.Error)
		if told.Reason != nil {
			e.reason = oneLine(fmt.Sprint(told.Reason))
		}
	}
	return e
}

// passing reports whether a request that failed so may succeed if it is sent
// again at once.
func passing(err error) bool {
	if status, ok := errors.AsType[*statusError](err); ok {
		return status.status == http.StatusBadGateway || status.status == http.StatusServiceUnavailable ||
			status.status == http.StatusGatewayTimeout
	}
	// The last has no value of its own: the server hung up before it was asked.
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "server closed idle connection")
}

// failed turns any error of a request into words. Those of net/http are not
// shown as they are: they are long, and quote URLs.
func (m *Management) failed(ctx context.Context, err error) error {
	var status *statusError
	var told *toldError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &told):
		return told
	case errors.As(err, &status):
		return m.explain(status)
	default:
		return m.explainNetwork(err)
	}
}

func (m *Management) explainNetwork(err error) error {
	if text := explainTLS(err); text != "" {
		return tell(ErrUnreachable, "%s: %s", m.api, text)
	}
	var dns *net.DNSError
	var timeout net.Error
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return tell(ErrUnreachable, "host %q is not known: check it in RABBITMQ_URL, --url or --api", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return tell(ErrUnreachable, "nothing listens at %s: is the broker up, with the management plugin (rabbitmq-plugins enable rabbitmq_management)? --api says where", m.api)
	case errors.As(err, &timeout) && timeout.Timeout():
		return tell(ErrUnreachable, "%s does not answer in time: check host and port in RABBITMQ_URL, --url or --api, and what lies between", m.api)
	case errors.As(err, &record):
		return tell(ErrUnreachable, "%s speaks no TLS: write http:// in --api", m.api)
	case strings.Contains(err.Error(), "malformed HTTP"), passing(err) && m.api.Scheme == schemeHTTP:
		return tell(ErrUnreachable, "what answers at %s does not speak http: give the URL of the management API with --api (https:// if it has TLS, port 15672 or 15671 as a rule)", m.api)
	default:
		return tell(ErrUnreachable, "%s cannot be reached: %s", m.api, oneLine(innermost(err).Error()))
	}
}

// explainTLS gives the words for what TLS can find wrong. Empty: nothing.
func explainTLS(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that is not trusted here: name the authority's certificate with --ca-file"
	case errors.As(err, &host):
		return "its certificate is for another host: use a host name that the certificate has, or add server_name_indication=NAME to the AMQP URL"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired or is not valid yet: renew it, or check the clock here"
	case errors.As(err, &invalid):
		return "its certificate is not valid: " + oneLine(invalid.Error())
	case errors.As(err, &alert), errors.As(err, &op) && op.Op == "remote error":
		return handshakeEnds(innermost(err).Error())
	}
	// With TLS 1.3 the server looks at the client's certificate after the client is
	// done. Then the AMQP library reads the alert, and keeps its text alone.
	if _, said, ok := strings.Cut(err.Error(), "remote error: tls: "); ok {
		return handshakeEnds("tls: " + strings.TrimRight(said, `"`))
	}
	return ""
}

func handshakeEnds(why string) string {
	return "it ends the TLS handshake (" + oneLine(why) + "): if it asks for a client certificate, name one with --cert-file and --key-file that it trusts"
}

// innermost gives the cause that lies deepest: what wraps it names operations
// and addresses that the user did not ask about.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
