package spec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// manyAttempts stands for every number of attempts beyond it, so that sums do
// not overflow.
const manyAttempts = 1_000_000

// defaultRetryUntil is how long a message may wait uncounted where the file does not say.
const defaultRetryUntil = 24 * time.Hour

// backoffs reads the backoffs of one file.
func (d *decoder) backoffs(f fields) {
	v, ok := f.values["backoff"]
	if !ok {
		return
	}
	for _, p := range d.pairs(v.value, "backoff") {
		pos := d.at(p.key)
		switch first, ok := d.backoff(p.name); {
		case p.name == topology.NoBackoff:
			d.problem(pos, `the backoff name "none" is reserved`,
				"choose another name; a queue with backoff: none needs no backoff here")
			continue
		case ok:
			d.problem(pos, fmt.Sprintf("backoff %q is already defined at %s:%d", p.name, first.Pos.File, first.Pos.Line),
				"choose another name, or keep one of them")
			continue
		case !d.isName(pos, "the backoff name", p.name):
			continue
		}
		// A backoff with problems is kept: queues may name it.
		b := Backoff{Name: p.name, Pos: pos, Overlay: d.overlaid(p.field)}
		d.readBackoff(&b, d.fields(p.value, fmt.Sprintf("backoff %q", p.name), backoffKeys(), nil))
		d.places.backoffs[p.name] = len(d.spec.Backoffs)
		d.spec.Backoffs = append(d.spec.Backoffs, b)
	}
}

func (d *decoder) backoff(name string) (Backoff, bool) {
	i, ok := d.places.backoffs[name]
	if !ok {
		return Backoff{}, false
	}
	return d.spec.Backoffs[i], true
}

func (d *decoder) readBackoff(b *Backoff, f fields) {
	each := int64(1)
	if n, ok := d.number(f, "attemptsPerTier", 1); ok {
		each = n
	}
	b.Tiers = d.schedule(f, each)
	d.retryOn(b, f)
	d.afterExpiry(b, f)
	b.RetryUntil = defaultRetryUntil
	if until, ok := d.delay(f, "retryUntil"); ok {
		b.RetryUntil = until
	}
	attempts, wait := int64(0), time.Duration(0)
	for _, t := range b.Tiers {
		attempts += int64(t.Attempts)
		wait += time.Duration(t.Attempts) * t.Delay
	}
	b.Outage = d.outage(f, wait)
	d.engine(b, f)
	if attempts > topology.MaxAttempts {
		d.problem(cmp.Or(b.Overlay, b.Pos), fmt.Sprintf("%s has %d attempts", f.what, attempts),
			fmt.Sprintf("a backoff may have at most %d: each attempt is a binding of its headers exchange", topology.MaxAttempts))
		b.Tiers = nil
	}
}

// schedule reads the delays of a backoff, in whichever of the three forms it has them.
func (d *decoder) schedule(f fields, each int64) []Tier {
	forms := []string{"tiers", "exponential", "linear"}
	var given []string
	mentioned := false
	for _, key := range forms {
		mentioned = mentioned || d.mentions(f.node, key)
		if _, ok := f.values[key]; ok {
			given = append(given, key)
		}
	}
	switch {
	case len(given) > 1:
		first, second := given[0], given[1]
		fix := "keep one of them"
		if d.pos(f, first).File != d.pos(f, second).File {
			fix += ": an overlay removes the other with null"
		}
		d.problem(d.pos(f, second), fmt.Sprintf("%s has both %s and %s", f.what, first, second), fix)
		return nil
	case len(given) == 0 && mentioned: // reported where it is read
		return nil
	case len(given) == 0:
		pos := d.at(f.node)
		for _, key := range forms {
			if by, gone := d.removedKey(f.node, key); gone {
				pos = by
			}
		}
		d.problem(pos, f.what+" has no tiers, exponential or linear", "add tiers, such as tiers: [10s, 1m, 10m]")
		return nil
	}
	v := f.values[given[0]].value
	switch given[0] {
	case "exponential":
		f := d.fields(v, "exponential", exponentialKeys(), nil)
		factor, ok := d.factor(f, "factor")
		tiers := d.growing(f, "steps", each, func(wait, _ float64) float64 { return wait * factor })
		if !ok {
			return nil
		}
		return tiers
	case "linear":
		if _, ok := f.values["attemptsPerTier"]; ok {
			d.problem(d.pos(f, "attemptsPerTier"), f.what+" has both linear and attemptsPerTier",
				"remove attemptsPerTier: attempts of linear is the number of retries")
		}
		f := d.fields(v, "linear", linearKeys(), nil)
		return d.growing(f, "attempts", 1, func(wait, first float64) float64 { return wait + first })
	default:
		return d.tiers(f, each)
	}
}

