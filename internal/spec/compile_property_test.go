package spec

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// drawSpec returns any valid Spec: one whose names do not collide.
func drawSpec(t *rapid.T) *Spec {
	return rapid.Custom(drawAnySpec).Filter(func(s *Spec) bool { return len(checkNames(s)) == 0 }).Draw(t, "spec")
}

// drawAnySpec returns a Spec with names with dots, spaces and characters of all lengths,
// tiers whose delays repeat, every kind of dead-letter queue.
func drawAnySpec(t *rapid.T) *Spec {
	types := rapid.SampledFrom([]string{topology.Quorum, topology.Classic})
	short := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,8}`)
	s := &Spec{
		Name:        short.Draw(t, "name"),
		CountHeader: rapid.SampledFrom([]string{"count", "attempt", "retry count", "zähler"}).Draw(t, "countHeader"),
		Type:        types.Draw(t, "type"),
	}
	name := rapid.OneOf(
		rapid.StringMatching(`[a-z.@#*_é -]{1,12}`),
		rapid.StringMatching(`[a-z]{200,249}`),
		rapid.Just(s.Name), rapid.Just(s.Name+".dead.end"), rapid.Just("count"),
	)
	for _, b := range rapid.SliceOfNDistinct(short, 1, 3, rapid.ID).Draw(t, "backoffs") {
		if b != topology.NoBackoff {
			s.Backoffs = append(s.Backoffs, drawBackoff(t, b))
		}
	}
	for _, e := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "exchanges") {
		kind := rapid.SampledFrom([]string{topology.Topic, topology.Direct, topology.Fanout, topology.Headers}).Draw(t,
			"kind")
		x := Exchange{Name: e, Type: kind, External: rapid.Bool().Draw(t, "external")}
		if len(s.Exchanges) > 0 {
			x.Bindings = []Binding{drawBinding(t, s.Exchanges[0])}
		}
		s.Exchanges = append(s.Exchanges, x)
	}
	for _, q := range rapid.SliceOfNDistinct(name, 0, 5, rapid.ID).Draw(t, "queues") {
		s.Queues = append(s.Queues, drawQueue(t, s, q, types.Draw(t, "queue type")))
	}
	return s
}

func drawBackoff(t *rapid.T, name string) Backoff {
	b := Backoff{Name: name}
	if rapid.IntRange(0, 3).Draw(t, "native") == 0 {
		last := Tier{Delay: 2 * time.Second, Attempts: rapid.IntRange(1, 3).Draw(t, "attempts")}
		b.Native, b.Tiers = true, []Tier{{Delay: time.Second, Attempts: 1}, last}
		return b
	}
	delays := rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, time.Second, time.Minute, topology.MaxDelay})
	for _, d := range rapid.SliceOfN(delays, 0, 6).Draw(t, "delays") {
		b.Tiers = append(b.Tiers, Tier{Delay: d, Attempts: rapid.IntRange(1, 3).Draw(t, "attempts")})
	}
	if rapid.Bool().Draw(t, "outage") {
		o := topology.DefaultOutage()
		b.Outage = &o
	}
	return b
}

func drawBinding(t *rapid.T, from Exchange) Binding {
	switch from.Type {
	case topology.Headers:
		return Binding{
			Exchange: from.Name, Keys: []string{""},
			Arguments: topology.Arguments{"x-match": "any", "a": int64(1), "b": "c"},
		}
	case topology.Fanout:
		return Binding{Exchange: from.Name, Keys: []string{""}}
	default:
		return Binding{Exchange: from.Name, Keys: rapid.SliceOfN(rapid.StringMatching(`[a-z.#*]{1,6}`), 1, 3).Draw(t, "keys")}
	}
}

