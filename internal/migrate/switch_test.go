package migrate_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// An end of the switch, or the switch exchange, is deleted in the middle, at each step: it is
// noticed and made good, and nothing is lost but what the broker gave back to
// its publisher meanwhile.
func TestTheSwitchExchangeIsDeleted(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	gate := topology.SwitchExchangeName("shop", "old")
	for _, exchange := range []string{gate, gate + ".old", gate + ".new"} {
		for _, step := range []string{"bind the switch", "unbind old", "switch from", "bind new", "unbind the switch"} {
			t.Run(strings.TrimPrefix(exchange, gate)+" "+step, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, "classic", nil)
				ch := s.target.Channel(t)
				stop := s.consume(t, "old")
				published := s.publishThrough(t)
				deleted := false
				var said strings.Builder
				r := s.runner(t)
				r.Until = migrate.Cutover
				r.Report = func(format string, args ...any) {
					text := fmt.Sprintf(format, args...)
					fmt.Fprintln(&said, text)
					if strings.HasPrefix(text, "cutover: "+step) && !deleted {
						deleted = true
						if err := ch.ExchangeDelete(exchange, false, false); err != nil {
							t.Error(err)
						}
					}
				}
				untilDone(t, r, &said)
				stop()
				stop = s.consume(t, "new")
				if err := s.runner(t).Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				confirmed := published()
				lost, doubled := s.account(t, confirmed)
				stop()
				if lost > 0 || doubled > 0 {
					t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, &said)
					s.where(t, confirmed)
				}
				if dropped := slices.Contains([]string{"unbind old", "switch from", "bind new"}, step); dropped &&
					exchange == gate && !strings.Contains(said.String(), "the switch exchange "+gate+" was deleted") {
					t.Errorf("it does not say that the switch was deleted:\n%s", &said)
				}
				if !deleted || s.exists(t, "old") {
					t.Errorf("it did not come to the step, or not to the end:\n%s", &said)
				}
				s.tidy(t)
				s.boundAsDeclared(t)
			})
		}
	}
}

// The legacy queue goes before the switch is turned, since it expires or its owner
// deletes it: messages must not go on to nowhere, so the new queue takes over.
func TestTheLegacyQueueIsDeleted(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"create the switch", "bind the switch", "unbind old", "switch from"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			ch := s.target.Channel(t)
			deleted := false
			var said strings.Builder
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				text := fmt.Sprintf(format, args...)
				fmt.Fprintln(&said, text)
				if strings.HasPrefix(text, "cutover: "+step) && !deleted {
					deleted = true
					if _, err := ch.QueueDelete("old", false, false, false); err != nil { // it is empty
						t.Error(err)
					}
				}
			}
			untilDone(t, r, &said)
			if !deleted || step != "switch from" && !strings.Contains(said.String(), "the queue old is gone") {
				t.Errorf("it does not say that the queue is gone:\n%s", &said)
			}
			s.tidy(t)
			s.boundAsDeclared(t)
		})
	}
}

// untilDone runs it again and again until it comes to its end. said is what it says.
func untilDone(t *testing.T, r *migrate.Runner, said *strings.Builder) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		err := r.Run(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it ends with %v:\n%s", err, said)
		}
	}
}

// boundAsDeclared checks that the new queue has the bindings of the file and no
// others.
func (s *stage) boundAsDeclared(t *testing.T) {
	t.Helper()
	state := s.inspect(t)
	want, got := map[string]bool{}, 0
	for _, b := range s.want.Bindings {
		if b.Destination == "new" {
			want[b.Identity()] = true
		}
	}
	for _, b := range state.Have.Bindings {
		if b.Destination == "new" && b.DestinationType == topology.ToQueue {
			if !want[b.Identity()] {
				t.Errorf("there is a binding %s, which the file does not have", b)
			}
			got++
		}
	}
	if got != len(want) {
		t.Errorf("the new queue has %d bindings, the file %d", got, len(want))
	}
}

