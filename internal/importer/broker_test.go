package importer_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// broker opens the management API of a virtual host.
func open(t *testing.T, x brokertest.Target) *management.Client {
	t.Helper()
	return managementtest.Client(t, x)
}

func inspect(t *testing.T, x brokertest.Target) topology.State {
	t.Helper()
	state, err := open(t, x).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// checkOnBroker checks the law of import on the broker of x.
func checkOnBroker(t *testing.T, x brokertest.Target) {
	t.Helper()
	state := inspect(t, x)
	checkUnchanged(t, state, importer.Options{})
	checkUnchanged(t, state, importer.Options{Split: importer.SplitPrefix})
}

// checkAdopted applies the adopted file of what x has in an empty virtual host, and compares what
// is there then.
func checkAdopted(t *testing.T, x brokertest.Target) {
	t.Helper()
	state := inspect(t, x)
	adopted, _ := imported(t, state, importer.Options{Adopt: true})

	empty := brokertest.VHost(t)
	want := compiled(t, adopted.Files)
	want.VHost = empty.VHost
	client := open(t, empty)
	p := plan.Make(want, inspect(t, empty), plan.Options{})
	if err := apply.Execute(t.Context(), client, p, func(plan.Change) {}); err != nil {
		t.Fatalf("%v\n%s", err, all(adopted.Files))
	}
	made := inspect(t, empty)
	if p := plan.Make(want, made, plan.Options{}); len(p.Changes) > 0 {
		var b strings.Builder
		_ = planview.WriteText(&b, p, planview.TextOptions{Verbose: true})
		t.Fatalf("after apply, the plan of the adopted file is not empty:\n%s\n%s", b.String(), all(adopted.Files))
	}
	want.Topology = made.Have
	for i, q := range want.Queues {
		_, declared := want.WorkQueue(q.Name)
		if declared || adoptedAsIs(adopted, q.Name) {
			want.Queues[i].Label.Role = topology.RoleWork
		}
	}
	for i, e := range want.Exchanges {
		_, generated := topology.ExchangeLabelOf(want.Name, e.Name)
		if !generated && !strings.HasPrefix(e.Name, "amq.") {
			want.Exchanges[i].Label.Role = topology.RoleBusiness
		}
	}
	checkSame(t, state, want, all(adopted.Files))
}

// adoptedAsIs reports whether a file declares a queue without dead-lettering by dlxctl.
func adoptedAsIs(r importer.Result, queue string) bool {
	top, _ := spectest.CompileFile(&testing.T{}, r.Files[0].Name, r.Files[0].Data)
	for _, q := range top.Queues {
		if _, managed := top.WorkQueue(q.Name); q.Name == queue && q.Label.Role == topology.RoleWork && !managed {
			return true
		}
	}
	return false
}

// TestRealTopologies imports each of testdata/real from a broker that has it.
func TestRealTopologies(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/real/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	x := brokertest.VHost(t)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := definitions.Read([]definitions.File{{Name: name, Data: data}})
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		for _, h := range hosts {
			checkUnchanged(t, h.State, importer.Options{})
			x.Empty(t)
			restore(t, x, h.State.Have)
			checkOnBroker(t, x)
			if strings.HasSuffix(name, "datban.json") { // it is small; see also TestGeneratedBrokers
				checkAdopted(t, x)
			}
		}
	}
}

// restore declares the objects of a definitions file, but for policies that 4.x refuses, and
// bindings from or to nothing, which no broker takes.
func restore(t *testing.T, x brokertest.Target, have topology.Topology) {
	t.Helper()
	var kept topology.Topology
	kept.Queues = have.Queues
	exists := map[topology.Key]bool{}
	for _, q := range have.Queues {
		exists[q.ID()] = true
	}
	for _, e := range have.Exchanges {
		exists[e.ID()] = true
		if !strings.HasPrefix(e.Name, "amq.") && e.Name != "" {
			kept.Exchanges = append(kept.Exchanges, e)
		}
	}
	for _, b := range have.Bindings {
		to := topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}
		if exists[to] && exists[topology.Key{Kind: topology.KindExchange, Name: b.Source}] {
			kept.Bindings = append(kept.Bindings, b)
		}
	}
	for _, p := range have.Policies {
		if !p.Definition.HasAny("ha-mode", "ha-params", "queue-mode") {
			kept.Policies = append(kept.Policies, p)
		}
	}
	data, err := topology.Definitions(topology.Compiled{Topology: kept}, x.VHost)
	if err != nil {
		t.Fatal(err)
	}
	x.Call(t, http.MethodPost, "definitions/"+url.PathEscape(x.VHost), json.RawMessage(data))
}

