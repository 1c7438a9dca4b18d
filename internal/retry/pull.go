package retry

import (
	"maps"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Pull says what becomes of a message that a person takes out of the work queue in which it waits:
// it is a dead letter, as if its consumer had called it permanent, but no attempt is counted. d is
// the message as a consumer of that queue gets it. why says who took it, and for what.
//
// Only what a processor has written about earlier attempts is kept, as Decide keeps it: headers of
// the publisher under these names are replaced.
//
// A topology without a count header has no processor: the message gets neither a count nor an
// address, and a header count of the publisher stays, see [Undo].
func (r Rules) Pull(d Message, queue, why string, now time.Time) Decision {
	exchange, key := d.Exchange, d.Key
	d.Exchange, d.Key, d.pulled = topology.FailedExchangeName(r.topology.Name), topology.AddressKey(queue), true
	h := maps.Clone(d.Headers)
	if h == nil {
		h = map[string]any{}
	}
	if r.read(d, queue, now).trusted {
		if before := text(h[topology.HeaderError]); before != "" {
			why += "; before that: " + before
		}
	} else {
		f := failure{exchange: exchange, key: key}
		if exchange == topology.ReturnExchangeName(r.topology.Name) {
			f.sentAgain(h)
		}
		exchange, key = f.exchange, f.key
		delete(h, topology.HeaderExchange)
		delete(h, topology.HeaderRoutingKey)
		d.Headers = h
		if f := r.read(d, queue, now); f.known { // it came back to its queue, and the broker notes as what
			exchange, key = f.exchange, f.key
		}
		h[topology.HeaderExchange], h[topology.HeaderRoutingKey] = exchange, key
		delete(h, topology.HeaderErrorType)
		delete(h, topology.HeaderErrorStack)
	}
	delete(h, topology.HeaderAfter)
	h[topology.HeaderError], h[topology.HeaderPermanent] = why, true
	d.Headers = h
	out := r.Decide(d, now)
	if r.topology.CountHeader == "" {
		delete(out.Headers, "")
		unaddressed(out.Headers)
	}
	return out
}
