package simulate

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is what an outage does to the work queues of a topology: to each one alone, as if the
// others had no outage.
type Report struct {
	Version  jsondoc.V1 `json:"version"`
	Topology string     `json:"topology"`
	// Rate is how many messages arrive in a queue per second.
	Rate float64 `json:"rate"`
	// Capacity is how many messages the consumers of a queue take per second at most. Left out: any
	// number.
	Capacity float64 `json:"capacity,omitempty"`
	// Outage is how long each delivery fails.
	Outage time.Duration `json:"outage"`
	// Arriving is how many messages arrive in a queue meanwhile.
	Arriving int64 `json:"arriving"`
	// Cases are the backoffs, in the order of the first queue of each in the file.
	Cases []Case `json:"cases"`
}

// Case is a backoff. Its queues have the same results: those that retry to another queue are a case
// of their own.
type Case struct {
	// Backoff is the name of the backoff, or none.
	Backoff string `json:"backoff"`
	// RetryTo is the queue to which the queues retry. Left out: each gets its own messages back.
	RetryTo string   `json:"retryTo,omitempty"`
	Queues  []string `json:"queues"`
	// Limit is how long an outage lasts at least when it makes dead letters, as the file has it.
	Limit time.Duration `json:"limit"`
	// HasOutage says whether the file gives the backoff the key outage.
	HasOutage bool `json:"hasOutage"`
	// Without is the result without the key outage.
	Without Result `json:"without"`
	// With is the result with the key outage, with its defaults if HasOutage is false. Null:
	// there is no backoff.
	With *Result `json:"with"`

	backoff topology.Backoff
}

// Make computes what an outage does to work queues of t. The backoff of in is not looked at.
func Make(t topology.Compiled, queues []topology.WorkQueue, in Input) Report {
	r := Report{
		Topology: t.Name, Rate: in.Rate, Capacity: in.Capacity, Outage: in.Outage,
		Arriving: whole(in.Rate * in.Outage.Seconds()),
	}
	index := map[[2]string]int{} // of the case of a backoff, and of the queue to which it retries
	for _, w := range queues {
		key := [2]string{w.Backoff, w.RetryTo}
		i, known := index[key]
		if !known {
			i = len(r.Cases)
			index[key] = i
			r.Cases = append(r.Cases, makeCase(t, w, in))
		}
		r.Cases[i].Queues = append(r.Cases[i].Queues, w.Name)
		if len(r.Cases) > 1 { // no chart is drawn, and thousands of curves take hundreds of megabytes
			r.Cases[0].forget()
			r.Cases[i].forget()
		}
	}
	return r
}

// forget drops the curves.
func (c *Case) forget() {
	for _, r := range []*Result{&c.Without, c.With} {
		if r == nil {
			continue
		}
		r.flow = nil
		for i := range r.Tiers {
			r.Tiers[i].level = nil
		}
	}
}

// makeCase computes the backoff of a work queue, with and without the key outage. Where it retries
// to another queue, both have the outage.
func makeCase(t topology.Compiled, w topology.WorkQueue, in Input) Case {
	c := Case{Backoff: w.Backoff, RetryTo: w.RetryTo}
	_, ok := t.Backoff(w.Backoff)
	backoff := t.Schedule(w.Name)
	c.backoff, c.Limit, c.HasOutage = backoff, backoff.OutageLimit(), backoff.Outage != nil
	in.Backoff = backoff
	in.Backoff.Outage = nil
	c.Without = Run(in)
	if !ok {
		return c
	}
	in.Backoff.Outage = backoff.Outage
	if !c.HasOutage {
		key := topology.DefaultOutage()
		key.Tier.Queue = topology.OutageQueueName(t.Name, w.Backoff)
		in.Backoff.Outage = &key
	}
	with := Run(in)
	c.With = &with
	return c
}
