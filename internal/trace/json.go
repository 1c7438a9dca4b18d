package trace

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
)

// reportJSON is a report as scripts read it.
type reportJSON struct {
	Version  int    `json:"version"`
	Exchange string `json:"exchange"`
	// ExchangeType is the type of the exchange. Empty: the exchange does not exist.
	ExchangeType string         `json:"exchangeType"`
	Key          string         `json:"key"`
	Headers      map[string]any `json:"headers"`
	// Expiration is that of the message, null for none.
	Expiration *time.Duration `json:"expiration"`
	// Reason is how consumers fail.
	Reason Cause `json:"reason"`
	// Failures is how many deliveries fail in each queue, -1 for all, and QueueFailures how many in
	// the queues for which that was asked.
	Failures      int            `json:"failures"`
	QueueFailures map[string]int `json:"queueFailures"`
	// Queues are the ways of the copies, one for each queue that gets the message.
	Queues []journeyJSON `json:"queues"`
	// Ends are copies of the publisher that reach no queue.
	Ends []End `json:"ends"`
	// Missed are the queues that the message never reaches.
	Missed []Missed `json:"notReached"`
	// Lost reports whether a copy is lost anywhere.
	Lost bool `json:"lost"`
}

type journeyJSON struct {
	// Queue is the first queue, and Path how the message came there.
	Queue string    `json:"queue"`
	Path  []hopJSON `json:"path"`
	// Stops are the queues that the copy comes to, in order.
	Stops []stopJSON `json:"stops"`
	// Lost reports whether the copy is lost.
	Lost bool `json:"lost"`
}

type stopJSON struct {
	Stop
	// Path is how the message came to the queue.
	Path []hopJSON `json:"path"`
	// Headers are those that a consumer sees, with times since the publish.
	Headers map[string]any `json:"headers"`
}

type hopJSON struct {
	// Via is what led there, such as a binding or an alternate exchange.
	Via     route.Via `json:"via"`
	Binding string    `json:"binding"`
	// Policy is the policy that decided. Empty: none.
	Policy string `json:"policy"`
	// Place is where a file declares the binding.
	Place string `json:"place"`
}

// JSON implements jsondoc.Former.
func (r Report) JSON() any {
	out := reportJSON{
		Version: 1, Exchange: r.Input.Exchange, ExchangeType: r.ExchangeType, Key: r.Input.Key,
		Headers: plain(r.Input.Headers), Expiration: r.Input.Expiration, Reason: r.Input.Cause,
		Failures: r.Input.Failures, QueueFailures: r.Input.QueueFailures, Ends: r.Ends, Missed: r.Missed,
		Lost: r.Lost(),
	}
	for _, j := range r.Journeys {
		to := journeyJSON{Queue: j.Queue, Path: r.hops(j.Path), Lost: j.Lost()}
		for _, s := range j.Stops {
			to.Stops = append(to.Stops, stopJSON{s, r.hops(s.Path), plain(s.Headers)})
		}
		out.Queues = append(out.Queues, to)
	}
	return out
}

func (r Report) hops(path []route.Step) []hopJSON {
	var out []hopJSON
	for _, s := range path {
		out = append(out, hopJSON{s.Via, s.String(), s.Policy, r.place(s.Binding)})
	}
	return out
}
