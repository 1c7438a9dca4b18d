package survey_test

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// world is what happens to many messages that are published to a virtual host and rejected again
// and again, as the router says.
type world struct {
	router    *route.Router
	have      topology.Topology
	exchanges map[string]topology.Exchange
	keys      []string
	// published are the messages that reach a queue.
	published []message
	// failed is, by queue, where its dead letters went. Queues without messages are not in it.
	failed map[string]*failure
	seen   map[arrival]bool
}

type message struct{ exchange, key string }

type arrival struct{ queue, key string }

// failure is where the dead letters of a queue go.
type failure struct {
	next []string // sorted
	// lost reports that some reach no queue, and all that none does.
	lost, all bool
	// open reports that headers or plugins decide, which messages here do not have.
	open bool
	// guess reports that messages come through a dead-letter exchange to which some are published, as
	// far as the objects tell: the survey may expect more of them than the world publishes.
	guess bool
}

func newWorld(state topology.State) *world {
	state.Have.Exchanges = slices.Clone(state.Have.Exchanges)
	for i := range state.Have.Exchanges {
		state.Have.Exchanges[i].Internal = false // what reaches them otherwise is not asked here
	}
	w := &world{
		router: route.New(state), have: state.Have, exchanges: map[string]topology.Exchange{},
		failed: map[string]*failure{}, seen: map[arrival]bool{},
	}
	for _, e := range slices.Concat(topology.BuiltInExchanges(), state.Have.Exchanges) {
		w.exchanges[e.Name] = e
	}
	w.setKeys()
	deadLetters := w.deadLetterExchanges()
	for _, e := range w.exchanges {
		if e.Name != "" && !deadLetters[e.Name] && !w.passesKeysOn(e) {
			w.publish(e, "")
		}
	}
	for _, q := range state.Have.Queues {
		if !deadLetters[""] && !w.isBound(q.Name) {
			w.arrive(q.Name, route.Message{Keys: []string{q.Name}})
		}
	}
	sourced, published := maps.Clone(w.failed), map[string]bool{}
	for _, q := range state.Have.Queues {
		// Whatever comes leaves with that key, or can have come by the name alone.
		if to, ok := w.router.DeadLettering(q.Name); ok && to.HasKey || !w.isBound(q.Name) {
			w.arrive(q.Name, route.Message{Keys: []string{q.Name}})
		}
	}
	for _, b := range state.Have.Bindings {
		e := w.exchanges[b.Source]
		if deadLetters[e.Name] && w.isPlain(b) { // it tells of messages with that key
			w.arrive(b.Destination, route.Message{Keys: []string{b.Key}})
		}
		if w.failsToTell(e) && !deadLetters[e.Name] && b.DestinationType == topology.ToQueue {
			w.arriveWithAll(b.Destination)
		}
	}
	// What only a dead-letter exchange leads to, and no dead letter reaches, gets what its bindings
	// let through. What no exchange leads to has messages with its name as their key.
	for _, only := range w.withoutMessages() {
		for _, b := range state.Have.Bindings {
			if e, exists := w.exchanges[b.Source]; exists && b.Destination == only && b.DestinationType == topology.ToQueue {
				w.publish(e, only)
			}
		}
	}
	for _, only := range w.withoutMessages() {
		w.arrive(only, route.Message{Keys: []string{only}})
	}
	for _, b := range state.Have.Bindings { // what only dead-letter exchanges lead to was published to one
		if f := w.failed[b.Destination]; f != nil && deadLetters[b.Source] && sourced[b.Destination] == nil {
			published[b.Source] = true
		}
	}
	for _, b := range state.Have.Bindings {
		if f := w.failed[b.Destination]; f != nil && published[b.Source] {
			f.guess = true
		}
	}
	w.spread()
	slices.SortFunc(w.published, func(a, b message) int {
		return strings.Compare(a.exchange+" "+a.key, b.exchange+" "+b.key)
	})
	return w
}

// spread makes open, or a guess, what may get messages from a queue whose failures are.
func (w *world) spread() {
	for again := true; again; {
		again = false
		for queue, f := range w.failed {
			to, ok := w.router.DeadLettering(queue)
			if !ok || !f.open && !f.guess {
				continue
			}
			for _, name := range w.router.Reachable(to.Exchange) {
				if next := w.failed[name]; next != nil && (f.open && !next.open || f.guess && !next.guess) {
					next.open, next.guess, again = next.open || f.open, next.guess || f.guess, true
				}
			}
		}
	}
}

// isBound reports whether a binding leads from an exchange to a queue.
func (w *world) isBound(queue string) bool {
	return slices.ContainsFunc(w.have.Bindings, func(b topology.Binding) bool {
		_, exists := w.exchanges[b.Source]
		return exists && b.Destination == queue && b.DestinationType == topology.ToQueue
	})
}

func (w *world) withoutMessages() []string {
	var out []string
	for _, q := range w.have.Queues {
		if w.failed[q.Name] == nil {
			out = append(out, q.Name)
		}
	}
	return out
}

// deadLetterExchanges are those to which queues dead-letter: publishers use others.
func (w *world) deadLetterExchanges() map[string]bool {
	out := map[string]bool{}
	for _, q := range w.have.Queues {
		if to, ok := w.router.DeadLettering(q.Name); ok {
			out[to.Exchange] = true
		}
	}
	return out
}

