package desk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// Two bodies that a publisher has searched for, in three minutes: the SHA-256 of both messages
// begins with the same 48 bits.
const (
	stays  = `{"amount":99,"note":"0128ae7d"}`
	chosen = `{"amount":10,"note":"01c0b9ea"}`
)

// collision returns the messages with these bodies.
func collision() []amqp091.Publishing {
	var out []amqp091.Publishing
	for _, body := range []string{stays, chosen} {
		out = append(out, amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, ContentType: "application/json", MessageId: "m-2", Body: []byte(body),
			Headers: amqp091.Table{
				"count": int64(-1), "retry-queue": "w", "retry-exchange": "bus", "retry-routing-key": "a",
				"retry-reason": "rejected", "retry-attempts": int64(2), "retry-last-failed-at": "2026-11-20T10:00:01.000Z",
			},
		})
	}
	return out
}

// A run takes the messages that it chose, and not those whose handles a publisher has made alike.
func TestACollisionChoosesNothingElse(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", collision()...)
	filter, err := deadletter.NewFilter("body.amount == 10")
	if err != nil {
		t.Fatal(err)
	}
	r := desk.Request{Action: desk.Discard, Queue: "billing.dead", Filter: filter, Forever: true}
	if r := s.execute(t, r); r.Moved != 1 {
		t.Fatalf("%+v", r)
	}
	left := s.drained(t, "billing.dead")
	if len(left) != 1 || string(left[0].Body) != stays {
		t.Errorf("the queue has %s", identities(left))
	}
}

// A handle that names several messages that differ chooses none of them, unless all are named. A
// longer one tells them apart where they can be seen.
func TestAHandleOfSeveralMessagesIsRefused(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", collision()...)
	names, handles := seen(t, s.desk, "billing.dead")
	if names[0] != names[1] || handles[0] == handles[1] {
		t.Fatalf("names %q, handles %q", names, handles)
	}
	s.refuses(t, "have the handle "+names[0]+" and are not equal", names[0])
	s.proposes(t, 1, handles[1])

	// Two that differ only in what is masked.
	rules, err := redact.New(redact.Rules{Paths: []string{"body.amount", "body.note"}})
	if err != nil {
		t.Fatal(err)
	}
	s.desk.Reader.Redactor = func(string) *redact.Redactor { return rules }
	names, handles = seen(t, s.desk, "billing.dead")
	if handles[0] != handles[1] || names[1] != names[0]+"#2" {
		t.Fatalf("names %q, handles %q", names, handles)
	}
	s.refuses(t, "choose with --where if only masked values differ", names[1])
	s.proposes(t, 2, names...)
}

// seen returns the names and handles of the messages of a queue.
func seen(t *testing.T, d *desk.Desk, queue string) (names, handles []string) {
	t.Helper()
	_, err := d.Look(t.Context(), queue, desk.LookOptions{}, func(m deadletter.Message) error {
		names, handles = append(names, m.Name()), append(handles, string(m.Handle))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, handles
}

func (s *shop) refuses(t *testing.T, why string, handles ...string) {
	t.Helper()
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Park, Queue: "billing.dead", Handles: handles})
	if err != nil || len(p.Refusals) != 1 || !strings.Contains(p.Refusals[0], why) {
		t.Errorf("%q: refusals %q, %v", handles, p.Refusals, err)
	}
}

func (s *shop) proposes(t *testing.T, n int, handles ...string) {
	t.Helper()
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Park, Queue: "billing.dead", Handles: handles})
	if err != nil || len(p.Refusals) > 0 || p.Chosen != n {
		t.Errorf("%q: %d chosen, refusals %q, %v", handles, p.Chosen, p.Refusals, err)
	}
}

