package plan

// Options are what the user consents to, and how far a plan goes.
type Options struct {
	// Prune turns drift into deletions.
	Prune bool
	// Allow are the hazards that the user has named, each for an object or for all.
	Allow []Consent
	// SkipBlocked carries out the rest of a plan in which something is blocked or
	// has a hazard that is not allowed.
	SkipBlocked bool
}

// Hazards gives the hazards that need consent by name.
func Hazards() []Hazard { return []Hazard{LosesMessages, StopsConsumers, DropsRouting} }
