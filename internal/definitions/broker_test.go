package definitions_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/topology"
)

// TestReadAgreesWithInspect declares a generated virtual host, and compares what dlxctl reads from
// the broker with what it reads from files: the definitions of the virtual host, those of the
// whole broker, and the four lists of the management API.
func TestReadAgreesWithInspect(t *testing.T) {
	t.Parallel()
	x := brokertest.VHost(t)
	at := url.PathEscape(x.VHost)
	data, err := topology.Definitions(topology.Compiled{Topology: rapid.Custom(drawHost).Example(7)}, x.VHost)
	if err != nil {
		t.Fatal(err)
	}
	x.Call(t, http.MethodPost, "definitions", rawJSON(data))
	client := managementtest.Client(t, x)
	state, err := client.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(state.Have.Bindings); n < 10 {
		t.Fatalf("the virtual host has %d bindings: it compares little", n)
	}
	get := func(path string) definitions.File {
		return definitions.File{Name: path, Data: x.Call(t, http.MethodGet, path, nil)}
	}
	for name, files := range map[string][]definitions.File{
		"definitions of the virtual host": {get("definitions/" + at)},
		"definitions of the broker":       {get("definitions")},
		"lists": {
			get("queues/" + at), get("exchanges/" + at), get("bindings/" + at), get("policies/" + at),
		},
	} {
		want := state.Have
		if name != "lists" && x.AtLeast("4.1") {
			want = withoutInternal(want)
		}
		if d := cmp.Diff(text(want), text(find(t, x.VHost, files).Have)); d != "" {
			t.Errorf("%s, as inspected and as read from files:\n%s", name, d)
		}
	}
}

// find reads files and gives a virtual host. Definitions of 3.10 of one virtual host do not
// have its name.
func find(t *testing.T, vhost string, files []definitions.File) topology.State {
	t.Helper()
	hosts := read(t, files...)
	for _, h := range hosts {
		if h.State.VHost == vhost || h.Unnamed && len(hosts) == 1 {
			return h.State
		}
	}
	t.Fatalf("no virtual host %s in %d", vhost, len(hosts))
	return topology.State{}
}

// withoutInternal returns what definitions of 4.3 tell of a virtual host: of its internal
// exchanges, only their names where a binding has them.
func withoutInternal(t topology.Topology) topology.Topology {
	bound := map[string]bool{}
	for _, b := range t.Bindings {
		bound[b.Source] = true
		if b.DestinationType == topology.ToExchange {
			bound[b.Destination] = true
		}
	}
	kept := t
	kept.Exchanges = nil
	for _, e := range t.Exchanges {
		switch {
		case !e.Internal || e.Name == "amq.rabbitmq.trace":
			kept.Exchanges = append(kept.Exchanges, e)
		case bound[e.Name]:
			kept.Exchanges = append(kept.Exchanges, topology.Exchange{Name: e.Name, Durable: true, Internal: true})
		}
	}
	return kept
}

// rawJSON is JSON that is sent as it is.
type rawJSON []byte

// MarshalJSON returns the text itself.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// drawHost draws a virtual host with arguments of every type and odd names.
func drawHost(t *rapid.T) topology.Topology {
	var h topology.Topology
	name := rapid.SampledFrom([]string{"billing", "a b", "ä/ö", `q"uote`, "x.y", "%2F", "#", "…"})
	for i := range rapid.IntRange(4, 8).Draw(t, "exchanges") {
		h.Exchanges = append(h.Exchanges, topology.Exchange{
			Name: fmt.Sprint(name.Draw(t, "name"), i), Durable: true,
			Type:     rapid.SampledFrom(topology.ExchangeTypes()).Draw(t, "type"),
			Internal: rapid.Bool().Draw(t, "internal"), Arguments: drawArguments(t, "x-own"),
		})
	}
	for i := range rapid.IntRange(4, 8).Draw(t, "queues") {
		args := drawArguments(t, "x-own")
		if typed := rapid.SampledFrom([]string{"", topology.Classic, topology.Quorum}).Draw(t, "type"); typed != "" {
			args = args.With(topology.ArgQueueType, typed)
		}
		if rapid.Bool().Draw(t, "dead-letters") {
			args = args.With(topology.ArgDeadLetterExchange, h.Exchanges[0].Name).
				With(topology.ArgMessageTTL, rapid.Int64Range(0, 1<<31).Draw(t, "ttl"))
		}
		h.Queues = append(h.Queues, topology.Queue{Name: fmt.Sprint(name.Draw(t, "name"), i), Durable: true, Arguments: args})
	}
	for range rapid.IntRange(20, 30).Draw(t, "bindings") {
		b := topology.Binding{
			Source:          rapid.SampledFrom(h.Exchanges).Draw(t, "source").Name,
			Destination:     rapid.SampledFrom(h.Queues).Draw(t, "destination").Name,
			DestinationType: topology.ToQueue, Key: name.Draw(t, "key"), Arguments: drawArguments(t, "own"),
		}
		if rapid.IntRange(0, 3).Draw(t, "to exchange") == 0 {
			b.Destination, b.DestinationType = rapid.SampledFrom(h.Exchanges).Draw(t, "destination").Name, topology.ToExchange
		}
		h.Bindings = append(h.Bindings, b)
	}
	for i := range rapid.IntRange(2, 4).Draw(t, "policies") {
		h.Policies = append(h.Policies, topology.Policy{
			Name: fmt.Sprint(name.Draw(t, "name"), i), Pattern: "^" + string(rune('a'+i)), ApplyTo: "queues",
			Priority: rapid.Int64Range(-5, 5).Draw(t, "priority"), Definition: topology.Arguments{"max-length": int64(i + 9)},
		})
	}
	return h
}

// drawArguments draws arguments of every type, whose names begin so.
func drawArguments(t *rapid.T, prefix string) topology.Arguments {
	all := []any{
		"text", "", int64(-1), int64(1) << 53, 0.5, true,
		[]any{int64(1), "a", false},
		topology.Arguments{"inner": int64(1)},
	}
	var args topology.Arguments
	for i := range rapid.IntRange(0, 3).Draw(t, "arguments") {
		args = args.With(fmt.Sprint(prefix, i), rapid.SampledFrom(all).Draw(t, "value"))
	}
	return args
}