func drawQueue(t *rapid.T, s *Spec, name, typ string) Queue {
	backoffs := []string{topology.NoBackoff}
	for _, b := range s.Backoffs {
		backoffs = append(backoffs, b.Name)
	}
	q := Queue{
		Name: name, Type: typ, Backoff: rapid.SampledFrom(backoffs).Draw(t, "backoff"),
		Dead: Dead{Queue: rapid.SampledFrom([]string{
			topology.DeadLetterQueueName(name), topology.DeadLetterName(s.Name), "the dead letters", "§",
		}).Draw(t, "dead")},
	}
	if q.Dead.Queue == "§" {
		q.Dead.Arguments = topology.Arguments{"x-max-priority-of-mine": int64(1), "note": "x"}
	}
	if typ == topology.Quorum && rapid.Bool().Draw(t, "limited") {
		limit := rapid.Int64Range(1, 100).Draw(t, "deliveryLimit")
		q.DeliveryLimit = &limit
	}
	switch rapid.IntRange(0, 5).Draw(t, "dead-lettering") {
	case 0:
		q.ByPolicy = true
	case 1: // of unknown type
		q.ByPolicy, q.External, q.Type, q.DeliveryLimit = true, true, "", nil
	}
	if slices.ContainsFunc(s.Backoffs, func(b Backoff) bool { return b.Native && b.Name == q.Backoff }) {
		q.ByPolicy, q.DeliveryLimit = true, nil
		if !q.External {
			q.Type = topology.Quorum
		}
	}
	for _, e := range s.Exchanges {
		if rapid.Bool().Draw(t, "bound") {
			q.Bindings = append(q.Bindings, drawBinding(t, e))
		}
	}
	return q
}

// counts returns every kind of value that the count header can have around a loop
// of n attempts. Absent is a missing entry.
func counts(n int64) []any {
	values := []any{
		nil, int64(math.MaxInt64), int64(math.MinInt64), n * 1000, "1", "-1", "", 0.5, 1.0, -1.0, float64(n),
		math.Inf(1), math.NaN(), true,
		map[string]any{"count": int64(1)},
		[]any{int64(1)},
		[]byte("1"),
	}
	for i := int64(-3); i <= n+3; i++ {
		values = append(values, i, int32(i))
		if int64(int8(i)) == i {
			values = append(values, int8(i))
		}
	}
	return values
}

// number returns the integer that the broker sees in a count header, if any.
func number(v any, floatsMatch bool) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), floatsMatch && v == math.Trunc(v) && math.Abs(v) < 1e6
	default:
		return 0, false
	}
}

// TestEveryCountLeadsToOnePlace is the law that the processor leans on: whatever
// it writes into the count header, and whatever a publisher writes there, each
// message goes to exactly one queue: to a tier and from there to its own one, to its
// dead-letter queue, or back to the failed queue.
//
// A message whose own routing key looks like an address of another queue is the
// exception that the processor must see to: see
// TestKeyLikeAnAddressReachesTwoQueues.
func TestEveryCountLeadsToOnePlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		floatsMatch := rapid.Bool().Draw(t, "floatsMatch")
		v, router := mustRoute(t, s, floatsMatch)
		key := rapid.OneOf(rapid.StringMatching(`([a-z#][a-z.@#*]{0,8})?`), rapid.Just("@unknown"), rapid.Just("count")).
			Filter(func(key string) bool {
				_, known := v.WorkQueue(key[min(1, len(key)):])
				return !known
			}).Draw(t, "key")
		for _, w := range v.WorkQueues {
			loop, ok := v.Backoff(w.Backoff)
			if !ok {
				continue
			}
			for _, count := range counts(int64(len(loop.Tiers))) {
				headers := map[string]any{"other": int64(1), "CC": []any{topology.AddressKey(w.Name)}}
				if count != nil {
					headers[s.CountHeader] = count
				}
				want := loop.FailedQueue
				n, isNumber := number(count, floatsMatch)
				switch {
				case isNumber && n == topology.DeadLetterCount:
					want = w.DeadLetterQueue
				case isNumber && n >= 1 && n <= int64(len(loop.Tiers)):
					want = loop.Tiers[n-1].Queue
				}
				published := router.Publish(loop.RetryExchange, key, headers)
				expect(t, published, want, "count %T %v of %s", count, count, w.Name)
				if topology.IsRetryQueueName(v.Name, want) {
					expect(t, router.DeadLetter(want, published.Message, route.Expired), w.Name, "after %s", want)
				}
			}
			expect(t, dies(router, w.Name, key), loop.FailedQueue, "dead letter of %s", w.Name)
		}
	})
}

