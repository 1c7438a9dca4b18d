package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/text"
)

// snapshot is what one look found, in rows that are light enough for a whole queue. The views of
// some messages are kept, up to a limit; those of the others are read from the queue again.
type snapshot struct {
	ID      string      `json:"id"`
	Role    string      `json:"role"`
	Request lookRequest `json:"request"`
	At      time.Time   `json:"at"`
	Looked  desk.Looked `json:"looked"`
	// Matched is how many messages the filter chose, and Listed how many of them have a row.
	Matched int `json:"matched"`
	Listed  int `json:"listed"`
	// First and Last are when the first and the last of the chosen ones failed.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Recent is how many failed in the last 24 hours, and Undated how many do not tell when.
	Recent  int `json:"recent"`
	Undated int `json:"undated"`
	grouped
	// Apart are other ways in which the messages are several groups, if they are one.
	Apart []deadletter.Apart `json:"apart"`
	// Same is what all listed messages have in common of what a row shows.
	Same []sameFact `json:"same"`
	// Costs reports that the look changed more than marks that limit nothing.
	Costs bool `json:"costs"`
	// Uncommented says why the comments on the groups are not known. Empty: they are.
	Uncommented string `json:"uncommented,omitempty"`
	// Notes say which messages the filter and the time leave out because these do not tell.
	Notes []string `json:"notes,omitempty"`

	asked lookRequest
	rows  []row
	texts map[string]string // each distinct text of the rows once
	long  int               // bytes of all texts
	ways  *deadletter.Ways
	each  []grouped // in each of the ways, until the look has ended
	views map[int]detail
	spare int // bytes that may still be kept in views
}

// row is a message in the list.
type row struct {
	handle             deadletter.Handle
	failed             time.Time
	position, copies   int32
	attempts, replays  int32
	in                 [2]int32 // its groups, one for each way, until the look has ended
	group              int32
	cause, queue       string
	key, kind, summary string
}

// The limits of a snapshot.
const (
	maxGroups   = 500      // that are listed, the largest
	maxSummary  = 160      // characters of the first line
	maxKept     = 16 << 20 // bytes of views that a snapshot keeps
	rowBytes    = 200      // of memory, about, without its texts
	maxKeptEach = 32 << 10
	maxWindow   = 500 // rows of one answer
	noGroup     = -1
)

// lookRequest is what a look is asked for.
type lookRequest struct {
	Queue string `json:"queue"`
	// Where and Since choose messages, as the flags of the command line do.
	Where string `json:"where"`
	Since string `json:"since"`
	// By is what the messages are grouped by. Empty: by error or by cause, and the answer says which.
	By string `json:"by"`
}

// shareTime is how old a look may be that a person gets who opens a queue.
const shareTime = time.Minute

// look answers with what a look at a queue finds. People who ask the same while a look is awaited
// share it.
func (p *Page) look(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask struct {
		lookRequest
		// Opens: a person opens the queue, or follows a link. A look of the last minute will do.
		Opens bool `json:"opens"`
	}
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	role, err := p.offers(r.Context(), ask.Queue)
	if err != nil {
		return nil, err
	}
	choice, err := desk.Selection{Queue: ask.Queue, Where: ask.Where, Since: ask.Since}.Request(p.Now())
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	choice.Look = p.Look
	ways, err := deadletter.NewWays(ask.By)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	since := p.Now()
	if ask.Opens {
		since = since.Add(-shareTime)
	}
	s := p.snapshots.since(ask.lookRequest, since)
	if s == nil {
		s, err = p.lookSince(r.Context(), w, ask.lookRequest, role, since, choice, ways)
	}
	if err != nil {
		return nil, err
	}
	return s.commented(p.sources.now().Engine.Comments(r.Context(), ask.Queue)), nil
}

