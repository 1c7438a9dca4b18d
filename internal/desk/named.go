package desk

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
)

// named are the messages that a request names by their handles. Nil names all messages.
//
// Messages that differ may have handles that begin alike, as a publisher can arrange, and those
// that differ only in what is masked have the same one. Which of them a person means is not known,
// so named refuses such a handle, unless all of them are named.
type named struct {
	namesakes []*namesake
	// byStart has them by the first digits, which every handle has.
	byStart map[string][]*namesake
}

// namesake is the messages whose handles begin with digits that a person has typed.
type namesake struct {
	digits deadletter.Handle
	found  map[int]bool // by the number of the copy
	seen   int
	first  deadletter.Digest
	differ bool
}

func namedBy(handles []string) (*named, error) {
	if len(handles) == 0 {
		return nil, nil
	}
	n := &named{byStart: map[string][]*namesake{}}
	for _, name := range handles {
		digits, number, err := deadletter.ParseHandle(name)
		if err != nil {
			return nil, err
		}
		start := digits.String()
		same := func(s *namesake) bool { return s.digits == digits }
		if !slices.ContainsFunc(n.byStart[start], same) {
			s := &namesake{digits: digits, found: map[int]bool{}}
			n.byStart[start] = append(n.byStart[start], s)
			n.namesakes = append(n.namesakes, s)
		}
		at := slices.IndexFunc(n.byStart[start], same)
		n.byStart[start][at].found[number] = false
	}
	return n, nil
}

// has reports whether a message is named, and notes that it was seen.
func (n *named) has(m deadletter.Message, key deadletter.Digest) bool {
	if n == nil {
		return true
	}
	chosen := false
	for _, s := range n.byStart[m.Handle.String()] {
		if !m.Handle.Begins(s.digits) {
			continue
		}
		s.differ = s.differ || s.seen > 0 && key != s.first
		s.first = key
		s.seen++
		if _, wanted := s.found[m.Copy]; wanted {
			s.found[m.Copy], chosen = true, true
		}
	}
	return chosen
}

// refusals says which of the handles name no message of a queue, or not one alone.
func (n *named) refusals(queue string) (out []string) {
	if n == nil {
		return nil
	}
	for _, s := range n.namesakes {
		found := 0
		for number, seen := range s.found {
			if seen {
				found++
				continue
			}
			out = append(out, fmt.Sprintf("no message of %s that was looked at has the handle %s; list the queue again",
				text.Name(queue), deadletter.NameOf(s.digits, number)))
		}
		if s.differ && found < s.seen {
			out = append(out, fmt.Sprintf("%d messages of %s have the handle %s and are not equal; copy longer handles from 'dlxctl desk list -o json', or choose with --where if only masked values differ",
				s.seen, text.Name(queue), s.digits))
		}
	}
	return out
}
