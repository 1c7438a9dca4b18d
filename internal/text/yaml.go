package text

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// YAML returns s as a scalar of YAML that is valid in any position: in double quotes, unless it is
// a plain word.
func YAML(s string) string {
	word := regexp.MustCompile(`^[\pL_][\pL\pN._/-]*$`).MatchString(s)
	if !word || YAMLMisread(s) || slices.Contains([]string{"true", "false", "null"}, strings.ToLower(s)) {
		return strconv.Quote(s)
	}
	return s
}

// YAMLMisread reports whether a reader of YAML takes s for something else, as the library for YAML
// writes it: YAML 1.1 has more words for true and false, << merges mappings, and line breaks and
// control characters become blocks without text.
func YAMLMisread(s string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "<<"}, strings.ToLower(s)) ||
		strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) })
}
