package audit

import (
	"net/url"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Change is a change of one object of a virtual host: it is created, or takes the place of the one
// with its identity, or is deleted.
type Change struct {
	Delete bool
	Object topology.Object
}

// put returns the change that creates an object, or replaces it.
func put(o topology.Object) Change { return Change{Object: o} }

// Apply returns a virtual host after changes. It leaves the state as it is. What is deleted takes
// its bindings along, and policies that change are in effect at once, as on a broker.
func Apply(state topology.State, changes []Change) topology.State {
	out := state
	for _, c := range changes {
		t := &out.Have
		switch o := c.Object.(type) {
		case topology.Exchange:
			t.Exchanges = changed(t.Exchanges, o, c.Delete)
		case topology.Queue:
			t.Queues = changed(t.Queues, o, c.Delete)
		case topology.Binding:
			t.Bindings = changed(t.Bindings, o, c.Delete)
		case topology.Policy:
			t.Policies = changed(t.Policies, o, c.Delete)
		}
		if c.Delete && c.Object.Kind() != topology.KindBinding {
			t.Bindings = slices.DeleteFunc(slices.Clone(t.Bindings), func(b topology.Binding) bool {
				return isOf(b, c.Object.ID())
			})
		}
	}
	out.QueuePolicies = inEffect(state, out)
	return out
}

// changed returns a copy of objects in which one was created, replaced or deleted.
func changed[T topology.Object](list []T, o T, deleted bool) []T {
	out := slices.DeleteFunc(slices.Clone(list), func(have T) bool { return have.ID() == o.ID() })
	if deleted {
		return out
	}
	at, _ := slices.BinarySearchFunc(out, o, func(a, b T) int {
		return strings.Compare(a.ID().Name, b.ID().Name)
	})
	return slices.Insert(out, at, o)
}

// isOf reports whether a binding begins or ends at an exchange or a queue.
func isOf(b topology.Binding, object topology.Key) bool {
	return object.Kind == topology.KindExchange && b.Source == object.Name ||
		string(object.Kind) == b.DestinationType && b.Destination == object.Name
}

// inEffect returns the policies that the broker reports in effect after a change: where a policy
// that differs is or was for a queue, the strongest one. It returns nil if they are not known.
func inEffect(before, after topology.State) map[string]string {
	if before.QueuePolicies == nil {
		return nil
	}
	var touched []topology.Policy
	had := map[string]bool{}
	for _, p := range before.Have.Policies {
		had[same(p)] = true
	}
	for _, p := range after.Have.Policies {
		if !had[same(p)] {
			touched = append(touched, p)
		}
		delete(had, same(p))
	}
	touched = append(touched, slices.DeleteFunc(slices.Clone(before.Have.Policies), func(p topology.Policy) bool {
		return !had[same(p)]
	})...)
	set := policy.All(topology.State{Version: before.Version, Have: after.Have})
	out := map[string]string{}
	for _, q := range after.Have.Queues {
		reported, known := before.QueuePolicies[q.Name]
		isNew := !slices.ContainsFunc(before.Have.Queues, func(o topology.Queue) bool { return o.Name == q.Name })
		if isNew || slices.ContainsFunc(touched, func(p topology.Policy) bool { return set.Matches(p, q) }) {
			p, ok := set.Strongest(after.Have.Policies, q)
			reported, known = p.Name, ok
		}
		if known {
			out[q.Name] = reported
		}
	}
	return out
}

// same is equal for equal policies only.
func same(p topology.Policy) string {
	return strings.Join([]string{
		p.Name, p.Pattern, p.ApplyTo, topology.FormatValue(p.Priority), p.Definition.String(),
	}, "\x00")
}

// Request is a request to the management API, which brokers of all lines take. Sending it twice is
// harmless.
type Request struct {
	Method string // PUT, POST or DELETE
	// Path begins behind /api/, and is percent-encoded.
	Path string
	// Body is JSON. Nil for none.
	Body map[string]any
}

// Request returns the request that makes a change. It reports false if there is none: the API
// deletes a binding with arguments only by a hash of them.
func (c Change) Request(vhost string) (Request, bool) {
	r := Request{Method: "PUT"}
	switch o := c.Object.(type) {
	case topology.Exchange:
		r.Path = apiPath("exchanges", vhost, o.Name)
		r.Body = map[string]any{
			"type": o.Type, "durable": o.Durable, "auto_delete": o.AutoDelete, "internal": o.Internal,
			"arguments": o.Arguments.OrEmpty(),
		}
	case topology.Queue:
		r.Path = apiPath("queues", vhost, o.Name)
		r.Body = map[string]any{"durable": o.Durable, "auto_delete": o.AutoDelete, "arguments": o.Arguments.OrEmpty()}
	case topology.Policy:
		r.Path = apiPath("policies", vhost, o.Name)
		r.Body = map[string]any{
			"pattern": o.Pattern, "apply-to": applyTo(o), "priority": o.Priority, "definition": o.Definition.OrEmpty(),
		}
	case topology.Binding:
		r.Method, r.Path = "POST", apiPath("bindings", vhost, "e", o.Source, o.DestinationType[:1], o.Destination)
		r.Body = map[string]any{"routing_key": o.Key, "arguments": o.Arguments.OrEmpty()}
		if c.Delete {
			key := strings.ReplaceAll(url.QueryEscape(o.Key), ".", "%2E") // as the API lists it
			if key == "" {
				key = "~"
			}
			r.Path += "/" + url.PathEscape(key)
			if len(o.Arguments) > 0 || strings.ContainsAny(o.Key, "~") {
				return Request{}, false
			}
		}
	}
	if c.Delete {
		r.Method, r.Body = "DELETE", nil
	}
	return r, true
}

func applyTo(p topology.Policy) string {
	if p.ApplyTo == "" {
		return "all"
	}
	return p.ApplyTo
}

func apiPath(parts ...string) string {
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(part), "$", "%24") // it is put in double quotes
	}
	return strings.Join(parts, "/")
}

// apiVariable is the address of the management API in a command of curl.
const apiVariable = "$RABBITMQ_API_URL"

// requestNote says what the commands of curl need. dlxctl itself reads the variable without user
// and password too, and needs none where the default holds.
const requestNote = "curl needs RABBITMQ_API_URL with user and password: http://USER:PASSWORD@HOST:15672"

// String returns the request as a command of curl. The variable RABBITMQ_API_URL has the address of
// the management API, with user and password.
func (r Request) String() string {
	out := `curl -fsS -X ` + r.Method + ` "` + apiVariable + `/api/` + r.Path + `"`
	if r.Body != nil {
		out += " -d " + text.ShellQuote(topology.Arguments(r.Body).String())
	}
	return out
}
