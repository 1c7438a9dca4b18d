// Package management reads and changes a virtual host over the management API of its broker.
//
// Its requests are those of the library rabbit-hole (2.16.0), sent as the client sends all; see
// Client.with. It makes a request of its own only where the library cannot:
//
//   - The lists of exchanges, queues, bindings and policies. The library decodes the integers of
//     arguments as floats, which cannot hold all of them, fails on empty arguments that the broker
//     writes as [], takes auto_delete "undefined" for true and a number of messages that is not
//     reported for 0, fails on a priority of 1.5, and does not know which policy is in effect.
//   - Consumers, sizes and ages of queues, and what came to a queue by its name. The library takes
//     unknown consumers for none and a missing ack_required for false, and does not know
//     head_message_timestamp and incoming.
//   - The overview, where it does not know cluster_name.
//   - The feature flags. It cannot ask for columns: each flag would come with its description.
//   - Exchanges and queues are declared with auto_delete false, which it leaves out, exchanges with
//     internal, which it does not know. Exchanges are deleted with if-unused.
//   - A look at the first message of a queue. It has no such request.
package management

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	api      broker.Address
	vhost    string
	hole     rabbithole.Client
	pool     *pool
	timeout  time.Duration
	census   *census
	policies *sync.Mutex // one policy is written at a time, see putPolicy
	conn     *amqp.Conn  // declares and deletes, see UseAMQP. Nil: over HTTP
	endpoint broker.Endpoint
	asker    *asker
	apart    *apart // declares quorum queues, once UseAMQP was called
}

// User returns the user of the management API.
func (m *Client) User() string { return m.api.User }

// New returns a client for an endpoint. It connects at the first request.
func New(e broker.Endpoint) (*Client, error) {
	hole, err := rabbithole.NewClient(e.API.String(), "", "") // sendOnce adds user and password
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", e.API, err)
	}
	return &Client{
		api: e.API, vhost: e.VHost, hole: *hole,
		pool: &pool{}, timeout: cmp.Or(e.RequestTime, requestTimeout), census: &census{}, policies: &sync.Mutex{},
		endpoint: e, asker: &asker{}, apart: newApart(e),
	}, nil
}

// Close closes the idle connections.
func (m *Client) Close() {
	m.pool.close()
	m.asker.close()
	m.apart.close()
}

// with returns a rabbit-hole client whose requests end with ctx, and are sent and fail as all
// others of the client do: its results go to done or unread.
func (m *Client) with(ctx context.Context) *rabbithole.Client {
	c := m.hole
	c.SetTransport(roundTripper(func(r *http.Request) (*http.Response, error) { return m.send(ctx, r) }))
	return &c
}

// done ends a request that reads nothing.
func done(resp *http.Response, err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok { // of rabbit-hole
		return sent.Err
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// unread returns why nothing could be read from path. Nil for err: the answer was null.
func (m *Client) unread(path string, err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return sent.Err
	}
	return m.notRabbitMQ("its answer to /api/" + path + " has an unexpected form")
}

// get reads the object at path, which is escaped and comes after "/api/".
func (m *Client) get(ctx context.Context, into any, path string) error {
	resp, err := m.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
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
		return err
	}
	return m.decode(resp, into, path)
}

func (m *Client) decode(resp *http.Response, into any, path string) error {
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	d.UseNumber() // a float64 cannot hold every integer that an argument can be
	var err error
	if list := reflect.ValueOf(into).Elem(); list.Kind() == reflect.Slice {
		err = decodeList(d, list)
	} else {
		err = d.Decode(into)
	}
	if err != nil {
		path, _, _ = strings.Cut(path, "?")
		return m.unread(path, err)
	}
	return nil
}

// decodeList decodes a list one object at a time: as a whole it would be copied first, and it can
// have megabytes. null is not an empty list.
func decodeList(d *json.Decoder, list reflect.Value) error {
	begin, err := d.Token()
	if err != nil {
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("not a list, but %v", begin)
	}
	list.Set(reflect.MakeSlice(list.Type(), 0, 0))
	for d.More() {
		list.Grow(1)
		list.SetLen(list.Len() + 1)
		if err := d.Decode(list.Index(list.Len() - 1).Addr().Interface()); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// put writes the object at path.
func (m *Client) put(ctx context.Context, object any, path string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return done(m.call(ctx, http.MethodPut, path, body))
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
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return m.send(ctx, r)
}