// A service that starts in the middle binds the legacy queue again, at each step:
// to a key of its own, which the new queue then has too, and to one of the file.
// Nothing is lost, and that messages came twice is said.
func TestAServiceBindsAgain(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{
		"prepare:", "cutover: create", "cutover: bind the switch", "cutover: unbind old",
		"cutover: switch from", "cutover: bind new", "cutover: unbind the switch", "cutover: delete", "drain:",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			ch := s.target.Channel(t)
			published := s.publishThrough(t)
			stop := s.consumeThrough(t, "new")
			bound := false
			var said strings.Builder
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				text := fmt.Sprintf(format, args...)
				fmt.Fprintln(&said, text)
				if !strings.HasPrefix(text, step) || bound {
					return
				}
				bound = true
				for _, key := range []string{"late.#", "order.#"} {
					if err := ch.QueueBind("old", key, "t", false, nil); err != nil {
						t.Error(err)
					}
				}
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !bound || s.exists(t, "old") {
				t.Errorf("it did not come to the step, or not to the end:\n%s", &said)
			}
			if err := ch.PublishWithContext(t.Context(), "t", "late.one", true, false,
				amqp091.Publishing{MessageId: "late"}); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			confirmed["late"] = true
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 {
				t.Errorf("%d of %d messages were lost:\n%s", lost, len(confirmed), &said)
				s.where(t, confirmed)
			}
			if doubled > 0 && !strings.Contains(said.String(), "the legacy queue old was bound again") {
				t.Errorf("%d messages doubled, and it does not say why:\n%s", doubled, &said)
			}
			most := doneLine(t, said.String()).doubled
			if doubled > most {
				t.Errorf("%d messages doubled, and it says %d at most:\n%s", doubled, most, &said)
			}
			t.Logf("%d published, %d doubled, at most %d, it says", len(confirmed), doubled, most)
			s.tidy(t)
		})
	}
}

// An old instance that reconnects while migrate waits for the old consumers binds the legacy queue
// again: that ends at once, and not when the consumers have stopped.
func TestAServiceBindsAgainWhileConsumersStay(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	stop := s.consume(t, "old")
	defer stop()
	r, said := s.listen(t)
	r.Wait = 3 * time.Second
	ch, report, bound := s.target.Channel(t), r.Report, false
	r.Report = func(format string, args ...any) {
		report(format, args...)
		if strings.HasPrefix(format, "drain: waiting") {
			bound = true
			if err := ch.QueueBind("old", "", "f", false, nil); err != nil {
				t.Error(err)
			}
		}
	}
	err := r.Run(t.Context())
	if !bound || !errors.Is(err, migrate.ErrWaiting) || !strings.Contains(err.Error(), "was bound again") ||
		!strings.Contains(said.String(), "the legacy queue old was bound again") {
		t.Errorf("it ends with %v, and says:\n%s", err, said)
	}
	for _, b := range s.inspect(t).Have.Bindings {
		if b.Destination == "old" && b.Source == "f" {
			t.Errorf("the consumers still get what the successor gets:\n%s", said)
		}
	}
}

// A foreign policy takes effect on the switch exchange, before anything depends on
// it: dlxctl's policy gets the higher priority, and nothing is lost.
func TestAForeignPolicyOnTheSwitchExchange(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"prepare:", "cutover: create the switch", "cutover: bind the switch"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			published := s.publish(t, 50*time.Millisecond)
			stop := s.consumeThrough(t, "new")
			var said strings.Builder
			r := s.runner(t)
			r.Report = func(format string, args ...any) {
				text := fmt.Sprintf(format, args...)
				fmt.Fprintln(&said, text)
				if strings.HasPrefix(text, step) {
					s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/all", map[string]any{
						"pattern": ".*", "apply-to": "exchanges", "priority": 5000,
						"definition": map[string]any{"alternate-exchange": "nowhere"},
					})
				}
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			confirmed := published()
			lost, doubled := s.account(t, confirmed)
			stop()
			if lost > 0 || doubled > 0 {
				t.Errorf("%d of %d messages were lost, %d doubled:\n%s", lost, len(confirmed), doubled, &said)
			}
			if step == "cutover: bind the switch" &&
				!strings.Contains(said.String(), `override the policy "all", which is in effect on the switch exchange of old`) {
				t.Errorf("it said:\n%s", &said)
			}
			s.tidy(t)
		})
	}
}
