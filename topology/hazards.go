package topology

// Hazard is the fixed name of something that a change may do to messages or
// clients.
type Hazard string

// The hazards. A change with one of them needs consent by name.
const (
	// LosesMessages: messages that are stored are deleted, or later ones are not kept.
	LosesMessages Hazard = "loses-messages"
	// StopsConsumers: consumers are connected to a queue that is deleted.
	StopsConsumers Hazard = "stops-consumers"
	// DropsRouting: messages that have a route to a queue no longer have it.
	DropsRouting Hazard = "drops-routing"
	// CopiesMessages: for a moment messages go to two queues that should go to one.
	CopiesMessages Hazard = "copies-messages"
	// ReplacesQueue: a queue is deleted and declared again with another type or other arguments, by
	// dlxctl migrate: its consumers are canceled.
	ReplacesQueue Hazard = "replaces-queue"
	// UncountedNack: RabbitMQ comes to delay and count the retries of a queue. What a consumer returns
	// with basic.nack and requeue is delayed each time, and never counted, so it never dies.
	UncountedNack Hazard = "uncounted-nack"
)

// Hazards returns the hazards.
func Hazards() []Hazard {
	return []Hazard{LosesMessages, StopsConsumers, DropsRouting, CopiesMessages, ReplacesQueue, UncountedNack}
}
