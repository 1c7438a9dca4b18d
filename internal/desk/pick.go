package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Picked is what Pick found.
type Picked struct {
	Looked Looked
	// Matched is how many of the messages that were looked at match, and Shown how many of them
	// were passed on.
	Matched, Shown int
	// Notes say which fields the filter names that no message has, and how many messages are left out
	// because they name no work queue, do not tell when they failed, or mask what the filter asks for.
	Notes []string
}

// Pick looks at a queue, and passes on the messages that a request chooses, up to its limit. It
// moves nothing, and does not leave out what was replayed before.
func (d *Desk) Pick(
	ctx context.Context, r Request, visit func(deadletter.Message, deadletter.View) error,
) (Picked, error) {
	return d.pick(ctx, r, true, visit)
}

// pick is Pick. With body, visit needs the body of the view.
func (d *Desk) pick(
	ctx context.Context, r Request, body bool, visit func(deadletter.Message, deadletter.View) error,
) (Picked, error) {
	var p Picked
	if r.Filter == nil && len(r.Handles) == 0 && r.Since.IsZero() && r.Until.IsZero() && r.Limit > 0 {
		r.Look.Messages = r.Limit // behind those that the look passes over
	}
	chooseByBody := r.Filter != nil && r.Filter.NeedsBody()
	var err error
	var paths deadletter.Paths
	if r.Filter != nil {
		paths = r.Filter.Paths()
	}
	var silent silent
	p.Looked, err = d.Look(ctx, r.Queue, r.Look, func(m deadletter.Message) error {
		v := d.view(m, chooseByBody)
		paths.See(v)
		ok, err := r.chooses(v, &silent)
		if err != nil || !ok {
			silent.leave(r, v.Facts)
			return err
		}
		p.Matched++
		if r.Limit > 0 && p.Shown == r.Limit {
			return nil
		}
		p.Shown++
		if body && !chooseByBody {
			v = d.Reader.View(m)
		}
		return visit(m, v)
	})
	p.Notes = r.notes(p.Looked, paths, silent)
	return p, err
}

// silent counts messages that are not chosen because they do not say in which work queue, or when,
// they failed, or because rules mask what the filter asks for.
type silent struct{ where, when, masked int }

// leave notes a message that is not chosen.
func (s *silent) leave(r Request, f deadletter.Facts) {
	switch {
	case len(r.Handles) > 0:
	case r.Work != "" && f.WorkQueue == "":
		s.where++
	case (!r.Since.IsZero() || !r.Until.IsZero()) && f.LastFailed.IsZero():
		s.when++
	}
}

// matches reports whether the filter of a request matches a message, and notes one of which it asks
// for what is masked.
func (s *silent) matches(r Request, v deadletter.View) (bool, error) {
	matched, masked, err := r.Filter.Match(v)
	if masked {
		s.masked++
	}
	return matched, err
}

// notes say what a look did not find, and how many messages are silent.
func (r Request) notes(l Looked, paths deadletter.Paths, s silent) (notes []string) {
	if fields := paths.Absent(); len(fields) > 0 && l.Looked > 0 {
		notes = append(notes, fmt.Sprintf("the filter saw no message with %s; check how %s spelt",
			text.ListFirst(fields, 3), text.Choose(len(fields), "it is", "they are")))
	}
	note := func(n int, one, many, filter string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(`%s of %s %s and %s left out; dlxctl desk list %s --where '%s' lists %s`,
				text.Count(n, "message"), text.Name(r.Queue), text.Choose(n, one, many), text.Choose(n, "is", "are"),
				text.ShellQuote(r.Queue), filter, text.Choose(n, "it", "them")))
		}
	}
	note(s.where, "names no work queue", "name no work queue", `queue == ""`)
	note(s.when, "does not tell when it failed", "do not tell when they failed", "lastFailed == nil")
	if n := s.masked; n > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s %s left out: the filter asks for what is masked or hidden in %s",
			text.Count(n, "message"), text.Name(r.Queue), text.Choose(n, "is", "are"), text.Choose(n, "it", "them")))
	}
	return notes
}

