package management

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// Subscribers returns the names of the connections that consume a queue, in order, as the
// statistics show them. A user with the tag management sees only its own.
func (m *Client) Subscribers(ctx context.Context, queue string) ([]string, error) {
	all, err := m.AllSubscribers(ctx)
	return slices.Compact(all[queue]), err
}

// AllSubscribers returns, by queue, the names of the connections of its consumers, in order: one
// name for each consumer that [Client.Subscribers] sees. A broker without statistics shows none.
func (m *Client) AllSubscribers(ctx context.Context) (map[string][]string, error) {
	var list []struct {
		Queue struct {
			Name string `json:"name"`
		} `json:"queue"`
		Channel any `json:"channel_details"` // an object, or [] if the channel is gone or not known yet
	}
	err := m.get(ctx, &list, "consumers/"+url.PathEscape(m.vhost))
	if errors.Is(err, broker.ErrRefused) && errors.Is(m.requireStatistics(ctx), ErrNoStatistics) {
		return map[string][]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, c := range list {
		channel, _ := c.Channel.(map[string]any)
		if name, _ := channel["connection_name"].(string); name != "" {
			out[c.Queue.Name] = append(out[c.Queue.Name], name)
		}
	}
	for _, names := range out {
		slices.Sort(names)
	}
	return out, nil
}

// Properties are what the client of a connection says of itself. Each may be empty.
type Properties struct {
	Name                       string // that the program gave the connection
	Product, Platform, Version string // of the client library
}

// String returns the name of the connection, or else of the client library.
func (p Properties) String() string { return cmp.Or(p.Name, p.Product) }

// Connections returns the open connections to the virtual host by name. A user with the tag
// management sees only its own.
func (m *Client) Connections(ctx context.Context) (map[string]Properties, error) {
	var list []struct {
		Name       string         `json:"name"`
		Properties map[string]any `json:"client_properties"`
	}
	path := "vhosts/" + url.PathEscape(m.vhost) + "/connections?columns=name,client_properties"
	if err := m.get(ctx, &list, path); err != nil {
		return nil, err
	}
	out := map[string]Properties{}
	for _, c := range list {
		property := func(name string) string { s, _ := c.Properties[name].(string); return s }
		out[c.Name] = Properties{
			property("connection_name"), property("product"), property("platform"), property("version"),
		}
	}
	return out, nil
}

// ConnectionURL returns the address under which the management API closes a connection (DELETE).
func (m *Client) ConnectionURL(name string) string {
	return m.api.String() + "/api/connections/" + url.PathEscape(name)
}
