package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// mostDigestQueues is how many work queues a digest tells apart: messages may make names up.
	mostDigestQueues = 1000
	// mostDigestGroups is how many errors of a queue a text names. JSON has all.
	mostDigestGroups = 10
)

// Digest is what died since a time, by work queue, owner and error.
type Digest struct {
	Topology string `json:"topology"`
	// VHost is the virtual host, if its queues were found without a topology file and dlxctl has
	// applied no topology there.
	VHost string `json:"vhost,omitempty"`
	// Since is the time of the oldest failure that counts, Until that of the digest.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Messages is how many dead letters failed since then, as far as they were looked at.
	Messages int `json:"messages"`
	// Queues are the work queues in which they failed, most dead letters first.
	Queues []DigestQueue `json:"queues"`
	// Undated are the dead-letter queues with messages that do not tell when they failed, and that are
	// not counted.
	Undated []Undated `json:"undated"`
	// NotLookedAt are the dead-letter queues that were not looked at to their end.
	NotLookedAt []Unlooked `json:"notLookedAt"`
}

// Undated is messages that do not tell when they failed, as those of many frameworks do not.
type Undated struct {
	// Queue is their dead-letter queue.
	Queue    string `json:"queue"`
	Messages int    `json:"messages"`
}

func (u Undated) String() string {
	return fmt.Sprintf("%s: %s when %s failed, and %s not counted", text.Name(u.Queue),
		text.Choose(u.Messages, "1 message does not tell", fmt.Sprintf("%d messages do not tell", u.Messages)),
		text.Choose(u.Messages, "it", "they"), text.Choose(u.Messages, "is", "are"))
}

// DigestQueue is what died in one work queue.
type DigestQueue struct {
	// Queue is the work queue in which the messages failed. Empty: they name none.
	Queue string `json:"queue"`
	Owner string `json:"owner"`
	// Messages is how many died, and By the property by which they are grouped: error, or cause
	// where none has an error.
	Messages int    `json:"messages"`
	By       string `json:"by"`
	// Groups are what they died of, largest first.
	Groups []DigestGroup `json:"groups"`
}

// DigestGroup is messages that died of the same.
type DigestGroup struct {
	// Value is the error or the cause, masked. Empty: it is not known.
	Value string `json:"value"`
	Count int    `json:"count"`
}

// tally counts the messages of a work queue.
type tally struct {
	ways   *deadletter.Ways
	groups []*deadletter.Groups
	count  int
}

// Digest looks at each dead-letter queue of the topology, also at those of a previous file that
// hold messages, and groups what failed since a time as [Desk.GroupBy] does where a person asks for
// no way. A message that does not tell when it failed is counted apart. One that came in the last
// seconds may be left out: which queues hold messages is known from statistics.
func (d *Desk) Digest(ctx context.Context, since time.Time, o LookOptions) (Digest, error) {
	state, err := d.inspect(ctx)
	if err != nil {
		return Digest{}, err
	}
	out := Digest{Topology: d.Topology.Name, Since: since, Until: d.now().UTC()}
	if d.Found != nil && d.Found.Topology == "" {
		out.VHost, out.Topology = d.Found.VHost, ""
	}
	queues := map[string]*tally{}
	for _, name := range append(d.DeadLetterQueues(), d.PreviousDeadLetterQueues(state)...) {
		if why, skip := passOver(state, name); skip {
			if why != "" {
				out.NotLookedAt = append(out.NotLookedAt, Unlooked{Queue: name, Why: why})
			}
			continue
		}
		if err := d.digestOf(ctx, name, o, &out, queues); err != nil {
			return Digest{}, err
		}
	}
	for name, t := range queues {
		work, _ := d.Topology.WorkQueue(name)
		chosen := t.ways.Chosen()
		out.Messages += t.count
		out.Queues = append(out.Queues, DigestQueue{
			Queue: name, Owner: work.Owner, Messages: t.count, By: t.ways.By()[chosen].String(),
			Groups: text.Each(t.groups[chosen].List(), func(g deadletter.Group) DigestGroup {
				return DigestGroup{Value: g.Value, Count: g.Count}
			}),
		})
	}
	slices.SortFunc(out.Queues, func(a, b DigestQueue) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue))
	})
	return out, nil
}

// passOver reports whether a digest passes over a queue, and why it cannot look. Empty: it need
// not, as the queue holds no message. A count of the list is that of the leader, some seconds ago:
// the list has no count, or lacks the queue, if its node or its leader is gone (4.0.5 and 4.3.6,
// measured). A queue without a count is looked at.
func passOver(state topology.State, queue string) (why string, skip bool) {
	usage, listed := state.Usage[queue]
	switch {
	case slices.Contains(state.Down, queue):
		return nodeIsDown, true
	case !listed:
		return "it does not exist; run 'dlxctl apply'", true
	default:
		return "", usage.Ready+usage.Unacknowledged == 0 && !usage.Uncounted
	}
}

