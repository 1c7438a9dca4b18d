package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	user := text.Name(s.Management.User())
	return &plan.Warning{Name: topology.WarnMissingRights, Text: fmt.Sprintf(
		"user %s lacks rights that apply needs: %s; run 'dlxctl rights' and give %s what it prints",
		user, listed(lacking), user)}, nil
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
