// Package notify posts notices of dead letters to a webhook. It never blocks its caller:
// notices that arrive faster than they may be sent are counted and dropped. It knows
// neither brokers nor topologies.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/dlxctl/dlxctl/internal/wait"
)

// Notice describes what happened to one message.
type Notice struct {
	// Event is dead_letter or unroutable, or outage or outage_end of a work queue, which is about no
	// message.
	Event    string `json:"event"`
	Topology string `json:"topology"`
	// Queue is the work queue in which the message failed, MovedTo the queue to which the
	// processor moved it.
	Queue        string `json:"queue"`
	MovedTo      string `json:"movedTo"`
	MessageID    string `json:"messageId"`
	Reason       string `json:"reason"`
	Attempts     int64  `json:"attempts"`
	FirstFailure string `json:"firstFailure"`
	Owner        string `json:"owner"`
	Severity     string `json:"severity"`
	// Error is why the message is unroutable, what the consumer said of a dead letter, or the numbers
	// of an outage.
	Error string `json:"error,omitempty"`
	// ErrorType is the type of that error.
	ErrorType string `json:"errorType,omitempty"`
	// Body is the beginning of the message's body, if it was asked for and is UTF-8.
	Body string `json:"body,omitempty"`
	// BodyBase64 is the beginning of a body that is not UTF-8, in standard base64.
	BodyBase64 string `json:"bodyBase64,omitempty"`
	// BodyBytes is the size of the whole body, if it was asked for.
	BodyBytes int `json:"bodyBytes,omitempty"`
	// BodyFormat is the format of the decoded body, BodyType the type of the message, and BodyNote
	// what was not decoded.
	BodyFormat string `json:"bodyFormat,omitempty"`
	BodyType   string `json:"bodyType,omitempty"`
	BodyNote   string `json:"bodyNote,omitempty"`
	// BodyText is the beginning of the decoded body. Rules of the topology file mask its values;
	// Body and BodyBase64 are then empty.
	BodyText string `json:"bodyText,omitempty"`
}

const (
	// BodyCap is how many bytes of a body a notice carries at most.
	BodyCap = 4 << 10
	// errorCap is how many bytes of an error and of its type a notice carries at most.
	errorCap = 1 << 10
	// capacity is how many notices wait at most: some 6 MB with bodies.
	capacity = 1000
	// batchSize is how many notices go into one post at most.
	batchSize = 50
	// every is the shortest time between two posts. Chat services take one a
	// second.
	every = time.Second
	// postTimeout is how long one post may take.
	postTimeout = 10 * time.Second
	// tries is how often a post is tried, with pauses from firstPause on that
	// double: about two minutes in all.
	tries        = 8
	firstPause   = time.Second
	longestPause = time.Minute
	// finalPosts is how long Run continues after its context ends, to post waiting notices.
	finalPosts = 3 * time.Second
)

// Counter counts what became of notices. Reasons for dropping are full, refused,
// failed and stopped.
type Counter interface {
	Sent(n int)
	Dropped(n int, reason string)
}

// Notifier posts notices to a webhook. It must be made by New.
type Notifier struct {
	url     string
	host    string // the webhook as it may be named in logs: its path is a secret
	bodies  bool
	log     *slog.Logger
	counter Counter
	client  *http.Client
	notices chan Notice
	full    atomic.Int64 // dropped since the last post, because too many wait
	every   time.Duration
	pause   time.Duration
}

// New returns a notifier for a webhook. With bodies, notices carry the beginning of
// the messages' bodies. Its errors do not hold the URL, which is a secret.
func New(webhook string, bodies bool, log *slog.Logger, counter Counter) (*Notifier, error) {
	u, err := url.Parse(webhook)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the URL of --notify does not begin with http:// or https://; write it like https://HOST/PATH")
	}
	return &Notifier{
		url: webhook, host: u.Scheme + "://" + u.Host, bodies: bodies, log: log, counter: counter,
		client: &http.Client{
			Timeout: postTimeout,
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 1,
				IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
			},
			// A notice goes to the address that was given and to no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		notices: make(chan Notice, capacity), every: every, pause: firstPause,
	}, nil
}

// Notify takes a notice, to be posted soon. It returns at once: if too many wait
// already, the notice is dropped and counted. The body is not kept, but for its
// beginning if bodies are asked for.
func (n *Notifier) Notify(notice Notice, body []byte) {
	n.NotifyShown(notice, Message{Body: body}, nil)
}

