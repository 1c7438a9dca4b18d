package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// What the queue of records keeps. RabbitMQ drops the oldest records: no process has to do it.
const (
	logTime    = 90 * 24 * time.Hour
	logRecords = 10_000
	logBytes   = 16 << 20
)

const (
	// recordTime is how long a process tries to write the record of a run, after its end.
	recordTime = 5 * time.Second
	// recordType is the type of a message that is the record of a run, and commentType of one that is
	// a comment.
	recordType, commentType = "run", "comment"
	// recordText is how many characters of a text a record keeps, and recordNames how many names of a
	// list: 10,000 records are some 10 MB.
	recordText  = 1000
	recordNames = 10
)

// EndedRun is the record of a run that has ended.
type EndedRun struct {
	Result
	// EndedAt is when it ended.
	EndedAt time.Time `json:"endedAt,omitzero"`
	// ChosenBy is by what it chose messages. Empty: it chose all.
	ChosenBy Criteria `json:"chosenBy,omitzero"`
	// Returned reports that its messages were given back to the queue in which they were chosen, as
	// far as it had not sent them.
	Returned bool `json:"returned,omitempty"`
	// Resumed reports that an earlier process worked on it too: the other counts are those of the
	// process that ended it.
	Resumed bool `json:"resumed,omitempty"`
}

// Criteria are by what a run chose messages. Each that is not empty had to hold.
type Criteria struct {
	// Where is the expression of --where, with the work queue of @WORKQUEUE.
	Where string `json:"where,omitempty"`
	// Since is the earliest time of a failure.
	Since time.Time `json:"since,omitzero"`
	// Until is the time before which all failed.
	Until time.Time `json:"until,omitzero"`
	// Handles are the first handles that the person named, and HandleCount how many there were.
	Handles     []string `json:"handles,omitempty"`
	HandleCount int      `json:"handleCount,omitempty"`
	// Limit is how many messages it chose at most.
	Limit int `json:"limit,omitempty"`
}

// criteria returns by what a request chooses, short enough for a record.
func (r Request) criteria() Criteria {
	c := Criteria{
		Since: r.Since, Until: r.Until, Handles: r.Handles[:min(len(r.Handles), recordNames)], HandleCount: len(r.Handles),
		Limit: r.Limit,
	}
	if r.Filter != nil {
		c.Where = shortened(r.Filter.String())
	}
	return c
}

// shortened returns the beginning of a text, as long as a record may be.
func shortened(s string) string {
	if r := []rune(s); len(r) > recordText {
		return string(r[:recordText]) + "…"
	}
	return s
}

// log is the queue of records. It is the only queue of the desk that drops messages: no message of
// a user is in it.
func (d *Desk) log() topology.Queue {
	return topology.Queue{
		Name: topology.LogName(d.Topology.Name), Durable: true,
		Arguments: topology.Arguments{
			topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited,
			topology.ArgMessageTTL: logTime.Milliseconds(), topology.ArgOverflow: policy.DropHead,
			topology.ArgMaxLength: int64(logRecords), topology.ArgMaxLengthBytes: int64(logBytes),
			topology.ArgManagedBy: topology.DeskMark(d.Topology.Name),
		},
	}
}

// ended returns the record of a run of which the worker has done the last part.
func (w *worker) ended(r Result, err error) EndedRun {
	e := w.record
	if r.Queue == "" { // the list went before the hold, whose argument tells
		of := w.hold
		r.Action, r.Queue, r.Chosen, r.Begun, r.By, r.Reason = of.Action, of.Queue, of.Chosen, of.Started, of.By, of.Reason
		if w.desk.By != of.By {
			r.Continued = w.desk.By
		}
	}
	if err != nil && r.Stopped == "" {
		r.Stopped = err.Error()
	}
	r.Reason, r.Stopped = shortened(r.Reason), shortened(r.Stopped)
	r.To, r.Unheard = r.To[:min(len(r.To), recordNames)], r.Unheard[:min(len(r.Unheard), recordNames)]
	e.Result, e.EndedAt = r, w.desk.now().UTC()
	return e
}

