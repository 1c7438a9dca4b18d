package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// refuses fails the test unless a run is refused for a reason that has all parts, and writes
// nothing.
func (s *stage) refuses(t *testing.T, r *migrate.Runner, parts ...string) {
	t.Helper()
	before := s.target.Definitions(t)
	err := r.Run(t.Context())
	lacks := func(part string) bool { return !strings.Contains(fmt.Sprint(err), part) }
	if !errors.Is(err, migrate.ErrRefused) || slices.ContainsFunc(parts, lacks) {
		t.Errorf("migrate returns %v", err)
	}
	if !slices.Equal(before, s.target.Definitions(t)) {
		t.Error("migrate has written")
	}
}

// ends migrates, and checks that the successor is as the file has it.
func (s *stage) ends(t *testing.T) {
	t.Helper()
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if plan.Differs(s.want, s.inspect(t), "new") || s.exists(t, "old") {
		t.Error("the successor is not as the file has it, or the legacy queue is left")
	}
}

// allowed applies the file with consent.
func (s *stage) allowed(t *testing.T, allow ...plan.Consent) {
	t.Helper()
	state := s.inspect(t)
	state = s.m.AskConsumers(t.Context(), state, management.UnknownConsumers(state)) // an unknown number blocks
	p := plan.Make(s.want, state, plan.Options{})
	if err := plan.Check(p, allow); err != nil {
		t.Fatalf("%v: %v", err, p.Changes)
	}
	if err := apply.Execute(t.Context(), s.m, p, func(plan.Change) {}); err != nil {
		t.Fatal(err)
	}
}

// A successor that exists with other arguments would not dead-letter as the file says. No message
// is cut over to it: not if a service has declared it, not if an earlier file had it so. Once all
// messages go to it, the legacy queue is still drained.
func TestMigrateToAQueueThatDiffers(t *testing.T) {
	t.Parallel()
	t.Run("of a service", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "quorum", nil)
		ch := s.target.Channel(t)
		brokertest.Declare(t, ch, "new", amqp091.Table{"x-queue-type": "quorum"})
		s.refuses(t, s.runner(t), "queue new is blocked", "--allow replaces-queue=new")
		replacer := s.replacer(t)
		replacer.Legacy = []string{"new"}
		if err := replacer.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.ends(t)
	})
	t.Run("of an earlier file", func(t *testing.T) {
		t.Parallel()
		target := brokertest.VHost(t)
		file := fmt.Sprintf(topologyFile, "quorum")
		earlier := strings.Replace(file, "replaces: old", "replaces: old\n    type: classic", 1)
		before := newStageIn(t, target, earlier, "classic", nil)
		r := before.runner(t)
		r.Until = migrate.Prepare
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := newStageIn(t, target, file, "", nil)
		s.refuses(t, s.runner(t), "new exists with other arguments", "dlxctl apply")
		s.allowed(t)
		s.ends(t)
	})
	t.Run("after the cutover", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "quorum", nil)
		s.fill(t, 10, 10)
		r := s.runner(t)
		r.Until = migrate.Cutover
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.send(t, "f", "key", "one", nil)
		other := strings.Replace(s.file, "replaces: old", "replaces: old\n    type: classic", 1)
		later := newStageIn(t, s.target, other, "", nil)
		if err := later.runner(t).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.ready(t, "new"); n != 11 {
			t.Errorf("the successor has %d messages", n)
		}
	})
}

// What loses messages needs the consent that apply asks for. migrate writes none of it, neither for
// a successor nor for a queue that is replaced under its name.
func TestPrepareLosesNothing(t *testing.T) {
	t.Parallel()
	t.Run("a limit of the successor", func(t *testing.T) {
		t.Parallel()
		target := brokertest.VHost(t)
		file := fmt.Sprintf(topologyFile, "classic")
		file = strings.Replace(file, "replaces: old", "replaces: old\n    deadLetterBy: policy", 1)
		before := newStageIn(t, target, file, "classic", nil)
		r := before.runner(t)
		r.Until = migrate.Cutover
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			before.send(t, "f", "key", fmt.Sprint(i), nil)
		}
		limited := strings.Replace(file, "By: policy", "By: policy\n    arguments: {x-max-length: 5}", 1)
		s := newStageIn(t, target, limited, "", nil)
		counted := func() bool { return s.inspect(t).Usage["new"].Ready == 20 }
		brokertest.Eventually(t, "the count of the successor", counted)
		s.refuses(t, s.runner(t), "--allow loses-messages=new")
		if n := s.ready(t, "new"); n != 20 {
			t.Errorf("the successor has %d messages", n)
		}
		if err := before.runner(t).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	dead := "    dead: {queue: graves, arguments: {x-message-ttl: 60000}}\n"
	consent := plan.Consent{Hazard: topology.LosesMessages, Object: "graves"}
	t.Run("the dead-letter queue of the successor", func(t *testing.T) {
		t.Parallel()
		file := strings.Replace(fmt.Sprintf(topologyFile, "quorum"), "replaces: old\n", "replaces: old\n"+dead, 1)
		s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
		s.refuses(t, s.runner(t), consent.Flag())
		s.allowed(t, consent)
		s.ends(t)
	})
	t.Run("the dead-letter queue of a replaced queue", func(t *testing.T) {
		t.Parallel()
		s := policyStage(t, "{tiers: [100ms]}", dead)
		s.refuses(t, s.replacer(t), consent.Flag())
		r := s.replacer(t)
		r.Allow = append(r.Allow, consent)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.replaced(t)
	})
}

// While the migration to a successor is not finished, a file that names another successor moves
// nothing, and rolls nothing back: both have the same switch exchange, and each message would come
// to both. The file that has the first one ends it.
func TestMigrateToARenamedSuccessor(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"cutover: bind new", "cutover: delete the switch", "drain: moving"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			file := fmt.Sprintf(topologyFile, "classic") + "  - {name: other}\n"
			s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
			s.allowed(t)
			s.fill(t, 30, 10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				if strings.HasPrefix(fmt.Sprintf(format, args...), stop) {
					cancel()
				}
			}
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			renamed := newStageIn(t, s.target, strings.Replace(s.file, "name: new", "name: new2", 1), "", nil)
			renamed.refuses(t, renamed.runner(t), "its migration to new is not finished")
			r = renamed.runner(t)
			r.Legacy = []string{"old"}
			if err := r.Abort(t.Context(), renamed.without(t)); !errors.Is(err, migrate.ErrRefused) {
				t.Errorf("abort returns %v", err)
			}
			s.send(t, "f", "key", "one", nil)
			s.ends(t)
			if n := s.ready(t, "new"); n != 31 {
				t.Errorf("the successor has %d messages", n)
			}
		})
	}
	t.Run("forwards", func(t *testing.T) {
		t.Parallel()
		file := fmt.Sprintf(topologyFile, "classic") + "  - {name: other}\n"
		s := newStageIn(t, brokertest.VHost(t), file, "classic", nil)
		s.allowed(t)
		defer s.forwarding(t, time.Second)()
		renamed := newStageIn(t, s.target, strings.Replace(file, "name: new", "name: new2", 1), "", nil)
		for parallel := range 2 {
			r := renamed.runner(t)
			r.Parallel = parallel
			renamed.refuses(t, r, "its migration to new is not finished")
		}
	})
}
