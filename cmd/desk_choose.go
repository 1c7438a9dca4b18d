package cmd

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// chooseFlags are the flags that choose messages of a queue, and limit the look at it.
type chooseFlags struct {
	where           string
	handles         []string
	since           string
	limit           int
	again           bool
	holdLimit       string
	holdTime        time.Duration
	besideConsumers bool
	messages        messageFlags
}

// add adds the flags that every choice has.
func (k *chooseFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.where, "where", "", "choose the messages for which `EXPR` is true; see docs/looking.md")
	f.StringArrayVar(&k.handles, "handle", nil,
		"choose the message with this `HANDLE`, as 'desk list' prints it; repeat the flag for several")
	f.StringVar(&k.since, "since", "", "choose what failed since `TIME`: a duration such as 2h, or 2026-01-02T15:04:05Z")
	k.addLook(c)
}

// addLimit adds the flag that ends a choice.
func (k *chooseFlags) addLimit(f *pflag.FlagSet, standard int, usage string) {
	f.IntVar(&k.limit, "limit", standard, usage)
}

// addLook adds the flags of a look, and of how bodies are read.
func (k *chooseFlags) addLook(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.holdLimit, "hold-limit", "",
		"`LIMIT` of what a look holds: a number of messages, or a size such as 256MiB (default: by the type of the queue)")
	f.DurationVar(&k.holdTime, "hold-time", 0,
		"give everything back after this `DURATION` (default: 10s for each 100,000 messages)")
	f.BoolVar(&k.besideConsumers, "beside-consumers", false,
		"look although the queue has consumers, which wait meanwhile")
	k.messages.register(c)
}

// request returns the request for the messages of a queue that the flags choose.
func (k *chooseFlags) request(p deskPlace, now time.Time) (desk.Request, error) {
	r := desk.Request{Queue: p.queue, Handles: k.handles, Limit: k.limit, Again: k.again}
	var err error
	if r.Look, err = k.look(); err != nil {
		return desk.Request{}, err
	}
	if r.Since, err = parseSince(k.since, now); err != nil {
		return desk.Request{}, err
	}
	if k.limit < 0 {
		return desk.Request{}, usageError{fmt.Errorf("--limit is %d; write 0 or more, where 0 is all", k.limit)}
	}
	for _, h := range k.handles {
		if _, _, err := deadletter.ParseHandle(h); err != nil {
			return desk.Request{}, usageError{fmt.Errorf("--handle: %w", err)}
		}
	}
	if where := p.only(k.where); where != "" {
		if r.Filter, err = deadletter.NewFilter(where); err != nil {
			return desk.Request{}, usageError{fmt.Errorf("--where: %w", err)}
		}
		r.Filter = r.Filter.At(now)
	}
	return r, nil
}

// look returns the limits of a look.
func (k *chooseFlags) look() (desk.LookOptions, error) {
	o := desk.LookOptions{BesideConsumers: k.besideConsumers, Hold: k.holdTime}
	if k.holdLimit == "" {
		return o, nil
	}
	if n, err := strconv.Atoi(k.holdLimit); err == nil && n > 0 {
		o.HoldMessages, o.HoldBytes = n, math.MaxInt64
		return o, nil
	}
	var bytes size
	if err := bytes.Set(k.holdLimit); err != nil || bytes == 0 {
		return o, usageError{fmt.Errorf("--hold-limit is %q; write a number of messages such as 200000, or a size such as 256MiB",
			k.holdLimit)}
	}
	o.HoldMessages, o.HoldBytes = math.MaxInt, int64(bytes)
	return o, nil
}

// parseSince reads a point in time: a duration before now, or a time. Empty is the zero time.
func parseSince(value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(value); err == nil && d > 0 {
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf(
		"--since is %q; write a duration such as 2h or 30m, or a time such as 2026-01-02T15:04:05Z or 2026-01-02", value)}
}