// TestNoBackoffGoesStraightToTheDeadLetterQueue covers the queues without a loop.
func TestNoBackoffGoesStraightToTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, router := mustRoute(t, drawSpec(t), false)
		for _, w := range v.WorkQueues {
			if w.Backoff == topology.NoBackoff {
				expect(t, dies(router, w.Name, "any"), w.DeadLetterQueue, "dead letter of %s", w.Name)
			}
		}
	})
}

func expect(t *rapid.T, got route.Result, want, format string, args ...any) {
	t.Helper()
	if !slices.Equal(got.Queues, []string{want}) || len(got.Unknown) > 0 {
		t.Fatalf("%s: reaches %q (unknown: %v), want %q alone", fmt.Sprintf(format, args...), got.Queues, got.Unknown, want)
	}
}

// mustRoute returns a compiled topology, and a router of a broker that has it alone.
func mustRoute(t *rapid.T, s *Spec, floatsMatch bool) (topology.Compiled, *route.Router) {
	t.Helper()
	c := mustCompile(t, s)
	state := topology.State{Version: "4.3.6", Have: c.Topology}
	if floatsMatch {
		state.Version = "3.10.8"
	}
	return c, route.New(state)
}

// dies returns where a message goes that was published to a work queue and rejected there.
func dies(router *route.Router, queue, key string) route.Result {
	return router.DeadLetter(queue, router.Publish("", key, nil).Message, route.Rejected)
}

// TestKeyLikeAnAddressReachesTwoQueues shows why the processor passes on no
// routing key that begins with @ and names a queue of the file: kept next to the
// address of the message's own queue, it leads to both. Such messages are
// published with the address alone.
func TestKeyLikeAnAddressReachesTwoQueues(t *testing.T) {
	t.Parallel()
	s := shop(topology.Quorum, time.Second)
	s.Queues = append(s.Queues,
		Queue{Name: "crm", Type: topology.Quorum, Backoff: "standard", Dead: Dead{Queue: "crm.dead"}})
	router := route.New(topology.State{Have: mustCompile(t, s).Topology})
	billing := map[string]any{"CC": []any{"@billing"}}
	for name, tc := range map[string]struct {
		key     string
		headers map[string]any
		want    []string
	}{
		"kept, it doubles the message":         {"@crm", billing, []string{"billing", "crm"}},
		"the address alone leads to one":       {"@billing", nil, []string{"billing"}},
		"the queue's own address does no harm": {"@billing", billing, []string{"billing"}},
		"an address of no queue is unroutable": {"@unknown", nil, []string{"shop.unroutable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiting := router.Publish("shop.standard.dlx", tc.key, tc.headers).Message
			got := router.DeadLetter("shop.standard.retry.1s", waiting, route.Expired)
			if d := cmp.Diff(tc.want, got.Queues); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
		})
	}
}

// TestNoExchangeDrops holds every generated exchange to an answer for every
// message: the ones of the loop and of the safety net.
func TestNoExchangeDrops(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, router := mustRoute(t, drawSpec(t), false)
		key := rapid.StringMatching(`[a-z@.]{0,6}`).Draw(t, "key")
		var headers map[string]any
		if rapid.Bool().Draw(t, "counted") {
			headers = map[string]any{v.CountHeader: rapid.Int64().Draw(t, "count")}
		}
		for _, e := range v.Exchanges {
			got := router.Publish(e.Name, key, headers)
			if e.Label.Role != topology.RoleBusiness && len(got.Queues) == 0 {
				t.Fatalf("exchange %s drops key %q, headers %v: %v", e.Name, key, headers, got.Lost)
			}
		}
	})
}

