package definitions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/topology"
)

func file(name, data string) definitions.File {
	return definitions.File{Name: name, Data: []byte(data)}
}

func read(t *testing.T, files ...definitions.File) []definitions.VHost {
	t.Helper()
	hosts, err := definitions.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

const whole = `{
  "rabbitmq_version": "4.0.5",
  "users": [{"name": "guest", "password_hash": "secret", "tags": "administrator"}],
  "vhosts": [{"name": "shop", "default_queue_type": "undefined"}, {"name": "empty"},
    {"name": "new", "metadata": {"default_queue_type": "quorum"}}],
  "permissions": [{"user": "guest", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
  "parameters": [
    {"vhost": "shop", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://u:p@h"}},
    {"vhost": "shop", "component": "operator_policy", "name": "limit",
     "value": {"pattern": ".*", "apply-to": "queues", "priority": 1.5, "definition": {"max-length": 9}}}],
  "policies": [{"vhost": "shop", "name": "dlx", "pattern": "^b", "definition": {"dead-letter-exchange": "dlx"}}],
  "queues": [
    {"name": "billing", "vhost": "shop", "durable": true, "auto_delete": false,
     "arguments": {"x-message-ttl": 9007199254740993}},
    {"name": "billing", "vhost": "new", "durable": false, "auto_delete": true, "type": "stream"}
  ],
  "exchanges": [{"name": "dlx", "vhost": "shop", "type": "fanout", "durable": true, "auto_delete": false, "internal": false,
    "arguments": []}],
  "bindings": [{"source": "dlx", "vhost": "shop", "destination": "billing", "destination_type": "queue",
    "routing_key": "", "arguments": {"n": 1.0, "i": 1, "list": [1, {"f": 2.0}]}}]
}`

func TestReadDefinitionsOfSeveralVirtualHosts(t *testing.T) {
	t.Parallel()
	hosts := read(t, file("all.json", whole))
	if len(hosts) != 3 {
		t.Fatalf("got %d virtual hosts, want empty, new and shop", len(hosts))
	}
	empty, fresh, shop := hosts[0].State, hosts[1].State, hosts[2].State
	if empty.VHost != "empty" || len(managementtest.Own(empty.Have).Queues) > 0 || len(empty.Have.Exchanges) != 6 {
		t.Errorf("the virtual host without objects is %+v", empty)
	}
	if got := fresh.Have.Queues[0]; got.Type() != topology.Quorum || got.Durable || !got.AutoDelete {
		t.Errorf("a queue of unstated type in a virtual host whose default is quorum is %+v", got)
	}
	want := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "dlx", Type: "fanout", Durable: true}},
		Queues: []topology.Queue{{Name: "billing", Durable: true, Arguments: topology.Arguments{
			"x-message-ttl": int64(9007199254740993), "x-queue-type": "classic",
		}}},
		Bindings: []topology.Binding{{
			Source: "dlx", Destination: "billing", DestinationType: "queue", Arguments: topology.Arguments{
				"n": float64(1), "i": int64(1), "list": []any{int64(1), topology.Arguments{"f": float64(2)}},
			},
		}},
		Policies: []topology.Policy{{
			Name: "dlx", Pattern: "^b", ApplyTo: "all",
			Definition: topology.Arguments{"dead-letter-exchange": "dlx"},
		}},
	}
	if d := cmp.Diff(want, managementtest.Own(shop.Have)); d != "" {
		t.Errorf("objects of shop (-want +got):\n%s", d)
	}
	operator := []topology.Policy{{
		Name: "limit", Pattern: ".*", ApplyTo: "queues", Priority: 2,
		Definition: topology.Arguments{"max-length": int64(9)},
	}}
	if d := cmp.Diff(operator, shop.OperatorPolicies); d != "" {
		t.Errorf("operator policies (-want +got):\n%s", d)
	}
	if shop.Version != "4.0.5" {
		t.Errorf("version is %q", shop.Version)
	}
	// Neither users nor parameters leave a trace.
	if all := fmt.Sprintf("%+v", hosts); strings.Contains(all, "guest") || strings.Contains(all, "amqp://") {
		t.Errorf("what was read has users or parameters: %s", all)
	}
}

func TestPositionsAndOddities(t *testing.T) {
	t.Parallel()
	hosts := read(t, file("all.json", whole))
	at := func(host int, kind topology.Kind, name string) int {
		return hosts[host].Positions[topology.Key{Kind: kind, Name: name}].Line
	}
	for _, tc := range []struct {
		host int
		kind topology.Kind
		name string
		line int
	}{
		{2, topology.KindPolicy, "dlx", 11},
		{2, topology.KindQueue, "billing", 13},
		{1, topology.KindQueue, "billing", 15},
		{2, topology.KindExchange, "dlx", 17},
		{2, topology.KindExchange, "amq.topic", 0},
		{2, topology.KindBinding, hosts[2].State.Have.Bindings[0].Identity(), 19},
	} {
		if got := at(tc.host, tc.kind, tc.name); got != tc.line {
			t.Errorf("%s %s is at line %d, want %d", tc.kind, tc.name, got, tc.line)
		}
	}
	want := []definitions.Oddity{{
		Kind: definitions.TypeWithoutArgument, Object: topology.Key{Kind: topology.KindQueue, Name: "billing"},
		Field: "type", Value: "stream",
	}}
	if d := cmp.Diff(want, hosts[1].Oddities); d != "" {
		t.Errorf("oddities (-want +got):\n%s", d)
	}
}

// describe returns the oddities of a virtual host, one a line.
func describe(h definitions.VHost) string {
	var b strings.Builder
	for _, o := range h.Oddities {
		fmt.Fprintln(&b, o.Kind, o.Object.Kind, o.Object.Name, o.Field)
	}
	return b.String()
}

