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
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// OverviewMessages is how many messages of a queue an overview looks at, unless told otherwise.
const OverviewMessages = 1000

// statisticsAge is how many seconds old the counts of the broker are at most.
const statisticsAge = 5

// recently is the time in which a dead letter counts as new.
const recently = 24 * time.Hour

// Overview is the dead letters of a topology at a glance.
type Overview struct {
	Topology string `json:"topology"`
	// VHost is the virtual host whose queues were found without a topology file. Empty: there is a
	// file.
	VHost  string          `json:"vhost,omitempty"`
	Queues []QueueOverview `json:"queues"`
	// Runs are the runs of the desk that have not ended.
	Runs []Run `json:"runs"`
}

// QueueOverview is a dead-letter queue at a glance.
type QueueOverview struct {
	Queue string `json:"queue"`
	// WorkQueues are the queues whose dead letters it keeps.
	WorkQueues []string `json:"workQueues"`
	// FoundBy is what tells that it keeps dead letters, where there is no topology file: topology,
	// dead-lettering or name.
	FoundBy string `json:"foundBy,omitempty"`
	// Owners are who to call.
	Owners []string `json:"owners"`
	// Exists reports that the queue exists.
	Exists bool `json:"exists"`
	// Messages is how many messages the queue holds, ready or not, as far as the broker tells.
	Messages int `json:"messages"`
	// Unknown reports that the broker does not tell how many messages the queue holds: Messages is
	// zero.
	Unknown bool `json:"messagesUnknown,omitempty"`
	// Age is how many seconds old Messages is at most: zero if it is what the queue held at the
	// moment of the look.
	Age int `json:"messagesSecondsOldAtMost"`
	// Looked is how many messages were looked at, from the head, and NotLooked says why not all.
	Looked    int    `json:"lookedAt"`
	NotLooked string `json:"notLookedAt,omitempty"`
	// Oldest is when the oldest of them failed. It may be unknown.
	Oldest time.Time `json:"oldest,omitzero"`
	// New is how many of them failed in the last 24 hours, and Undated how many do not tell when.
	New     int `json:"newIn24h"`
	Undated int `json:"undated"`
	// TopCause is the most frequent cause of them, and TopCount how many have it.
	TopCause string `json:"topCause,omitempty"`
	TopCount int    `json:"topCauseCount,omitempty"`
	// cost says what the look changed in the queue. Empty: nothing that limits anything.
	cost string
}

// Overview looks at the head of each dead-letter queue of the topology, also of those of a previous
// file that hold messages, at o.Messages messages at most: at none if that is zero. A queue that
// refuses a look is listed without.
func (d *Desk) Overview(ctx context.Context, o LookOptions) (Overview, error) {
	state, err := d.inspect(ctx)
	if err != nil {
		return Overview{}, err
	}
	out := Overview{Topology: d.Topology.Name}
	if d.Found != nil {
		out.VHost, out.Topology = d.Found.VHost, d.Found.Topology
	}
	queues := d.deadLetterQueues()
	for _, name := range d.PreviousDeadLetterQueues(state) {
		queues = append(queues, QueueOverview{Queue: name})
	}
	for _, q := range queues {
		q.count(state)
		if err := d.glance(ctx, &q, o); err != nil {
			return Overview{}, err
		}
		out.Queues = append(out.Queues, q)
	}
	out.Runs, err = d.Runs(ctx)
	return out, err
}

// DeadLetterQueues names the dead-letter queues of the topology, in the order of the file.
func (d *Desk) DeadLetterQueues() []string {
	return text.Each(d.deadLetterQueues(), func(q QueueOverview) string { return q.Queue })
}

// PreviousDeadLetterQueues names the dead-letter queues of earlier versions of the file that still
// hold messages on the broker.
func (d *Desk) PreviousDeadLetterQueues(state topology.State) []string {
	if d.Found != nil {
		return nil // they are among those that were found
	}
	return plan.PreviousDeadLetterQueues(d.Topology, state)
}

// deadLetterQueues returns the dead-letter queues of the topology, with what the file tells, or
// else those that were found.
func (d *Desk) deadLetterQueues() []QueueOverview {
	if d.Found != nil {
		return d.Found.overviews()
	}
	var out []QueueOverview
	at := map[string]int{}
	for _, w := range d.Topology.WorkQueues {
		i, seen := at[w.DeadLetterQueue]
		if !seen {
			i = len(out)
			at[w.DeadLetterQueue] = i
			out = append(out, QueueOverview{Queue: w.DeadLetterQueue})
		}
		out[i].WorkQueues = append(out[i].WorkQueues, w.Name)
		if w.Owner != "" && !slices.Contains(out[i].Owners, w.Owner) {
			out[i].Owners = append(out[i].Owners, w.Owner)
		}
	}
	return out
}

