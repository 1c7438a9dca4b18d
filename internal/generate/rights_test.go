package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

// Names are told one by one, which a broker may find too long.
func TestLongExpressions(t *testing.T) {
	t.Parallel()
	for n, long := range map[int]bool{10: false, 500: true} {
		var names topology.Compiled
		for i := range n {
			names.Exchanges = append(names.Exchanges,
				topology.Exchange{Name: fmt.Sprintf("e%d", i), Label: topology.Label{Role: topology.RoleBusiness}})
		}
		var b strings.Builder
		if err := WriteRights(&b, "/", []Grant{publishing(names)}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "RabbitMQ 4.3 takes 1024") != long {
			t.Errorf("%d names:\n%s", n, b.String())
		}
	}
}

// A name means itself in an expression and to a shell, and gives a terminal no orders.
func TestNamesInCommands(t *testing.T) {
	t.Parallel()
	g := Grant{User: "it's \x1b", Purpose: "p", Write: []string{exactly("a.b\x1b[2J")}}
	var b strings.Builder
	if err := WriteRights(&b, "a b", []Grant{g}); err != nil {
		t.Fatal(err)
	}
	want := `# p
rabbitmqctl set_permissions -p 'a b' $'it\'s \x1b' '^$' '^a\.b\x1b\[2J$' '^$'
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// What is removed is deleted with the rights that the same file prints.
func TestRightsOfWhatIsRemoved(t *testing.T) {
	t.Parallel()
	g := applying(topology.Compiled{Name: "shop", Removed: []string{"old"}})
	for _, list := range [][]string{g.Configure, g.Write, g.Read} {
		for _, want := range []string{"old", `old\.dead`} {
			if !slices.Contains(list, want) {
				t.Errorf("%s is not in %v", want, list)
			}
		}
	}
}
