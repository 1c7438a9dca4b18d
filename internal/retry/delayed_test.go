package retry

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

// However late each level is, and with whatever longest delay each processor has, a message is
// never early, comes after few levels, and at most a shortest level later than those made it. Its
// headers, key and expiration are as they were.
func TestADelayEndsInTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		delayOf := func(what string) topology.Delay {
			longest := time.Duration(rapid.Int64Range(1, 49*24*3600).Draw(t, what)) * time.Second
			return topology.NewDelay("shop", "shop.later", "events", longest, rapid.Bool().Draw(t, "native"))
		}
		d := delayOf("longest delay")
		began := time.UnixMilli(rapid.Int64Range(1e12, 2e12).Draw(t, "now"))
		wait := time.Duration(rapid.Int64Range(0, d.Max.Milliseconds()).Draw(t, "delay")) * time.Millisecond
		published := map[string]any{topology.HeaderDelay: wait.Milliseconds(), "own": "x"}
		m := Message{Exchange: d.Name, Key: "k", Headers: published, Expiration: "5"}
		now, lateness := began, time.Duration(0)
		for hops := 0; ; hops++ {
			rules := NewDelayRules(topology.Compiled{Name: "shop"}, d, 0)
			made := rules.Decide(m, now)
			if rapid.IntRange(0, 4).Draw(t, "it is refused") == 0 {
				slow := time.Duration(rapid.Int64Range(0, 2000).Draw(t, "and later")) * time.Millisecond
				now, lateness = now.Add(slow), lateness+slow
				again := rules.Again(m, made, now)
				if made.Outcome == Waits && again.Outcome == Waits && again.Level > 0 && again.Level >= made.Level ||
					!again.DueAt.Equal(made.DueAt) {
					t.Fatalf("after %+v was refused: %+v", made, again)
				}
				made = again
			}
			if made.Outcome == Due {
				late := now.Sub(began) - wait
				switch {
				case late < 0:
					t.Fatalf("it is %s early", -late)
				case late > lateness+topology.ShortestLevel:
					t.Fatalf("it is %s late, and the levels were %s late", late, lateness)
				case !maps.Equal(made.Headers, published) || made.Key != "k" || made.Expiration != "5" || made.Exchange != "events":
					t.Fatalf("it is due as %+v", made)
				}
				return
			}
			if made.Outcome != Waits || made.Expiration != "" || made.Exchange != d.LevelExchange || hops > 200 {
				t.Fatalf("after %d levels: %+v", hops, made)
			}
			level := d.Levels[made.Level]
			slow := time.Duration(rapid.Int64Range(0, 2000).Draw(t, "late")) * time.Millisecond
			lateness += slow
			headers, leaves := maps.Clone(made.Headers), now.Add(level.Delay)
			if level.Queue == d.Timer {
				if made.Headers[topology.HeaderDelayByLevels] != nil {
					t.Fatal("the timer has let it go, and it is there again")
				}
				if rapid.Bool().Draw(t, "the timer holds it") {
					leaves = made.DueAt
					headers[topology.HeaderDeliveryTime] = made.DueAt.UnixMilli()
				} else if leaves.After(made.DueAt) {
					lateness += leaves.Sub(made.DueAt)
				}
			}
			now = leaves.Add(slow)
			headers[topology.HeaderDeath] = []any{map[string]any{"queue": level.Queue, "reason": "expired"}}
			m = Message{Exchange: d.Due, Key: made.Key, Headers: headers}
			if rapid.IntRange(0, 9).Draw(t, "another file") == 0 {
				d = delayOf("another longest delay")
			}
		}
	})
}

// Who may publish to the exchange of the delay can forge no time: only what the broker reports as
// dead-lettered by a level to the due exchange is believed.
func TestForgedDelays(t *testing.T) {
	t.Parallel()
	d := topology.NewDelay("shop", "shop.later", "events", time.Hour, false)
	now := time.UnixMilli(2e12)
	forged := map[string]any{
		topology.HeaderDelayDue: now.Add(time.Hour).UnixMilli(), topology.HeaderDelayLevel: int32(1),
		topology.HeaderDeath: []any{map[string]any{"queue": d.Levels[1].Queue, "reason": "expired"}},
	}
	for exchange, want := range map[string]DelayOutcome{
		"": Due, d.Name: Due, "events": Due, d.LevelExchange: Due, d.Due: Waits,
	} {
		made := NewDelayRules(topology.Compiled{Name: "shop"}, d, 0).Decide(Message{Exchange: exchange, Headers: forged}, now)
		if made.Outcome != want {
			t.Errorf("by the exchange %q it is %s, not %s", exchange, made.Outcome, want)
		}
	}
	for queue, want := range map[string]DelayOutcome{
		d.Levels[0].Queue: Waits, d.Intake: Due, "work": Due, "shop.delay.level.1s.other": Due,
		"other.delay.level.1s.shop.later": Due,
	} {
		h := maps.Clone(forged)
		h[topology.HeaderDeath] = []any{map[string]any{"queue": queue, "reason": "expired"}}
		made := NewDelayRules(topology.Compiled{Name: "shop"}, d, 0).Decide(Message{Exchange: d.Due, Headers: h}, now)
		if made.Outcome != want {
			t.Errorf("from %s it is %s, not %s", queue, made.Outcome, want)
		}
	}
}