// count notes what the lists of the broker tell of a queue.
func (q *QueueOverview) count(state topology.State) {
	usage, listed := state.Usage[q.Queue]
	down := slices.Contains(state.Down, q.Queue)
	q.Messages, q.Exists = int(usage.Ready+usage.Unacknowledged), listed || down
	switch q.Unknown = usage.Uncounted || down; {
	case down:
		q.NotLooked = nodeIsDown
	case listed && !q.Unknown:
		q.Age = statisticsAge
	}
}

func (d *Desk) glance(ctx context.Context, q *QueueOverview, o LookOptions) error {
	switch {
	case !q.Exists, q.NotLooked != "", q.Messages == 0 && !q.Unknown: // see passOver
		return nil
	case o.Messages == 0:
		q.NotLooked = "--limit is 0"
		return nil
	}
	causes := map[string]int{}
	since := d.now().Add(-recently)
	looked, err := d.Look(ctx, q.Queue, o, func(m deadletter.Message) error {
		v := d.Reader.View(m)
		switch {
		case v.LastFailed.IsZero():
			q.Undated++
		case q.Oldest.IsZero() || v.LastFailed.Before(q.Oldest):
			q.Oldest = v.LastFailed
		}
		if v.LastFailed.After(since) {
			q.New++
		}
		cause := describeCause(v)
		causes[cause]++
		if n := causes[cause]; n > q.TopCount {
			q.TopCause, q.TopCount = cause, n
		}
		return nil
	})
	q.Looked = looked.Looked
	if looked.costs {
		q.cost = looked.Cost
	}
	if err == nil || looked.Messages > 0 { // the queue has answered
		q.Messages, q.Age, q.Unknown = max(looked.Messages+looked.Unacknowledged, looked.Looked), 0, false
	}
	switch {
	case errors.Is(err, ErrRefused):
		q.NotLooked = strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
		return nil
	case err != nil:
		return err
	case looked.Looked < q.Messages:
		q.NotLooked = looked.Missed
	}
	return nil
}

// describeCause says why a message died, in a few words.
func describeCause(v deadletter.View) string {
	cause := cmp.Or(v.Cause, "unknown")
	if first, _, _ := strings.Cut(v.Problem(), "\n"); first != "" {
		const long = 60
		if r := []rune(first); len(r) > long {
			first = string(r[:long]) + "…"
		}
		cause += ": " + first
	}
	return cause
}

// now returns the time of the desk's clock.
func (d *Desk) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

// WriteOverview writes an overview for a person: the queues with most messages first. The empty
// ones are counted, and listed only with all.
func WriteOverview(w io.Writer, o Overview, s Screen, all bool) error {
	if len(o.Queues) == 0 && o.VHost != "" {
		_, err := fmt.Fprintf(w, "vhost %s has no dead-letter queues\n", text.Name(o.VHost))
		return err
	}
	if len(o.Queues) == 0 {
		_, err := fmt.Fprintf(w, "topology %s has no dead-letter queues: it has no work queues\n", o.Topology)
		return err
	}
	shown, empty, absent := o.split(all)
	table := text.Table{Whole: []int{0}, Last: []int{4}}
	table.Add(nil, "QUEUE", "MESSAGES", "OLDEST", s.choose("NEW 24H", "NEW IN 24 H"), "TOP CAUSE", "OWNER")
	for _, q := range shown {
		table.Add(nil, text.Name(q.Queue), q.holds(), s.when(q.Oldest), q.fresh(s), q.cause(s),
			dash(strings.Join(q.Owners, ", ")))
	}
	if len(shown) > 0 {
		if err := table.Write(w, s.Width); err != nil {
			return err
		}
	}
	for _, q := range shown {
		switch {
		case q.Unknown:
			fmt.Fprintf(w, "%s: not looked at%s\n", text.Name(q.Queue), because(q.NotLooked))
		case q.NotLooked != "" || q.Looked < q.Messages:
			fmt.Fprintf(w, "%s: looked at %d of %d%s\n", text.Name(q.Queue), q.Looked, q.Messages, because(q.NotLooked))
		}
	}
	if old := uncounted(shown); len(old) > 0 {
		fmt.Fprintf(w, "up to %d seconds old: the count of %s, which desk did not look at\n", statisticsAge,
			text.ListFirst(old, 3))
	}
	if len(absent) > 0 {
		fmt.Fprintf(w, "%s %s not exist; run dlxctl apply\n", text.ListFirst(absent, 3),
			text.Choose(len(absent), "does", "do"))
	}
	if len(empty) > 0 {
		fmt.Fprintf(w, "%s%s; -v lists %s\n", folded(len(empty), len(o.Queues), len(shown)), agedBy(uncounted(empty)),
			text.Choose(len(empty), "it", "them"))
	}
	if err := writeCosts(w, shown); err != nil || len(o.Runs) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return WriteRuns(w, o.Runs, s)
}

