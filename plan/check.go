package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// What keeps a plan from being carried out.
var (
	// ErrBlocked is wrapped by the error of Check when something is blocked.
	ErrBlocked = errors.New("the plan is blocked")
	// ErrHazard is wrapped by the error of Check when a hazard is not allowed.
	ErrHazard = errors.New("the plan has hazards that are not allowed")
)

// Check refuses a plan in which anything is blocked, or has a hazard that
// nobody has allowed by name: all or nothing.
func Check(p Plan, allow []Hazard) error {
	if n := p.Count(Blocked); n > 0 {
		return fmt.Errorf("%w by %s, shown above with the ways out; nothing was written", ErrBlocked, countOf(n, "change"))
	}
	refused := map[Hazard]int{}
	for _, c := range p.Changes {
		for _, h := range refusedHazards(c, allow) {
			refused[h]++
		}
	}
	if len(refused) == 0 {
		return nil
	}
	var parts, flags []string
	for _, h := range Hazards() {
		if n := refused[h]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", h, countOf(n, "change")))
			flags = append(flags, "--allow "+string(h))
		}
	}
	return fmt.Errorf("%w: %s; nothing was written. To consent: %s", ErrHazard, strings.Join(parts, ", "), strings.Join(flags, " "))
}

// refusedHazards gives the hazards of c that need consent and have none.
func refusedHazards(c Change, allow []Hazard) []Hazard {
	var out []Hazard
	for _, h := range c.Hazards {
		if slices.Contains(Hazards(), h) && !slices.Contains(allow, h) {
			out = append(out, h)
		}
	}
	return out
}

// Allowed gives the part of p that may be carried out: without what is blocked
// or has a hazard that is not allowed, without bindings that lead from or to
// what is then not as it should be, and without the policies of queues that stay
// as they are: they may be what dead-letters there.
func Allowed(p Plan, allow []Hazard) Plan {
	missing, stuck := map[topology.Key]bool{}, map[string]bool{}
	stays := func(c Change) bool { return c.Action == Blocked || len(refusedHazards(c, allow)) > 0 }
	for _, c := range p.Changes {
		if stays(c) && c.Kind == topology.KindQueue {
			stuck[c.Name] = true
		}
		if stays(c) && c.Before == nil {
			missing[topology.Key{Kind: c.Kind, Name: c.Name}] = true
		}
	}
	out := p
	out.Changes = nil
	for _, c := range p.Changes {
		object := c.After
		if object == nil {
			object = c.Before
		}
		b, isBinding := object.(topology.Binding)
		needs := isBinding && (missing[topology.Key{Kind: topology.KindExchange, Name: b.Source}] ||
			missing[topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}])
		needs = needs || c.Kind == topology.KindPolicy && stuck[c.Label.Queue]
		if !stays(c) && !needs {
			out.Changes = append(out.Changes, c)
		}
	}
	return out
}

// countOf gives "1 change" or "2 changes".
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