// keep writes the record of a run, while its process goes on. The run has ended: it
// neither waits for the record nor fails with it.
func (d *Desk) keep(ctx context.Context, e EndedRun) {
	if d.Found != nil || d.Topology.Name == "" {
		return
	}
	ctx, root := context.WithoutCancel(ctx), d.root()
	root.records.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		m := amqp091.Publishing{Type: recordType, MessageId: e.Run, Timestamp: e.EndedAt}
		err := d.writeLog(ctx, "records "+e.Run, e, m)
		if ctx.Err() != nil {
			err = fmt.Errorf("%s has not accepted the record in %s", topology.LogName(d.Topology.Name),
				text.Duration(recordTime))
		}
		if err != nil && root.Unrecorded != nil {
			root.recorded.Lock()
			defer root.recorded.Unlock()
			root.Unrecorded(e.Run, err)
		}
	})
}

// AwaitRecords waits until the records of the runs that have ended are written, or cannot be: some
// milliseconds, and 5 seconds at most. It waits for those of all who act at the desk.
func (d *Desk) AwaitRecords() { d.root().records.Wait() }

// writeLog writes a record, as JSON. It makes the queue if that does not exist. role is what the
// connection does.
func (d *Desk) writeLog(ctx context.Context, role string, record any, m amqp091.Publishing) error {
	if err := d.refuseLog(); err != nil {
		return err
	}
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	conn, err := amqp.Dial(ctx, d.endpoint(role))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer amqp.CloseAfter(ctx, 0, conn)()
	out, err := newOutlet(conn, 1)
	if err != nil {
		return err
	}
	log := d.log()
	m.DeliveryMode, m.AppId, m.ContentType, m.Body = amqp091.Persistent, "dlxctl", "application/json", body
	if err = out.publish(ctx, "", log.Name, m); !errors.Is(err, errReturned) {
		return err
	}
	if err := conn.DeclareQueue(log); errors.Is(err, broker.ErrForbidden) {
		return d.lacks([]string{"configure on the queue " + text.Name(log.Name)}, nil)
	} else if err != nil {
		return err
	}
	return out.publish(ctx, "", log.Name, m)
}

// refuseLog refuses a queue of records that a policy gives a dead-letter exchange: what is dropped
// from it would become dead letters of others. The run has just inspected the virtual host.
func (d *Desk) refuseLog() error {
	state := d.last.Load()
	if state == nil {
		return nil
	}
	log := d.log()
	if policy.Effective(*state, log).HasAny(topology.ArgDeadLetterExchange) {
		return refusef("a policy gives %s a dead-letter exchange, to which its records would go; exclude the queue from the pattern",
			text.Name(log.Name))
	}
	return nil
}

// Ended is the runs that have ended, as far as their records were found.
type Ended struct {
	// Runs are the newest first.
	Runs []EndedRun
	// Unreadable is how many records this release cannot read.
	Unreadable int
	// Looked is the look at the records. The zero value: there is no queue of records.
	Looked Looked
	// Unrecorded reports that no run is recorded, as there is no topology file.
	Unrecorded bool
}

// EndedRuns returns the runs of the topology that have ended in the last 90 days. It looks at their
// records and consumes nothing. While another process looks at them it waits, up to 5 seconds.
func (d *Desk) EndedRuns(ctx context.Context) (out Ended, err error) {
	out.Unrecorded = d.Found != nil
	var records []amqp091.Delivery
	records, out.Looked, err = d.readLog(ctx)
	for _, m := range slices.Backward(records) {
		out.add(m)
	}
	return out, err
}

// readLog looks at the records of the topology, the oldest first. There are none if there is no
// queue of records. While another process looks at them it waits, up to 5 seconds.
func (d *Desk) readLog(ctx context.Context) (records []amqp091.Delivery, looked Looked, err error) {
	state, err := d.inspect(ctx)
	isLog := func(q topology.Queue) bool { return topology.IsLog(d.Topology.Name, q) }
	if err != nil || d.Topology.Name == "" || !slices.ContainsFunc(state.Have.Queues, isLog) {
		return nil, looked, err
	}
	for began := time.Now(); ; {
		records = nil
		looked, err = d.Look(ctx, topology.LogName(d.Topology.Name), LookOptions{}, func(m deadletter.Message) error {
			records = append(records, m.Delivery)
			return nil
		})
		if looked.consumers == 0 || !errors.Is(err, ErrRefused) || time.Since(began) > lockTime {
			return records, looked, err
		}
		if err := pause(ctx, lockPause); err != nil {
			return records, looked, err
		}
	}
}

