package plan_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Only new quorum work queues that dead-letter at-least-once, on a broker that
// believes publishers, are warned about.
func TestForgedDeathsAreWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	queue := func(typ string) topology.Queue {
		args := topology.Arguments{
			"x-queue-type": typ, topology.ArgManagedBy: topology.OwnerMark("shop"),
			topology.ArgDeliveryLimit: int64(3),
		}
		if typ == topology.Quorum {
			args[topology.ArgDeadLetterStrategy] = topology.AtLeastOnce
		}
		return topology.Queue{Name: "work", Durable: true, Arguments: args, Label: topology.Label{Role: topology.RoleWork}}
	}
	for name, tc := range map[string]struct {
		version, typ string
		there        bool
		want         bool
	}{
		"a new quorum queue on 3.10":      {version: "3.10.8", typ: topology.Quorum, want: true},
		"one that is there":               {version: "3.10.8", typ: topology.Quorum, there: true},
		"a new classic queue":             {version: "3.10.8", typ: topology.Classic},
		"a new quorum queue on 4.0":       {version: "4.0.5", typ: topology.Quorum},
		"without a broker to say its age": {typ: topology.Quorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := topology.Compiled{Name: "shop", Topology: topology.Topology{Queues: []topology.Queue{queue(tc.typ)}}}
			state := topology.State{Version: tc.version}
			if tc.there {
				state.Have.Queues = want.Queues
			}
			warned := false
			for _, w := range plan.Make(want, state, plan.Options{}).Warnings {
				warned = warned || w.Name == "forged-x-death" && strings.HasPrefix(w.Text, "work: ")
			}
			if warned != tc.want {
				t.Errorf("warned: %t", warned)
			}
		})
	}
}