// A look and a run leave out a message if the filter asks for what is masked in it, and say so. A
// field that no message has is named, also if the filter chooses messages without it.
func TestWhatIsMaskedIsNotChosen(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	with := bodyWith(`{"pin":"%s"}`)
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", with("4711"), with("12"))
	rules, err := redact.New(redact.Rules{HideBodies: true})
	if err != nil {
		t.Fatal(err)
	}
	const left = "2 messages of billing.dead are left out: the filter asks for what is masked or hidden in them"
	for _, tc := range []struct {
		where, note string
		chosen      int
		hide        bool
	}{
		{`not (body.pin == "4711")`, left, 0, true},
		{`not (body.pni == "4711")`, "the filter saw no message with body.pni; check how it is spelt", 2, false},
	} {
		s.desk.Reader.Redactor = nil
		if tc.hide {
			s.desk.Reader.Redactor = func(string) *redact.Redactor { return rules }
		}
		filter, err := deadletter.NewFilter(tc.where)
		if err != nil {
			t.Fatal(err)
		}
		r := desk.Request{Action: desk.Park, Queue: "billing.dead", Filter: filter}
		p, err := s.desk.Propose(t.Context(), r)
		if err != nil || p.Chosen != tc.chosen || !slices.Contains(p.Notes, tc.note) {
			t.Errorf("%s: a run chooses %d, and notes %q, %v", tc.where, p.Chosen, p.Notes, err)
		}
		var out strings.Builder
		picked, err := s.desk.Pick(t.Context(), r, func(deadletter.Message, deadletter.View) error { return nil })
		if err = errors.Join(err, desk.WritePicked(&out, picked)); err != nil || picked.Matched != tc.chosen ||
			!strings.Contains(out.String(), tc.note+"\n") {
			t.Errorf("%s: a look says %s, %v", tc.where, out.String(), err)
		}
	}
}

// No output depends on a masked value, nor on its length: a person who sees the output cannot
// find out whether a guess is right.
func TestOutputsDoNotDependOnMaskedValues(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	for name, tc := range map[string]struct {
		rules   redact.Rules
		message func(secret string) amqp091.Publishing
	}{
		"a value of the body": {redact.Rules{Paths: []string{"body.card"}}, bodyWith(`{"id":1,"card":"%s"}`)},
		"a kind of values":    {redact.Rules{Types: []string{"email"}}, bodyWith(`{"id":1,"mail":"%s@example.com"}`)},
		"a kind in a text":    {redact.Rules{Types: []string{"email"}}, bodyWith(`mail to %s@example.com`)},
		"bodies":              {redact.Rules{HideBodies: true}, bodyWith(`{"pin":"%s"}`)},
		"a body that is not decoded": {
			redact.Rules{Paths: []string{"body.card"}}, bodyWith(`card %s`),
		},
		"a header": {redact.Rules{Paths: []string{"headers.token"}}, func(secret string) amqp091.Publishing {
			m := deadLetter("billing", "order.placed", "m-1", 1)
			m.Headers["token"] = secret
			return m
		}},
		"a kind in a key": {redact.Rules{Types: []string{"email"}}, func(secret string) amqp091.Publishing {
			return deadLetter("billing", "order."+secret+"@example.com", "m-1", 1)
		}},
		"the header of a key": {
			redact.Rules{Paths: []string{"headers.retry-routing-key"}}, func(secret string) amqp091.Publishing {
				return deadLetter("billing", "order."+secret, "m-1", 1)
			},
		},
		"a kind in the headers of a framework": {
			redact.Rules{Types: []string{"email"}}, func(secret string) amqp091.Publishing {
				return amqp091.Publishing{MessageId: "m-1", Headers: amqp091.Table{
					"x-exception-message": "no such customer", "x-original-exchange": secret + "@example.com",
					"x-original-routingKey": "order." + secret + "@example.com",
				}}
			},
		},
	} {
		rules, err := redact.New(tc.rules)
		if err != nil {
			t.Fatal(err)
		}
		s.desk.Reader.Redactor = func(string) *redact.Redactor { return rules }
		var outputs []string
		for _, secret := range []string{"4111110271831111", "492900000000006"} {
			brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", tc.message(secret))
			out := s.outputs(t)
			if strings.Contains(out, secret) {
				t.Errorf("%s is shown:\n%s", name, out)
			}
			outputs = append(outputs, out)
			if _, err := s.ch.QueuePurge("billing.dead", false); err != nil {
				t.Fatal(err)
			}
			s.awaitReady(t, "billing.dead", 0)
		}
		for i := range outputs[1:] {
			if d := cmp.Diff(outputs[0], outputs[i+1]); d != "" {
				t.Errorf("%s: the outputs differ:\n%s", name, d)
			}
		}
	}
}

