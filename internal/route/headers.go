package route

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// headersMatcher has the bindings of a headers exchange. A binding of which all headers must match
// is found by one of them, the one that the fewest bindings want, so that a message is compared
// with few bindings of many.
type headersMatcher struct {
	dialect  dialect
	bindings []headersBinding
	byHeader map[wantedHeader][]int
	others   []int // those that no single header decides
}

// headersBinding is what one binding compares.
type headersBinding struct {
	// anyMatches: one header is enough. Otherwise all must match, and a binding that compares
	// nothing matches every message.
	anyMatches bool
	wanted     []wantedHeader
}

// wantedHeader is a header with the value that a binding wants. Nil wants the header, with any
// value.
type wantedHeader struct {
	name  string
	value any
}

// newHeadersMatcher reads the arguments of the bindings. Those that begin with x- are compared
// with all-with-x and any-with-x alone, the owner mark of dlxctl included; x-match never is.
func newHeadersMatcher(bindings []topology.Binding, d dialect) headersMatcher {
	h := headersMatcher{dialect: d, bindings: make([]headersBinding, len(bindings)), byHeader: map[wantedHeader][]int{}}
	wanted := map[wantedHeader]int{} // by how many bindings
	for i, b := range bindings {
		mode, _ := b.Arguments[topology.ArgMatch].(string)
		withX := strings.HasSuffix(mode, "-with-x")
		h.bindings[i].anyMatches = strings.HasPrefix(mode, "any")
		for _, name := range b.Arguments.Names() {
			if name == topology.ArgMatch || strings.HasPrefix(name, "x-") && !withX {
				continue
			}
			w := wantedHeader{name, b.Arguments[name]}
			h.bindings[i].wanted = append(h.bindings[i].wanted, w)
			if w.decides() {
				wanted[w]++
			}
		}
	}
	for i, b := range h.bindings {
		if w, ok := b.rarest(wanted); ok {
			h.byHeader[w] = append(h.byHeader[w], i)
		} else {
			h.others = append(h.others, i)
		}
	}
	return h
}

// decides reports whether a message without this header and value cannot match, for certain.
func (w wantedHeader) decides() bool {
	switch w.value.(type) {
	case int64, bool, string:
		return w.value != reportedVoid && w.name != topology.HeaderDeath
	default:
		return false
	}
}

// rarest returns the header that decides about a binding and that the fewest others want. It
// reports false if none decides.
func (b headersBinding) rarest(wanted map[wantedHeader]int) (best wantedHeader, found bool) {
	for _, w := range b.wanted {
		if !b.anyMatches && w.decides() && (!found || wanted[w] < wanted[best]) {
			best, found = w, true
		}
	}
	return best, found
}

func (h headersMatcher) match(m Message) (matched, unknown []int) {
	for _, i := range h.candidates(m) {
		switch h.dialect.matchHeaders(h.bindings[i], m) {
		case yes:
			matched = append(matched, i)
		case unsure:
			unknown = append(unknown, i)
		case no:
		}
	}
	slices.Sort(matched)
	slices.Sort(unknown)
	return matched, unknown
}

// candidates returns the bindings that may match, each once.
func (h headersMatcher) candidates(m Message) []int {
	if len(h.byHeader) == 0 {
		return h.others
	}
	out := slices.Clone(h.others)
	for name, v := range m.Headers {
		switch v := h.dialect.scalar(v).(type) {
		case int64, bool, string:
			out = append(out, h.byHeader[wantedHeader{name, v}]...)
		case float64: // it may match an integer
			if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
				out = append(out, h.byHeader[wantedHeader{name, int64(v)}]...)
			}
		}
	}
	return out
}

func (d dialect) matchHeaders(b headersBinding, m Message) verdict {
	decided, undecided := yes, false
	if b.anyMatches {
		decided = no
	}
	for _, w := range b.wanted {
		switch v := d.matchHeader(w, m); {
		case v == unsure:
			undecided = true
		case v == yes && b.anyMatches, v == no && !b.anyMatches:
			return v
		}
	}
	if undecided {
		return unsure
	}
	return decided
}

