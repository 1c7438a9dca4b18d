package broker

import "time"

// Impatient gives m with another time that one request may take.
func Impatient(m *Management, d time.Duration) *Management {
	impatient := *m
	impatient.timeout = d
	return &impatient
}
