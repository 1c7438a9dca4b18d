package status

import "time"

// reportJSON is a report as scripts read it.
type reportJSON struct {
	Version  int    `json:"version"`
	Topology string `json:"topology"`
	VHost    string `json:"vhost"`
	// Time is when the broker was read.
	Time time.Time `json:"time,omitzero"`
	// Problems counts the warnings that are problems, not notes.
	Problems int `json:"problems"`
	// Queues are all queues of the topology that exist.
	Queues []Queue `json:"queues"`
	// WorkQueues are the work queues of the file that exist, each legacy queue behind its successor.
	WorkQueues []Work `json:"workQueues"`
	// Warnings are what a person should act on, most urgent first, and then notes.
	Warnings []Problem `json:"warnings"`
}

// JSON implements jsondoc.Former.
func (r Report) JSON() any {
	return reportJSON{1, r.Topology, r.VHost, r.At, r.Wrong(), r.Queues, r.Works, r.Problems}
}