// view returns the view of a message, which costs much less without its body.
func (d *Desk) view(m deadletter.Message, body bool) deadletter.View {
	if body {
		return d.Reader.View(m)
	}
	return d.Reader.Head(m)
}

// Find looks for a message by its handle in queues, one after the other, and passes the first that
// it finds to visit. Queues that refuse a look are passed over; if the message is in none of the
// others, the error names them.
func (d *Desk) Find(
	ctx context.Context, queues []string, handle string, o LookOptions,
	visit func(deadletter.Message, deadletter.View) error,
) error {
	if len(queues) > 1 {
		state, err := d.inspect(ctx)
		if err != nil {
			return err
		}
		queues = existing(state, queues)
	}
	var refused error
	r := Request{Handles: []string{handle}}
	looked, found := 0, false
	for _, queue := range queues {
		l, err := d.Look(ctx, queue, o, func(m deadletter.Message) error {
			if !r.names(m.Handle, m.Copy) {
				return nil
			}
			if err := visit(m, d.Reader.View(m)); err != nil {
				return err
			}
			found = true
			return ErrEnough
		})
		looked += l.Looked
		switch {
		case found:
			return err
		case errors.Is(err, ErrRefused):
			refused = errors.Join(refused, err)
		case err != nil:
			return err
		}
	}
	err := fmt.Errorf("no message has the handle %s among the %d that were looked at in %s; it was moved, is in another queue, or its handle was printed with other rules for masking",
		handle, looked, text.ListFirst(queues, 5))
	return errors.Join(err, refused)
}

// existing returns those of the queues that exist. A look refuses one whose node is down.
func existing(state topology.State, queues []string) []string {
	return slices.DeleteFunc(slices.Clone(queues), func(name string) bool {
		has := slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == name })
		return !has && !slices.Contains(state.Down, name)
	})
}

// Unreached returns an error that wraps ErrUnreached if a look did not reach all messages among
// which the request chooses, so that others may match. chosen is how many it chose.
func (r Request) Unreached(l Looked, chosen int) error {
	if l.Missed == "" || l.enough || len(r.Handles) > 0 || r.Limit > 0 && chosen >= r.Limit {
		return nil
	}
	return fmt.Errorf("%w: the look reached %d of the %d messages of %s, and others may match: %s",
		ErrUnreached, l.Looked, l.Messages, text.Name(l.Queue), l.Missed)
}

// chooses reports whether a request chooses a message, without its limit and what was replayed
// before. A message that does not tell when it failed is left out by Since and by Until.
func (r Request) chooses(v deadletter.View, s *silent) (bool, error) {
	if len(r.Handles) > 0 && !r.names(v.Handle, v.Copy) {
		return false, nil
	}
	if !r.inTime(v.Facts) {
		return false, nil
	}
	if r.Filter == nil {
		return true, nil
	}
	return s.matches(r, v)
}

// inTime reports whether a message failed when the request says. One that does not tell when is
// left out, if the request says anything.
func (r Request) inTime(f deadletter.Facts) bool {
	return !f.LastFailed.Before(r.Since) &&
		(r.Until.IsZero() || !f.LastFailed.IsZero() && f.LastFailed.Before(r.Until))
}

// names reports whether one of the handles of a request names a message.
func (r Request) names(h deadletter.Handle, copied int) bool {
	return slices.ContainsFunc(r.Handles, func(name string) bool {
		wanted, number, err := deadletter.ParseHandle(name)
		return err == nil && h.Begins(wanted) && number == copied
	})
}

// WritePicked writes how many messages were looked at, and how many of them match.
func WritePicked(w io.Writer, p Picked) error {
	if err := WriteLooked(w, p.Looked); err != nil || p.Looked.Looked == 0 {
		return err
	}
	lines := []string{fmt.Sprintf("%d match", p.Matched)}
	if p.Shown < p.Matched {
		lines[0] += fmt.Sprintf("; the first %d are shown, and --limit 0 shows all", p.Shown)
	}
	for _, note := range p.Notes {
		lines = append(lines, "note: "+note)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
