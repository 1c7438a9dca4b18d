package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/notice"
	"github.com/dlxctl/dlxctl/internal/text"
)

// Post is what is posted to a webhook. Chat services show Text and leave the rest alone.
type Post struct {
	Version int `json:"version"`
	// Text says what happened, for people.
	Text string `json:"text"`
	// Notices are those of this post, Dropped how many more messages have no notice.
	Notices []Notice `json:"notices"`
	Dropped int64    `json:"dropped"`
}

// chat is what is posted to Slack and others.
type chat struct {
	Text string `json:"text"`
}

// lines is how many notices the summary names. The rest it counts.
const lines = 10

// poster posts notices to a webhook or a chat.
type poster struct {
	Target
	client *http.Client
}

func newPoster(t Target) *poster {
	return &poster{t, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 1,
			IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
		},
		// A notice goes to the address that was given and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *poster) close() { p.client.CloseIdleConnections() }

func (p *poster) send(ctx context.Context, batch []Notice, missed int64) error {
	said := p.summary(batch, missed, notice.Escape)
	if p.Kind == notice.Slack {
		return p.post(ctx, chat{said})
	}
	return p.post(ctx, Post{1, said, batch, missed})
}

func (p *poster) post(ctx context.Context, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(data))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "dlxctl")
	resp, err := p.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can serve again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is taken for none
	return refusedBy(resp.StatusCode, time.Duration(max(0, seconds))*time.Second)
}

// withoutURL takes the URL out of an error: its path or query is a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// summary says what happened, as a person reads it.
func (t Target) summary(batch []Notice, missed int64, escape func(string) string) string {
	out := text.FirstLines(text.Each(batch, func(n Notice) string { return t.line(n, escape) }), lines)
	if missed > 0 {
		out = append(out, fmt.Sprintf("… and %d more without a notice, because too many came at once", missed))
	}
	return strings.Join(out, "\n")
}

// line returns the text about a notice. Where the template fails, which it did not when it was
// read, that is the text of dlxctl.
func (t Target) line(n Notice, escape func(string) string) string {
	if t.Template != nil {
		if said, err := t.Template.Text(n, escape); err == nil {
			return said
		}
	}
	return n.Line(escape)
}
