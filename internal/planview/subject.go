package planview

import (
	"strings"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// subject is what a person reads a change as part of: a work queue, a declared exchange, a
// backoff, a delay, or what all of a topology share, which has no name.
type subject struct {
	kind subjectKind
	name string
}

// subjectKind is a kind of subject, in the order in which a plan shows them.
type subjectKind int

const (
	exchangeSubject subjectKind = iota
	backoffSubject
	delaySubject
	queueSubject
	sharedSubject
)

// subjectOf returns the subject of a change. Bindings from declared exchanges belong to their
// destination. Bindings of generated exchanges belong to the queue whose address is their key:
// of those that are no longer in the file, nothing else is known.
func subjectOf(c plan.Change) subject {
	b, isBinding := c.Object().(topology.Binding)
	address, addressed := strings.CutPrefix(b.Key, topology.AddressKey(""))
	switch role := c.Label.Role; {
	case c.Label.Delay != "":
		return subject{delaySubject, c.Label.Delay}
	case c.Label.Backoff != "":
		return subject{backoffSubject, c.Label.Backoff}
	case isBinding && role == topology.RoleBusiness && b.DestinationType == topology.ToExchange:
		return subject{exchangeSubject, b.Destination}
	case isBinding && role == topology.RoleBusiness:
		return subject{queueSubject, b.Destination}
	case c.Kind == topology.KindExchange && role == topology.RoleBusiness:
		return subject{exchangeSubject, c.Name}
	case c.Label.Queue != "":
		return subject{queueSubject, c.Label.Queue}
	case isBinding && addressed && (role == topology.RoleReturn || role == topology.RoleDeadLetter ||
		role == topology.RoleFailed):
		return subject{queueSubject, address}
	case c.Kind == topology.KindQueue && (role == topology.RoleWork || role == ""):
		return subject{queueSubject, c.Name}
	}
	return subject{sharedSubject, ""}
}

// placeOf returns where the file declares the object of a change, or, for a generated object, the
// work queue or the backoff that it was made for.
func placeOf(p plan.Plan, c plan.Change) topology.Place {
	if object := c.Object(); object != nil {
		if place := p.Places[object.ID()]; !place.IsZero() {
			return place
		}
	}
	return placeOfSubject(p, subjectOf(c))
}

func placeOfSubject(p plan.Plan, s subject) topology.Place {
	switch s.kind {
	case exchangeSubject, delaySubject:
		return p.Places[topology.Key{Kind: topology.KindExchange, Name: s.name}]
	case queueSubject:
		for _, m := range p.Matches {
			if m.Pattern == s.name {
				return m.Place
			}
		}
		return p.Places[topology.Key{Kind: topology.KindQueue, Name: s.name}]
	case backoffSubject:
		loop, _ := topology.Compiled{Backoffs: p.Backoffs}.Backoff(s.name)
		return loop.Place
	case sharedSubject: // no file declares it
	}
	return topology.Place{}
}

// ownersOf returns the owners by work queue, and by the pattern of a match.
func ownersOf(p plan.Plan) map[string]string {
	out := map[string]string{}
	for _, w := range p.WorkQueues {
		out[w.Name] = w.Owner
	}
	for _, m := range p.Matches {
		out[m.Pattern] = m.Owner
	}
	return out
}

// ownerOf returns the owner of the work queue, or of the match, that a change belongs to.
// Empty: none.
func ownerOf(c plan.Change, owners map[string]string) string {
	if s := subjectOf(c); s.kind == queueSubject {
		return owners[s.name]
	}
	return ""
}
