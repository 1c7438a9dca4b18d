package desk

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Screen is where a table is shown.
type Screen struct {
	// Width is how many columns the terminal has; 0 means no terminal.
	Width int
	// Now is when the table is shown, from which ages count.
	Now time.Time
}

// when writes how long ago a time was; where there is no terminal, it writes the time, which a
// program reads and which stays true. The zero time is unknown.
func (s Screen) when(t time.Time) string {
	if s.Width == 0 || t.IsZero() {
		return moment(t)
	}
	return text.Age(s.Now.Sub(t))
}

// due writes when a message is due: for a person, in how much time.
func (s Screen) due(t time.Time) string {
	if wait := t.Sub(s.Now); wait > 0 {
		return "in " + text.Age(wait)
	}
	return "now"
}

// choose returns the first word for a terminal, and the second for none.
func (s Screen) choose(terminal, none string) string {
	if s.Width == 0 {
		return none
	}
	return terminal
}