// add reads a record.
func (e *Ended) add(m amqp091.Delivery) {
	var run EndedRun
	switch {
	case m.Type == commentType:
	case m.Type != recordType || json.Unmarshal(m.Body, &run) != nil:
		e.Unreadable++
	default:
		e.Runs = append(e.Runs, run)
	}
}

// Write writes a table of the newest runs, at most so many; zero is all.
func (e Ended) Write(w io.Writer, most int, s Screen) error {
	shown := e.Newest(most)
	table := text.Table{Whole: []int{0}, Last: []int{4}}
	table.Add(nil, "RUN", s.choose("AGE", "ENDED"), "ACTION", "QUEUE", "RESULT", "CHOSEN BY", "BY", "REASON")
	for _, r := range shown {
		// Other programs can write a record: none of its texts reaches the terminal as it is.
		table.Add(nil, text.Name(r.Run), s.when(r.EndedAt), topology.Printable(r.Did()), text.Name(r.Queue),
			topology.Printable(r.Outcome()), topology.Printable(r.ChosenBy.String()), dash(r.By), dash(r.Reason))
	}
	if len(shown) > 0 {
		if err := table.Write(w, s.Width); err != nil {
			return err
		}
	}
	line := ""
	switch {
	case len(shown) == 0 && e.Unrecorded:
		line = "ended runs are recorded only with a topology file that manages dead letters\n"
	case len(shown) == 0:
		line = "no record of a run that has ended in the last 90 days\n"
	case len(shown) < len(e.Runs):
		line = fmt.Sprintf("the newest %d of %d; --limit 0 lists all\n", len(shown), len(e.Runs))
	}
	_, err := io.WriteString(w, line)
	return err
}

// WriteMissed says what is missing in the list. It writes nothing if nothing is.
func (e Ended) WriteMissed(w io.Writer) error {
	line := ""
	if e.Unreadable > 0 {
		line = fmt.Sprintf("%s cannot be read: a newer release has written %s, or another program\n",
			text.Count(e.Unreadable, "record"), text.Choose(e.Unreadable, "it", "them"))
	}
	if e.Looked.Missed != "" {
		line += "not all records were looked at: " + e.Looked.Missed + "\n"
	}
	_, err := io.WriteString(w, line)
	return err
}

// Newest returns the newest runs, at most so many; zero is all.
func (e Ended) Newest(most int) []EndedRun {
	if most == 0 {
		return e.Runs
	}
	return e.Runs[:min(most, len(e.Runs))]
}

// Did returns the action of the run, and whether it was returned.
func (e EndedRun) Did() string {
	if e.Returned {
		return string(e.Action) + ", returned"
	}
	return string(e.Action)
}

// Outcome says in a few words how the run ended.
func (e EndedRun) Outcome() string {
	verb := e.Action.Kind().Done
	if e.Returned {
		verb = Restore.Kind().Done
	}
	parts := []string{fmt.Sprintf("%s %d of %d", verb, e.Moved, e.Chosen)}
	add := func(n int, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(e.FailedAgain, "%d failed again")
	add(e.LeftInQueue, "%d left in the queue")
	add(e.Missing, "%d no longer there")
	doubled := "at most %d doubled"
	if e.Resumed {
		parts, doubled = append(parts, "counted since it was resumed"), doubled+" if a process was killed"
	}
	add(e.DoubledAtMost, doubled)
	if e.Stopped != "" {
		parts = append(parts, "stopped: "+e.Stopped)
	}
	return strings.Join(parts, "; ")
}

// String writes the criteria for a person.
func (c Criteria) String() string {
	var parts []string
	if c.Where != "" {
		parts = append(parts, c.Where)
	}
	if !c.Since.IsZero() {
		parts = append(parts, "failed since "+moment(c.Since))
	}
	if !c.Until.IsZero() {
		parts = append(parts, "failed before "+moment(c.Until))
	}
	if c.HandleCount > 0 {
		parts = append(parts, text.Choose(c.HandleCount, "the handle ", "the handles ")+
			strings.Join(c.Handles, ", ")+more(c.HandleCount-len(c.Handles)))
	}
	if c.Limit > 0 {
		parts = append(parts, fmt.Sprintf("the first %d", c.Limit))
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, "; ")
}

// more counts what a list leaves out.
func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
