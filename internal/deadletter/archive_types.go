package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// exact is a text of AMQP, which need not be UTF-8. JSON has it as it is, or as base64 behind
// a prefix.
type exact string

const exactPrefix = "base64:"

// MarshalText implements [encoding.TextMarshaler].
func (e exact) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(e)) && !strings.HasPrefix(string(e), exactPrefix) {
		return []byte(e), nil
	}
	return []byte(exactPrefix + base64.StdEncoding.EncodeToString([]byte(e))), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *exact) UnmarshalText(text []byte) error {
	coded, ok := strings.CutPrefix(string(text), exactPrefix)
	if !ok {
		*e = exact(text)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return fmt.Errorf("%.40q is not base64: %w", coded, err)
	}
	*e = exact(raw)
	return nil
}

// tableJSON is headers with their types, as {"count": {"int32": 2}}. A void is null.
type tableJSON struct{ table amqp091.Table }

// MarshalJSON implements [json.Marshaler].
func (t tableJSON) MarshalJSON() ([]byte, error) {
	members, err := typedMembers(t.table)
	if err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// typed returns a value with its type, for JSON.
func typed(v any) (any, error) {
	var name string
	var value any
	var err error
	switch v := v.(type) {
	case nil:
		return nil, nil //nolint:nilnil // a void of AMQP
	case amqp091.Table:
		name = "table"
		value, err = typedMembers(v)
	case []any:
		name = "array"
		value, err = typedList(v)
	default:
		name, value, err = scalar(v)
	}
	return map[string]any{name: value}, err
}

func typedMembers(t amqp091.Table) (map[string]any, error) {
	out := make(map[string]any, len(t))
	for name, v := range t {
		coded, err := exact(name).MarshalText()
		if err != nil {
			return nil, err
		}
		if out[string(coded)], err = typed(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func typedList(list []any) ([]any, error) {
	out := make([]any, len(list))
	for i, v := range list {
		var err error
		if out[i], err = typed(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scalar returns the name of the type of a value, and the value for JSON.
func scalar(v any) (name string, value any, err error) {
	switch v := v.(type) {
	case bool, int8, int16, int32, int64, uint8, uint16, uint32:
		return fmt.Sprintf("%T", v), v, nil
	case int:
		return "int64", v, nil
	case float32:
		return "float32", finiteOr(float64(v), v), nil
	case float64:
		return "float64", finiteOr(v, v), nil
	case string:
		return "string", exact(v), nil
	case []byte:
		return "bytes", v, nil
	case time.Time:
		return "timestamp", v.Unix(), nil
	case amqp091.Decimal:
		return "decimal", decimalJSON{v.Scale, v.Value}, nil
	default:
		return "", nil, fmt.Errorf("a header of the type %T cannot be exported", v)
	}
}

type decimalJSON struct {
	Scale uint8 `json:"scale"`
	Value int32 `json:"value"`
}

func finiteOr(f float64, v any) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return v
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *tableJSON) UnmarshalJSON(raw []byte) error {
	members, err := readTable(raw, 0)
	t.table = members
	return err
}

func readTyped(raw []byte, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("a header is nested more than %d times", maxDepth)
	}
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // a void of AMQP
	}
	var one map[string]json.RawMessage
	if err := json.Unmarshal(raw, &one); err != nil || len(one) != 1 {
		return nil, fmt.Errorf(`header %.40q has no type; write it as {"string": "x"} or {"int32": 2}`, raw)
	}
	for kind, value := range one {
		v, err := readKind(kind, value, depth)
		if err != nil {
			return nil, fmt.Errorf("%s %.40q: %w", kind, value, err)
		}
		return v, nil
	}
	return nil, errors.ErrUnsupported // one has one entry
}

// readKind reads a value of a type. It refuses a number that does not fit.
func readKind(kind string, raw []byte, depth int) (any, error) {
	switch kind {
	case "bool":
		return into[bool](raw)
	case "int8":
		return into[int8](raw)
	case "int16":
		return into[int16](raw)
	case "int32":
		return into[int32](raw)
	case "int64":
		return into[int64](raw)
	case "uint8":
		return into[uint8](raw)
	case "uint16":
		return into[uint16](raw)
	case "uint32":
		return into[uint32](raw)
	case "bytes":
		return into[[]byte](raw)
	case "float32":
		f, err := readFloat(raw, 32)
		return float32(f), err
	case "float64":
		return readFloat(raw, 64)
	case "string":
		s, err := into[exact](raw)
		return string(s), err
	case "timestamp":
		seconds, err := into[int64](raw)
		return time.Unix(seconds, 0), err
	case "decimal":
		d, err := into[decimalJSON](raw)
		return amqp091.Decimal{Scale: d.Scale, Value: d.Value}, err
	case "table":
		return readTable(raw, depth)
	case "array":
		return readArray(raw, depth)
	default:
		return nil, errors.New("no such type; the types are bool, int8 to int64, uint8 to uint32, float32, float64, " +
			"string, bytes, timestamp, decimal, table and array")
	}
}

func into[T any](raw []byte) (T, error) {
	var v T
	if string(raw) == "null" {
		return v, errors.New("a value is missing")
	}
	err := json.Unmarshal(raw, &v)
	return v, unmarshalError(err)
}

func readFloat(raw []byte, bits int) (float64, error) {
	return strconv.ParseFloat(strings.Trim(string(raw), `"`), bits)
}

func readTable(raw []byte, depth int) (amqp091.Table, error) {
	members, err := into[map[exact]json.RawMessage](raw)
	if err != nil {
		return nil, err
	}
	out := make(amqp091.Table, len(members))
	for name, member := range members {
		v, err := readTyped(member, depth+1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = v
	}
	return out, nil
}

func readArray(raw []byte, depth int) ([]any, error) {
	members, err := into[[]json.RawMessage](raw)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(members))
	for i, member := range members {
		v, err := readTyped(member, depth+1)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}
