package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Comment is what a person says about a group of dead letters, such as a ticket.
type Comment struct {
	// Queue is where the group is.
	Queue string `json:"queue"`
	// By is the property that its messages have in common, as --by names it.
	By string `json:"by"`
	// Value is what they have in common, redacted. Empty: the messages have no such value.
	Value string `json:"value"`
	// Text is what was said. Empty takes back what was said before.
	Text string `json:"text"`
	// Author is who said it.
	Author string `json:"author"`
	// At is when.
	At time.Time `json:"at"`
}

// Comment writes a comment of the person who acts, in the queue of records: it stays 90 days. It
// returns what it has written. It is refused without a topology file, as there is no such queue
// then.
func (d *Desk) Comment(ctx context.Context, c Comment) (Comment, error) {
	if d.Found != nil || d.Topology.Name == "" {
		return c, refusef("comments need a topology file that manages dead letters; name one with -f")
	}
	if _, err := d.inspect(ctx); err != nil { // for writeLog
		return c, err
	}
	if err := d.permit(ctx, []permission{writing(topology.KindExchange, topology.DefaultExchange)}, nil); err != nil {
		return c, err
	}
	c.Text, c.Author, c.At = shortened(c.Text), d.By, d.now().UTC()
	m := amqp091.Publishing{Type: commentType, Timestamp: c.At}
	return c, d.writeLog(ctx, "comments on "+text.Name(c.Queue), c, m)
}

// Comments are the last comments on groups, see [CommentsOn]. A nil one has none.
type Comments map[commented]deadletter.Note

// commented is a group of a queue.
type commented struct{ by, value string }

// CommentsOn returns the last comment on each group of a queue. all are in the order in which they
// were written.
func CommentsOn(queue string, all []Comment) Comments {
	out := Comments{}
	for _, c := range all {
		if c.Queue == queue {
			out[commented{c.By, c.Value}] = deadletter.Note{Text: c.Text, Author: c.Author, At: c.At}
		}
	}
	return out
}

// Of returns the comment on a group. Nil: there is none.
func (c Comments) Of(by, value string) *deadletter.Note {
	if note := c[commented{by, value}]; note.Text != "" {
		return &note
	}
	return nil
}

// Comments returns the comments on the groups of a queue.
func (d *Desk) Comments(ctx context.Context, queue string) (Comments, error) {
	if d.Found != nil {
		return nil, nil
	}
	records, _, err := d.readLog(ctx)
	var all []Comment
	for _, m := range records {
		var c Comment
		if m.Type == commentType && json.Unmarshal(m.Body, &c) == nil {
			all = append(all, c)
		}
	}
	return CommentsOn(queue, all), err
}

// annotate adds the comments to groups of a queue.
func (d *Desk) annotate(ctx context.Context, queue string, groups []deadletter.Group) error {
	comments, err := d.Comments(ctx, queue)
	for i, g := range groups {
		if !g.Others {
			groups[i].Note = comments.Of(g.By, g.Value)
		}
	}
	return err
}

// noted returns what a row of groups says about the comment on one.
func noted(g deadletter.Group) string {
	if g.Note == nil {
		return "-"
	}
	return topology.Printable(g.Note.Text + " (" + cmp.Or(g.Note.Author, "unknown") + ")")
}
