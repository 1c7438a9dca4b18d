// Package management reads and changes a virtual host over the management API of its broker.
//
// Policies are written and bindings declared with the library rabbit-hole, whose requests are sent
// as all others are; see Client.with. The other requests are of our own, most because it cannot
// make them: it reads lists without query parameters (disable_stats, columns) and decodes integers
// as floats, which cannot hold every argument; it declares exchanges and queues without auto_delete
// where that is false, and exchanges without internal; it deletes exchanges without if-unused; it
// has no request that looks at a message. The few that it could make as well (deleting a queue,
// virtual hosts, permissions, whoami) stay next to those of the same kind.
package management

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
)

// Client reads and changes one virtual host over the broker's management API. Many goroutines may
// use it at once.
//
// The package comment says which requests go through rabbit-hole.
type Client struct {
	api       broker.Address
	vhost     string
	hole      rabbithole.Client
	transport *http.Transport
	timeout   time.Duration
	census    *census
	policies  *sync.Mutex // one policy is written at a time, see putPolicy
	conn      *amqp.Conn  // declares and deletes, see UseAMQP. Nil: over HTTP
	endpoint  broker.Endpoint
	asker     *asker
}

// User returns the user of the management API.
func (m *Client) User() string { return m.api.User }

// New returns a client for an endpoint. It connects at the first request.
func New(e broker.Endpoint) (*Client, error) {
	hole, err := rabbithole.NewClient(e.API.String(), e.API.User, e.API.Password())
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", e.API, err)
	}
	return &Client{
		api: e.API, vhost: e.VHost, hole: *hole,
		transport: newTransport(e.TLS), timeout: requestTimeout, census: &census{}, policies: &sync.Mutex{},
		endpoint: e, asker: &asker{},
	}, nil
}

// Close closes the idle connections.
func (m *Client) Close() {
	m.transport.CloseIdleConnections()
	m.asker.close()
}

// with returns a rabbit-hole client whose requests end with ctx, and are sent and fail as all
// others of the client do.
func (m *Client) with(ctx context.Context) *rabbithole.Client {
	c := m.hole
	c.SetTransport(roundTripper(func(r *http.Request) (*http.Response, error) { return m.send(ctx, r) }))
	return &c
}

// done ends a request made with rabbit-hole.
func (m *Client) done(ctx context.Context, resp *http.Response, err error) error {
	if err != nil {
		return m.failed(ctx, err)
	}
	return resp.Body.Close()
}

// get reads the object at path, which is escaped and comes after "/api/".
func (m *Client) get(ctx context.Context, into any, path string) error {
	resp, err := m.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return m.failed(ctx, err)
	}
	return m.decode(resp, into, path)
}

// post sends object to path and reads the answer.
func (m *Client) post(ctx context.Context, into, object any, path string) error {
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

func (m *Client) decode(resp *http.Response, into any, path string) error {
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	d.UseNumber() // a float64 cannot hold every integer that an argument can be
	err := d.Decode(into)
	// null is not an empty list
	if list := reflect.ValueOf(into).Elem(); err != nil || list.Kind() == reflect.Slice && list.IsNil() {
		path, _, _ = strings.Cut(path, "?")
		return m.notRabbitMQ("its answer to /api/" + path + " has an unexpected form")
	}
	return nil
}

// put writes the object at path.
func (m *Client) put(ctx context.Context, object any, path string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	resp, err := m.call(ctx, http.MethodPut, path, body)
	return m.done(ctx, resp, err)
}

func (m *Client) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, m.api.String()+"/api/"+path, content)
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(m.api.User, m.api.Password())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return m.send(ctx, r)
}
