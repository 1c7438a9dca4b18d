package try

import "time"

// reportJSON is a report as scripts read it.
type reportJSON struct {
	Version  int    `json:"version"`
	Topology string `json:"topology"`
	// VHost is the virtual host of the trial.
	VHost  string     `json:"vhost"`
	Broker brokerJSON `json:"broker"`
	// Speed is by how much delays were divided.
	Speed int `json:"speed"`
	// AsPredicted reports that nothing differs from what is predicted.
	AsPredicted bool `json:"asPredicted"`
	// Messages counts the messages, and Differing those that differ from what is predicted.
	Messages  int `json:"messages"`
	Differing int `json:"differing"`
	// Took is how long the trial took.
	Took  time.Duration `json:"took"`
	Tiers []Tier        `json:"tiers"`
	// Notes say what the trial has done in another way than the file says.
	Notes  []string `json:"notes"`
	Queues []Queue  `json:"queues"`
	// Differences are those that belong to no message.
	Differences []string `json:"differences"`
}

type brokerJSON struct {
	Version string `json:"version"`
}

// JSON implements jsondoc.Former.
func (r Report) JSON() any {
	messages, differing := r.Counts()
	return reportJSON{
		1, r.Topology, r.VHost,
		brokerJSON{r.Version},
		r.Speed, !r.Differs(), messages, differing, r.Took, r.Tiers,
		r.Notes, r.Queues, r.Differences,
	}
}