// NotifyShown takes a notice as Notify does, with what show returns of the message. A nil show
// shows the message as it is.
func (n *Notifier) NotifyShown(notice Notice, m Message, show func(Message) Shown) {
	if len(n.notices) == cap(n.notices) { // nothing is decoded in vain
		n.drops()
		return
	}
	if n.bodies {
		notice.BodyBytes = len(m.Body)
		notice.Body, notice.BodyBase64 = beginning(m.Body)
	} else {
		m.Body = nil
	}
	if show != nil {
		m.ID, m.Error, m.ErrorType = notice.MessageID, notice.Error, notice.ErrorType
		notice.show(show(m))
	}
	// Only now: no rule finds a part of a value.
	notice.Error, notice.ErrorType = first(notice.Error, errorCap), first(notice.ErrorType, errorCap)
	select {
	case n.notices <- notice:
	default:
		n.drops()
	}
}

// drops counts a notice that is dropped because too many wait.
func (n *Notifier) drops() {
	n.full.Add(1)
	n.counter.Dropped(1, "full")
}

// Run posts notices until ctx ends, and then for a few seconds what still waits.
func (n *Notifier) Run(ctx context.Context) {
	defer n.client.CloseIdleConnections()
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	last := context.AfterFunc(ctx, func() { time.AfterFunc(finalPosts, end) })
	defer last()
	for {
		batch := n.batch(ctx)
		if len(batch) == 0 {
			return
		}
		if sending.Err() != nil || !n.deliver(sending, ctx, batch) {
			n.drop(batch, "stopped")
		}
		if ctx.Err() == nil {
			_ = wait.For(ctx, n.every)
		}
	}
}

// batch waits for notices and gives those that are there, up to batchSize. It
// gives none once ctx has ended and none waits.
func (n *Notifier) batch(ctx context.Context) []Notice {
	var out []Notice
	select {
	case first := <-n.notices:
		out = append(out, first)
	default:
		select {
		case first := <-n.notices:
			out = append(out, first)
		case <-ctx.Done():
			return nil
		}
	}
	for len(out) < batchSize {
		select {
		case next := <-n.notices:
			out = append(out, next)
		default:
			return out
		}
	}
	return out
}

// deliver posts a batch, and tries again with pauses. It reports false if ctx
// ended before an answer came. Once the processor stops, there is one try.
func (n *Notifier) deliver(ctx, running context.Context, batch []Notice) bool {
	pause := n.pause
	missed := n.full.Swap(0)
	if missed > 0 {
		n.log.WarnContext(ctx, "more dead letters came than notices may be sent; notices were dropped", "webhook", n.host,
			"notices", missed)
	}
	for try := 1; ; try++ {
		err := n.post(ctx, batch, missed)
		var no *refusedError
		switch {
		case err == nil:
			n.counter.Sent(len(batch))
			return true
		case ctx.Err() != nil:
			return false
		case errors.As(err, &no) && no.forGood():
			n.log.WarnContext(ctx, "the webhook refuses notices; they are dropped",
				"webhook", n.host, "notices", len(batch), "error", err)
			n.counter.Dropped(len(batch), "refused")
			return true
		case try == tries || running.Err() != nil:
			n.log.WarnContext(ctx, "the webhook does not accept notices; they are dropped",
				"webhook", n.host, "notices", len(batch), "tries", try, "error", err)
			n.counter.Dropped(len(batch), "failed")
			return true
		case try == 1:
			n.log.WarnContext(ctx, "the webhook does not accept notices; retrying", "webhook", n.host, "error", err)
		}
		if no != nil && no.after > 0 {
			pause = min(no.after, longestPause)
		}
		_ = wait.For(running, pause)
		pause = min(2*pause, longestPause)
	}
}

func (n *Notifier) drop(batch []Notice, reason string) {
	n.log.Warn("notices are dropped, as the process stops", "webhook", n.host, "notices", len(batch))
	n.counter.Dropped(len(batch), reason)
}

// refusedError is an answer of the webhook other than success.
type refusedError struct {
	status int
	after  time.Duration // when it wants to be asked again; zero if it does not say
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the answer is %d %s", e.status, http.StatusText(e.status))
}

// forGood reports whether the webhook will never accept the same post.
func (e *refusedError) forGood() bool {
	return e.status < http.StatusInternalServerError &&
		e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout
}
