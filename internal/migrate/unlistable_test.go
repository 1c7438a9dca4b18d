package migrate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// A successor's bindings carry the owner mark. RabbitMQ cannot list a binding with an argument
// whose key has ~ before other characters, and then lists none of the virtual host. So the
// migration is refused before anything is written, and the virtual host can still be read.
func TestAnUnlistableBindingIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	brokertest.Bind(t, s.target.Channel(t), "old", "a~b", "t", nil)
	r := s.runner(t)
	err := r.Run(t.Context())
	if !errors.Is(err, migrate.ErrRefused) || r.Wrote() ||
		!strings.Contains(err.Error(), `bound to t with the key "a~b"`) {
		t.Errorf("it wrote: %t; it ends with %v", r.Wrote(), err)
	}
	s.inspect(t)
}
