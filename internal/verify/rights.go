package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// rights returns what a run needs: its queues, the exchanges that lead canaries home as sources,
// the exchanges that the canaries enter, and any right on the failed queues: without one, RabbitMQ
// 4.3 does not tell how many consumers they have.
func rights(t topology.Compiled, home string, natives []*nativeFlight) []plan.Right {
	needs := []plan.Right{
		{Permission: plan.Write, Kind: topology.KindExchange, Name: topology.FailedExchangeName(t.Name)},
	}
	var own []string
	sources := homeExchanges(t.Name)
	if len(t.Backoffs) > 0 {
		own = append(own, home)
	} else {
		sources = []string{topology.NextExchangeName(topology.FailedExchangeName(t.Name))}
	}
	for _, f := range natives {
		own = append(own, f.queue.Name, f.dead.Name)
	}
	for _, queue := range own {
		for _, permission := range []plan.Permission{plan.Configure, plan.Write, plan.Read} {
			needs = append(needs, plan.Right{Permission: permission, Kind: topology.KindQueue, Name: queue})
		}
	}
	for _, exchange := range sources {
		needs = append(needs, plan.Right{Permission: plan.Read, Kind: topology.KindExchange, Name: exchange})
	}
	for _, b := range t.Backoffs {
		needs = append(needs, plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: b.RetryExchange},
			plan.Right{Permission: plan.Write, Kind: topology.KindQueue, Name: b.FailedQueue})
	}
	return needs
}

// permit fails before anything is written if the user lacks a right, and names all such rights.
func (v *Verifier) permit(ctx context.Context, conn *amqp.Conn, home string, natives []*nativeFlight) error {
	lacking, err := v.Management.Lacking(ctx, conn, rights(v.Topology, home, natives))
	if err != nil {
		return fmt.Errorf("read the rights of the user: %w", err)
	}
	if len(lacking) == 0 {
		return nil
	}
	var list []string
	for _, r := range lacking {
		name := r.Name
		if strings.HasPrefix(name, topology.VerifyName(v.Topology.Name, "")) {
			name = topology.VerifyName(v.Topology.Name, "*")
		}
		list = append(list, fmt.Sprintf("%s on the %s %s", r.Permission, r.Kind, text.Name(name)))
	}
	slices.Sort(list) // several queues share a pattern
	user := v.Endpoint.AMQP.User
	return broker.Errorf(broker.ErrForbidden,
		"user %q lacks %s; nothing was sent; %s",
		user, strings.Join(slices.Compact(list), ", "), broker.GrantHintFrom("dlxctl rights", "verify", user))
}