// passesKeysOn reports whether other exchanges decide which keys an exchange gets.
func (w *world) passesKeysOn(e topology.Exchange) bool {
	if e.Type == topology.Direct || e.Type == topology.Topic {
		return false
	}
	for _, other := range w.exchanges {
		if to, ok := w.router.Alternate(other.Name); ok && to == e.Name {
			return false
		}
	}
	return slices.ContainsFunc(w.have.Bindings, func(b topology.Binding) bool {
		source, exists := w.exchanges[b.Source]
		return b.DestinationType == topology.ToExchange && b.Destination == e.Name && b.Source != e.Name && exists &&
			!w.failsToTell(source)
	})
}

// failsToTell reports whether headers or a plugin decide where an exchange routes messages.
func (w *world) failsToTell(e topology.Exchange) bool {
	return e.Name != "" && !slices.Contains([]string{topology.Direct, topology.Fanout, topology.Topic}, e.Type)
}

// isPlain reports whether a binding lets one key through to a queue.
func (w *world) isPlain(b topology.Binding) bool {
	kind, isQueue := w.exchanges[b.Source].Type, slices.ContainsFunc(w.have.Queues, func(q topology.Queue) bool {
		return q.Name == b.Destination && b.DestinationType == topology.ToQueue
	})
	return isQueue && (kind == topology.Direct || kind == topology.Topic && !survey.IsPattern(b.Key))
}

// arriveWithAll rejects a message with each key in a queue.
func (w *world) arriveWithAll(queue string) {
	for _, q := range w.have.Queues {
		for _, key := range w.keys {
			if q.Name == queue {
				w.arrive(queue, route.Message{Keys: []string{key}})
			}
		}
	}
}

// setKeys collects keys that tell bindings apart: those of bindings with words in the place of
// wildcards, names of queues, and a few of other words.
func (w *world) setKeys() {
	w.keys = []string{"", "z9", "z9.z9", "a.b", "a.z9", "z9.b", "z9.z9.z9"}
	for _, q := range w.have.Queues {
		w.keys = append(w.keys, q.Name)
	}
	stars, hashes := w.words()
	for _, b := range w.have.Bindings {
		for _, star := range stars {
			for _, hash := range hashes {
				words := strings.Split(b.Key, ".")
				for i, word := range words {
					words[i] = map[string]string{"*": star, "#": hash}[word]
					if word != "*" && word != "#" {
						words[i] = word
					}
				}
				words = slices.DeleteFunc(words, func(word string) bool { return word == "" && b.Key != "" })
				w.keys = append(w.keys, strings.Join(words, "."))
			}
		}
	}
	slices.Sort(w.keys)
	w.keys = slices.Compact(w.keys)
}

// words returns what stands for * and for # in keys. Where bindings have few words, these are all
// of them, and all pairs: a key may have to match the patterns of several exchanges, one after the
// other.
func (w *world) words() (stars, hashes []string) {
	const few = 4
	for _, b := range w.have.Bindings {
		stars = append(stars, strings.Split(b.Key, ".")...)
	}
	slices.Sort(stars)
	stars = slices.DeleteFunc(slices.Compact(stars), func(word string) bool {
		return word == "" || word == "*" || word == "#"
	})
	if len(stars) > few {
		return []string{"z9", "a", "b"}, []string{"", "z9", "z9.z9", "a", "b"}
	}
	stars = append(stars, "z9")
	hashes = append(hashes, "")
	for _, first := range stars {
		hashes = append(hashes, first)
		for _, second := range stars {
			hashes = append(hashes, first+"."+second)
		}
	}
	return stars, hashes
}

// publish sends a message with each key. With a queue it looks at what reaches that one.
func (w *world) publish(e topology.Exchange, only string) {
	for _, key := range w.keys {
		result := w.router.Publish(e.Name, key, nil)
		for _, name := range result.Queues {
			if only == "" || only == name {
				w.arrive(name, result.Message)
			}
		}
		if only == "" && len(result.Queues) > 0 {
			w.published = append(w.published, message{e.Name, key})
		}
	}
}

// arrive rejects a message in a queue.
func (w *world) arrive(queue string, m route.Message) {
	at := arrival{queue, m.Keys[0]}
	if w.seen[at] {
		return
	}
	w.seen[at] = true
	f := w.failed[queue]
	if f == nil {
		f = &failure{all: true}
		w.failed[queue] = f
	}
	result := w.router.DeadLetter(queue, m, route.Rejected)
	f.open = f.open || len(result.Unknown) > 0 || w.byHeaders(result)
	f.lost = f.lost || len(result.Queues)+len(result.Stuck)+len(result.Unknown) == 0
	f.all = f.all && len(result.Queues)+len(result.Stuck)+len(result.Unknown) == 0
	for _, next := range result.Queues {
		if i, found := slices.BinarySearch(f.next, next); !found {
			f.next = slices.Insert(f.next, i, next)
		}
		w.arrive(next, route.Message{Keys: result.Message.Keys})
	}
}

// byHeaders reports whether a headers exchange had a say.
func (w *world) byHeaders(result route.Result) bool {
	return slices.ContainsFunc(slices.Concat(result.Lost, result.Stuck), func(end route.End) bool {
		return w.exchanges[end.Exchange].Type == topology.Headers
	}) || slices.ContainsFunc(result.Steps, func(s route.Step) bool {
		return w.exchanges[s.Source].Type == topology.Headers
	})
}
