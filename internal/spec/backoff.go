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

// backoff returns the backoff of that name.
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
	_, tiers := f.values["tiers"]
	_, exponential := f.values["exponential"]
	switch {
	case tiers && exponential:
		fix := "keep one of them"
		if d.pos(f, "tiers").File != d.pos(f, "exponential").File {
			fix += ": an overlay removes the other with null"
		}
		d.problem(d.pos(f, "exponential"), f.what+" has both tiers and exponential", fix)
	case tiers:
		b.Tiers = d.tiers(f, each)
	case exponential:
		v := f.values["exponential"].value
		b.Tiers = d.exponential(d.fields(v, "exponential", exponentialKeys(), nil), each)
	case !d.mentions(f.node, "tiers") && !d.mentions(f.node, "exponential"):
		pos := d.at(f.node)
		for _, key := range []string{"tiers", "exponential"} {
			if by, gone := d.removedKey(f.node, key); gone {
				pos = by
			}
		}
		d.problem(pos, f.what+" has neither tiers nor exponential", "add tiers, such as tiers: [10s, 1m, 10m]")
	}
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
			fmt.Sprintf("a backoff may have %d: each attempt is a binding of its headers exchange", topology.MaxAttempts))
		b.Tiers = nil
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

// exponential spreads out a shape: first, first × factor, first × factor², …,
// each rounded to whole milliseconds and none longer than max.
func (d *decoder) exponential(f fields, each int64) []Tier {
	first, ok1 := d.delay(f, "first")
	factor, ok2 := d.factor(f, "factor")
	steps, ok3 := d.number(f, "steps", 1)
	longest, limited := d.delay(f, "max")
	if !ok1 || !ok2 || !ok3 {
		return nil
	}
	if first == 0 {
		d.problem(d.pos(f, "first"), "first is 0",
			"write first: 1ms or more; to retry at once, at the end of the queue, write tiers: [0s]")
		return nil
	}
	if steps > topology.MaxAttempts {
		d.problem(d.pos(f, "steps"), fmt.Sprintf("steps is %d", steps),
			fmt.Sprintf("a backoff may have %d attempts", topology.MaxAttempts))
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
	wait := float64(first.Milliseconds())
	for range steps {
		t := Tier{
			Delay: time.Duration(math.Round(wait)) * time.Millisecond, Attempts: int(min(each, manyAttempts)),
			Pos: d.at(f.node),
		}
		tiers = append(tiers, t)
		if wait *= factor; wait > float64(longest.Milliseconds()) {
			if !limited {
				longest = 0 // report once, below
				break
			}
			wait = float64(longest.Milliseconds())
		}
	}
	if longest == 0 && len(tiers) < int(steps) {
		d.problem(d.pos(f, "steps"),
			fmt.Sprintf("tier %d would be longer than %s, the broker's limit", len(tiers)+1,
				text.Duration(topology.MaxDelay)), "add max, or write fewer steps")
		return nil
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
