// Package jsondoctest says for tests which objects a JSON document of dlxctl has, and whether their
// keys are as [jsondoc] promises.
package jsondoctest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// Objects returns the structs that the JSON of a value can have: its own, and then those of its
// members.
func Objects(v any) []reflect.Type {
	var out []reflect.Type
	add(&out, reflect.TypeOf(v))
	return out
}

func add(out *[]reflect.Type, t reflect.Type) {
	t = Element(t)
	if t.Kind() != reflect.Struct || slices.Contains(*out, t) || written(t) {
		return
	}
	*out = append(*out, t)
	for _, f := range jsondoc.Fields(t) {
		add(out, f.Type)
	}
}

// Element returns the type of what is in lists, maps and pointers, in the form in which it is
// written.
func Element(t reflect.Type) reflect.Type {
	for {
		form := jsondoc.Form(t)
		switch form.Kind() { //nolint:exhaustive // the others have no elements
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			t = form.Elem()
		default:
			return form
		}
	}
}

// written reports whether a type writes itself, as a time does.
func written(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Problems returns the members of the JSON of values whose keys are not in camelCase, or which have
// no tag that gives them a key.
func Problems(values ...any) []string {
	camelCase := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	var out []string
	for _, v := range values {
		for _, t := range Objects(v) {
			keys := map[string]bool{}
			for _, f := range jsondoc.Fields(t) {
				switch {
				case f.Key == "":
					out = append(out, fmt.Sprintf("%s.%s has no json tag", f.Owner, f.Name))
				case !camelCase.MatchString(f.Key):
					out = append(out, fmt.Sprintf("%s.%s is %q, which is not in camelCase", f.Owner, f.Name, f.Key))
				case keys[f.Key]:
					out = append(out, fmt.Sprintf("%s has %q twice", t, f.Key))
				}
				keys[f.Key] = true
			}
		}
	}
	return out
}