// tiers reads a list of delays and {delay, attempts}. It may be empty: nothing is retried, and the
// processor moves what failed to its dead-letter queue.
func (d *decoder) tiers(f fields, each int64) []Tier {
	var tiers []Tier
	for _, n := range d.list(f, "tiers") {
		t := Tier{Attempts: int(min(each, manyAttempts)), Pos: d.at(n)}
		var ok bool
		if n.Kind == yaml.MappingNode {
			tf := d.fields(n, "tier", tierKeys(), nil)
			if a, ok := d.number(tf, "attempts", 1); ok {
				t.Attempts = int(min(a, manyAttempts))
			}
			t.Delay, ok = d.delay(tf, "delay")
			if !ok {
				continue
			}
		} else if t.Delay, ok = d.delayOf(n, "delay"); !ok {
			continue
		}
		tiers = append(tiers, t)
	}
	return tiers
}

// growing computes tiers whose delays grow from first on, and are no longer than max. Each is
// rounded to whole milliseconds. count is the key with the number of tiers, each how many attempts
// a tier has, and grow returns the delay after one.
func (d *decoder) growing(f fields, count string, each int64, grow func(wait, first float64) float64) []Tier {
	first, ok1 := d.delay(f, "first")
	steps, ok2 := d.number(f, count, 1)
	longest, limited := d.delay(f, "max")
	if !ok1 || !ok2 {
		return nil
	}
	if first == 0 {
		d.problem(d.pos(f, "first"), "first is 0",
			"write first: 1ms or more; to retry at once, at the end of the queue, write tiers: [0s]")
		return nil
	}
	if steps > topology.MaxAttempts {
		d.problem(d.pos(f, count), fmt.Sprintf("%s is %d", count, steps),
			fmt.Sprintf("a backoff may have at most %d attempts", topology.MaxAttempts))
		return nil
	}
	if limited && longest < first {
		d.problem(d.pos(f, "max"),
			fmt.Sprintf("max is %s, less than first, %s", text.Duration(longest), text.Duration(first)),
			"write a longer max, or a shorter first")
		return nil
	}
	if !limited {
		longest = topology.MaxDelay
	}
	var tiers []Tier
	wait, most := float64(first.Milliseconds()), float64(longest.Milliseconds())
	for len(tiers) < int(steps) {
		if wait > most && !limited {
			d.problem(d.pos(f, count),
				fmt.Sprintf("tier %d would be longer than %s, the broker's limit", len(tiers)+1,
					text.Duration(topology.MaxDelay)), fmt.Sprintf("add max, or write fewer %s", count))
			return nil
		}
		wait = min(wait, most)
		tiers = append(tiers, Tier{
			Delay: time.Duration(math.Round(wait)) * time.Millisecond, Attempts: int(min(each, manyAttempts)),
			Pos: d.at(f.node),
		})
		wait = grow(wait, float64(first.Milliseconds()))
	}
	return tiers
}

// expiryIgnored is the value of afterExpiry that says the default.
const expiryIgnored = "ignore"

// expiryWords are the values of afterExpiry.
func expiryWords() []string {
	return []string{string(topology.ExpiryDead), string(topology.ExpiryDropped), expiryIgnored}
}

func (d *decoder) afterExpiry(b *Backoff, f fields) {
	if word, ok := d.word(f, "afterExpiry", expiryWords()); ok && word != expiryIgnored {
		b.AfterExpiry = topology.AfterExpiry(word)
	}
	if b.AfterExpiry != "" && slices.Contains(b.RetryOn, topology.ReasonExpired) {
		d.problem(d.pos(f, "afterExpiry"),
			fmt.Sprintf("afterExpiry is %s, but retryOn has expired", b.AfterExpiry), "keep one of them")
	}
}

func (d *decoder) retryOn(b *Backoff, f fields) {
	if _, ok := f.values["retryOn"]; !ok {
		return
	}
	items := d.list(f, "retryOn")
	if items != nil && len(items) == 0 {
		d.problem(d.pos(f, "retryOn"), "retryOn is empty, so no message would be retried",
			"list reasons, or write tiers: []")
	}
	b.RetryOn = []topology.Reason{}
	for _, n := range items {
		if s, ok := d.textOf(n, "retryOn"); ok && d.among(n, "retryOn", s, reasonNames()) {
			b.RetryOn = append(b.RetryOn, topology.Reason(s))
		}
	}
}