// matchHeader compares one header. Since 3.13 the deaths of a message are not a header while it is
// routed, but a header x-death that a client published is one: the router does not tell them
// apart.
func (d dialect) matchHeader(w wantedHeader, m Message) verdict {
	have, ok := m.Headers[w.name]
	switch {
	case w.name == topology.HeaderDeath && len(m.Deaths) > 0 && !d.headerDeaths:
		return unsure
	case !ok:
		return no
	case w.value == nil:
		return yes
	case w.value == reportedVoid && have != reportedVoid:
		return unsure
	default:
		return d.same(w.value, have)
	}
}

// reportedVoid is how the management API writes the value void, which a binding has that wants a
// header with any value. It may also be the text.
const reportedVoid = "undefined"

// same reports whether a header matches the value that a binding wants. Values of different kinds
// never match, except for integers and floats up to 3.12. All integers are of one kind, and so
// are timestamps; texts and bytes are another.
func (d dialect) same(want, have any) verdict {
	switch have := d.scalar(have).(type) {
	case int64:
		switch want := want.(type) {
		case int64:
			return sure(want == have)
		case float64:
			return d.sameNumber(want, have)
		}
	case float64:
		switch want := want.(type) {
		case int64:
			return d.sameNumber(have, want)
		case float64:
			if want == 0 && have == 0 && math.Signbit(want) != math.Signbit(have) && d.floats != yes {
				return unsure // the version of Erlang decides
			}
			return sure(want == have)
		}
	case string, bool:
		return sure(want == have)
	case []any:
		return sameList(want, have)
	case complexValue:
		switch want.(type) {
		case []any, topology.Arguments:
			return unsure // AMQP has more types inside than the binding shows
		}
	}
	return no
}

// sameNumber compares a float with an integer.
func (d dialect) sameNumber(f float64, i int64) verdict {
	if f != math.Trunc(f) || math.Abs(f) >= 1<<63 || int64(f) != i {
		return no
	}
	return d.floats
}

// sameList compares lists. Lists of texts and booleans match if all their elements do. In
// others AMQP has types that the binding does not show.
func sameList(want any, have []any) verdict {
	list, ok := want.([]any)
	if !ok {
		if table, isTable := want.(topology.Arguments); isTable && len(table)+len(have) == 0 {
			return unsure
		}
		return no
	}
	if len(list) != len(have) {
		return no
	}
	result := yes
	for i, h := range have {
		switch h.(type) {
		case string, bool:
			if list[i] != h {
				return no
			}
		default:
			result = unsure
		}
	}
	return result
}

func sure(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// complexValue is a header that is neither a single value nor a list.
type complexValue struct{}

// scalar returns the value of a header in one of few types: int64, float64, string, bool, nil,
// []any, or complexValue. The header may have the types of an AMQP library or of
// [topology.Arguments].
func (d dialect) scalar(v any) any {
	switch v := v.(type) {
	case nil, string, bool, int64, float64, []any:
		return v
	case []byte:
		return string(v)
	case float32:
		return float64(v)
	case time.Time:
		if d.millis {
			return v.Unix() * 1000
		}
		return v.Unix()
	}
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return r.Int()
	case r.CanUint() && r.Uint() <= math.MaxInt64:
		return int64(r.Uint())
	default:
		return complexValue{}
	}
}

// texts returns the texts of a list in a header, as CC has them. It reports false for a value that
// is not a list.
func texts(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		s, isTexts := v.([]string)
		return slices.Clone(s), isTexts
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out, true
}

// fieldsOf returns the fields of a table in a header, nil for a value that is not a table.
func fieldsOf(v any) map[string]any {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Map || r.Type().Key().Kind() != reflect.String {
		return nil
	}
	out := make(map[string]any, r.Len())
	for _, key := range r.MapKeys() {
		out[key.String()] = r.MapIndex(key).Interface()
	}
	return out
}
