package management

import (
	"context"
	"net/url"
	"slices"
)

// Subscribers returns the names of the connections that consume a queue, in order, as the
// statistics show them. A user with the tag management sees only its own.
func (m *Client) Subscribers(ctx context.Context, queue string) ([]string, error) {
	var list []struct {
		Queue struct {
			Name string `json:"name"`
		} `json:"queue"`
		Channel struct {
			Connection string `json:"connection_name"`
		} `json:"channel_details"`
	}
	if err := m.get(ctx, &list, "consumers/"+url.PathEscape(m.vhost)); err != nil {
		return nil, err
	}
	var out []string
	for _, c := range list {
		if c.Queue.Name == queue && c.Channel.Connection != "" {
			out = append(out, c.Channel.Connection)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Connections returns the open connections to the virtual host by name, each with the name that its
// client gave it, or else the name of the client library. A user with the tag management sees only
// its own.
func (m *Client) Connections(ctx context.Context) (map[string]string, error) {
	var list []struct {
		Name       string         `json:"name"`
		Properties map[string]any `json:"client_properties"`
	}
	path := "vhosts/" + url.PathEscape(m.vhost) + "/connections?columns=name,client_properties"
	if err := m.get(ctx, &list, path); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, c := range list {
		name, _ := c.Properties["connection_name"].(string)
		if name == "" {
			name, _ = c.Properties["product"].(string)
		}
		out[c.Name] = name
	}
	return out, nil
}

// ConnectionURL returns the address under which the management API closes a connection (DELETE).
func (m *Client) ConnectionURL(name string) string {
	return m.api.String() + "/api/connections/" + url.PathEscape(name)
}
