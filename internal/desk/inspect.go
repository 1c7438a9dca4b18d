package desk

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// inspect reads the virtual host. It refuses a user who may not.
func (d *Desk) inspect(ctx context.Context) (topology.State, error) {
	state, err := d.Management.Inspect(ctx)
	if errors.Is(err, broker.ErrForbidden) {
		return state, refusef("%s", err)
	}
	if err == nil {
		routes := sync.OnceValue(func() routing { return newRouting(state) })
		d.root().routes.Store(&routes)
		d.last.Store(&state)
	}
	return state, err
}

// routing says where messages go by the bindings of a virtual host.
type routing struct {
	router *route.Router
	// byKey are the exchanges that decide by the key alone.
	byKey map[string]bool
	// direct are the queues by the hash that the names of exchanges end with which lead to them alone.
	direct map[string]string
}

func newRouting(state topology.State) routing {
	r := routing{router: route.New(state), byKey: map[string]bool{}, direct: map[string]string{}}
	for _, q := range state.Have.Queues {
		r.direct[queueHash(q.Name)] = q.Name
	}
	for _, e := range slices.Concat(topology.BuiltInExchanges(), state.Have.Exchanges) {
		r.byKey[e.Name] = slices.Contains([]string{topology.Direct, topology.Topic, topology.Fanout}, e.Type)
	}
	return r
}

// sentAlone returns the queue to which a run of any desk has sent a message through an exchange of
// its own, which is gone when the run has ended. Empty: it is not such an exchange.
func (r routing) sentAlone(exchange string) string {
	before, hash, ok := strings.Cut(exchange, directInfix)
	if !ok || !strings.Contains(before, topology.HoldName("", "")) {
		return ""
	}
	return r.direct[hash]
}

// original returns where a message goes that is sent where it was published. What a run has sent
// to one queue alone goes to that queue by its name. What says that it was published to NAME.return
// was sent there by an earlier release, which has not kept the publisher's exchange: it goes to its
// work queue alone, through NAME.return if that leads there.
func (d *Desk) original(f deadletter.Facts) address {
	out := address{f.Exchange, f.Key}
	routes := d.root().routes.Load()
	if routes == nil {
		return out
	}
	r := (*routes)()
	if queue := r.sentAlone(f.Exchange); queue != "" {
		return address{"", queue}
	}
	through := topology.ReturnExchangeName(d.Topology.Name)
	if f.Exchange != through || f.WorkQueue == "" {
		return out
	}
	out.key = topology.AddressKey(f.WorkQueue)
	if !slices.Contains(r.router.Publish(through, out.key, nil).Queues, f.WorkQueue) {
		return address{"", f.WorkQueue}
	}
	return out
}

// Route returns the queues that a message reaches which is published to an exchange with a key, by
// the bindings of the last inspection. It returns nil where the bindings do not tell all of them:
// before the first inspection, and where an exchange on the way decides by more than the key.
func (d *Desk) Route(exchange, key string) []string {
	routes := d.root().routes.Load()
	if routes == nil {
		return nil
	}
	r := (*routes)()
	if queue := r.sentAlone(exchange); queue != "" {
		return []string{queue}
	}
	result := r.router.Publish(exchange, key, nil)
	odd := func(s route.Step) bool { return !r.byKey[s.Source] }
	if len(result.Unknown) > 0 || !r.byKey[exchange] || slices.ContainsFunc(result.Steps, odd) {
		return nil
	}
	return result.Queues
}