// bodyWith returns messages that differ only in a part of the body.
func bodyWith(format string) func(string) amqp091.Publishing {
	return func(secret string) amqp091.Publishing {
		m := deadLetter("billing", "order.placed", "m-1", 1)
		m.Body = fmt.Appendf(nil, format, secret)
		return m
	}
}

// outputs returns all that a person can see of the one message of billing.dead.
func (s *shop) outputs(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	list := desk.NewList(&out, "text", desk.Screen{})
	r := desk.Request{Queue: "billing.dead", Look: desk.LookOptions{HoldBytes: 1}}
	picked, err := s.desk.Pick(t.Context(), r, s.show(t, &out, list))
	if err = errors.Join(err, list.Close()); err != nil || picked.Matched != 1 {
		t.Fatalf("%+v, %v", picked, err)
	}
	picked.Looked.Took = 0
	if err := desk.WritePicked(&out, picked); err != nil {
		t.Fatal(err)
	}
	for _, to := range []desk.Target{{}, {Original: true}, {Exchange: "events", Key: "order.again"}} {
		p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: to})
		if err != nil || p.Chosen != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		p.Looked.Took = 0
		raw, err := json.Marshal(p)
		if err = errors.Join(err, desk.WriteProposal(&out, p, "")); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", raw)
	}
	return out.String()
}

// show writes a message in each form.
func (s *shop) show(t *testing.T, out *bytes.Buffer, list *desk.List) func(deadletter.Message, deadletter.View) error {
	t.Helper()
	return func(m deadletter.Message, v deadletter.View) error {
		v.Redelivered = false // by the look before
		for name := range v.Headers {
			if topology.IsDeliveryCount(name) {
				delete(v.Headers, name)
			}
		}
		if err := deadletter.WriteRedacted(out, v); err != nil {
			return err
		}
		name, content, err := deadletter.RedactedFile(v, 1)
		if err != nil {
			return err
		}
		rawName, _, rawBody, err := deadletter.ArchiveFiles(m, 1)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %s %s %s\n", name, content, rawName, rawBody)
		for _, where := range []string{"size < 60", "size == nil", "copy", "!copy", "len(text) > 10"} {
			f, err := deadletter.NewFilter(where)
			if err != nil {
				return err
			}
			matches, err := f.Matches(v)
			fmt.Fprintln(out, where, matches, err)
		}
		by, err := deadletter.ParseBy("cause")
		if err != nil {
			return err
		}
		groups := deadletter.NewGroups(by)
		groups.Add(v)
		raw, err := json.Marshal(groups.List())
		fmt.Fprintf(out, "%s %v\n", raw, err)
		if err := list.Add(v); err != nil {
			return err
		}
		return deadletter.WriteShow(out, v, 0)
	}
}

// An edit goes to the message that the person has read, and not to another that has its handle now.
func TestAnEditIsOfTheMessageThatWasRead(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", collision()[:1]...)
	names, _ := seen(t, s.desk, "billing.dead")
	other := deadletter.Digest{1}
	_, err := s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Edit, Queue: "billing.dead", Handles: names, Edited: &deadletter.Edited{Body: []byte("x")},
		EditedFrom: &other,
	})
	if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "another has its handle") {
		t.Errorf("Propose: %v", err)
	}
}
