package deadletter

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// Limits of a filter. They keep an expression, and a body that it walks through, from costing
// more than a moment.
const (
	filterBytes = 10_000
	filterNodes = 1_000
	// filterWork is how many bytes of texts and lists an expression may read for one message.
	filterWork = 64 << 20
	// filterValues is how many values the lists may have that an expression makes.
	filterValues = 1_000_000
)

// Filter is a compiled expression over a View, in the language of expr-lang/expr. It has no
// side effects, reads nothing but the view, and is safe for concurrent use.
//
// A path that a message does not have is nil. A comparison with nil is false, "!=" too, unless
// the expression says nil itself: body.vat == nil. Nothing is known of what is masked or hidden:
// see [Filter.Match].
type Filter struct {
	source  string
	program *vm.Program
	uses    map[string]bool
	now     time.Time
}

// NewFilter compiles an expression. The error names the column, and what can be asked.
func NewFilter(expression string) (*Filter, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, errors.New(`the filter is empty; write an expression such as cause == "rejected"`)
	}
	return compile(expression, expr.AsBool())
}

func compile(expression string, kind expr.Option) (*Filter, error) {
	if len(expression) > filterBytes {
		return nil, fmt.Errorf("the filter has %d bytes; the limit is %d", len(expression), filterBytes)
	}
	// First with the types that the names have, for the errors; then with nil in mind.
	if _, err := expr.Compile(expression, append(functions(true), expr.Env(names{}), kind)...); err != nil {
		return nil, filterError(err)
	}
	guard := &guard{uses: map[string]bool{}}
	program, err := expr.Compile(expression, append(functions(false), expr.Env(values{}), expr.Patch(guard))...)
	if refused := guard.check(); refused != nil {
		err = refused
	}
	if err != nil {
		return nil, filterError(err)
	}
	return &Filter{source: expression, program: program, uses: guard.uses}, nil
}

// At returns the filter with a time for now(). Without one, a filter that asks for now() fails.
func (f *Filter) At(now time.Time) *Filter {
	out := *f
	out.now = now
	return &out
}

// String returns the expression.
func (f *Filter) String() string { return f.source }

// NeedsBody reports whether the expression asks for what can be in the body alone. If not, the
// view of [Reader.Head] is enough.
func (f *Filter) NeedsBody() bool {
	// type, error and attempts are in the bodies of some frameworks.
	return slices.ContainsFunc([]string{"body", "text", "type", "error", "errorType", "attempts", "framework"},
		func(name string) bool { return f.uses[name] })
}

// Matches reports whether the expression is true for a message, as Match does.
func (f *Filter) Matches(v View) (bool, error) {
	matched, _, err := f.Match(v)
	return matched, err
}

// Match reports whether the expression is true for a message. It is not if the expression asks for
// what is masked or hidden in the message, or is true only as the shown part of a text lacks
// something: then masked is true, as no message is chosen for that. It fails if the expression
// costs too much for this message, or calls now() without a time.
func (f *Filter) Match(v View) (matched, masked bool, err error) {
	s := &state{masked: v.Masked}
	result, err := f.value(v, s)
	if err == nil && result == true && s.doubted { // it must be true whatever the masked parts of texts are
		result, err = f.value(v, &state{masked: true, otherwise: true})
		if err == nil && result != true {
			err = errMasked
		}
	}
	if errors.Is(err, errMasked) || v.Masked && result == redact.Mask {
		return false, true, nil
	}
	matched, _ = result.(bool)
	return matched && err == nil, false, err
}

// value evaluates the expression.
func (f *Filter) value(v View, s *state) (any, error) {
	machine := vm.VM{MemoryBudget: filterValues}
	s.now, s.work = f.now, filterWork
	result, err := machine.Run(f.program, ask(v, s))
	if errors.Is(err, errMasked) {
		return nil, errMasked
	}
	if err != nil {
		return nil, fmt.Errorf("filter %q, message %s: %w", f.source, v.Name(), filterError(err))
	}
	return result, nil
}

// asked is what an expression can ask for: with their types, or with values of which an unknown
// one is nil.
type asked[Text, Number, Moment, Flag, Headers any] struct {
	Cause       Text    `expr:"cause"`
	Error       Text    `expr:"error"`
	ErrorType   Text    `expr:"errorType"`
	Framework   Text    `expr:"framework"`
	Attempts    Number  `expr:"attempts"`
	FirstFailed Moment  `expr:"firstFailed"`
	LastFailed  Moment  `expr:"lastFailed"`
	Published   Moment  `expr:"published"`
	DueAt       Moment  `expr:"dueAt"`
	Key         Text    `expr:"key"`
	Exchange    Text    `expr:"exchange"`
	Queue       Text    `expr:"queue"`
	ID          Text    `expr:"id"`
	Type        Text    `expr:"type"`
	Headers     Headers `expr:"headers"`
	Body        any     `expr:"body"`
	Text        Text    `expr:"text"`
	Size        Number  `expr:"size"`
	Copy        Flag    `expr:"copy"`
	Replays     Number  `expr:"replays"`
	Run         Text    `expr:"run"`
	State       *state  `expr:"#state"`
}

type (
	names  = asked[string, int, time.Time, bool, map[string]any]
	values = asked[any, any, any, any, any]
)

// FilterNames returns the names that an expression can ask for.
func FilterNames() []string {
	var out []string
	for f := range reflect.TypeFor[names]().Fields() {
		if f.Name != "State" {
			out = append(out, f.Tag.Get("expr"))
		}
	}
	return out
}

// ask returns what an expression can ask about a view.
func ask(v View, s *state) values {
	a := values{
		Cause: v.Cause, Error: v.Error, ErrorType: v.ErrorType, Framework: v.Framework,
		FirstFailed: timeOrNil(v.FirstFailed), LastFailed: timeOrNil(v.LastFailed), Published: timeOrNil(v.Published),
		DueAt: timeOrNil(v.DueAt),
		Key:   v.Key, Exchange: v.Exchange, Queue: v.WorkQueue, ID: v.MessageID, Type: v.Type,
		Headers: v.Headers, Body: v.body(), Text: v.Body.Text,
		Replays: v.Replays, Run: v.Run, State: s,
		Copy: redact.Mask, Size: redact.Mask, // what is masked would tell them
	}
	if equal, known := v.equal(); known {
		a.Copy = equal
	}
	if v.Bytes >= 0 {
		a.Size = v.Bytes
	}
	if v.Attempts >= 0 {
		a.Attempts = v.Attempts
	}
	return a
}

func timeOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

var unknownName = regexp.MustCompile(`^unknown name (\S+)$`)

// filterError says where an expression is wrong, in one line.
func filterError(err error) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return err
	}
	if prev := errors.Unwrap(at); prev != nil && errors.Is(prev, errFilter) {
		return prev
	}
	message := at.Message
	if m := unknownName.FindStringSubmatch(message); m != nil {
		known := append(FilterNames(), functionNames()...)
		message = fmt.Sprintf("unknown name %q; %s", m[1],
			topology.DidYouMean(m[1], known, "a filter knows "+strings.Join(known, ", ")))
	}
	switch message {
	case `unexpected token Operator("=")`:
		message = "write == to compare"
	case "unexpected token EOF":
		message = "the expression is not complete"
	}
	if strings.Contains(message, "time.Time and string") || strings.Contains(message, "string and time.Time") {
		message += `; write a time as date("2026-11-22") or date("2026-11-22T09:00:00Z")`
	}
	return fmt.Errorf("column %d: %s", at.Column+1, message)
}