// TestNoCycleThatTheBrokerCuts follows dead-lettering from each queue by every
// binding there is. The processor's own hop, from failed to headers exchange, is
// not the broker's: it publishes anew.
func TestNoCycleThatTheBrokerCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, router := mustRoute(t, drawSpec(t), false)
		var follow func(queue string, path []string)
		follow = func(queue string, path []string) {
			if slices.Contains(path, queue) {
				t.Fatalf("%q dead-letter to each other in a circle", append(path, queue))
			}
			if to, ok := router.DeadLettering(queue); ok {
				for _, next := range router.Reachable(to.Exchange) {
					follow(next, append(slices.Clone(path), queue))
				}
			}
		}
		for _, q := range v.Queues {
			follow(q.Name, nil)
		}
	})
}

func TestCompileIsDeterministicAndLeavesTheSpecAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		before := fmt.Sprintf("%+v", *s)
		first := mustCompile(t, s)
		reshuffle(s)
		second := mustCompile(t, s)
		if d := cmp.Diff(first, second); d != "" {
			t.Fatalf("two compilations differ:\n%s", d)
		}
		if a, b := printed(t, first), printed(t, second); a != b {
			t.Fatalf("two prints differ:\n%s", cmp.Diff(a, b))
		}
		if after := fmt.Sprintf("%+v", *s); before != after {
			t.Fatalf("Compile changed its argument:\n%s", cmp.Diff(before, after))
		}
	})
}

// reshuffle builds the maps of s anew, in another order.
func reshuffle(s *Spec) {
	again := func(args topology.Arguments) topology.Arguments {
		if args == nil {
			return nil
		}
		out := make(topology.Arguments, 64)
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(args))) {
			out[name] = args[name]
		}
		return out
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		q.Arguments, q.Dead.Arguments = again(q.Arguments), again(q.Dead.Arguments)
		for j := range q.Bindings {
			q.Bindings[j].Arguments = again(q.Bindings[j].Arguments)
		}
	}
}

func printed(t *rapid.T, out topology.Compiled) string {
	t.Helper()
	var b bytes.Buffer
	if err := topology.WriteText(&b, out); err != nil {
		t.Fatal(err)
	}
	if err := jsondoc.Write(&b, out); err != nil {
		t.Fatal(err)
	}
	definitions, err := topology.Definitions(out, "/")
	if err != nil {
		t.Fatal(err)
	}
	b.Write(definitions)
	return b.String()
}

// TestObjectsAreOwnedUniqueAndNamedInBounds checks every object that a Spec
// becomes.
func TestObjectsAreOwnedUniqueAndNamedInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		out := mustCompile(t, s)
		seen := map[topology.Key]bool{}
		check := func(kind topology.Kind, name string, args topology.Arguments, owned bool) {
			key := topology.Key{Kind: kind, Name: name}
			if seen[key] {
				t.Fatalf("%s %s stands there twice", kind, name)
			}
			seen[key] = true
			if owner, marked := topology.Owner(args); marked != owned || marked && owner != s.Name {
				t.Fatalf("%s %s carries mark %q", kind, name, owner)
			}
		}
		for _, e := range out.Exchanges {
			check(topology.KindExchange, e.Name, e.Arguments, !e.External)
			bound(t, e.Name)
		}
		for _, q := range out.Queues {
			check(topology.KindQueue, q.Name, q.Arguments, !q.External)
			bound(t, q.Name)
		}
		for _, b := range out.Bindings {
			check(topology.KindBinding, b.Identity(), b.Arguments, true)
			bound(t, b.Key)
		}
		for _, p := range out.Policies {
			check(topology.KindPolicy, p.Name, nil, false)
			if owner, ok := topology.PolicyOwner(p.Name); !ok || owner != s.Name {
				t.Fatalf("policy %s is of %q", p.Name, owner)
			}
		}
		var order []string
		for _, q := range s.Queues {
			order = append(order, q.Name)
		}
		var works []string
		for _, w := range out.WorkQueues {
			works = append(works, w.Name)
		}
		if d := cmp.Diff(order, works); d != "" {
			t.Fatalf("works are not in the order of the file:\n%s", d)
		}
	})
}

func bound(t *rapid.T, name string) {
	t.Helper()
	if len(name) > topology.MaxNameBytes {
		t.Fatalf("%q has %d bytes", name, len(name))
	}
}