// digestOf adds what a look at a dead-letter queue finds.
func (d *Desk) digestOf(ctx context.Context, name string, o LookOptions, out *Digest, queues map[string]*tally) error {
	undated := Undated{Queue: name}
	looked, err := d.Look(ctx, name, o, func(m deadletter.Message) error {
		v := d.view(m, false)
		switch {
		case v.LastFailed.IsZero():
			undated.Messages++
			return nil
		case v.LastFailed.Before(out.Since):
			return nil
		}
		t, err := d.tally(v.WorkQueue, queues)
		if err != nil {
			return err
		}
		t.count++
		for i, value := range t.ways.Add(v) {
			t.groups[i].AddValue(value, v)
		}
		return nil
	})
	if undated.Messages > 0 {
		out.Undated = append(out.Undated, undated)
	}
	why := looked.Missed
	switch {
	case errors.Is(err, ErrRefused):
		why = strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
	case err != nil:
		return err
	case why == "" && looked.Unacknowledged > 0:
		why = fmt.Sprintf("others may hold %d of its messages, by counts that are up to 5 seconds old", looked.Unacknowledged)
	}
	if why != "" {
		out.NotLookedAt = append(out.NotLookedAt, Unlooked{Queue: name, Why: why})
	}
	return nil
}

// tally returns the tally of a work queue, a new one if it has none yet.
func (d *Desk) tally(work string, queues map[string]*tally) (*tally, error) {
	if t := queues[work]; t != nil {
		return t, nil
	}
	work = strings.Clone(work)
	if _, declared := d.Topology.WorkQueue(work); !declared && len(queues) >= mostDigestQueues {
		work = ""
	}
	if t := queues[work]; t != nil {
		return t, nil
	}
	ways, err := deadletter.NewWays("")
	if err != nil {
		return nil, err
	}
	queues[work] = &tally{ways: ways, groups: text.Each(ways.By(), deadletter.NewGroups)}
	return queues[work], nil
}

// Err returns an error that wraps ErrUnreached if not all dead letters were looked at.
func (d Digest) Err() error {
	if len(d.NotLookedAt) == 0 {
		return nil
	}
	return fmt.Errorf("%w: more may have died in %s", ErrUnreached,
		text.ListFirst(text.Each(d.NotLookedAt, func(u Unlooked) string { return text.Name(u.Queue) }), 3))
}

// Summary says in a line how many messages died.
func (d Digest) Summary() string {
	number := text.Count(d.Messages, "message") + " died"
	switch {
	case d.Messages == 0 && len(d.Undated) > 0:
		number = "no message is known to have died"
	case d.Messages == 0:
		number = "no message died"
	}
	name := cmp.Or(d.Topology, "vhost "+text.Name(d.VHost))
	return fmt.Sprintf("%s: %s since %s", name, number, moment(d.Since))
}

// rows returns a row for each group, the largest of each queue.
func (d Digest) rows() [][]string {
	var rows [][]string
	for _, q := range d.Queues {
		name := cmp.Or(q.Queue, "(unknown)")
		add := func(count int, what string) {
			rows = append(rows, []string{name, q.Owner, fmt.Sprint(count), what})
		}
		rest := 0
		for i, g := range q.Groups {
			switch {
			case i >= mostDigestGroups:
				rest += g.Count
			case g.Value == "":
				add(g.Count, "(no "+q.By+")")
			default:
				add(g.Count, g.Value)
			}
		}
		if rest > 0 {
			add(rest, "(others)")
		}
	}
	return rows
}

// Write writes the digest for a terminal with so many columns; 0 means no terminal.
func (d Digest) Write(w io.Writer, width int) error {
	fmt.Fprintln(w, d.Summary())
	if len(d.Queues) > 0 {
		rows := [][]string{{"WORK QUEUE", "OWNER", "MESSAGES", "ERROR OR CAUSE"}}
		for _, r := range d.rows() {
			rows = append(rows, []string{text.Name(r[0]), dash(r[1]), r[2], text.Name(r[3])})
		}
		if err := (text.Table{Rows: rows}).Write(w, width); err != nil {
			return err
		}
	}
	for _, u := range d.Undated {
		fmt.Fprintln(w, u)
	}
	for _, u := range d.NotLookedAt {
		fmt.Fprintf(w, "not fully looked at: %s: %s\n", text.Name(u.Queue), topology.Printable(u.Why))
	}
	return nil
}

// WriteMarkdown writes the digest as Markdown.
func (d Digest) WriteMarkdown(w io.Writer) error {
	shown := func(s string) string { // a message says no link
		return strings.ReplaceAll(text.EscapeMarkdown(topology.Printable(s)), "[", `\[`)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n", shown(d.Summary()))
	if len(d.Queues) > 0 {
		b.WriteString("\n| work queue | owner | messages | error or cause |\n| --- | --- | --- | --- |\n")
		for _, r := range d.rows() {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", shown(r[0]), shown(r[1]), r[2], shown(r[3]))
		}
	}
	if len(d.Undated)+len(d.NotLookedAt) > 0 {
		b.WriteString("\n")
	}
	for _, u := range d.Undated {
		fmt.Fprintf(&b, "- %s\n", shown(u.String()))
	}
	for _, u := range d.NotLookedAt {
		fmt.Fprintf(&b, "- not fully looked at: %s: %s\n", shown(u.Queue), shown(u.Why))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
