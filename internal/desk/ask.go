package desk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/topology"
)

// Selection chooses messages of a queue, in the words of the flags of the command line.
type Selection struct {
	Queue string
	// Work is the work queue whose messages Where chooses. Empty: those of all.
	Work    string
	Where   string
	Handles []string
	Since   string
	Until   string
	Limit   int
}

// Ask is what a person asks for, in the words of the flags of the command line. [DefaultAsk]
// returns what an action does where the person says nothing else.
type Ask struct {
	Selection
	Action Action
	Again  bool
	// To and Key are the target, for an action that sends messages to work.
	To, Key string
	// Limits are how it sends.
	Limits
	Forever              bool
	KeepHistory, KeepTTL bool
	Reason               string
}

// DefaultAsk asks for an action, without the messages.
func DefaultAsk(a Action) Ask { return Ask{Action: a, To: "queue", Limits: a.Kind().Limits} }

// Request checks what a person asks for. Errors name the flag that has a wrong value.
func (a Ask) Request(now time.Time) (Request, error) {
	r, err := a.Selection.Request(now)
	if err != nil {
		return Request{}, err
	}
	r.Action, r.Again, r.Forever, r.Reason = a.Action, a.Again, a.Forever, a.Reason
	r.KeepHistory, r.KeepTTL = a.KeepHistory, a.KeepTTL
	if a.Action.Kind().Edits {
		r.Limit = 1
	}
	if a.Action.Kind().Edits && (a.To == "queue" || a.To == "original") {
		r.Key, a.Key = a.Key, "" // that of the message
	}
	if err = checkKey(r.Key); err != nil {
		return Request{}, err
	}
	if r.Target, err = parseTarget(a.To, a.Key); err != nil {
		return Request{}, err
	}
	r.Send, err = a.Limits.Over(SendOptions{}, func(string) bool { return true })
	return r, err
}

// Request returns a request that only chooses messages. Errors name the flag that has a wrong
// value.
func (s Selection) Request(now time.Time) (Request, error) {
	r := Request{Queue: s.Queue, Work: s.Work, Handles: s.Handles}
	var err error
	if r.Since, err = parseTime("since", s.Since, now); err != nil {
		return Request{}, err
	}
	if r.Until, err = parseTime("until", s.Until, now); err != nil {
		return Request{}, err
	}
	if s.Limit < 0 {
		return Request{}, fmt.Errorf("--limit is %d; write 0 or more, where 0 is all", s.Limit)
	}
	r.Limit = s.Limit
	for _, h := range s.Handles {
		if _, _, err := deadletter.ParseHandle(h); err != nil {
			return Request{}, fmt.Errorf("--handle: %w", err)
		}
	}
	if s.Where != "" {
		if r.Filter, err = deadletter.NewFilter(s.Where); err != nil {
			return Request{}, fmt.Errorf("--where: %w", err)
		}
		r.Filter = r.Filter.At(now)
	}
	return r, nil
}

// parseTime reads a point in time from the value of a flag: a duration before now, or a time. Empty
// is the zero time.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return now.Add(-d).UTC(), nil
	}
	if d, ok := topology.ParseWait(value); ok && d > 0 { // it knows days
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf(
		"--%s is %q; write a duration such as 2h or 30d, or a time such as 2026-01-02T15:04:05Z or 2026-01-02", flag, value)
}

// checkKey refuses a routing key that an edited message cannot have.
func checkKey(key string) error {
	switch {
	case len(key) > topology.MaxNameBytes:
		return fmt.Errorf("--key has %d bytes; the limit is %d", len(key), topology.MaxNameBytes)
	case strings.HasPrefix(key, addressPrefix):
		return fmt.Errorf("--key is %q; a key that begins with %s leads to a queue of dlxctl; write another one", key, addressPrefix)
	default:
		return nil
	}
}

