package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlxctl/dlxctl/internal/notice"
	"github.com/dlxctl/dlxctl/internal/wait"
)

const (
	// capacity is how many notices wait for a target at most: some 6 MB with bodies.
	capacity = 1000
	// batchSize is how many notices go into one post or mail at most.
	batchSize = 50
	// every is the shortest time between two posts. Chat services take one a second.
	every = time.Second
	// mailEvery is the shortest time between two mails.
	mailEvery = 10 * time.Second
	// sendTimeout is how long one try may take.
	sendTimeout = 10 * time.Second
	// tries is how often a post is tried, with pauses from firstPause on that
	// double: about two minutes in all.
	tries        = 8
	firstPause   = time.Second
	longestPause = time.Minute
	// finalPosts is how long a target continues after its context ends, to send waiting notices.
	finalPosts = 3 * time.Second
)

// Target is where notices go, and which.
type Target struct {
	notice.Address

	// Name is how logs and metrics name it. It must hold no secret.
	Name string
	// Severities and Owners are those of the notices that it gets. Empty: all. A notice without a
	// severity is about a message of no work queue, for which no owner is known: all get it.
	Severities, Owners []string
	// Template makes the text of a notice. Nil: the text of dlxctl.
	Template *notice.Template
}

// ParseWebhook returns the target of a URL that must begin with http:// or https://. Its errors do
// not hold the URL, which is a secret.
func ParseWebhook(webhook string) (Target, error) {
	a, err := notice.ParseAddress(webhook)
	if err != nil || a.Kind != notice.Webhook {
		return Target{}, errors.New("the URL of --notify does not begin with http:// or https://; write it like https://HOST/PATH")
	}
	return Target{Address: a, Name: a.Name}, nil
}

func (t Target) wants(n Notice) bool {
	return n.Severity == "" || (len(t.Severities) == 0 || slices.Contains(t.Severities, n.Severity)) &&
		(len(t.Owners) == 0 || slices.Contains(t.Owners, n.Owner))
}

// apart returns t once for each of its mailboxes. A mail server refuses mailboxes one by one, and
// takes a mail for some of them later: no mailbox waits for another one, or goes without for it.
func (t Target) apart() []Target {
	if t.Kind != notice.Mail {
		return []Target{t}
	}
	var out []Target
	for _, to := range t.To {
		one := t
		one.To = []string{to}
		out = append(out, one)
	}
	return out
}

// sender sends a batch once.
type sender interface {
	send(ctx context.Context, batch []Notice, missed int64) error
	close()
}

// target is a target with the notices that wait for it.
type target struct {
	Target
	sender  sender
	log     *slog.Logger
	counter Counter
	notices chan Notice
	missed  atomic.Int64 // dropped since the last try, because too many wait
	every   time.Duration
	pause   time.Duration
}

func newTarget(t Target, log *slog.Logger, counter Counter) *target {
	out := &target{
		Target: t, log: log, counter: counter, notices: make(chan Notice, capacity), every: every, pause: firstPause,
	}
	if t.Kind == notice.Mail {
		out.sender, out.every = mailbox{t}, mailEvery
		out.log = log.With("mailbox", t.To[0])
	} else {
		out.sender = newPoster(t)
	}
	return out
}

// full reports whether no more notices may wait.
func (t *target) full() bool { return len(t.notices) == cap(t.notices) }

// take lets a notice wait, or drops and counts it.
func (t *target) take(n Notice) {
	select {
	case t.notices <- n:
	default:
		t.missed.Add(weight(n))
		t.counter.Dropped(int(weight(n)), "full")
	}
}

// weight is what a notice counts: as many as its messages, and one if it is about none.
func weight(notices ...Notice) (sum int64) {
	for _, n := range notices {
		sum += max(1, n.Messages)
	}
	return sum
}

