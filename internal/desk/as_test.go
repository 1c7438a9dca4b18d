package desk

import (
	"reflect"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// A desk for another person differs in nothing but the name, and learns the routing with the first.
func TestADeskForAnotherPerson(t *testing.T) {
	t.Parallel()
	d := &Desk{
		Management: &management.Client{}, Found: &Found{}, Reader: &deadletter.Reader{}, By: "ann", Allow: []string{"q"},
		ChangeWait: time.Second, Now: time.Now, pause: time.Second, holds: true, copies: 1,
		guards: time.Second,
	}
	d.Topology.Name, d.Endpoint.VHost = "shop", "/"
	bob := d.As("bob").As("bob")
	if bob.By != "bob" || bob.of != d {
		t.Fatalf("By is %q", bob.By)
	}
	was, is := reflect.ValueOf(d).Elem(), reflect.ValueOf(bob).Elem()
	for i := range was.NumField() {
		switch name := was.Type().Field(i).Name; name {
		case "By", "routes", "of", "last", "Unrecorded", "records", "recorded":
		default:
			if was.Field(i).IsZero() || is.Field(i).IsZero() {
				t.Errorf("%s is not copied, or not set by this test", name)
			}
		}
	}
	routes := func() routing { return routing{} }
	bob.root().routes.Store(&routes)
	if bob.root() != d {
		t.Error("its records are not those of the first desk")
	}
	if d.root().routes.Load() == nil {
		t.Error("the first desk does not know the routing")
	}
}
