package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// preflight refuses a plan that the user may not carry out to its end: every
// right that is missing at once, before the first write. Without conn only what
// the management API tells is looked at.
func preflight(ctx context.Context, m *broker.Management, conn *broker.Conn, p plan.Plan) error {
	return mayDo(ctx, m, conn, plan.Rights(p))
}

// mayDo refuses if any of rights is missing.
func mayDo(ctx context.Context, m *broker.Management, conn *broker.Conn, rights []plan.Right) error {
	lacking, err := m.Lacking(ctx, conn, rights)
	if err != nil {
		return fmt.Errorf("look at the user's rights: %w", err)
	}
	if len(lacking) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "user %s lacks rights that this plan needs; nothing was written:", topology.Printable(m.User()))
	names := map[plan.Permission][]string{}
	for _, r := range lacking {
		names[r.Permission] = append(names[r.Permission], fmt.Sprintf("%s %q", r.Kind, r.Name))
	}
	for _, permission := range []plan.Permission{plan.Configure, plan.Write, plan.Read} {
		if list := names[permission]; len(list) > 0 {
			fmt.Fprintf(&b, "\n  %s: %s", permission, strings.Join(list, ", "))
		}
	}
	if len(names[plan.Policymaker]) > 0 {
		b.WriteString("\n  the tag policymaker")
	}
	b.WriteString("\n'dlxctl rights' prints the commands that grant what is needed")
	return fmt.Errorf("%s", b.String())
}
