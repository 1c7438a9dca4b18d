package redact

import (
	"regexp"
	"slices"
	"strings"
)

// span is a part of a text, in bytes.
type span struct{ begin, end int }

// finder returns the function that finds a kind of values in a text, or nil for an unknown kind.
func finder(name string) func(string) []span {
	switch name {
	case "email":
		may := func(s string) bool { return strings.Contains(s, "@") || strings.Contains(s, "%40") }
		return matches(may, regexp.MustCompile(`(?:"[^"\n]{1,64}"|[\p{L}\p{N}._%+'~-]+)(?:@|%40)`+
			`(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]*[\p{L}\p{N}])?\.)+[\p{L}\p{N}-]*[\p{L}\p{N}]`))
	case "bearer":
		// The second form is a JSON Web Token, wherever it is.
		may := func(s string) bool { return strings.Contains(s, "eyJ") || hasWord(s, "bearer") }
		return matches(may, regexp.MustCompile(`(?i:bearer)[\s:]+[A-Za-z0-9._~+/=-]+`+
			`|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*`))
	case "iban":
		return ibans
	}
	return nil
}

// matches returns a function that finds what an expression matches, in a text that may have a
// match: most have none, and to find that out costs little.
func matches(may func(string) bool, re *regexp.Regexp) func(string) []span {
	return func(s string) []span {
		if !may(s) {
			return nil
		}
		var out []span
		for _, m := range re.FindAllStringIndex(s, -1) {
			out = append(out, span{m[0], m[1]})
		}
		return out
	}
}

// hasWord reports whether a text has a word of small ASCII letters, in whatever case.
func hasWord(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i]|0x20 == word[0] && strings.EqualFold(s[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// words finds the parts of a text that may be base64 or hexadecimal of a value that is masked.
func words(s string) []span {
	var out []span
	for i := 0; i < len(s); i++ {
		begin := i
		for i < len(s) && isWord(s[i]) {
			i++
		}
		length := i - begin
		for length > 0 && i < len(s) && s[i] == '=' && i-begin-length < 2 {
			i++
		}
		if length >= 8 { // the base64 of the shortest value
			out = append(out, span{begin, i})
		}
	}
	return out
}

// isWord reports a character of base64 in one of its alphabets.
func isWord(c byte) bool {
	return isAlpha(c) || isDigit(c) || c == '+' || c == '/' || c == '_' || c == '-'
}

// mask replaces parts of a text. Parts may overlap.
func mask(s string, parts []span) string {
	if len(parts) == 0 {
		return s
	}
	slices.SortFunc(parts, func(a, b span) int { return a.begin - b.begin })
	var out strings.Builder
	end := 0
	for _, p := range parts {
		if p.begin >= end {
			out.WriteString(s[end:p.begin] + Mask)
		}
		end = max(end, p.end)
	}
	return out.String() + s[end:]
}

// ibanLengths are the lengths of account numbers by country, from the IBAN registry.
const ibanLengths = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 " +
	"ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 " +
	"LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 " +
	"RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"

// ibanLength returns the length of the account numbers of a country, or 0.
func ibanLength(country string) int {
	i := strings.Index(ibanLengths, strings.ToUpper(country))
	if i < 0 || i%5 != 0 {
		return 0
	}
	return int(ibanLengths[i+2]-'0')*10 + int(ibanLengths[i+3]-'0')
}

// ibans finds account numbers whose checksum is right, written in one piece or in groups.
func ibans(s string) []span {
	var out []span
	for i := 0; i+4 <= len(s); i++ {
		if !isAlpha(s[i]) || !isAlpha(s[i+1]) || !isDigit(s[i+2]) || !isDigit(s[i+3]) {
			continue
		}
		if end := iban(s, i); end > 0 {
			out = append(out, span{i, end})
			i = end - 1
		}
	}
	return out
}

// iban returns the end of the account number that begins at i, or 0. Each character is two
// digits or one in the number that 97 must divide with the rest 1 (ISO 7064).
func iban(s string, i int) int {
	length := ibanLength(s[i : i+2])
	if length == 0 {
		return 0
	}
	digits := make([]byte, 0, length)
	for ; i < len(s) && len(digits) < length; i++ {
		switch c := s[i]; {
		case isAlpha(c) || isDigit(c):
			digits = append(digits, c)
		case (c == ' ' || c == '-' || c == '.') && i+1 < len(s) && (isAlpha(s[i+1]) || isDigit(s[i+1])):
		default:
			return 0
		}
	}
	if len(digits) < length {
		return 0
	}
	rest := 0
	for _, c := range slices.Concat(digits[4:], digits[:4]) {
		if isDigit(c) {
			rest = (rest*10 + int(c-'0')) % 97
			continue
		}
		rest = (rest*100 + int(c|0x20-'a') + 10) % 97
	}
	if rest != 1 {
		return 0
	}
	return i
}

// isHex reports whether a text has nothing but hexadecimal digits.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
