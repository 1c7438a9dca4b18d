package deadletter

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/vm/runtime"

	"github.com/dlxctl/dlxctl/internal/redact"
)

// errFilter is wrapped by errors of a filter at work.
var errFilter = errors.New("the filter cannot be evaluated")

// errMasked ends the evaluation of an expression that asks for what is masked or hidden.
var errMasked = errors.New("the filter asks for what is masked")

// state is what an expression may use for one message.
type state struct {
	now  time.Time
	work int
	// masked: rules mask a part of the message.
	masked bool
	// doubted: a comparison came out as it did for what is shown of a text, which is not all of it.
	doubted bool
	// otherwise: such comparisons come out the other way.
	otherwise bool
}

// shown fails with errMasked if a value is masked, or has in it what is.
func (s *state) shown(v any) error {
	hidden, err := s.has(v, func(text string) bool { return text == redact.Mask })
	if hidden {
		return errMasked
	}
	return err
}

// partly reports whether a part of a value is masked, also of one that upper has returned.
func (s *state) partly(v any) (bool, error) {
	return s.has(v, func(text string) bool { return strings.Contains(strings.ToLower(text), redact.Mask) })
}

// has reports whether a value is a text of a kind, or has one in it.
func (s *state) has(v any, is func(string) bool) (found bool, err error) {
	if !s.masked {
		return false, nil
	}
	if err := s.charge(1); err != nil {
		return false, err
	}
	switch v := v.(type) {
	case string:
		return is(v), nil
	case []any:
		for _, inside := range v {
			if found, err = s.has(inside, is); found || err != nil {
				return found, err
			}
		}
	case map[string]any:
		for key, inside := range v {
			if is(key) {
				return true, nil
			}
			if found, err = s.has(inside, is); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// charge takes from the work that is left. Comparing, searching and copying a text costs its
// length, and walking through a list 16 for each element.
func (s *state) charge(n int) error {
	if s.work -= n; s.work < 0 {
		return fmt.Errorf("%w: it reads more than %d MiB of the message; ask for less", errFilter, filterWork>>20)
	}
	return nil
}

// function is a function of the language. Its first argument is the state.
type function struct {
	types any
	call  func(s *state, args []any) (any, error)
}

// library returns the functions of the language. None has side effects, and each returns nil
// for what it cannot take.
func library() map[string]function {
	return map[string]function{
		"len":    {new(func(any) int), one(builtin.Len)},
		"lower":  {new(func(string) string), one(func(v any) any { return strings.ToLower(v.(string)) })},
		"upper":  {new(func(string) string), one(func(v any) any { return strings.ToUpper(v.(string)) })},
		"trim":   {new(func(string) string), one(func(v any) any { return strings.TrimSpace(v.(string)) })},
		"string": {new(func(any) string), one(toText)},
		"int":    {new(func(any) int), one(builtin.Int)},
		"float":  {new(func(any) float64), one(builtin.Float)},
		"abs":    {new(func(any) float64), one(builtin.Abs)},
		"first":  {new(func(any) any), one(func(v any) any { return at(v, 0) })},
		"last":   {new(func(any) any), one(func(v any) any { return at(v, -1) })},
		"keys":   {new(func(any) []any), one(keysOf)},
		"date":   {new(func(string) time.Time), one(toTime)},
		"duration": {new(func(string) time.Duration), one(func(v any) any {
			d, err := time.ParseDuration(v.(string))
			if err != nil {
				return nil
			}
			return d
		})},
		"now": {new(func() time.Time), func(s *state, _ []any) (any, error) {
			if s.now.IsZero() {
				return nil, fmt.Errorf("%w: now() has no time", errFilter)
			}
			return s.now, nil
		}},
	}
}

// predicates are the functions of the language that walk through a list. The library of expr
// has them.
func predicates() []string {
	return []string{"all", "any", "none", "one", "filter", "map", "count", "find"}
}

func functionNames() []string {
	return append(slices.Sorted(maps.Keys(library())), predicates()...)
}

// functions returns the options that make the language: typed for checking, else for running.
func functions(typed bool) []expr.Option {
	options := []expr.Option{expr.DisableAllBuiltins(), expr.MaxNodes(filterNodes), expr.Optimize(false)}
	for _, name := range predicates() {
		options = append(options, expr.EnableBuiltin(name))
	}
	for name, f := range library() {
		if typed {
			options = append(options, expr.Function(name, func(...any) (any, error) { return nil, errFilter }, f.types))
		} else {
			options = append(options, expr.Function(name, stateful(f.call)))
		}
	}
	if typed {
		return options
	}
	for name, call := range operators() {
		options = append(options, expr.Function(name, stateful(call)))
	}
	return options
}

func stateful(call func(*state, []any) (any, error)) func(...any) (any, error) {
	return func(params ...any) (any, error) {
		s, ok := params[0].(*state)
		if !ok {
			return nil, errFilter
		}
		if s.masked && slices.Contains(params[1:], any(redact.Mask)) {
			return nil, errMasked
		}
		return call(s, params[1:])
	}
}

// one makes a function of one argument, which panics on what it cannot take.
func one(f func(any) any) func(*state, []any) (any, error) {
	return func(s *state, args []any) (any, error) {
		if len(args) != 1 {
			return nil, nil
		}
		if err := s.charge(cost(args[0])); err != nil {
			return nil, err
		}
		return attempt(func() any { return f(args[0]) }), nil
	}
}

// attempt returns the result of a function of expr, and nil if it panics: so it reports what it
// cannot take.
func attempt(f func() any) (result any) {
	defer func() {
		if recover() != nil {
			result = nil
		}
	}()
	return f()
}

// operators returns what replaces the operators of expr, which fail on nil. No
// expression can name them.
func operators() map[string]func(*state, []any) (any, error) {
	out := map[string]func(*state, []any) (any, error){
		"#at":   func(_ *state, args []any) (any, error) { return at(args[0], args[1]), nil },
		"#true": func(_ *state, args []any) (any, error) { return args[0] == true, nil },
		"#list": func(s *state, args []any) (any, error) {
			list := listOf(args[0])
			return list, s.charge(16 * len(list))
		},
		"#negative": func(_ *state, args []any) (any, error) { return arithmetic("-", 0, args[0]), nil },
	}
	for _, op := range []string{"==", "!=", "<", "<=", ">", ">=", "contains", "startsWith", "endsWith", "matches", "in"} {
		out["#"+op] = func(s *state, args []any) (any, error) {
			if err := s.charge(cost(args[0]) + cost(args[1])); err != nil {
				return nil, err
			}
			result := compare(op, args[0], args[1])
			if err := s.sure(op, args[0], args[1], result); err != nil {
				return nil, err
			}
			doubtful, err := s.doubts(op, args[0], args[1], result)
			return result != (doubtful && s.otherwise), err
		}
	}
	for _, op := range []string{"+", "-", "*", "/", "%"} {
		out["#"+op] = func(s *state, args []any) (any, error) {
			if err := s.charge(cost(args[0]) + cost(args[1])); err != nil {
				return nil, err
			}
			return arithmetic(op, args[0], args[1]), nil
		}
	}
	return out
}

// sure fails with errMasked if the result of a comparison may come from what is masked inside of a
// list or a table.
func (s *state) sure(op string, a, b any, result bool) error {
	switch {
	case op == "==" || op == "!=":
		return errors.Join(s.shown(a), s.shown(b))
	case op == "in" && !result:
		return s.shown(listOf(b)) // the keys of a table are known
	case op == "contains" && !result:
		return s.shown(listOf(a))
	default:
		return nil
	}
}

// doubts reports whether a comparison may come out otherwise for the whole text of which a part is
// masked: what is shown of it may have what was asked for, or not have it, but not both.
func (s *state) doubts(op string, a, b any, result bool) (bool, error) {
	switch op {
	case "!=":
		result = !result
	case "<", "<=", ">", ">=":
		result = false
	case "in":
		if table, is := b.(map[string]any); is { // it asks for a key
			var keys []any
			for key := range table {
				keys = append(keys, key)
			}
			b = keys
		}
	}
	if result {
		return false, nil
	}
	for _, v := range []any{a, b} {
		doubtful, err := s.partly(v)
		if s.doubted = s.doubted || doubtful; doubtful || err != nil {
			return doubtful, err
		}
	}
	return false, nil
}

// cost returns what it costs to read a value.
func cost(v any) int {
	switch v := v.(type) {
	case string:
		return 1 + len(v)
	case []any:
		return 16 * (1 + len(v))
	case map[string]any:
		return 16 * (1 + len(v))
	default:
		return 1
	}
}

// compare returns the result of a comparison. It is false if a value is missing, or if the
// values cannot be compared.
func compare(op string, a, b any) bool {
	if a == nil || b == nil {
		return false
	}
	return attempt(func() any {
		switch op {
		case "==":
			return runtime.Equal(a, b)
		case "!=":
			return !runtime.Equal(a, b)
		case "<":
			return runtime.Less(a, b)
		case "<=":
			return runtime.LessOrEqual(a, b)
		case ">":
			return runtime.More(a, b)
		case ">=":
			return runtime.MoreOrEqual(a, b)
		case "in":
			return runtime.In(a, b)
		case "matches":
			return b.(*regexp.Regexp).MatchString(a.(string))
		case "startsWith":
			return strings.HasPrefix(a.(string), b.(string))
		case "endsWith":
			return strings.HasSuffix(a.(string), b.(string))
		}
		if text, ok := a.(string); ok {
			return strings.Contains(text, b.(string))
		}
		return runtime.In(b, a) // a list contains a value
	}) == true
}

// arithmetic returns nil for what cannot be computed.
func arithmetic(op string, a, b any) any {
	return attempt(func() any {
		switch op {
		case "+":
			return runtime.Add(a, b)
		case "-":
			return runtime.Subtract(a, b)
		case "*":
			return runtime.Multiply(a, b)
		case "%":
			return runtime.Modulo(a, b)
		}
		if runtime.Equal(b, 0) {
			return nil
		}
		return runtime.Divide(a, b)
	})
}

// at returns a value of a table, or of a list; the last is at -1. It returns nil if there is
// none.
func at(v, where any) any {
	switch v := v.(type) {
	case map[string]any:
		name, ok := where.(string)
		if !ok {
			return nil
		}
		return v[name]
	case []any:
		i, ok := attempt(func() any { return runtime.ToInt(where) }).(int)
		if i < 0 {
			i += len(v)
		}
		if !ok || i < 0 || i >= len(v) {
			return nil
		}
		return v[i]
	default:
		return nil
	}
}

// listOf returns a list, or none for what is not a list.
func listOf(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{}
}

func keysOf(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := make([]any, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name)
	}
	return out
}

func toText(v any) any {
	switch v := v.(type) {
	case string:
		return v
	case nil, []any, map[string]any:
		return nil
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func toTime(v any) any {
	text, _ := v.(string)
	for _, layout := range []string{
		time.RFC3339Nano, time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly,
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return nil
}
