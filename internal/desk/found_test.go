package desk_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// Without a topology file, --name is needed only where the virtual host has several topologies.
func TestTheTopologyThatIsMeant(t *testing.T) {
	t.Parallel()
	d := desk.Desk{Endpoint: broker.Endpoint{VHost: "v"}}
	both := []string{"hotel", "shop"}
	for _, tc := range []struct {
		have             []string
		name, want, says string
	}{
		{},
		{have: both[:1], want: "hotel"},
		{have: both, name: "shop", want: "shop"},
		{have: both, says: "vhost v has the topologies hotel and shop; pass --name hotel, or another of them"},
		{have: both, name: "shpo", says: `vhost v has no topology "shpo"; it has hotel and shop`},
		{name: "shop", says: "vhost v has no topology of dlxctl; remove --name"},
	} {
		got, err := d.ChosenTopology(tc.have, tc.name)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if got != tc.want || said != tc.says {
			t.Errorf("%q of %q is %q, %q", tc.name, tc.have, got, said)
		}
	}
}
