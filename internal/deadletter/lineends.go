package deadletter

import (
	"bytes"
	"slices"
)

// LineEnds returns a text that was edited where each line end is a line feed, as a form of a web
// page has it, with the line ends of the text before: each line that was not changed has its own, a
// line in place of another one has that of the other one, and a new one that of the line before it.
func LineEnds(before, edited []byte) []byte {
	old := linesOf(before)
	wanted := linesOf(bytes.ReplaceAll(bytes.ReplaceAll(edited, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n")))
	standard := []byte("\n")
	if len(old) > 0 && len(old[0].end) > 0 {
		standard = old[0].end
	}
	from := unchanged(old, wanted)
	kept := make([]bool, len(old))
	for _, i := range from {
		if i >= 0 {
			kept[i] = true
		}
	}
	var out bytes.Buffer
	next := 0 // the first line of old behind those that are dealt with
	for i, line := range wanted {
		was := from[i]
		if was < 0 && next < len(old) && !kept[next] {
			was = next
		}
		if was >= 0 {
			next = was + 1
			if len(old[was].end) > 0 {
				standard = old[was].end
			}
		}
		out.Write(line.text)
		if len(line.end) > 0 { // the last line may have none
			out.Write(standard)
		}
	}
	return out.Bytes()
}

// endedLine is a line, and what ends it: a carriage return, a line feed, both, or nothing.
type endedLine struct{ text, end []byte }

func linesOf(b []byte) (out []endedLine) {
	for len(b) > 0 {
		at := bytes.IndexAny(b, "\r\n")
		if at < 0 {
			return append(out, endedLine{text: b})
		}
		size := 1
		if bytes.HasPrefix(b[at:], []byte("\r\n")) {
			size = 2
		}
		out = append(out, endedLine{b[:at], b[at : at+size]})
		b = b[at+size:]
	}
	return out
}

// mostCells limits the memory of a comparison, some 16 MB.
const mostCells = 4_000_000

// unchanged returns for each line of b which line of a it is; -1 is none. What is equal at the
// beginning and at the end stays, and so does a longest common sequence of the rest, unless the
// rest is too large to find one.
func unchanged(a, b []endedLine) []int {
	out := slices.Repeat([]int{-1}, len(b))
	same := func(i, j int) bool { return bytes.Equal(a[i].text, b[j].text) }
	first := 0
	for first < min(len(a), len(b)) && same(first, first) {
		out[first] = first
		first++
	}
	lastA, lastB := len(a), len(b)
	for lastA > first && lastB > first && same(lastA-1, lastB-1) {
		lastA, lastB = lastA-1, lastB-1
		out[lastB] = lastA
	}
	rows, columns := lastA-first, lastB-first
	if rows == 0 || columns == 0 || rows > mostCells/columns {
		return out
	}
	// length[i][j] is that of a longest common sequence from there on.
	length := make([][]int32, rows+1)
	for i := range length {
		length[i] = make([]int32, columns+1)
	}
	for i := rows - 1; i >= 0; i-- {
		for j := columns - 1; j >= 0; j-- {
			if length[i][j] = max(length[i+1][j], length[i][j+1]); same(first+i, first+j) {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < rows && j < columns; {
		switch {
		case same(first+i, first+j):
			out[first+j] = first + i
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return out
}
