package redact

import "strings"

// widest is more bytes than a value with spaces in it has, of those that [Rules.Types] name. Other
// values of these types have no spaces.
const widest = 80

// Cut returns a text that others have shortened at its end, and with front at its beginning too,
// without what the rules may name in part there: a half of it would not be found.
func (p *Pass) Cut(s string, front bool) string {
	if p.rules.nothing() {
		return s
	}
	out := s[:len(s)-p.begun(s, strings.HasSuffix, func(secret string, n int) string { return secret[:n] })]
	end := max(0, len(out)-widest)
	out = out[:strings.LastIndexAny(out[:end], spaces)+1] + Mask
	if !front {
		return out
	}
	rest := out[p.begun(out, strings.HasPrefix, func(secret string, n int) string { return secret[len(secret)-n:] }):]
	begin := min(widest, len(rest))
	if i := strings.IndexAny(rest[begin:], spaces); i >= 0 {
		return Mask + rest[begin+i:]
	}
	return Mask
}

// spaces are the characters that end a word.
const spaces = " \t\r\n"

// begun returns how many bytes at an end of a text are a part of a value that was masked.
func (p *Pass) begun(s string, at func(s, part string) bool, part func(secret string, n int) string) int {
	most := 0
	for secret := range p.secrets {
		for n := min(len(secret), len(s)); n > most; n-- {
			if at(s, part(secret, n)) {
				most = n
			}
		}
	}
	return most
}
