package topology_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// sample holds one object of each kind, and those that need care.
func sample() topology.Compiled {
	return topology.Compiled{
		Name: "shop",
		Topology: topology.Topology{
			Exchanges: []topology.Exchange{
				{Name: "events", Type: "topic", Durable: true, Label: topology.Label{Role: topology.RoleBusiness}},
				{Name: "legacy.bus", External: true, Label: topology.Label{Role: topology.RoleBusiness}},
			},
			Queues: []topology.Queue{
				{
					Name: "a<b>&c", Durable: true,
					Arguments: topology.Arguments{"x-queue-type": "quorum", "x-message-ttl": int64(90000), "note": "1"},
					Label:     topology.Label{Role: topology.RoleRetry, Backoff: "standard"},
				},
				{Name: "crm", External: true, Arguments: topology.Arguments{"x-queue-type": "classic"}},
			},
			Bindings: []topology.Binding{{Source: "legacy.bus", Destination: "crm", DestinationType: "queue", Key: "#"}},
			Policies: []topology.Policy{{Name: "p", Pattern: "^crm$", ApplyTo: "queues", Priority: 7}},
		},
	}
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	got, err := topology.Definitions(sample(), "/")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "exchanges": [
    {
      "name": "events",
      "vhost": "/",
      "type": "topic",
      "durable": true,
      "auto_delete": false,
      "internal": false,
      "arguments": {}
    }
  ],
  "queues": [
    {
      "name": "a<b>&c",
      "vhost": "/",
      "durable": true,
      "auto_delete": false,
      "arguments": {
        "note": "1",
        "x-message-ttl": 90000,
        "x-queue-type": "quorum"
      }
    }
  ],
  "bindings": [
    {
      "source": "legacy.bus",
      "vhost": "/",
      "destination": "crm",
      "destination_type": "queue",
      "routing_key": "#",
      "arguments": {}
    }
  ],
  "policies": [
    {
      "vhost": "/",
      "name": "p",
      "pattern": "^crm$",
      "apply-to": "queues",
      "priority": 7,
      "definition": {}
    }
  ]
}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("definitions (-want +got):\n%s", d)
	}
}

// Brokers and programs get lists and tables, never null.
func TestNothingIsNull(t *testing.T) {
	t.Parallel()
	for _, top := range []topology.Compiled{{}, sample()} {
		var doc bytes.Buffer
		if err := jsondoc.Write(&doc, top); err != nil {
			t.Fatal(err)
		}
		definitions, err := topology.Definitions(top, "/")
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range [][]byte{doc.Bytes(), definitions} {
			if !json.Valid(got) || bytes.Contains(got, []byte("null")) {
				t.Errorf("it has a null:\n%s", got)
			}
		}
	}
}

func TestJSONKeepsNumbersAndSaysWhatFor(t *testing.T) {
	t.Parallel()
	top := sample()
	top.Queues[0].Arguments["big"] = int64(math.MaxInt64)
	var got strings.Builder
	if err := jsondoc.Write(&got, top); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"version": 1,`, `"topology": "shop",`, `"big": 9223372036854775807,`, `"role": "retry",`, `"backoff": "standard",`,
		`"external": true,`, `"type": "quorum",`,
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("JSON lacks %s:\n%s", want, got.String())
		}
	}
}

func TestNumbersThatJSONLacksAreAnError(t *testing.T) {
	t.Parallel()
	top := sample()
	top.Queues[0].Arguments["ratio"] = math.Inf(1)
	if _, err := topology.Definitions(top, "/"); err == nil {
		t.Error("infinity was written")
	}
}

func TestWriteText(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	if err := topology.WriteText(&got, sample()); err != nil {
		t.Fatal(err)
	}
	want := `topology shop; everything dlxctl makes carries x-managed-by: dlxctl/shop

2 exchanges
  events      topic  business
  legacy.bus         business  external

2 queues
  a<b>&c  quorum   retry standard  note="1", x-message-ttl=90000 (1m30s)
  crm     classic

1 binding
  legacy.bus -> crm  #

1 policy
  p  ^crm$  queues
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}