// parseTarget reads --to and --key.
func parseTarget(to, key string) (Target, error) {
	kind, name, named := strings.Cut(to, ":")
	switch {
	case key != "" && kind != "exchange":
		return Target{}, errors.New("--key needs --to exchange:NAME; pass both")
	case to == "queue":
		return Target{}, nil
	case to == "original":
		return Target{Original: true}, nil
	case kind == "queue" && named && name != "":
		return Target{Queue: name}, nil
	case kind == "exchange" && named && name != "":
		return Target{Exchange: name, Key: key}, nil
	default:
		return Target{}, fmt.Errorf("--to is %q; write queue, original, queue:NAME or exchange:NAME", to)
	}
}

// Limits are how fast a run sends, and when it stops, in the words of the flags of the command
// line.
type Limits struct {
	Rate, Ramp, StopOn   string
	MaxWaiting, InFlight int
	Settle               time.Duration
}

// The words that switch a limit off.
const (
	none  = "none"
	never = "never"
)

// Over returns the options in which the limits replace those of base, as far as their flags are
// given.
func (l Limits) Over(base SendOptions, given func(flag string) bool) (SendOptions, error) {
	for _, part := range []struct {
		flag string
		set  func(*SendOptions) error
	}{
		{"rate", l.setRate},
		{"ramp", l.setRamp},
		{"stop-on", l.setStop},
		{"max-waiting", func(o *SendOptions) error { return atLeast0("max-waiting", l.MaxWaiting, &o.MaxWaiting) }},
		{"in-flight", func(o *SendOptions) error { return atLeast0("in-flight", l.InFlight, &o.InFlight) }},
		{"settle", l.setSettle},
	} {
		if !given(part.flag) {
			continue
		}
		if err := part.set(&base); err != nil {
			return SendOptions{}, err
		}
	}
	return base, nil
}

func (l Limits) setRate(o *SendOptions) error {
	if l.Rate == none {
		o.Rate = 0
		return nil
	}
	rate := l.Rate
	if !strings.Contains(rate, "/") {
		rate += "/s"
	}
	n, err := topology.ParseRate(rate)
	if err != nil {
		return fmt.Errorf("--rate is %q; %w, or none", l.Rate, err)
	}
	o.Rate = n
	return nil
}

func (l Limits) setRamp(o *SendOptions) error {
	o.Ramp = nil
	if l.Ramp == none || l.Ramp == "" {
		return nil
	}
	for text := range strings.SplitSeq(l.Ramp, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return fmt.Errorf("--ramp is %q; write the sizes of the first batches such as 1,10,100, or none", l.Ramp)
		}
		o.Ramp = append(o.Ramp, n)
	}
	return nil
}

func (l Limits) setStop(o *SendOptions) error {
	o.StopFailures, o.StopShare = 0, 0
	if l.StopOn == never {
		return nil
	}
	wrong := fmt.Errorf("--stop-on is %q; write a number of failures such as 3, a share such as 20%%, or never", l.StopOn)
	if share, ok := strings.CutSuffix(l.StopOn, "%"); ok {
		n, err := strconv.ParseFloat(share, 64)
		if err != nil || !(n > 0) || n > 100 {
			return wrong
		}
		o.StopShare = n / 100
		return nil
	}
	n, err := strconv.Atoi(l.StopOn)
	if err != nil || n < 1 {
		return wrong
	}
	o.StopFailures = n
	return nil
}

func (l Limits) setSettle(o *SendOptions) error {
	if l.Settle < 0 {
		return errors.New("--settle must be 0s or more")
	}
	o.Settle = l.Settle
	return nil
}

// atLeast0 sets a number that must not be negative.
func atLeast0(flag string, n int, into *int) error {
	if n < 0 {
		return fmt.Errorf("--%s is %d; write 0 or more", flag, n)
	}
	*into = n
	return nil
}

// NewMessageID returns a random UUID, the form of a message-id that most consumers expect.
func NewMessageID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
