package importer_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/topology"
)

// A file without a queue whose node is down would be read as one without the queue.
func TestQueuesOfANodeThatIsDownAreNotLeftOut(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Down: []string{"billing"}, Have: topology.Topology{
		Queues: []topology.Queue{{Name: "mail", Durable: true}},
	}}
	_, err := importer.Import(state, importer.Options{})
	if err == nil || !strings.Contains(err.Error(), "the file would lack them: billing; start the node") {
		t.Errorf("Import: %v", err)
	}
	imported(t, state, importer.Options{Match: regexp.MustCompile("^mail$")})
}

// Each rule that a comment names is one that 'dlxctl audit --explain' knows.
func TestCommentsNameRulesOfAudit(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Have: topology.Topology{
		Exchanges: []topology.Exchange{{Name: "events", Type: "topic", Durable: true}},
		Queues: []topology.Queue{
			{Name: "passing", Durable: false},
			{Name: "kept", Durable: true},
			{Name: "endless", Durable: true, Arguments: topology.Arguments{
				topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: int64(-1),
			}},
		},
		Bindings: []topology.Binding{{Source: "gone", Destination: "kept", DestinationType: topology.ToQueue, Key: "a"}},
	}}
	result, _ := imported(t, state, importer.Options{Adopt: true})
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^#   .* \(([a-z0-9-]+)\)$`).FindAllStringSubmatch(all(result.Files), -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	if want := []string{"binding-dangling", "limit-minus-one-on-3x", "not-durable"}; !slices.Equal(named, want) {
		t.Errorf("the comments name %v, want %v:\n%s", named, want, all(result.Files))
	}
	for _, id := range named {
		if !slices.ContainsFunc(audit.Rules(), func(r audit.Rule) bool { return r.ID == id }) {
			t.Errorf("a comment names the rule %q, which audit does not have", id)
		}
	}
}

// An import of definitions can make a queue with an empty name, which no topology file can have.
func TestQueueWithoutName(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
		Queues: []topology.Queue{{Name: "", Durable: true}, {Name: "kept", Durable: true}},
	}}
	for _, adopt := range []bool{false, true} {
		result, want := imported(t, state, importer.Options{Adopt: adopt})
		if _, found := want.WorkQueue("kept"); result.Queues != 1 || adopt && !found {
			t.Errorf("adopt %t: the file has %d queues:\n%s", adopt, result.Queues, all(result.Files))
		}
		if !strings.Contains(all(result.Files), `#   queue "" has an empty name`) {
			t.Errorf("adopt %t: no comment names the queue:\n%s", adopt, all(result.Files))
		}
	}
}

// The queue of an MQTT session is gone once its client has been away for long: a file with it would
// block each plan then. A policy for all queues that lets unused ones expire leaves out none. With
// --adopt dlxctl declares the queue itself.
func TestQueueThatExpires(t *testing.T) {
	t.Parallel()
	state := topology.State{VHost: "shop", Version: "4.3.6", Have: topology.Topology{
		Queues: []topology.Queue{
			{Name: "session", Durable: true, Arguments: topology.Arguments{topology.ArgExpires: int64(86_400_000)}},
			{Name: "kept", Durable: true},
		},
		Policies: []topology.Policy{{
			Name: "tidy", Pattern: ".*", ApplyTo: "queues",
			Definition: topology.Arguments{topology.KeyExpires: int64(86_400_000)},
		}},
	}}
	for _, adopt := range []bool{false, true} {
		result, _ := imported(t, state, importer.Options{Adopt: adopt})
		leaves := strings.Contains(all(result.Files), "#   queue session is deleted automatically while it is unused")
		if leaves == adopt || leaves && result.Queues != 1 || adopt && result.Queues != 2 {
			t.Errorf("adopt %t: the file has %d queues:\n%s", adopt, result.Queues, all(result.Files))
		}
	}
}
