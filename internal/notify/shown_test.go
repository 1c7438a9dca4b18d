package notify

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

type uncounted struct{}

func (uncounted) Sent(int)            {}
func (uncounted) Dropped(int, string) {}

// A notice of a queue with masked values has no raw body, however the body would be sent.
func TestMaskedNoticesHaveNoRawBody(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"text": "secret-1", "binary": "secret-1\xff"} {
		n := single(t, "http://localhost", true, slog.New(slog.DiscardHandler), uncounted{})
		about := Notice{MessageID: "secret-1", Error: "no secret-1", ErrorType: "secret-1"}
		n.NotifyShown(about, Message{Body: []byte(body)}, func(m Message) Shown {
			if !m.SendsBody || m.ID != "secret-1" ||
				m.Error != "no secret-1" || m.ErrorType != "secret-1" || string(m.Body) != body {
				t.Errorf("%s: the message to show is %+v", name, m)
			}
			return Shown{ID: "m", Error: "e", ErrorType: "t", Format: "text", Text: strings.Repeat("x", 2*BodyCap), Masked: true}
		})
		notice := <-n.targets[0].notices
		data, err := json.Marshal(notice)
		if err != nil || strings.Contains(string(data), "secret") || notice.BodyBase64 != "" ||
			len(notice.BodyText) != BodyCap {
			t.Errorf("%s: the notice is %s (%v)", name, data, err)
		}
		n.NotifyShown(Notice{}, Message{Body: []byte(body)}, func(Message) Shown { return Shown{Text: "t"} })
		if notice = <-n.targets[0].notices; notice.Body+notice.BodyBase64 == "" || notice.BodyText != "t" {
			t.Errorf("%s: without rules the notice is %+v", name, notice)
		}
	}
}

// Rules see the body also where none is sent.
func TestNoticesWithoutBodiesAreMaskedByThem(t *testing.T) {
	t.Parallel()
	n := single(t, "http://localhost", false, slog.New(slog.DiscardHandler), uncounted{})
	n.NotifyShown(Notice{Error: "no secret-1"}, Message{Body: []byte("secret-1")}, func(m Message) Shown {
		if m.SendsBody || string(m.Body) != "secret-1" {
			t.Errorf("the message to show is %+v", m)
		}
		return Shown{Error: "no [masked]"}
	})
	if notice := <-n.targets[0].notices; notice != (Notice{Error: "no [masked]"}) {
		t.Errorf("the notice is %+v", notice)
	}
}
