package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

// Names are permitted one by one, as long as they fit: then by their prefixes, or in an expression
// that RabbitMQ 4.3 refuses. The commands say so.
func TestLongExpressions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		count int
		form  string
		note  string
	}{
		"few":         {10, "e%d", ""},
		"prefixes":    {500, "team.%x%[1]d", "They cover every name that begins with team."},
		"no prefixes": {500, "%x%[1]d", "bytes, and RabbitMQ 4.3 accepts 1024: write what the names have in common"},
	} {
		var names topology.Compiled
		for i := range tc.count {
			names.Exchanges = append(names.Exchanges,
				topology.Exchange{Name: fmt.Sprintf(tc.form, i*7919), Label: topology.Label{Role: topology.RoleBusiness}})
		}
		var b strings.Builder
		if err := WriteRights(&b, "/", []Grant{publishing(names)}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), tc.note) || strings.Contains(b.String(), "1024") != (tc.note != "") {
			t.Errorf("%s:\n%s", name, b.String())
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
	want := "# " + replaceNote + `

# p
# if the user does not exist: rabbitmqctl add_user $'it\'s \x1b'
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
