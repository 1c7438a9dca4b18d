package deadletter

import (
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// fields is a table of headers. Its tables are amqp091.Table or map[string]any.
type fields map[string]any

// table returns the fields of a nested table; nil if v is none.
func table(v any) fields {
	switch v := v.(type) {
	case amqp091.Table:
		return fields(v)
	case map[string]any:
		return fields(v)
	default:
		return nil
	}
}

// text returns a header that is a text, which some clients send as bytes.
func (f fields) text(name string) string {
	switch v := f[name].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	default:
		return ""
	}
}

func (f fields) has(name string) bool {
	_, ok := f[name]
	return ok
}

// deaths returns the entries of x-death, the newest first. Where the header is missing, it
// returns what x-last-death-* and x-first-death-* tell.
func deaths(h fields) []Hop {
	list, _ := h[topology.HeaderDeath].([]any)
	hops := make([]Hop, 0, len(list))
	for _, v := range list {
		if d := table(v); d != nil {
			hops = append(hops, death(d))
		}
	}
	if len(hops) > 0 {
		return hops
	}
	for _, prefix := range []string{topology.HeaderLastDeath, topology.HeaderFirstDeath} {
		hop := Hop{Queue: h.text(prefix + "queue"), Reason: h.text(prefix + "reason"), Exchange: h.text(prefix + "exchange")}
		if hop.Queue != "" && (len(hops) == 0 || hops[0].Queue != hop.Queue || hops[0].Reason != hop.Reason) {
			hops = append(hops, hop)
		}
	}
	return hops
}

func death(d fields) Hop {
	hop := Hop{Queue: d.text("queue"), Reason: d.text("reason"), Exchange: d.text("exchange")}
	hop.Count, _ = topology.Integer(d["count"])
	if t, ok := d["time"].(time.Time); ok {
		hop.Time = t.UTC()
	}
	keys, _ := d["routing-keys"].([]any)
	for _, k := range keys {
		if key, ok := k.(string); ok {
			hop.Keys = append(hop.Keys, key)
		}
	}
	return hop
}

// failed reports whether a consumer failed, as far as RabbitMQ can tell.
func (h Hop) failed() bool {
	return h.Reason == string(topology.ReasonRejected) || h.Reason == string(topology.ReasonDeliveryLimit)
}

// first returns the first death: the one that x-first-death-* names, or the last entry.
// RabbitMQ moves an entry to the front when the message dies there again.
func first(h fields, hops []Hop) Hop {
	queue, reason := h.text(topology.HeaderFirstDeath+"queue"), h.text(topology.HeaderFirstDeath+"reason")
	for _, hop := range hops {
		if hop.Queue == queue && hop.Reason == reason {
			return hop
		}
	}
	return hops[len(hops)-1]
}

// deathFacts fills in what RabbitMQ tells about deaths that are not those in queues of dlxctl.
func (r *reading) deathFacts(h fields) {
	hops := deaths(h)
	if len(hops) == 0 {
		return
	}
	r.hops = slices.Clone(hops)
	slices.Reverse(r.hops)
	begin := first(h, hops)
	at := r.cameBy(h, begin.Exchange, firstKey(begin))
	at.addressed = len(begin.Keys) > 0
	r.tell(at)
	outside := slices.DeleteFunc(hops, func(hop Hop) bool { return r.known.isGenerated(hop.Queue) })
	if len(outside) == 0 {
		return
	}
	r.lastDeath, r.later = outside[0].Reason, outside
	attempts := 0
	for _, hop := range outside {
		r.times(hop.Time, hop.Time)
		if hop.failed() {
			attempts += int(max(hop.Count, 1))
			r.candidate(hop.Queue, topology.HeaderDeath)
		} else {
			r.expired = append(r.expired, hop.Queue)
		}
	}
	r.deathAttempts = attempts
	if outside[0].Count > 1 {
		r.after = r.facts.LastFailed
	}
}

func firstKey(h Hop) string {
	if len(h.Keys) == 0 {
		return ""
	}
	return h.Keys[0]
}
