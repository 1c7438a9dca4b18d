package trace

import (
	"io"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteJSON writes a report for programs. Lists are never null. Delays are milliseconds since the
// publish.
func WriteJSON(w io.Writer, r Report) error {
	out := reportJSON{
		Version: 1, Exchange: r.Input.Exchange, ExchangeType: r.ExchangeType, Key: r.Input.Key,
		Headers: plain(r.Input.Headers), Expiration: milliseconds(r.Input.Expiration), Reason: string(r.Input.Cause),
		Failures: r.Input.Failures, QueueFailures: r.Input.QueueFailures,
		Queues: []journeyJSON{}, Ends: endsJSON(r.Ends), Missed: []missedJSON{}, Lost: r.Lost(),
	}
	if out.QueueFailures == nil {
		out.QueueFailures = map[string]int{}
	}
	for _, j := range r.Journeys {
		to := journeyJSON{Queue: j.Queue, Path: r.pathJSON(j.Path), Stops: []stopJSON{}, Lost: j.Lost()}
		for _, s := range j.Stops {
			to.Stops = append(to.Stops, r.stopJSON(s))
		}
		out.Queues = append(out.Queues, to)
	}
	for _, m := range r.Missed {
		missed := missedJSON{Queue: m.Queue, Bindings: []string{}}
		for _, b := range m.Bindings {
			missed.Bindings = append(missed.Bindings, b.String())
		}
		out.Missed = append(out.Missed, missed)
	}
	return text.WriteJSON(w, out)
}

type reportJSON struct {
	Version       int            `json:"version"`
	Exchange      string         `json:"exchange"`
	ExchangeType  string         `json:"exchangeType"`
	Key           string         `json:"key"`
	Headers       map[string]any `json:"headers"`
	Expiration    *int64         `json:"expiration"`
	Reason        string         `json:"reason"`
	Failures      int            `json:"failures"` // -1: always
	QueueFailures map[string]int `json:"queueFailures"`
	Queues        []journeyJSON  `json:"queues"`
	Ends          []endJSON      `json:"ends"`
	Missed        []missedJSON   `json:"notReached"`
	Lost          bool           `json:"lost"`
}

type journeyJSON struct {
	Queue string     `json:"queue"`
	Path  []hopJSON  `json:"path"`
	Stops []stopJSON `json:"stops"`
	Lost  bool       `json:"lost"`
}

type stopJSON struct {
	From       int            `json:"from"`
	Queue      string         `json:"queue"`
	Role       topology.Role  `json:"role"`
	At         int64          `json:"at"`
	Path       []hopJSON      `json:"path"`
	Exchange   string         `json:"exchange"`
	Key        string         `json:"key"`
	Headers    map[string]any `json:"headers"`
	Event      Event          `json:"event"`
	Delivery   int            `json:"delivery"`
	Returned   int            `json:"returned"`
	Wait       int64          `json:"wait"`
	Reason     route.Reason   `json:"reason"`
	AtMostOnce bool           `json:"atMostOnce"`
	Count      string         `json:"count"`
	Ends       []endJSON      `json:"ends"`
}

type hopJSON struct {
	Via     route.Via `json:"via"`
	Binding string    `json:"binding"`
	Policy  string    `json:"policy"`
	Place   string    `json:"place"`
}

type endJSON struct {
	Kind EndKind `json:"kind"`
	Why  string  `json:"why"`
}

type missedJSON struct {
	Queue    string   `json:"queue"`
	Bindings []string `json:"bindings"`
}

func (r Report) pathJSON(path []route.Step) []hopJSON {
	out := []hopJSON{}
	for _, s := range path {
		out = append(out, hopJSON{s.Via, s.String(), s.Policy, r.place(s.Binding)})
	}
	return out
}

func (r Report) stopJSON(s Stop) stopJSON {
	return stopJSON{
		From: s.From, Queue: s.Queue, Role: s.Role, At: s.At.Milliseconds(), Path: r.pathJSON(s.Path),
		Exchange: s.Exchange, Key: s.Key, Headers: plain(s.Headers), Event: s.Event, Delivery: s.Delivery,
		Returned: s.Returned, Wait: s.Wait.Milliseconds(), Reason: s.Reason, AtMostOnce: s.AtMostOnce, Count: s.Count,
		Ends: endsJSON(s.Ends),
	}
}

func endsJSON(ends []End) []endJSON {
	out := []endJSON{}
	for _, e := range ends {
		out = append(out, endJSON(e))
	}
	return out
}

func milliseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
