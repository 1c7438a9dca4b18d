package deadletter

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm/runtime"

	"github.com/dlxctl/dlxctl/topology"
)

// errFilter is wrapped by errors of a filter at work.
var errFilter = errors.New("the filter cannot be evaluated")

// state is what an expression may use for one message.
type state struct {
	now  time.Time
	work int
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
		"len":    {new(func(any) int), one(length)},
		"lower":  {new(func(string) string), texts(strings.ToLower)},
		"upper":  {new(func(string) string), texts(strings.ToUpper)},
		"trim":   {new(func(string) string), texts(strings.TrimSpace)},
		"string": {new(func(any) string), one(toText)},
		"int":    {new(func(any) int), one(toInt)},
		"float":  {new(func(any) float64), one(toFloat)},
		"abs":    {new(func(any) float64), one(absolute)},
		"first":  {new(func(any) any), one(func(v any) any { return at(v, 0) })},
		"last":   {new(func(any) any), one(func(v any) any { return at(v, -1) })},
		"keys":   {new(func(any) []any), one(keysOf)},
		"date":   {new(func(string) time.Time), one(toTime)},
		"duration": {new(func(string) time.Duration), one(func(v any) any {
			text, _ := v.(string)
			d, err := time.ParseDuration(text)
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
		return call(s, params[1:])
	}
}

// one makes a function of one argument.
func one(f func(any) any) func(*state, []any) (any, error) {
	return func(s *state, args []any) (any, error) {
		if len(args) != 1 {
			return nil, nil
		}
		return f(args[0]), s.charge(cost(args[0]))
	}
}

// texts makes a function of a text.
func texts(f func(string) string) func(*state, []any) (any, error) {
	return func(s *state, args []any) (any, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, nil
		}
		if err := s.charge(len(text)); err != nil {
			return nil, err
		}
		return f(text), nil
	}
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
			return compare(op, args[0], args[1]), nil
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
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in":
		return within(a, b)
	case "matches":
		re, ok := b.(*regexp.Regexp)
		text, isText := a.(string)
		return ok && isText && re.MatchString(text)
	case "contains", "startsWith", "endsWith":
		return search(op, a, b)
	default:
		order, ok := ordered(a, b)
		return ok && holds(op, order)
	}
}

// holds reports whether a comparison is true for two values of that order.
func holds(op string, order int) bool {
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	default:
		return order >= 0
	}
}

// equal compares numbers by value, times by moment, and all else as it is.
func equal(a, b any) bool {
	if order, ok := ordered(a, b); ok {
		return order == 0
	}
	switch a.(type) {
	case bool, string, map[string]any, []any:
		return runtime.Equal(a, b)
	default:
		return false
	}
}

func within(a, b any) bool {
	if m, ok := b.(map[string]any); ok {
		name, isText := a.(string)
		_, has := m[name]
		return isText && has
	}
	return slices.ContainsFunc(listOf(b), func(e any) bool { return e != nil && equal(a, e) })
}

func search(op string, a, b any) bool {
	text, ok := a.(string)
	part, isText := b.(string)
	switch {
	case !ok:
		return op == "contains" && within(b, a)
	case !isText:
		return false
	case op == "startsWith":
		return strings.HasPrefix(text, part)
	case op == "endsWith":
		return strings.HasSuffix(text, part)
	default:
		return strings.Contains(text, part)
	}
}

// ordered compares two values that have an order: numbers, texts, times and durations. It
// reports false for values that have none, as NaN.
func ordered(a, b any) (int, bool) {
	if x, ok := topology.Integer(a); ok {
		if y, ok := topology.Integer(b); ok {
			return compareOrdered(x, y), true
		}
	}
	if x, ok := toReal(a); ok {
		y, ok := toReal(b)
		return compareOrdered(x, y), ok && !math.IsNaN(x) && !math.IsNaN(y)
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case time.Time:
		b, ok := b.(time.Time)
		return a.Compare(b), ok
	case time.Duration:
		b, ok := b.(time.Duration)
		return compareOrdered(a, b), ok
	default:
		return 0, false
	}
}

func compareOrdered[T int64 | float64 | time.Duration](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// toReal returns a number as a float.
func toReal(v any) (float64, bool) {
	if n, ok := topology.Integer(v); ok {
		return float64(n), true
	}
	f, ok := v.(float64)
	return f, ok
}

// longestText limits what an expression can make of texts by adding them.
const longestText = 1 << 20

// arithmetic returns nil for what cannot be computed.
func arithmetic(op string, a, b any) any {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok && op == "+" && len(x)+len(y) <= longestText {
			return x + y
		}
		return nil
	case time.Time:
		switch y := b.(type) {
		case time.Time:
			if op == "-" {
				return x.Sub(y)
			}
		case time.Duration:
			if op == "-" {
				return x.Add(-y)
			}
			if op == "+" {
				return x.Add(y)
			}
		}
		return nil
	case time.Duration:
		if y, ok := b.(time.Duration); ok && (op == "+" || op == "-") {
			if op == "-" {
				y = -y
			}
			return x + y
		}
		return nil
	}
	return compute(op, a, b)
}

func compute(op string, a, b any) any {
	x, ok := toReal(a)
	y, also := toReal(b)
	if !ok || !also {
		return nil
	}
	switch {
	case op == "+":
		x += y
	case op == "-":
		x -= y
	case op == "*":
		x *= y
	case op == "/" && y != 0:
		x /= y
	case op == "%" && y != 0:
		x = math.Mod(x, y)
	default:
		return nil
	}
	return x
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
		f, ok := toReal(where)
		i := int(f)
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

func length(v any) any {
	switch v := v.(type) {
	case string:
		return len([]rune(v))
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	default:
		return nil
	}
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

func toInt(v any) any {
	if text, ok := v.(string); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return nil
		}
		return n
	}
	if f, ok := v.(float64); ok {
		return int64(f)
	}
	n, ok := topology.Integer(v)
	if !ok {
		return nil
	}
	return n
}

func toFloat(v any) any {
	if text, ok := v.(string); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil
		}
		return f
	}
	f, ok := toReal(v)
	if !ok {
		return nil
	}
	return f
}

func absolute(v any) any {
	f, ok := toReal(v)
	if !ok {
		return nil
	}
	return math.Abs(f)
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
