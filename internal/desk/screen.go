package desk

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Screen is where a table is shown.
type Screen struct {
	// Width is how many columns the terminal has; 0 is no terminal.
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

// choose returns the first word for a terminal, and the second for none.
func (s Screen) choose(terminal, none string) string {
	if s.Width == 0 {
		return none
	}
	return terminal
}
