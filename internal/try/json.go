package try

import (
	"io"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteJSON writes a report for programs. Lists are never null. Times are milliseconds.
func WriteJSON(w io.Writer, r Report) error {
	messages, differing := r.Counts()
	out := reportJSON{
		Version: 1, Topology: r.Topology, VHost: r.VHost, Broker: brokerJSON{r.Version}, Speed: r.Speed,
		AsPredicted: !r.Differs(), Messages: messages, Differing: differing, Took: r.Took.Milliseconds(),
		Tiers: []tierJSON{}, Notes: listed(r.Notes), Differences: listed(r.Differences), Queues: []queueJSON{},
	}
	for _, t := range r.Tiers {
		out.Tiers = append(out.Tiers, tierJSON{t.Backoff, t.Queue, t.Delay.Milliseconds(), t.Tried.Milliseconds()})
	}
	for _, q := range r.Queues {
		to := queueJSON{
			Name: q.Name, Exchange: q.Exchange, Key: q.Key, Headers: q.Headers, Why: q.Why, Messages: []messageJSON{},
		}
		for _, m := range q.Messages {
			to.Messages = append(to.Messages, m.json())
		}
		out.Queues = append(out.Queues, to)
	}
	return text.WriteJSON(w, out)
}

type reportJSON struct {
	Version     int         `json:"version"`
	Topology    string      `json:"topology"`
	VHost       string      `json:"vhost"`
	Broker      brokerJSON  `json:"broker"`
	Speed       int         `json:"speed"`
	AsPredicted bool        `json:"asPredicted"`
	Messages    int         `json:"messages"`
	Differing   int         `json:"differing"`
	Took        int64       `json:"took"`
	Tiers       []tierJSON  `json:"tiers"`
	Notes       []string    `json:"notes"`
	Queues      []queueJSON `json:"queues"`
	Differences []string    `json:"differences"`
}

type brokerJSON struct {
	Version string `json:"version"`
}

type tierJSON struct {
	Backoff string `json:"backoff"`
	Queue   string `json:"queue"`
	Delay   int64  `json:"delay"`
	Tried   int64  `json:"tried"`
}

type queueJSON struct {
	Name     string         `json:"name"`
	Exchange string         `json:"exchange"`
	Key      string         `json:"key"`
	Headers  map[string]any `json:"headers"`
	Why      string         `json:"whyDefaultExchange"`
	Messages []messageJSON  `json:"messages"`
}

type messageJSON struct {
	Name        string     `json:"name"`
	ID          string     `json:"id"`
	Stops       []stopJSON `json:"stops"`
	Copies      []string   `json:"copies"`
	Differences []string   `json:"differences"`
}

type stopJSON struct {
	Queue    string        `json:"queue"`
	Role     topology.Role `json:"role"`
	Event    trace.Event   `json:"event"`
	Delivery int           `json:"delivery"`
	Returned int           `json:"returned"`
	Reason   route.Reason  `json:"reason"`
	Tier     string        `json:"tier"`
	Count    string        `json:"count"`
	Wait     int64         `json:"wait"`
	Waited   *int64        `json:"waited"` // null: it did not come
	Due      int64         `json:"due"`
	Measured *int64        `json:"measured"` // null: it did not come
	Late     bool          `json:"late"`
	Lost     string        `json:"lost"`
}

func (m Message) json() messageJSON {
	out := messageJSON{
		Name: m.Name, ID: m.ID, Stops: []stopJSON{}, Copies: listed(m.Copies), Differences: listed(m.Differences),
	}
	for _, s := range m.Stops {
		to := stopJSON{
			Queue: s.Queue, Role: s.Role, Event: s.Event, Delivery: s.Delivery, Returned: s.Returned, Reason: s.Reason,
			Tier: s.Tier, Count: s.Count, Wait: s.Wait.Milliseconds(), Due: s.Due.Milliseconds(), Late: s.Late, Lost: s.Lost,
		}
		if s.Came {
			to.Waited, to.Measured = milliseconds(s.Waited), milliseconds(s.Measured)
		}
		out.Stops = append(out.Stops, to)
	}
	return out
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// listed returns a list that is not null.
func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
