package topology

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// DidYouMean returns the remedy for a name that is not among names: the nearest of them, or
// otherwise if none is near.
func DidYouMean(name string, names []string, otherwise string) string {
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// Suggestion returns the end of an error about a name that is not among names: "; did you mean
// NAME?", or nothing if none is near.
func Suggestion(name string, names []string) string {
	if fix := DidYouMean(name, names, ""); fix != "" {
		return "; " + fix
	}
	return ""
}

// Nearest returns the word of words that name was probably meant to be, or "".
func Nearest(name string, words []string) string {
	best, least := "", min(len(name), 2+len(name)/3) // from there on it is another word
	for _, w := range words {
		if longest := max(len(w), len(name)); longest > MaxNameBytes || longest-min(len(w), len(name)) > utf8.UTFMax*least {
			continue // too far apart, or no name at all
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(y)]
}
