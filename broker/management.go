// Package broker is the only one that connects to RabbitMQ: over the management
// API, to read a virtual host and to change it, and over AMQP, to move messages.
package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// Management reads and changes one virtual host over the broker's management
// API. It may be used by many goroutines at once.
//
// Requests go through rabbit-hole where it serves. It does not for reading (it
// knows no query such as disable_stats, and makes floats of integers) nor for
// declaring queues and exchanges (it leaves out auto_delete and internal).
type Management struct {
	api       Address
	vhost     string
	hole      rabbithole.Client
	transport *http.Transport
	timeout   time.Duration
	census    *census
	policies  *sync.Mutex // one policy is written at a time, see putPolicy
	over      *Conn       // binds and deletes, among others, see Over. Nil: HTTP does
}

// User is who the management API takes us for.
func (m *Management) User() string { return m.api.User }

// NewManagement gives the management API of an endpoint. It connects when it is
// used first.
func NewManagement(e Endpoint) (*Management, error) {
	hole, err := rabbithole.NewClient(e.API.String(), e.API.User, e.API.password)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", fromAPI, err)
	}
	return &Management{
		api: e.API, vhost: e.VHost, hole: *hole,
		transport: newTransport(e.TLS), timeout: requestTimeout, census: &census{}, policies: &sync.Mutex{},
	}, nil
}

// Close closes the connections that wait for the next request.
func (m *Management) Close() { m.transport.CloseIdleConnections() }

// Ping reports what keeps the user from working with the virtual host.
func (m *Management) Ping(ctx context.Context) error {
	if _, err := m.overview(ctx); err != nil {
		return err
	}
	// The virtual host itself is for administrators to read. This list is short.
	var policies []policy
	return m.get(ctx, &policies, "policies/"+url.PathEscape(m.vhost))
}

// with gives a rabbit-hole client whose requests end with ctx, are sent as ours
// are and fail as ours do.
func (m *Management) with(ctx context.Context) *rabbithole.Client {
	c := m.hole
	c.SetTransport(roundTripper(func(r *http.Request) (*http.Response, error) { return m.send(ctx, r) }))
	return &c
}

// done ends a request made with rabbit-hole.
func (m *Management) done(ctx context.Context, resp *http.Response, err error) error {
	if err != nil {
		return m.failed(ctx, err)
	}
	return resp.Body.Close()
}

// get reads the object at path, which is escaped and comes after "/api/".
func (m *Management) get(ctx context.Context, into any, path string) error {
	resp, err := m.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return m.failed(ctx, err)
	}
	return m.decode(resp, into, path)
}

// post sends object to path and reads the answer.
func (m *Management) post(ctx context.Context, into, object any, path string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	resp, err := m.call(ctx, http.MethodPost, path, body)
	if err != nil {
		return m.failed(ctx, err)
	}
	return m.decode(resp, into, path)
}

func (m *Management) decode(resp *http.Response, into any, path string) error {
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	d.UseNumber() // a float64 cannot hold every integer that an argument can be
	err := d.Decode(into)
	if list := reflect.ValueOf(into).Elem(); err != nil || list.Kind() == reflect.Slice && list.IsNil() { // null is no empty list
		path, _, _ = strings.Cut(path, "?")
		return m.notRabbitMQ("its answer to /api/" + path + " is of another form")
	}
	return nil
}

// put writes the object at path.
func (m *Management) put(ctx context.Context, object any, path string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	resp, err := m.call(ctx, http.MethodPut, path, body)
	return m.done(ctx, resp, err)
}

func (m *Management) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, m.api.String()+"/api/"+path, content)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(m.api.User, m.api.password)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return m.send(ctx, r)
}