// run sends notices until ctx ends, and then for a few seconds what still waits.
func (t *target) run(ctx context.Context) {
	defer t.sender.close()
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	last := context.AfterFunc(ctx, func() { time.AfterFunc(finalPosts, end) })
	defer last()
	for {
		batch := t.batch(ctx)
		if len(batch) == 0 {
			return
		}
		if sending.Err() != nil || !t.deliver(sending, ctx, batch) {
			t.log.Warn("notices are dropped, as the process stops", "notices", len(batch))
			t.counter.Dropped(int(weight(batch...)), "stopped")
		}
		if ctx.Err() == nil {
			_ = wait.For(ctx, t.every)
		}
	}
}

// batch waits for notices and gives those that are there, up to batchSize. It
// gives none once ctx has ended and none waits.
func (t *target) batch(ctx context.Context) []Notice {
	var out []Notice
	select {
	case first := <-t.notices:
		out = append(out, first)
	default:
		select {
		case first := <-t.notices:
			out = append(out, first)
		case <-ctx.Done():
			return nil
		}
	}
	for len(out) < batchSize {
		select {
		case next := <-t.notices:
			out = append(out, next)
		default:
			return out
		}
	}
	return out
}

// deliver sends a batch, and tries again with pauses. It reports false if ctx
// ended before an answer came. Once the processor stops, there is one try.
func (t *target) deliver(ctx, running context.Context, batch []Notice) bool {
	pause, count := t.pause, int(weight(batch...))
	missed := t.missed.Swap(0)
	if missed > 0 {
		t.log.WarnContext(ctx, "more dead letters came than notices may be sent; notices were dropped", "notices", missed)
	}
	for try := 1; ; try++ {
		err := t.try(ctx, batch, missed)
		var no *refusedError
		switch {
		case err == nil:
			t.counter.Sent(count)
			return true
		case ctx.Err() != nil:
			return false
		case errors.As(err, &no) && no.forGood:
			t.log.WarnContext(ctx, "the target refuses notices; they are dropped", "notices", count, "error", err)
			t.counter.Dropped(count, "refused")
			return true
		case try == tries || running.Err() != nil:
			t.log.WarnContext(ctx, "the target does not accept notices; they are dropped",
				"notices", count, "tries", try, "error", err)
			t.counter.Dropped(count, "failed")
			return true
		case try == 1:
			t.log.WarnContext(ctx, "the target does not accept notices; retrying", "error", err)
		}
		if no != nil && no.after > 0 {
			pause = min(no.after, longestPause)
		}
		_ = wait.For(running, pause)
		pause = min(2*pause, longestPause)
	}
}

// try sends a batch once.
func (t *target) try(ctx context.Context, batch []Notice, missed int64) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return t.sender.send(ctx, batch, missed)
}

// Send sends a text, and a post for a webhook, once. It is for a program that ends. Its error says
// which mailboxes have no mail.
func (t Target) Send(ctx context.Context, subject, body string, post any) error {
	var failed []error
	for _, one := range t.apart() {
		failed = append(failed, one.sendOnce(ctx, subject, body, post))
	}
	return errors.Join(failed...)
}

func (t Target) sendOnce(ctx context.Context, subject, body string, post any) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if t.Kind == notice.Mail {
		if err := (mailbox{t}).mail(ctx, subject, body); err != nil {
			return fmt.Errorf("%s: %w", t.To[0], err)
		}
		return nil
	}
	p := newPoster(t)
	defer p.close()
	if t.Kind == notice.Slack {
		post = chat{notice.Escape(body)}
	}
	return p.post(ctx, post)
}

// refusedError is an answer of a target other than success.
type refusedError struct {
	answer  string
	forGood bool          // the target will never accept the same
	after   time.Duration // when it wants to be asked again; zero if it does not say
}

func (e *refusedError) Error() string { return "the answer is " + e.answer }

func refusedBy(status int, after time.Duration) *refusedError {
	return &refusedError{
		answer: fmt.Sprintf("%d %s", status, http.StatusText(status)), after: after,
		forGood: status < http.StatusInternalServerError &&
			status != http.StatusTooManyRequests && status != http.StatusRequestTimeout,
	}
}
