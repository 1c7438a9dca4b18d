package planview

import (
	"cmp"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The file of a saved plan has types of its own, so that a name of a Go field is no
// part of the format. The format stays readable: names are added, not changed.

type savedOptionsJSON struct {
	Prune       bool           `json:"prune"`
	Allow       []plan.Consent `json:"allow"`
	SkipBlocked bool           `json:"skipBlocked"`
	Destroy     bool           `json:"-"` // no plan of destroy is saved
}

type savedTopologyJSON struct {
	Name        string              `json:"name"`
	VHost       string              `json:"vhost"`
	Cluster     string              `json:"cluster"`
	CountHeader string              `json:"countHeader"`
	Exchanges   []savedExchangeJSON `json:"exchanges"`
	Queues      []savedQueueJSON    `json:"queues"`
	Bindings    []savedBindingJSON  `json:"bindings"`
	Policies    []savedPolicyJSON   `json:"policies"`
	Loops       []savedLoopJSON     `json:"loops"`
	Removed     []string            `json:"removed"`
	Works       []savedWorkJSON     `json:"works"`
	Accept      []string            `json:"accept,omitempty"`
	Places      []savedPlaceJSON    `json:"places,omitempty"`
}

type savedExchangeJSON struct {
	Name       string             `json:"name"`
	Type       string             `json:"type"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"autoDelete"`
	Internal   bool               `json:"internal"`
	Arguments  topology.Arguments `json:"arguments"`
	External   bool               `json:"external"`
	Label      savedLabelJSON     `json:"label"`
}

type savedQueueJSON struct {
	Name       string             `json:"name"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"autoDelete"`
	Exclusive  bool               `json:"exclusive"`
	Arguments  topology.Arguments `json:"arguments"`
	External   bool               `json:"external"`
	Label      savedLabelJSON     `json:"label"`
}

type savedBindingJSON struct {
	Source          string             `json:"source"`
	Destination     string             `json:"destination"`
	DestinationType string             `json:"destinationType"`
	Key             string             `json:"key"`
	Arguments       topology.Arguments `json:"arguments"`
	Label           savedLabelJSON     `json:"label"`
}

type savedPolicyJSON struct {
	Name       string             `json:"name"`
	Pattern    string             `json:"pattern"`
	ApplyTo    string             `json:"applyTo"`
	Priority   int64              `json:"priority"`
	Definition topology.Arguments `json:"definition"`
	Label      savedLabelJSON     `json:"label"`
}

type savedLabelJSON struct {
	Role    topology.Role `json:"role"`
	Backoff string        `json:"backoff"`
	Queue   string        `json:"queue"`
}

type savedLoopJSON struct {
	Backoff  string            `json:"backoff"`
	Failed   string            `json:"failed"`
	Exchange string            `json:"exchange"`
	Steps    []savedStepJSON   `json:"steps"`
	RetryOn  []topology.Reason `json:"retryOn"` // null is all
	File     string            `json:"file,omitempty"`
	Line     int               `json:"line,omitempty"`
}

// savedPlaceJSON is where the file has an object. Name is that of a topology.Key.
type savedPlaceJSON struct {
	Kind topology.Kind `json:"kind"`
	Name string        `json:"name"`
	File string        `json:"file"`
	Line int           `json:"line"`
}

type savedStepJSON struct {
	Delay time.Duration `json:"delay"` // in nanoseconds
	Queue string        `json:"queue"`
}

type savedWorkJSON struct {
	Queue    string `json:"queue"`
	Backoff  string `json:"backoff"`
	Dead     string `json:"dead"`
	Owner    string `json:"owner"`
	Severity string `json:"severity"`
	Replaces string `json:"replaces"`
}

// mapped returns f of each element, and nil for nil.
func mapped[A, B any](list []A, f func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, 0, len(list))
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

func savedTopology(t topology.Compiled) savedTopologyJSON {
	return savedTopologyJSON{
		Name: t.Name, VHost: t.VHost, Cluster: t.Cluster, CountHeader: t.CountHeader, Removed: t.Removed,
		Exchanges: mapped(t.Exchanges, func(e topology.Exchange) savedExchangeJSON {
			return savedExchangeJSON{
				e.Name, e.Type, e.Durable, e.AutoDelete, e.Internal, e.Arguments, e.External,
				savedLabelJSON(e.Label),
			}
		}),
		Queues: mapped(t.Queues, func(q topology.Queue) savedQueueJSON {
			return savedQueueJSON{q.Name, q.Durable, q.AutoDelete, q.Exclusive, q.Arguments, q.External, savedLabelJSON(q.Label)}
		}),
		Bindings: mapped(t.Bindings, func(b topology.Binding) savedBindingJSON {
			return savedBindingJSON{b.Source, b.Destination, b.DestinationType, b.Key, b.Arguments, savedLabelJSON(b.Label)}
		}),
		Policies: mapped(t.Policies, func(p topology.Policy) savedPolicyJSON {
			return savedPolicyJSON{p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition, savedLabelJSON(p.Label)}
		}),
		Loops: mapped(t.Backoffs, func(l topology.Backoff) savedLoopJSON {
			steps := mapped(l.Tiers, func(s topology.Tier) savedStepJSON { return savedStepJSON{s.Delay, s.Queue} })
			return savedLoopJSON{l.Name, l.FailedQueue, l.RetryExchange, steps, l.RetryOn, l.Place.File, l.Place.Line}
		}),
		Accept: mapped(t.Accepted, topology.Acceptance.String), Places: savedPlaces(t.Places),
		Works: mapped(t.WorkQueues, func(w topology.WorkQueue) savedWorkJSON {
			return savedWorkJSON{w.Name, w.Backoff, w.DeadLetterQueue, w.Owner, w.Severity, w.Replaces}
		}),
	}
}

func (t savedTopologyJSON) topology() topology.Compiled {
	return topology.Compiled{
		Name: t.Name, VHost: t.VHost, Cluster: t.Cluster, CountHeader: t.CountHeader, Removed: t.Removed,
		Accepted: mapped(t.Accept, topology.ParseAcceptance), Places: places(t.Places),
		Topology: topology.Topology{
			Exchanges: mapped(t.Exchanges, func(e savedExchangeJSON) topology.Exchange {
				return topology.Exchange{
					Name: e.Name, Type: e.Type, Durable: e.Durable, AutoDelete: e.AutoDelete, Internal: e.Internal,
					Arguments: e.Arguments, External: e.External, Label: topology.Label(e.Label),
				}
			}),
			Queues: mapped(t.Queues, func(q savedQueueJSON) topology.Queue {
				return topology.Queue{
					Name: q.Name, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
					Arguments: q.Arguments, External: q.External, Label: topology.Label(q.Label),
				}
			}),
			Bindings: mapped(t.Bindings, func(b savedBindingJSON) topology.Binding {
				return topology.Binding{
					Source: b.Source, Destination: b.Destination, DestinationType: b.DestinationType,
					Key: b.Key, Arguments: b.Arguments, Label: topology.Label(b.Label),
				}
			}),
			Policies: mapped(t.Policies, func(p savedPolicyJSON) topology.Policy {
				return topology.Policy{
					Name: p.Name, Pattern: p.Pattern, ApplyTo: p.ApplyTo, Priority: p.Priority,
					Definition: p.Definition, Label: topology.Label(p.Label),
				}
			}),
		},
		Backoffs: mapped(t.Loops, func(l savedLoopJSON) topology.Backoff {
			steps := mapped(l.Steps, func(s savedStepJSON) topology.Tier {
				return topology.Tier{Delay: s.Delay, Queue: s.Queue}
			})
			return topology.Backoff{
				Name: l.Backoff, FailedQueue: l.Failed, RetryExchange: l.Exchange, Tiers: steps,
				RetryOn: l.RetryOn, Place: topology.Place{File: l.File, Line: l.Line},
			}
		}),
		WorkQueues: mapped(t.Works, func(w savedWorkJSON) topology.WorkQueue {
			return topology.WorkQueue{
				Name: w.Queue, Backoff: w.Backoff, DeadLetterQueue: w.Dead, Owner: w.Owner, Severity: w.Severity,
				Replaces: w.Replaces,
			}
		}),
	}
}

// savedPlaces returns places in a fixed order.
func savedPlaces(places map[topology.Key]topology.Place) []savedPlaceJSON {
	var out []savedPlaceJSON
	for key, p := range places {
		out = append(out, savedPlaceJSON{key.Kind, key.Name, p.File, p.Line})
	}
	slices.SortFunc(out, func(a, b savedPlaceJSON) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// places returns what savedPlaces was given.
func places(list []savedPlaceJSON) map[topology.Key]topology.Place {
	if list == nil {
		return nil
	}
	out := make(map[topology.Key]topology.Place, len(list))
	for _, p := range list {
		out[topology.Key{Kind: p.Kind, Name: p.Name}] = topology.Place{File: p.File, Line: p.Line}
	}
	return out
}
