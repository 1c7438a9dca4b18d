package generate

import (
	"encoding/json"
	"io"
)

// writeJSON writes v for people and programs to read.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