// split returns the queues to show, most messages first, those that are empty and not shown, and
// the names of those that do not exist.
func (o Overview) split(all bool) (shown, empty []QueueOverview, absent []string) {
	for _, q := range o.Queues {
		switch {
		case !q.Exists:
			absent = append(absent, text.Name(q.Queue))
		case q.Messages == 0 && !q.Unknown && !all:
			empty = append(empty, q)
		default:
			shown = append(shown, q)
		}
	}
	slices.SortStableFunc(shown, func(a, b QueueOverview) int { return cmp.Compare(b.Messages, a.Messages) })
	return shown, empty, absent
}

// folded says how many queues are empty, of so many, of which some are shown.
func folded(empty, of, shown int) string {
	switch {
	case empty == of && of == 1:
		return "the dead-letter queue is empty"
	case empty == of:
		return fmt.Sprintf("all %d dead-letter queues are empty", of)
	case shown > 0:
		return fmt.Sprintf("%d more %s empty", empty, text.Choose(empty, "is", "are"))
	default:
		return fmt.Sprintf("%d %s empty", empty, text.Choose(empty, "is", "are"))
	}
}

// agedBy says how old a number is, if queues were not asked for it.
func agedBy(uncounted []string) string {
	if len(uncounted) == 0 {
		return ""
	}
	return fmt.Sprintf(", by counts that are up to %d seconds old", statisticsAge)
}

// writeCosts writes what the looks at queues have changed, a line for those where it is the same.
func writeCosts(w io.Writer, queues []QueueOverview) error {
	var costs []string
	at := map[string][]string{}
	for _, q := range queues {
		if q.cost == "" {
			continue
		}
		if at[q.cost] == nil {
			costs = append(costs, q.cost)
		}
		at[q.cost] = append(at[q.cost], text.Name(q.Queue))
	}
	for _, cost := range costs {
		if _, err := fmt.Fprintf(w, "cost of the look at %s: %s\n", text.ListFirst(at[cost], 3), cost); err != nil {
			return err
		}
	}
	return nil
}

// uncounted names the queues whose number of messages is up to 5 seconds old.
func uncounted(queues []QueueOverview) (names []string) {
	for _, q := range queues {
		if q.Age > 0 {
			names = append(names, text.Name(q.Queue))
		}
	}
	return names
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// holds writes how many messages the queue holds.
func (q QueueOverview) holds() string {
	if q.Unknown {
		return "?"
	}
	return fmt.Sprint(q.Messages)
}

// fresh writes how many messages are new: at least so many, if not all were looked at, or some do
// not tell when they failed.
func (q QueueOverview) fresh(s Screen) string {
	switch {
	case q.Unknown, q.Messages > 0 && q.Looked == q.Undated:
		return "?"
	case q.Looked < q.Messages, q.Undated > 0:
		return fmt.Sprint(q.New) + s.choose("+", " or more")
	default:
		return fmt.Sprint(q.New)
	}
}

// cause writes the most frequent cause. A terminal has little room: there the error, if there is
// one, says why, and no count stands where all messages that were looked at have it.
func (q QueueOverview) cause(s Screen) string {
	if q.TopCount == 0 {
		return "-"
	}
	what, count := q.TopCause, fmt.Sprintf("%d × ", q.TopCount)
	if s.Width > 0 {
		if _, problem, ok := strings.Cut(what, ": "); ok {
			what = problem
		}
		if q.TopCount == q.Looked {
			count = ""
		}
	}
	return count + text.Name(what)
}
