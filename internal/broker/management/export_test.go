package management

import "time"

// Impatient returns m with another timeout of a request.
func Impatient(m *Client, d time.Duration) *Client {
	impatient := *m
	impatient.timeout = d
	return &impatient
}