// TestGeneratedBrokers imports virtual hosts with odd names, and arguments of every type of AMQP.
// DLXCTL_TEST_IMPORTS is how many there are.
func TestGeneratedBrokers(t *testing.T) {
	t.Parallel()
	n := 3
	if s := os.Getenv("DLXCTL_TEST_IMPORTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	x := brokertest.VHost(t)
	for seed := range n {
		x.Empty(t)
		host := rapid.Custom(drawDeclared).Example(seed)
		host.declare(t, x)
		checkOnBroker(t, x)
		if seed%3 == 0 {
			checkAdopted(t, x)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// declared is a virtual host that a broker accepts.
type declared struct {
	exchanges []topology.Exchange
	queues    []topology.Queue
	bindings  []boundBy
	policies  map[string]topology.Arguments // by pattern
}

// boundBy is a binding with arguments as a client gives them.
type boundBy struct {
	topology.Binding

	table amqp091.Table
}

// drawTable draws arguments of every type of AMQP 0-9-1.
func drawTable(t *rapid.T) amqp091.Table {
	values := map[string]any{
		"text": "a", "odd: text": "${X}\u2028", "empty": "", "long": int64(1) << 62, "int": int32(-5), "short": int16(7),
		"byte": byte(3), "signed": int8(-3), "yes": true, "float": 0.5, "single": float32(0.25), "whole": 3.0, "none": nil,
		"list": []any{int32(1), "b", true}, "table": amqp091.Table{"inner": "x"}, "bytes": []byte("raw"),
		"when": time.Unix(1_700_000_000, 0), "decimal": amqp091.Decimal{Scale: 2, Value: 150}, "<<": "merge", "": "no name",
	}
	var names []string
	for name := range values {
		names = append(names, name)
	}
	out := amqp091.Table{}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(sorted(names)), 0, 3).Draw(t, "arguments") {
		out[name] = values[name]
	}
	return out
}

// drawDeclared draws a virtual host that a broker accepts.
func drawDeclared(t *rapid.T) declared {
	var d declared
	usable := rapid.Custom(func(t *rapid.T) string { return drawName(t, "name") }).Filter(func(s string) bool {
		return !strings.HasPrefix(s, "amq.") && !strings.ContainsAny(s, "\r\n") && s != "." && s != ".."
	})
	for _, name := range rapid.SliceOfNDistinct(usable, 4, 8, rapid.ID[string]).Draw(t, "exchanges") {
		d.exchanges = append(d.exchanges, topology.Exchange{
			Name: name, Type: rapid.SampledFrom(topology.ExchangeTypes()).Draw(t, "type"),
			Durable:  rapid.IntRange(0, 3).Draw(t, "durable") > 0,
			Internal: rapid.Bool().Draw(t, "internal"), Arguments: topology.Arguments(drawTable(t)),
		})
	}
	d.exchanges[0].Arguments = topology.Arguments{topology.ArgAlternateExchange: d.exchanges[1].Name}
	names := rapid.SliceOfNDistinct(usable, 6, 12, rapid.ID[string]).Draw(t, "queues")
	for i, name := range names {
		q := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments(drawTable(t))}
		types := []any{"classic", "classic", "quorum", "stream"}
		q.Arguments[topology.ArgQueueType] = rapid.SampledFrom(types).Draw(t, "type")
		if q.Type() == topology.Classic {
			q.Durable = rapid.IntRange(0, 5).Draw(t, "durable") > 0
		}
		if q.Type() != topology.Stream && rapid.Bool().Draw(t, "dead-letters") {
			targets := []any{"", d.exchanges[0].Name, d.exchanges[2].Name, "gone"}
			q.Arguments[topology.ArgDeadLetterExchange] = rapid.SampledFrom(targets).Draw(t, "exchange")
			q.Arguments[topology.ArgDeadLetterRoutingKey] = names[(i+1)%len(names)]
		}
		if q.Type() != topology.Stream && rapid.IntRange(0, 2).Draw(t, "limited") == 0 {
			q.Arguments[topology.ArgMessageTTL], q.Arguments[topology.ArgMaxLength] = int32(20000), int32(1000)
		}
		d.queues = append(d.queues, q)
	}
	for range rapid.IntRange(10, 25).Draw(t, "bindings") {
		source := rapid.SampledFrom(d.exchanges).Draw(t, "source")
		b := boundBy{}
		b.Source, b.Key, b.DestinationType = source.Name, drawName(t, "key"), topology.ToQueue
		b.Destination = rapid.SampledFrom(names).Draw(t, "queue")
		if rapid.IntRange(0, 4).Draw(t, "exchange") == 0 {
			b.Destination, b.DestinationType = rapid.SampledFrom(d.exchanges).Draw(t, "destination").Name, topology.ToExchange
		}
		if source.Type == topology.Headers || rapid.IntRange(0, 3).Draw(t, "with arguments") == 0 {
			b.table = drawTable(t)
		}
		if source.Type == topology.Headers && rapid.Bool().Draw(t, "match") {
			b.table["x-match"] = rapid.SampledFrom([]any{"all", "any"}).Draw(t, "words")
		}
		d.bindings = append(d.bindings, b)
	}
	d.policies = map[string]topology.Arguments{
		"^a":  {"dead-letter-exchange": d.exchanges[2].Name},
		"b.c": {"message-ttl": int64(60000), "dead-letter-exchange": ""},
	}
	return d
}

// declare declares the virtual host over AMQP, so that arguments keep their types.
func (d declared) declare(t *testing.T, x brokertest.Target) {
	t.Helper()
	for pattern, definition := range d.policies {
		x.Call(t, http.MethodPut, "policies/"+url.PathEscape(x.VHost)+"/"+url.PathEscape(pattern), map[string]any{
			"pattern": pattern, "apply-to": "queues", "priority": len(pattern), "definition": definition,
		})
	}
	ch := x.Channel(t)
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, e := range d.exchanges {
		check(e.Name, ch.ExchangeDeclare(e.Name, e.Type, e.Durable, false, e.Internal, false, amqp091.Table(e.Arguments)))
	}
	for _, q := range d.queues {
		_, err := ch.QueueDeclare(q.Name, q.Durable, false, false, false, amqp091.Table(q.Arguments))
		check(q.Name, err)
	}
	for _, b := range d.bindings {
		if b.DestinationType == topology.ToExchange {
			check(b.String(), ch.ExchangeBind(b.Destination, b.Key, b.Source, false, b.table))
		} else {
			check(b.String(), ch.QueueBind(b.Destination, b.Key, b.Source, false, b.table))
		}
	}
}
