package migrate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// export gives the broker's own definitions, sorted.
func (s *stage) export(t *testing.T) []string {
	t.Helper()
	var definitions map[string]json.RawMessage
	if err := json.Unmarshal(s.target.Call(t, "GET", "definitions/"+url.PathEscape(s.target.VHost), nil), &definitions); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kind := range []string{"exchanges", "queues", "bindings", "policies"} {
		var list []json.RawMessage
		if err := json.Unmarshal(definitions[kind], &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			out = append(out, kind+" "+string(o))
		}
	}
	slices.Sort(out)
	return out
}

// without gives the topology without the new queue.
func (s *stage) without(t *testing.T) topology.Topology {
	t.Helper()
	decoded, _, err := spec.Decode([]spec.Source{{Name: "f", Data: []byte(s.file)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	out, err := spec.Compile(decoded.Without(func(q spec.Queue) bool { return q.Replaces != "" }))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Stopped after any step of the cutover, or after a later stage, the migration
// is turned back under load: the broker has the definitions it had, and every
// message is in the legacy queue, once.
func TestAbort(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		for steps := range 8 {
			if typ == "quorum" && steps%3 != 1 {
				continue // their deletion takes its time
			}
			t.Run(fmt.Sprintf("%s after %d steps", typ, steps), func(t *testing.T) {
				t.Parallel()
				s := newStage(t, typ, nil)
				before := s.export(t)
				published := s.publish(t, 50*time.Millisecond)
				stop := s.consume(t, "old")
				r := s.runner(t)
				r.Until = migrate.Prepare
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range steps {
					s.step(t)
				}
				if err := s.runner(t).Abort(t.Context(), s.without(t)); err != nil {
					t.Fatal(err)
				}
				confirmed := published()
				if d := cmp.Diff(before, s.export(t)); d != "" {
					t.Errorf("definitions (-before +after):\n%s", d)
				}
				lost, doubled := s.account(t, confirmed)
				stop()
				if lost > 0 || doubled > 0 {
					t.Errorf("%d of %d messages were lost, %d doubled", lost, len(confirmed), doubled)
					s.where(t, confirmed)
				}
				t.Logf("%d published, %d lost, %d doubled", len(confirmed), lost, doubled)
			})
		}
	}
}

// step does one step of the cutover.
func (s *stage) step(t *testing.T) {
	t.Helper()
	state, err := s.m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrate.Moves(s.want, state) {
		step := m.Next(state, nil)
		slices.SortStableFunc(step.Changes, func(a, b plan.Change) int { return a.Rank - b.Rank })
		if err := plan.Execute(t.Context(), s.m, plan.Plan{Changes: step.Changes}, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, 200*time.Millisecond)
}

// What waits in a tier when a migration is turned back comes back to the legacy
// queue; what is dead already stays in its queue, and that is said.
func TestAbortWithMessagesInTheTiers(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStageIn(t, brokertest.VHost(t), strings.Replace(fmt.Sprintf(topologyFile, typ), "[100ms]", "[3s]", 1), typ, nil)
			before := s.export(t)
			r := s.runner(t)
			r.Until = migrate.Drain
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			stopProcessor := s.process(t)
			ch := s.target.Channel(t)
			confirmed := map[string]bool{}
			for i := range 20 {
				id := fmt.Sprint(i)
				confirmed[id] = true
				if err := ch.PublishWithContext(t.Context(), "f", "key", true, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent}); err != nil {
					t.Fatal(err)
				}
			}
			s.reject(t, 10)
			var said strings.Builder
			r = s.runner(t)
			r.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := r.Abort(t.Context(), s.without(t)); !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "shop.quick.failed (0 messages, 1 consumer)") {
				t.Errorf("while the processor runs it ends with %v", err)
			}
			stopProcessor()
			for end := time.Now().Add(20 * time.Second); ; { // statistics tell of consumers for up to 5 seconds
				err := r.Abort(t.Context(), s.without(t))
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
			stop := s.consume(t, "old")
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, &said)
				s.where(t, confirmed)
			}
			if d := cmp.Diff(before, s.export(t)); d != "" {
				t.Errorf("definitions (-before +after):\n%s\n%s", d, &said)
			}
		})
	}
}

// reject rejects the first n messages of the new queue.
func (s *stage) reject(t *testing.T, n int) {
	t.Helper()
	ch := s.target.Channel(t)
	for end := time.Now().Add(20 * time.Second); n > 0; {
		d, ok, err := ch.Get("new", false)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			n--
			if err := d.Reject(false); err != nil { // it is dead-lettered
				t.Fatal(err)
			}
		} else if time.Now().After(end) {
			t.Fatalf("%d messages did not come", n)
		}
	}
}