func TestOddities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ data, vhost, want string }{
		"fields are missing": {
			`{"queues": [{"name": "q"}], "exchanges": [{"name": "x", "type": "topic"}],
			"bindings": [{"source": "x", "destination": "q"}], "policies": []}`, "/",
			"field-missing queue q durable\nfield-missing queue q auto_delete\nfield-missing exchange x durable\n" +
				"field-missing exchange x auto_delete\n" +
				"field-missing binding \"x\" queue \"q\" \"\" {} destination_type\n" +
				"field-missing binding \"x\" queue \"q\" \"\" {} routing_key\n",
		},
		"an object among others does not say its virtual host": {
			`{"vhosts": [{"name": "shop"}], "queues": [{"name": "q", "durable": true, "auto_delete": false}]}`, "shop",
			"field-missing queue q vhost\n",
		},
		"definitions of one virtual host": {
			`{"rabbitmq_version": "4.3.6", "original_vhost_name": "shop",
			"queues": [{"name": "q", "durable": true, "auto_delete": false, "type": "quorum", "arguments": {"x-queue-type": "quorum"}}]}`, "shop", "",
		},
		"an internal exchange is left out": {
			`{"rabbitmq_version": "4.3.6", "exchanges": [], "queues": [{"name": "q", "durable": true, "auto_delete": false}],
			"bindings": [{"source": "dlx", "destination": "q", "destination_type": "queue", "routing_key": ""}]}`, "/",
			"exchange-left-out exchange dlx \n",
		},
		"the command of an older broker leaves it out too": {
			`{"rabbitmq_version": "3.10.8", "queues": [],
			"bindings": [{"source": "dlx", "destination": "q", "destination_type": "queue", "routing_key": ""}]}`, "/",
			"exchange-left-out exchange dlx \n",
		},
		"no broker wrote the file": {
			`{"queues": [],
			"bindings": [{"source": "dlx", "destination": "q", "destination_type": "queue", "routing_key": ""}]}`, "/", "",
		},
		"a queue is there twice": {
			`{"queues": [{"name": "q", "durable": true, "auto_delete": false},
			{"name": "q", "durable": false, "auto_delete": false},
			{"name": "q", "durable": true, "auto_delete": false}]}`, "/",
			"defined-twice queue q \n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := read(t, file("d.json", tc.data))
			if len(hosts) != 1 || hosts[0].State.VHost != tc.vhost {
				t.Fatalf("virtual hosts: %+v", hosts)
			}
			if d := cmp.Diff(tc.want, describe(hosts[0])); d != "" {
				t.Errorf("oddities (-want +got):\n%s", d)
			}
		})
	}
}

// lists reads a folder of testdata.
func lists(t *testing.T, folder string) []definitions.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("files of %s: %v, %v", folder, paths, err)
	}
	var files []definitions.File
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, definitions.File{Name: path, Data: data})
	}
	return files
}

// The lists in testdata were printed for one virtual host by rabbitmqctl of each line, and by
// rabbitmqadmin from each line.
func TestReadLists(t *testing.T) {
	t.Parallel()
	want := topology.Topology{
		Exchanges: []topology.Exchange{{
			Name: "dlx", Type: "headers", Durable: true, Internal: true,
			Arguments: topology.Arguments{"alternate-exchange": "amq.fanout"},
		}},
		Queues: []topology.Queue{
			{Name: "billing", Durable: true, Arguments: topology.Arguments{
				"x-message-ttl": int64(1000), "x-dead-letter-exchange": "dlx", "x-queue-type": "classic",
			}},
			{Name: "dead", Durable: true, Arguments: topology.Arguments{"x-queue-type": "quorum"}},
		},
		Bindings: []topology.Binding{
			{Source: "amq.topic", Destination: "dlx", DestinationType: "exchange", Key: "a.#"},
			{Source: "dlx", Destination: "dead", DestinationType: "queue", Key: "k", Arguments: topology.Arguments{
				"x-match": "all", "n": float64(1), "i": int64(-7), "b": true,
				"t": topology.Arguments{"a": "x", "n": topology.Arguments{"deep": int64(2)}},
			}},
		},
		Policies: []topology.Policy{{
			Name: "longest", Pattern: "^b", ApplyTo: "queues", Priority: 3,
			Definition: topology.Arguments{"max-length": int64(10)},
		}},
	}
	for _, line := range []string{"3.10", "4.0", "4.3"} {
		for _, tool := range []string{"rabbitmqctl", "rabbitmqadmin"} {
			t.Run(tool+" "+line, func(t *testing.T) {
				t.Parallel()
				hosts := read(t, lists(t, tool+"-"+line)...)
				if len(hosts) != 1 || hosts[0].State.VHost != "auditprobe" || hosts[0].Unnamed {
					t.Fatalf("virtual hosts: %+v", hosts)
				}
				if d := cmp.Diff(want, managementtest.Own(hosts[0].State.Have)); d != "" {
					t.Errorf("objects (-want +got):\n%s", d)
				}
				if tool == "rabbitmqctl" && hosts[0].State.QueuePolicies["billing"] != "longest" {
					t.Errorf("policies in effect: %v", hosts[0].State.QueuePolicies)
				}
			})
		}
	}
}

func TestListsAfterEachOtherInOneFile(t *testing.T) {
	t.Parallel()
	var all []byte
	for _, f := range lists(t, "rabbitmqctl-4.3") {
		all = append(all, f.Data...)
	}
	hosts := read(t, definitions.File{Name: "all.json", Data: all})
	have := managementtest.Own(hosts[0].State.Have)
	if len(have.Queues) != 2 || len(have.Bindings) != 2 || len(have.Policies) != 1 {
		t.Errorf("got %+v", have)
	}
}
