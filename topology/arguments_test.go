package topology_test

import (
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

func TestCanonicalValue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want any }{
		"int":                      {int(-7), int64(-7)},
		"int8":                     {int8(math.MinInt8), int64(math.MinInt8)},
		"int16":                    {int16(math.MinInt16), int64(math.MinInt16)},
		"int32":                    {int32(math.MinInt32), int64(math.MinInt32)},
		"int64":                    {int64(math.MinInt64), int64(math.MinInt64)},
		"uint8":                    {uint8(math.MaxUint8), int64(math.MaxUint8)},
		"uint16":                   {uint16(math.MaxUint16), int64(math.MaxUint16)},
		"uint32":                   {uint32(math.MaxUint32), int64(math.MaxUint32)},
		"uint64":                   {uint64(math.MaxInt64), int64(math.MaxInt64)},
		"float32 that is whole":    {float32(10000), int64(10000)},
		"float64 that is whole":    {float64(1e15), int64(1e15)},
		"float64 that is not":      {0.5, 0.5},
		"float64 beyond 64 bits":   {1e300, 1e300},
		"minus zero":               {math.Copysign(0, -1), int64(0)},
		"number of JSON":           {json.Number("10000"), int64(10000)},
		"number of JSON, exponent": {json.Number("1e4"), int64(10000)},
		"number of JSON, huge":     {json.Number("9223372036854775807"), int64(math.MaxInt64)},
		"number of JSON, fraction": {json.Number("1.25"), 1.25},
		"string":                   {"1", "1"},
		"bytes":                    {[]byte("at-least-once"), "at-least-once"},
		"bool":                     {true, true},
		"null":                     {nil, nil},
		"list":                     {[]any{int32(1), []byte("a"), []any{2.0}}, []any{int64(1), "a", []any{int64(2)}}},
		"empty list":               {[]any{}, []any{}},
		"table": {
			map[string]any{"a": map[string]any{"b": uint8(1)}},
			topology.Arguments{"a": topology.Arguments{"b": int64(1)}},
		},
		"canonical table": {topology.Arguments{"a": int8(1)}, topology.Arguments{"a": int64(1)}},
		"empty table":     {map[string]any{}, topology.Arguments{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := topology.CanonicalValue(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("canonical value (-want +got):\n%s", d)
			}
			again, err := topology.CanonicalValue(got)
			if err != nil || !cmp.Equal(got, again) {
				t.Errorf("its own canonical form is %v, error %v", again, err)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   any
		want string
	}{
		"an integer beyond 64 bits": {
			uint64(math.MaxUint64),
			`argument "a": 18446744073709551615 is beyond 64 bits with a sign`,
		},
		"a number that is none": {json.Number("x"), `argument "a": "x" is not a number`},
		"a struct":              {struct{}{}, `argument "a": a value of type struct {} does not fit an AMQP table`},
		"one in a list": {
			[]any{make(chan int)},
			`argument "a": a value of type chan int does not fit an AMQP table`,
		},
		"one in a table": {
			map[string]any{"b": uint64(1 << 63)},
			`argument "a": argument "b": 9223372036854775808 is beyond 64 bits with a sign`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := topology.Canonical(map[string]any{"a": tc.in})
			if err == nil || err.Error() != tc.want {
				t.Errorf("error is %v, want %s", err, tc.want)
			}
		})
	}
}

func TestNilAndEmptyArgumentsAreEqual(t *testing.T) {
	t.Parallel()
	for _, in := range []map[string]any{nil, {}} {
		if got, err := topology.Canonical(in); got != nil || err != nil {
			t.Errorf("Canonical(%v) is %v, error %v", in, got, err)
		}
	}
	if !topology.Arguments(nil).Equal(topology.Arguments{}) {
		t.Error("nil and empty arguments differ")
	}
}

func TestArgumentsEqual(t *testing.T) {
	t.Parallel()
	args := topology.Arguments{"a": int64(1)}
	for name, tc := range map[string]struct {
		other topology.Arguments
		equal bool
	}{
		"the same":              {topology.Arguments{"a": int64(1)}, true},
		"a string":              {topology.Arguments{"a": "1"}, false},
		"another number":        {topology.Arguments{"a": int64(2)}, false},
		"another name":          {topology.Arguments{"b": int64(1)}, false},
		"one more":              {topology.Arguments{"a": int64(1), "b": nil}, false},
		"a list of it":          {topology.Arguments{"a": []any{int64(1)}}, false},
		"a name that quotes":    {topology.Arguments{`a":1,"b`: int64(1)}, false},
		"none":                  {nil, false},
		"a float of the broker": {topology.Arguments{"a": float64(1)}, false},
		"a float in its text":   {topology.Arguments{"a": "1.0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := args.Equal(tc.other); got != tc.equal {
				t.Errorf("%v equal to %v: %v", args, tc.other, got)
			}
		})
	}
}

// The copies that change arguments leave the original as it was, nil included.
func TestArgumentsAreCopied(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		args := topology.Arguments(rapid.MapOf(rapid.SampledFrom([]string{"a", "x-b", "c"}),
			rapid.Map(rapid.Int64(), func(i int64) any { return i })).Draw(t, "args"))
		before := maps.Clone(args)
		if got := args.With("a", "z"); got["a"] != "z" {
			t.Fatalf("With gives %v", got)
		}
		if got := args.Without("a", "c"); got["a"] != nil || got["c"] != nil {
			t.Fatalf("Without gives %v", got)
		}
		if got := args.WithoutX(); got["x-b"] != nil {
			t.Fatalf("WithoutX gives %v", got)
		}
		if d := cmp.Diff(before, args); d != "" {
			t.Fatalf("the original changed:\n%s", d)
		}
	})
	var none topology.Arguments
	if got := none.With("a", int64(1)).Without("a").WithoutX(); len(got) != 0 {
		t.Errorf("arguments that were nil are %v", got)
	}
}

// An integer of any width is one, and a whole float or a text of digits is none.
func TestInteger(t *testing.T) {
	t.Parallel()
	for _, v := range []any{7, int8(7), int16(7), int32(7), int64(7), uint8(7), uint16(7), uint32(7)} {
		if n, ok := topology.Integer(v); !ok || n != 7 {
			t.Errorf("%T: %d, %t", v, n, ok)
		}
	}
	for _, v := range []any{7.0, float32(7), "7", true, nil} {
		if n, ok := topology.Integer(v); ok {
			t.Errorf("%T is taken for the integer %d", v, n)
		}
	}
}

// A whole number that a binding has as a float stays one, at any depth: a headers exchange of 4.x
// does not match it with the integer.
func TestCanonicalBinding(t *testing.T) {
	t.Parallel()
	d := json.NewDecoder(strings.NewReader(`{"i": 1, "f": 1.0, "e": 1e2, "half": 0.5, "list": [1, 2.0, {"f": 3.0}]}`))
	d.UseNumber()
	var read map[string]any
	if err := d.Decode(&read); err != nil {
		t.Fatal(err)
	}
	got, err := topology.CanonicalBinding(read)
	want := topology.Arguments{
		"i": int64(1), "f": 1.0, "e": 100.0, "half": 0.5,
		"list": []any{int64(1), 2.0, topology.Arguments{"f": 3.0}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
