package notify

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Post is what is posted. Chat services show Text and leave the rest alone.
type Post struct {
	Version int `json:"version"`
	// Text says what happened, for people.
	Text string `json:"text"`
	// Notices are those of this post, Dropped how many more there were.
	Notices []Notice `json:"notices"`
	Dropped int64    `json:"dropped"`
}

// lines is how many messages the summary names. The rest it counts.
const lines = 10

// post posts a batch once.
func (n *Notifier) post(ctx context.Context, batch []Notice, missed int64) error {
	data, err := json.Marshal(Post{1, summary(batch, missed), batch, missed})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(data))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "dlxctl")
	resp, err := n.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can serve again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is taken for none
	return &refusedError{status: resp.StatusCode, after: time.Duration(max(0, seconds)) * time.Second}
}

// withoutURL takes the URL out of an error: its path or query is a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// summary says what happened, as a person reads it in a chat.
func summary(batch []Notice, missed int64) string {
	out := text.Each(batch, Notice.line)
	out = text.FirstLines(out, lines)
	if missed > 0 {
		out = append(out, fmt.Sprintf("… and %d more without a notice, because too many came at once", missed))
	}
	return strings.Join(out, "\n")
}

// line returns the text about one message.
func (n Notice) line() string {
	id := "a message without message-id"
	if n.MessageID != "" {
		id = "message " + clean(n.MessageID)
	}
	if n.Event == "unroutable" {
		return fmt.Sprintf("[%s] unroutable: %s moved to %s: %s", clean(n.Topology), id, clean(n.MovedTo), clean(n.Error))
	}
	if begins := n.Event == "outage"; begins || n.Event == "outage_end" {
		what := "is in outage: messages that would be dead letters wait in " + clean(n.MovedTo)
		if !begins {
			what = "is no longer in outage"
		}
		return fmt.Sprintf("[%s] %s (%s) %s; %s", clean(n.Topology), clean(n.Queue), n.who(), what, clean(n.Error))
	}
	times := "attempts"
	if n.Attempts == 1 {
		times = "attempt"
	}
	return fmt.Sprintf("[%s] dead letter of %s (%s): %s moved to %s after %d %s, the last %s%s; first failure %s",
		clean(n.Topology), clean(n.Queue), n.who(), id, clean(n.MovedTo), n.Attempts, times,
		clean(n.Reason), n.why(), clean(n.FirstFailure))
}

// who returns the severity and the owner.
func (n Notice) who() string {
	if n.Owner == "" {
		return clean(n.Severity)
	}
	return clean(n.Severity + ", " + n.Owner)
}

// why returns what the consumer said, in brackets: the type and the first line of the error.
func (n Notice) why() string {
	line, _, _ := strings.Cut(strings.TrimSpace(n.Error), "\n")
	if n.ErrorType != "" && !strings.Contains(line, n.ErrorType) {
		line = strings.TrimSuffix(n.ErrorType+": "+line, ": ")
	}
	const most = 200
	short := first(line, most)
	if short == "" {
		return ""
	}
	if len(short) < len(line) {
		short += "…"
	}
	return " (" + clean(short) + ")"
}

// first returns the first bytes of a text, without a rune that the limit would cut in two.
func first(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[:limit-cutRune([]byte(s[:limit]))])
}

// clean keeps what a message says about itself from being read as mark-up that
// calls people, as further lines, or in another direction.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r':
			return ' '
		case !unicode.IsGraphic(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, s)
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// beginning returns the first bytes of a body: as text where they are UTF-8, without a
// rune that the cap would cut in two, and else in base64, so that none is changed.
func beginning(body []byte) (text, encoded string) {
	head := body[:min(len(body), BodyCap)]
	whole := head
	if len(head) < len(body) {
		whole = head[:len(head)-cutRune(head)]
	}
	if utf8.Valid(whole) {
		return string(whole), ""
	}
	return "", base64.StdEncoding.EncodeToString(head)
}

// cutRune returns the number of bytes at the end of head that begin a rune and do not
// end it.
func cutRune(head []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(head); n++ {
		if last := head[len(head)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
