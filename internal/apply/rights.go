package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/pattern"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// MissingRights warns of the rights that the user of the session lacks to apply p. It writes
// nothing, and returns nil if none is missing. An error says that the rights are not known.
//
// Users who are not administrators may not read their own permissions: the broker is asked over
// AMQP. If that port cannot be reached, only what the management API reports is compared. The
// broker logs each right that it refuses, so without every only some of the rights are asked for:
// see representative.
func (s *Session) MissingRights(ctx context.Context, p plan.Plan, every bool) (*plan.Warning, error) {
	if p.Empty() {
		return nil, nil //nolint:nilnil // no warning is not an error
	}
	rights := append(plan.Rights(p), plan.Right{
		Permission: plan.Configure, Kind: topology.KindQueue, Name: topology.LockName(p.Topology),
	})
	if !every {
		rights = representative(rights, p.Topology)
	}
	conn, unreachable := s.Management.Connection(ctx)
	if unreachable != nil {
		conn, unreachable = nil, fmt.Errorf("check the rights of the user: %w", unreachable)
	}
	lacking, err := s.Management.Lacking(ctx, conn, rights)
	if err != nil {
		return nil, fmt.Errorf("check the rights of the user: %w", err)
	}
	if len(lacking) == 0 {
		return nil, unreachable
	}
	user := s.Management.User()
	return &plan.Warning{Name: topology.WarnMissingRights, Text: fmt.Sprintf(
		"user %s lacks rights that apply needs: %s; %s%s",
		text.Name(user), listed(lacking), broker.GrantHint(user), unprinted(s.Topology, lacking))}, nil
}

// unprinted says which of the objects 'dlxctl rights' prints no right on, as the file does not have
// them: a change that leaves a name behind needs rights on it until it is carried out. Empty: none.
func unprinted(t topology.Compiled, lacking []plan.Right) string {
	printed := map[string]bool{"": true}
	for _, e := range t.Exchanges {
		printed[e.Name] = true
	}
	for _, q := range t.Queues {
		printed[q.Name] = true
	}
	for _, w := range t.WorkQueues {
		printed[w.Replaces] = true
	}
	for _, name := range t.Removed {
		printed[name], printed[topology.DeadLetterQueueName(name)] = true, true
	}
	prefixes := append(text.Each(t.Matches, func(m topology.Match) string { return pattern.Begin(m.Pattern) }), t.Name+".")
	var names []string
	for _, r := range lacking {
		covered := func(prefix string) bool { return strings.HasPrefix(r.Name, prefix) }
		if !printed[r.Name] && !slices.ContainsFunc(prefixes, covered) {
			printed[r.Name] = true
			names = append(names, text.Name(r.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; it prints none on %s, which the file does not have: for this change, keep those of the previous file too, or add them",
		text.Some(names))
}

// representative leaves one right of each permission and kind for the generated names, which one
// expression covers as a rule, and one for the next exchanges, which only a change of routes needs.
func representative(rights []plan.Right, top string) []plan.Right {
	asked := map[plan.Right]bool{}
	return slices.DeleteFunc(rights, func(r plan.Right) bool {
		if !strings.HasPrefix(r.Name, top+".") {
			return false
		}
		if next := topology.NextExchangeName(""); strings.HasSuffix(r.Name, next) {
			r.Name = next
		} else {
			r.Name = ""
		}
		again := asked[r]
		asked[r] = true
		return again
	})
}

// listed names rights in one line, at most five objects of each permission.
func listed(rights []plan.Right) string {
	const named = 5
	objects := map[plan.Permission][]string{}
	for _, r := range rights {
		objects[r.Permission] = append(objects[r.Permission], fmt.Sprintf("%s %s", r.Kind, text.Name(r.Name)))
	}
	var parts []string
	for _, permission := range []plan.Permission{plan.Configure, plan.Write, plan.Read} {
		if list := objects[permission]; len(list) > 0 {
			parts = append(parts, fmt.Sprintf("%s on %s", permission, text.FirstOf(list, named)))
		}
	}
	if len(objects[plan.Policymaker]) > 0 {
		parts = append(parts, "the tag policymaker")
	}
	return strings.Join(parts, "; ")
}