// lookSince waits for its turn, and looks at a queue unless another has looked since a time, with
// the same request.
func (p *Page) lookSince(ctx context.Context, w http.ResponseWriter, ask lookRequest, role string, since time.Time,
	choice desk.Request, ways *deadletter.Ways,
) (*snapshot, error) {
	ctx, done, err := p.turn(ctx, w)
	if err != nil {
		return nil, err
	}
	defer done()
	if s := p.snapshots.since(ask, since); s != nil {
		return s, nil
	}
	s := newSnapshot(ask, ways, p.Now())
	s.Role = role
	picked, err := p.sources.now().Engine.Pick(ctx, choice, func(_ deadletter.Message, v deadletter.View) error {
		s.add(v, p.Rows)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.Notes = picked.Notes
	s.finish(picked.Looked)
	p.snapshots.keep(s)
	return s, nil
}

// offers returns what a queue is for, and refuses one that the page does not show: it looks at no
// work queue, where a look would keep messages from consumers.
func (p *Page) offers(ctx context.Context, queue string) (role string, err error) {
	source := p.sources.now()
	if role, ok := source.Roles[queue]; ok {
		return role, nil
	}
	list, _, err := source.Queues(ctx, p.Now()) // a dead-letter queue of a previous file is there alone
	if err != nil {
		return "", err
	}
	if at := slices.IndexFunc(list, func(q Queue) bool { return q.Name == queue }); at >= 0 {
		return list[at].Role, nil
	}
	return "", refuse(http.StatusNotFound, fmt.Sprintf("%q is not one of the dead-letter queues that this page shows; 'dlxctl peek' reads any queue", queue))
}

// lookTime is how long an answer may take for which a queue is read.
const lookTime = 10 * time.Minute

// pick looks at a queue, one look at a time. If the browser goes away, the look ends and gives
// everything back.
func (p *Page) pick(ctx context.Context, w http.ResponseWriter, choice desk.Request,
	each func(deadletter.Message, deadletter.View) error,
) error {
	ctx, done, err := p.turn(ctx, w)
	if err != nil {
		return err
	}
	defer done()
	_, err = p.sources.now().Engine.Pick(ctx, choice, each)
	return err
}

// turn waits until no other request looks at a queue, and then gives the request the time that a
// look may take. It waits no longer than that.
func (p *Page) turn(ctx context.Context, w http.ResponseWriter) (looking context.Context, done func(), err error) {
	control := http.NewResponseController(w)
	begin := func() (deadline time.Time) {
		deadline = time.Now().Add(lookTime)
		_ = control.SetWriteDeadline(deadline) // the recorder of a test has no deadlines
		_ = control.SetReadDeadline(deadline)  // when it passes, the server ends the context of the request
		return deadline
	}
	begin()
	select {
	case p.looking <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	looking, cancel := context.WithDeadline(ctx, begin())
	return looking, func() { cancel(); <-p.looking }, nil
}

func newSnapshot(ask lookRequest, ways *deadletter.Ways, now time.Time) *snapshot {
	return &snapshot{
		ID: rand.Text(), Request: ask, asked: ask, At: now.UTC(), spare: maxKept,
		texts: map[string]string{}, views: map[int]detail{}, ways: ways,
		each: text.Each(ways.By(), func(by deadletter.By) grouped {
			return grouped{by: by.String(), known: map[string]int32{}}
		}),
	}
}

// add adds a message that was chosen.
func (s *snapshot) add(v deadletter.View, limit int) {
	s.Matched++
	s.span(v.LastFailed)
	values := s.ways.Add(v)
	var in [2]int32
	for i, value := range values {
		in[i] = s.each[i].add(value, v)
	}
	if len(s.rows) >= limit {
		return
	}
	r := row{
		handle: v.Handle, failed: v.LastFailed, position: int32(v.Position), copies: int32(v.Copy), //nolint:gosec // below limit
		attempts: int32(v.Attempts), replays: int32(v.Replays), in: in, //nolint:gosec // small
		cause: s.text(v.Cause), queue: s.text(v.WorkQueue), key: s.text(v.Key), kind: s.text(v.Type),
		summary: s.text(summary(v)),
	}
	if d := newDetail(v); d.size() <= min(s.spare, maxKeptEach) {
		s.spare -= d.size()
		s.views[len(s.rows)] = d
	}
	s.rows = append(s.rows, r)
}

// text returns the one copy of a text: most texts of a queue are equal. The copy is of its own
// memory, and does not keep a body alive.
func (s *snapshot) text(t string) string {
	if have, ok := s.texts[t]; ok {
		return have
	}
	t = strings.Clone(t)
	s.long += len(t)
	if len(s.texts) < 1<<16 {
		s.texts[t] = t
	}
	return t
}

// span notes when a message failed.
func (s *snapshot) span(t time.Time) {
	if t.IsZero() {
		s.Undated++
		return
	}
	s.First, s.Last = span(s.First, s.Last, t)
	if s.At.Sub(t) < 24*time.Hour {
		s.Recent++
	}
}

// span returns the first and the last time of those of a span, and one more. Zero is none.
func span(first, last, t time.Time) (time.Time, time.Time) {
	if first.IsZero() || t.Before(first) {
		first = t
	}
	if t.After(last) {
		last = t
	}
	return first, last
}

// sameFact is what the rows of a list have in common.
type sameFact struct {
	// Name is that of the column: cause, queue, attempts or replays.
	Name  string `json:"name"`
	Value string `json:"value"`
}

// sameFacts returns what the rows have in common.
func (s *snapshot) sameFacts() (out []sameFact) {
	if len(s.rows) == 0 {
		return nil
	}
	first := s.rows[0]
	note := func(name, value string, equal func(row) bool) {
		if !slices.ContainsFunc(s.rows, func(r row) bool { return !equal(r) }) {
			out = append(out, sameFact{name, value})
		}
	}
	attempts := "unknown"
	if first.attempts >= 0 {
		attempts = strconv.Itoa(int(first.attempts))
	}
	note("cause", cmp.Or(first.cause, "unknown"), func(r row) bool { return r.cause == first.cause })
	note("queue", cmp.Or(first.queue, "unknown"), func(r row) bool { return r.queue == first.queue })
	note("attempts", attempts, func(r row) bool { return r.attempts == first.attempts })
	note("replays", strconv.Itoa(int(first.replays)), func(r row) bool { return r.replays == first.replays })
	return out
}

// finish ends the look: the largest group becomes the first.
func (s *snapshot) finish(found desk.Looked) {
	s.Looked, s.Listed = found, len(s.rows)
	s.Same, s.Costs = s.sameFacts(), found.Costs()
	chosen := s.ways.Chosen()
	s.grouped, s.Request.By = s.each[chosen], s.each[chosen].by
	s.Apart = s.ways.Apart(len(s.Groups))
	place := s.sort()
	for i := range s.rows {
		r := &s.rows[i]
		if r.group = r.in[chosen]; r.group != noGroup {
			r.group = place[r.group]
		}
	}
	s.texts, s.known, s.each, s.ways = nil, nil, nil, nil
}

// snapshots keeps the last looks, as far as they fit into maxMemory: people look at the same queue
// in different ways.
type snapshots struct {
	mu   sync.Mutex
	kept []*snapshot // the newest last
}

// maxSnapshots is how many snapshots are kept, and maxMemory how many bytes they have in all if
// there are several.
const (
	maxSnapshots = 10
	maxMemory    = 128 << 20
)

// bytes is how much memory a snapshot takes, about.
func (s *snapshot) bytes() int { return len(s.rows)*rowBytes + s.long + maxKept - s.spare }

func (l *snapshots) keep(s *snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, s)
	first, left := len(l.kept)-1, maxMemory-s.bytes()
	for first > 0 && len(l.kept)-first < maxSnapshots && left >= l.kept[first-1].bytes() {
		first--
		left -= l.kept[first].bytes()
	}
	l.kept = slices.Clone(l.kept[first:])
}

// since returns the snapshot of a request, if that look began at or after a time. Nil: there is
// none.
func (l *snapshots) since(ask lookRequest, at time.Time) *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(l.kept) {
		if s.asked == ask && !s.At.Before(at) {
			return s
		}
	}
	return nil
}

// find returns a snapshot, or nil if later looks replaced it.
func (l *snapshots) find(id string) *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.kept {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// of returns the last look at all of a queue, or nil.
func (l *snapshots) of(queue string) *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(l.kept) {
		if s.Request.Queue == queue && s.whole() {
			return s
		}
	}
	return nil
}

// shownRow is a row as the page shows it.
type shownRow struct {
	Row      int       `json:"row"`
	Handle   string    `json:"handle"`
	Position int32     `json:"position"`
	Failed   time.Time `json:"failed"`
	Cause    string    `json:"cause"`
	Queue    string    `json:"queue"`
	Key      string    `json:"key"`
	Type     string    `json:"type"`
	Summary  string    `json:"summary"`
	Attempts int32     `json:"attempts"`
	Replays  int32     `json:"replays"`
}

// rowsAnswer is a window of the rows, and how many there are.
type rowsAnswer struct {
	Total int        `json:"total"`
	From  int        `json:"from"`
	Rows  []shownRow `json:"rows"`
}

// rows answers with a window of the rows of a snapshot, or of one of its groups.
func (p *Page) rows(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	s := p.snapshots.find(q.Get("snapshot"))
	if s == nil {
		return nil, refuse(http.StatusGone, errReplaced.Error())
	}
	from, err1 := number(q.Get("from"), 0)
	count, err2 := number(q.Get("count"), 100)
	only, err3 := number(q.Get("group"), noGroup)
	if err := errors.Join(err1, err2, err3); err != nil || from < 0 || count < 0 {
		return nil, refuse(http.StatusBadRequest, "from, count and group must be whole numbers; reload the page")
	}
	total, window := s.window(from, min(count, maxWindow), only)
	return rowsAnswer{total, from, window}, nil
}

// window returns rows, and how many there are: all, or those of a group.
func (s *snapshot) window(from, count, only int) (total int, rows []shownRow) {
	if only == noGroup {
		for i := from; i < min(from+count, len(s.rows)); i++ {
			rows = append(rows, s.rows[i].shown(i))
		}
		return len(s.rows), rows
	}
	for i := range s.rows {
		if int(s.rows[i].group) != only {
			continue
		}
		if total >= from && len(rows) < count {
			rows = append(rows, s.rows[i].shown(i))
		}
		total++
	}
	return total, rows
}

// name is the handle of the message, as the page shows it.
func (r row) name() string { return deadletter.NameOf(r.handle, int(r.copies)) }

func (r row) shown(at int) shownRow {
	return shownRow{
		Row: at, Handle: r.name(), Position: r.position, Failed: r.failed,
		Cause: r.cause, Queue: r.queue, Key: r.key, Type: r.kind, Summary: r.summary,
		Attempts: r.attempts, Replays: r.replays,
	}
}

// errReplaced says that a snapshot is no longer kept.
var errReplaced = errors.New("later looks replaced this list; look again")

// number reads a whole number. Empty is the default.
func number(s string, standard int) (int, error) {
	if s == "" {
		return standard, nil
	}
	return strconv.Atoi(s)
}
