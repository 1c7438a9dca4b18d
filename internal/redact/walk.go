package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// paths returns a copy of a tree in which the values that paths name are masked, and remembers
// these values.
func (p *Pass) paths(v any, states []state) any {
	if len(states) == 0 {
		return v
	}
	if hits(states) {
		p.remember(v)
		p.masked++
		return Mask
	}
	switch v := v.(type) {
	case decode.Object:
		out := make(decode.Object, len(v))
		for i, m := range v {
			out[i] = decode.Member{Name: m.Name, Value: p.paths(m.Value, advance(states, m.Name))}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.paths(e, elements(states))
		}
		return out
	case string:
		return p.inText(v, states)
	}
	if m, ok := table(v); ok {
		out := make(map[string]any, len(m))
		for k, e := range m {
			out[k] = p.paths(e, advance(states, k))
		}
		return out
	}
	return v
}

// inText masks what paths name inside a text: in JSON, if the text is JSON, and otherwise all
// of it.
func (p *Pass) inText(s string, states []state) any {
	if tree, ok := nested(s); ok {
		before := p.masked
		if tree = p.paths(tree, states); p.masked > before {
			return decode.Render(tree)
		}
		return s
	}
	if s == "" || !misses(states) {
		return s
	}
	p.remember(s)
	p.masked++
	return Mask
}

// nested returns the tree of a text that is an object or an array of JSON.
func nested(s string) (any, bool) {
	if s = strings.TrimSpace(s); s == "" || s[0] != '{' && s[0] != '[' {
		return nil, false
	}
	tree, err := decode.ParseOrdered(s)
	return tree, err == nil
}

// remember remembers the texts and numbers of a masked value.
func (p *Pass) remember(v any) {
	switch v := v.(type) {
	case nil, bool:
	case string:
		p.secret(v)
	case []byte:
		p.secret(string(v))
	case decode.Object:
		for _, m := range v {
			p.remember(m.Value)
		}
	case []any:
		for _, e := range v {
			p.remember(e)
		}
	default:
		if m, ok := table(v); ok {
			for _, k := range slices.Sorted(maps.Keys(m)) {
				p.remember(m[k])
			}
			return
		}
		p.secret(fmt.Sprint(v))
	}
}

func (p *Pass) secret(s string) {
	if s = strings.TrimSpace(s); len(s) < shortest || s == Mask || p.secrets[s] {
		return
	}
	if p.secrets == nil {
		p.secrets = map[string]bool{}
	}
	p.secrets[s], p.replaced = true, nil
	for _, form := range inJSON(s) {
		p.secrets[form] = true
	}
}

// inJSON returns how clients may write a text in the JSON that an error repeats. They escape what
// they must, or more: what is not ASCII, slashes, or what is special in HTML.
func inJSON(s string) []string {
	var out []string
	for _, html := range []bool{false, true} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		if enc.Encode(s) != nil {
			continue
		}
		form := strings.TrimSuffix(b.String(), "\n")
		form = form[1 : len(form)-1]
		ascii := escaped(form, `\u%04x`, "")
		out = append(out, form, ascii, strings.ReplaceAll(ascii, "/", `\/`))
		form = strings.ReplaceAll(form, `\"`, `\u0022`)
		out = append(out, escaped(form, `\u%04X`, "<>&'+`")) // System.Text.Json of .NET
	}
	return out
}

// escaped escapes what is not ASCII, and the characters of also.
func escaped(s, format, also string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && !strings.ContainsRune(also, r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, format, unit)
		}
	}
	return b.String()
}

// values returns a copy of a tree in which texts, numbers and keys are masked that have a type
// of the rules or are remembered.
func (p *Pass) values(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		return p.text(v)
	case []byte:
		if masked := p.text(string(v)); masked != string(v) {
			return masked
		}
		return v
	case decode.Object:
		out := make(decode.Object, len(v))
		for i, m := range v {
			out[i] = decode.Member{Name: p.text(m.Name), Value: p.values(m.Value)}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.values(e)
		}
		return out
	}
	if m, ok := table(v); ok {
		return p.table(m)
	}
	if len(p.secrets) > 0 && p.secrets[fmt.Sprint(v)] { // a number
		p.masked++
		return Mask
	}
	return v
}

// table masks the keys and values of a map. Keys that are equal once masked are numbered.
func (p *Pass) table(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name := p.text(k)
		for n := 2; name != k; n++ {
			if _, taken := out[name]; !taken {
				break
			}
			name = fmt.Sprintf("%s %d", p.text(k), n)
		}
		out[name] = p.values(m[k])
	}
	return out
}

// table returns a map of any named type, such as those of AMQP clients.
func table(v any) (map[string]any, bool) {
	if m, ok := v.(map[string]any); ok {
		return m, m != nil
	}
	r, want := reflect.ValueOf(v), reflect.TypeFor[map[string]any]()
	if !r.IsValid() || r.Kind() != reflect.Map || !r.CanConvert(want) {
		return nil, false
	}
	m, ok := reflect.TypeAssert[map[string]any](r.Convert(want))
	return m, ok && m != nil
}

// text masks a text: what has a type of the rules, what is remembered, the same inside JSON,
// and words that are base64 or hexadecimal of such a value.
func (p *Pass) text(s string) string {
	out := p.direct(s)
	if tree, ok := nested(out); ok {
		before := p.masked
		if tree = p.values(tree); p.masked > before {
			out = decode.Render(tree)
		}
	}
	out = mask(out, p.encoded(out))
	if out != s {
		p.masked++
	}
	return out
}

func (p *Pass) direct(s string) string {
	if len(p.secrets) > 0 {
		r := p.replaces()
		if r.begins.Replace(s) != s {
			return Mask
		}
		s = r.whole.Replace(s)
	}
	var found []span
	for _, find := range p.rules.find {
		found = append(found, find(s)...)
	}
	return mask(s, found)
}

// replacers find the remembered values in a text. A text that has the first bytes of a long value
// is masked whole: to search for a long value takes the square of its length.
type replacers struct{ whole, begins *strings.Replacer }

// longest is how many bytes of a value are searched at most.
const longest = 256

// replaces returns what finds the remembered values, longer ones first: they may hold shorter ones.
func (p *Pass) replaces() *replacers {
	if p.replaced == nil {
		var whole, begins []string
		for _, s := range slices.SortedFunc(maps.Keys(p.secrets), func(a, b string) int {
			return cmp.Or(len(b)-len(a), strings.Compare(a, b))
		}) {
			if len(s) > longest {
				begins = append(begins, s[:longest], Mask)
			} else {
				whole = append(whole, s, Mask)
			}
		}
		p.replaced = &replacers{strings.NewReplacer(whole...), strings.NewReplacer(begins...)}
	}
	return p.replaced
}

// encoded finds words of a text that are base64 or hexadecimal of one that would be masked.
func (p *Pass) encoded(s string) []span {
	return slices.DeleteFunc(words(s), func(w span) bool { return !p.hides(s[w.begin:w.end]) })
}

// hides reports whether a word is base64 or hexadecimal of a text that would be masked.
func (p *Pass) hides(word string) bool {
	if digits := strings.TrimPrefix(word, "0x"); isHex(digits) {
		if b, err := hex.DecodeString(digits); err == nil && p.direct(string(b)) != string(b) {
			return true
		}
	}
	word = strings.TrimRight(word, "=")
	alphabet := base64.RawStdEncoding
	if strings.ContainsAny(word, "-_") {
		alphabet = base64.RawURLEncoding
	}
	b, err := alphabet.DecodeString(word)
	return err == nil && p.direct(string(b)) != string(b)
}