// What RabbitMQ cannot deliver over AMQP 1.0, or would change, waits in levels. All else waits in
// the timer, also for less than a second.
func TestWhatWaitsInATimer(t *testing.T) {
	t.Parallel()
	d := topology.NewDelay("shop", "shop.later", "events", topology.LongestTimer, true)
	decimal := struct { // as that of the library
		Scale uint8
		Value int32
	}{2, 5}
	now := time.UnixMilli(2e12)
	for name, tc := range map[string]struct {
		m      Message
		levels bool
	}{
		"nothing": {Message{}, false},
		"each other type": {Message{Headers: map[string]any{
			"a": []any{nil, 1.5, int32(1), true, map[string]any{"b": []byte{255}}},
		}}, false},
		"a time":             {Message{Headers: map[string]any{"x-a": time.Unix(5, 0)}, Timestamp: time.Unix(5, 0)}, false},
		"a text of bytes":    {Message{Headers: map[string]any{"x-a": "\xff"}}, false},
		"a decimal":          {Message{Headers: map[string]any{"a": decimal}}, true},
		"one in a list":      {Message{Headers: map[string]any{"x-a": []any{decimal}}}, true},
		"one in a table":     {Message{Headers: map[string]any{"x-a": map[string]any{"b": decimal}}}, true},
		"a far time":         {Message{Headers: map[string]any{"a": time.Unix(1<<41, 0)}}, true},
		"a far timestamp":    {Message{Timestamp: time.Unix(1<<41, 0)}, true},
		"a property":         {Message{Texts: []string{"", "\xff"}}, true},
		"the key":            {Message{Key: "\xff"}, true},
		"the annotation":     {Message{Headers: map[string]any{topology.HeaderDeliveryTime: int64(1)}}, true},
		"parts of a message": {Message{Headers: map[string]any{"x-amqp-1.0-properties": ""}}, true},
	} {
		tc.m.Exchange = d.Name
		headers := map[string]any{topology.HeaderDelay: int32(100)}
		maps.Copy(headers, tc.m.Headers)
		tc.m.Headers = headers
		made := NewDelayRules(topology.Compiled{Name: "shop"}, d, 0).Decide(tc.m, now)
		if timer := d.Levels[made.Level].Queue == d.Timer; made.Outcome != Waits || timer == tc.levels {
			t.Errorf("%s: it %s in %s", name, made.Outcome, d.Levels[made.Level].Queue)
		}
	}
}

// A time with a part of a millisecond, and a timestamp, of which AMQP 0-9-1 keeps whole seconds,
// are rounded up: a message is not early.
func TestTimesAreRoundedUp(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]int64{
		"2033-05-18T03:33:20.0000001Z": 2e12 + 1,
		"2033-05-18T03:33:20Z":         2e12,
		time.UnixMilli(2e12):           2e12 + 999,
		int64(2e12):                    2e12,
	} {
		if ms, ok := moment(value); !ok || ms != want {
			t.Errorf("%v is %d, not %d", value, ms, want)
		}
	}
	d := topology.NewDelay("shop", "shop.later", "events", time.Hour, false)
	now := time.UnixMilli(2e12).Add(time.Nanosecond)
	made := NewDelayRules(topology.Compiled{}, d, 0).Decide(Message{Headers: map[string]any{topology.HeaderDelay: 5}}, now)
	if due := made.Headers[topology.HeaderDelayDue]; due != int64(2e12+6) {
		t.Errorf("it waits until %v", due)
	}
}

// A value of a type of the AMQP library is named by its type.
func TestADelayThatIsADecimal(t *testing.T) {
	t.Parallel()
	type Decimal struct{ Scale, Value int }
	r := NewDelayRules(topology.Compiled{Name: "shop"}, topology.Delay{Name: "later"}, 0)
	got := r.Decide(Message{Headers: map[string]any{"x-delay": Decimal{1, 5}}}, time.Now())
	if want := "x-delay is a decimal, not a number of milliseconds"; got.Error != want {
		t.Errorf("%q", got.Error)
	}
}
