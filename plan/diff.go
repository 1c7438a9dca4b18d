package plan

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Options are what the user consents to, and how far a plan goes.
type Options struct {
	// Prune turns drift into deletions.
	Prune bool `json:"prune"`
	// Allow are the hazards that the user has named, each for an object or for all.
	Allow []Consent `json:"allow"`
	// SkipBlocked carries out the other changes of a plan in which a change is blocked or has a
	// hazard that is not allowed.
	SkipBlocked bool `json:"skipBlocked"`
	// Destroy deletes the queues of parked messages and of the records of runs too, and is blocked by
	// a run of the desk that has not ended. It belongs to a plan that wants nothing, and no plan of
	// destroy is saved.
	Destroy bool `json:"-"`
}

// Make returns the plan that turns what the broker has into want: resolve, then
// diff.
func Make(want topology.Compiled, state topology.State, o Options) Plan {
	r := resolve(policy.WithMatched(want, state.Have.Queues), state)
	p := diff(r)
	if o.Destroy {
		p = destroyed(p, r.desk)
	}
	if o.Prune {
		p.Changes, p.Drift = append(p.Changes, p.Drift...), nil
		order(p.Changes)
	}
	comingBack(&p, want.Delays)
	copying(&p, r.want.Exchanges)
	p.Warnings = append(p.Warnings, r.stillBound(p.Changes)...)
	p.VHost, p.Version, p.Cluster, p.Allow = state.VHost, state.Version, state.Cluster, o.Allow
	return p
}

// diff compares. It reads no clock and no network, and gives equal plans for
// equal arguments. Blocked changes come first, then the others in the order in
// which they are carried out: the safety net before the work queues, the
// business bindings last, so that a message always has somewhere to go.
func diff(r resolved) Plan {
	p := Plan{
		Topology: r.want.Name, VHost: r.want.VHost,
		Changes: slices.Clone(r.refused), Warnings: r.warnings, Backoffs: r.want.Backoffs, Native: r.want.Native,
		WorkQueues: r.want.WorkQueues,
		Matches:    r.want.Matches, Keeps: r.want.Keeps,
		Removed: r.want.Removed, Replace: r.want.Replace, Rescheduled: r.rescheduled, Places: r.want.Places,
		Withheld: r.withheldBindings, present: r.present, read: r.consulted,
	}
	exchanges := byName(r.have.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, want := range r.want.Exchanges {
		if have, ok := exchanges[want.Name]; !ok {
			p.Changes = append(p.Changes, created(want))
		} else if fields := differing(have.Properties(), want.Properties()); len(fields) > 0 {
			p.Changes = append(p.Changes, r.replacedExchange(have, want, fields))
		}
	}
	queues, replaced := r.queueChanges()
	p.Changes = append(p.Changes, queues...)
	var printed sync.WaitGroup
	declared := slices.Clone(p.Changes[len(r.refused):]) // what follows changes those of p, and not r
	printed.Go(func() { p.Fingerprint = fingerprint(r, declared) })
	wanted := make(map[string]bool, len(r.wantIDs))
	for i, want := range r.want.Bindings {
		id := r.wantIDs[i]
		wanted[id] = true
		if _, exists := slices.BinarySearch(r.haveIDs, id); !exists {
			p.Changes = append(p.Changes, createdBinding(want))
		}
	}
	compared := len(r.want.Exchanges) + len(r.want.Queues) + len(r.want.Bindings) + len(r.want.Policies)
	differ := len(p.Changes) - len(r.refused)
	rebindings, policies := r.rebindings(replaced, wanted), r.policyChanges()
	rebind(p.Changes, rebindings, policies)
	p.Changes = append(append(p.Changes, rebindings...), policies...)
	p.Unchanged = compared - differ - countWanted(policies)
	p.Changes = append(p.Changes, r.reroutes...)
	deletions := r.deletions(wanted)
	p.Changes = append(p.Changes, deletions...)
	protections := r.protectionChanges(deletions)
	p.Changes = append(p.Changes, protections...)
	p.Harms = r.harmed(protections)
	for _, b := range r.drift {
		c := r.unbinding(b)
		c.Reason = "no file declares it"
		p.Drift = append(p.Drift, c)
	}
	p.Retiring, p.StillRead, p.RetiringDead = r.orphans.retired, r.orphans.stillRead, r.orphans.retiredDead
	p.Staying, p.Unprocessed = r.orphans.staying, r.unprocessed
	r.losing(&p)
	endangered(&p)
	p.Warnings = append(p.Warnings, r.renamed(p.Changes)...)
	p.Warnings = append(p.Warnings, r.desk.leftBehind(p.Changes)...)
	r.desk.block(p.Changes)
	r.strays(&p)
	order(p.Changes)
	printed.Wait()
	return p
}

// queueChanges compares the queues. replaced are those that are deleted and created again.
func (r resolved) queueChanges() (changes []Change, replaced map[string]bool) {
	replaced = map[string]bool{}
	queues := byName(r.have.Queues, func(q topology.Queue) string { return q.Name })
	for _, want := range r.want.Queues {
		if have, ok := queues[want.Name]; !ok {
			c := created(want)
			c.AtMostOnce = deadLettersAtMostOnce(want.Arguments)
			if legacy, waits := r.withheld[want.Name]; waits {
				c.Action = Migrate
				c.Reason = fmt.Sprintf("created without bindings from declared exchanges until %s is cut over; to move it, let a service consume %s, then run dlxctl migrate %s",
					text.Name(legacy), text.Name(want.Name), text.ShellQuote(legacy))
			}
			changes = append(changes, c)
		} else if fields := differing(have.Properties(), want.Properties()); len(fields) > 0 {
			c := r.replaced(have, want, fields)
			changes = append(changes, c)
			replaced[want.Name] = c.Action == Replace
		}
	}
	return changes, replaced
}

// countWanted counts the changes whose object exists afterwards.
func countWanted(changes []Change) int {
	n := 0
	for _, c := range changes {
		if c.After != nil {
			n++
		}
	}
	return n
}

// order puts changes into the order in which they are carried out. Blocked ones
// have no phase and come first.
func order(changes []Change) {
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Phase, b.Phase) })
}

// createdBinding is created, unless the binding would end every later reading of the virtual host.
func createdBinding(b topology.Binding) Change {
	if len(b.Arguments) == 0 || !b.HasUnlistableKey() {
		return created(b)
	}
	return Change{
		Action: Blocked, Kind: b.Kind(), Name: b.DisplayName(), After: b, Label: b.Purpose(),
		Reason: "its key has ~ before other characters, and it has arguments: RabbitMQ could then no longer list the bindings of this virtual host (its management API answers 500). Write a routing key, or a queue name, without ~",
	}
}

func created(o topology.Object) Change {
	c := Change{Action: Create, Kind: o.Kind(), Name: o.DisplayName(), After: o, Label: o.Purpose()}
	c.Phase = creationPhase(c)
	for _, p := range o.Properties() {
		if p.Value != false && p.Value != "" {
			c.Fields = append(c.Fields, Field{Name: p.Name, After: p.Value})
		}
	}
	return c
}

func blocked(have, want topology.Object, fields []Field) Change {
	c := Change{
		Action: Blocked, Kind: want.Kind(), Name: want.DisplayName(), Before: have, After: want, Fields: fields,
		Label: want.Purpose(), Immutable: true, Fixes: fixes(have, want, fields),
	}
	ways := []string{
		"set in the file what the exchange has", "use another name in the file",
		"delete it manually when nothing needs it, and run apply again",
	}
	if q, ok := have.(topology.Queue); ok {
		ways = nil
		if keep := asFound(q, want, fields); keep != "" {
			ways = append(ways, keep)
		}
		ways = append(ways, "replace it with a new queue (replaces: and dlxctl migrate)",
			"delete it manually when it is empty and unused, and run apply again")
		if len(c.Fixes) == 0 && c.Label.Role == topology.RoleWork {
			c.Brief = fmt.Sprintf("replace it with a new queue: add replaces: %s to that queue in the file, and run 'dlxctl migrate %s'",
				flowName(c.Name), text.ShellQuote(c.Name))
		}
	}
	c.Reason = fmt.Sprintf("RabbitMQ cannot change the arguments of an existing %s and would answer 406 PRECONDITION_FAILED. Suggested fixes: %s",
		c.Kind, strings.Join(ways[:len(ways)-1], "; ")+"; or "+ways[len(ways)-1])
	return c
}

// deadLettersAtMostOnce reports whether a queue with these arguments dead-letters
// without a confirmation from the target.
func deadLettersAtMostOnce(args topology.Arguments) bool {
	_, deadLetters := args[topology.ArgDeadLetterExchange]
	return deadLetters && args[topology.ArgDeadLetterStrategy] != topology.AtLeastOnce
}

// asFields returns properties as those that an object gets.
func asFields(properties []topology.Property) []Field {
	fields := make([]Field, 0, len(properties))
	for _, p := range properties {
		fields = append(fields, Field{Name: p.Name, After: p.Value})
	}
	return fields
}

// differing returns the properties whose values differ, in the order of want, with
// those that only have holds behind.
func differing(have, want []topology.Property) []Field {
	if slices.EqualFunc(have, want, func(h, w topology.Property) bool {
		return h.Name == w.Name && sameValue(h.Value, w.Value)
	}) {
		return nil // as almost always
	}
	before := byName(have, func(p topology.Property) string { return p.Name })
	var out []Field
	for _, w := range want {
		h := before[w.Name]
		delete(before, w.Name)
		if !sameValue(h.Value, w.Value) {
			out = append(out, Field{Name: w.Name, Before: h.Value, After: w.Value})
		}
	}
	for _, h := range have {
		if _, left := before[h.Name]; left {
			out = append(out, Field{Name: h.Name, Before: h.Value})
		}
	}
	return out
}

// sameValue compares canonical values.
func sameValue(a, b any) bool {
	switch a.(type) {
	case string, int64, bool:
		return a == b
	default: // lists and tables cannot be compared
		return topology.FormatValue(a) == topology.FormatValue(b)
	}
}

// fingerprint stands for the part of the state that the plan depends on. It
// does not depend on what queues hold. changes are those of exchanges and queues that are wanted.
func fingerprint(r resolved, changes []Change) string {
	hash := sha256.New()
	h := bufio.NewWriter(hash) // writing to it cannot fail
	for _, e := range r.have.Exchanges {
		fmt.Fprintf(h, "exchange %q %q %t %t %t %s\n", e.Name, e.Type, e.Durable, e.AutoDelete, e.Internal, e.Arguments)
	}
	for _, q := range r.have.Queues {
		fmt.Fprintf(h, "queue %q %t %t %t %s\n", q.Name, q.Durable, q.AutoDelete, q.Exclusive, q.Arguments)
	}
	for _, id := range r.haveIDs {
		_, _ = h.WriteString("binding ")
		_, _ = h.WriteString(id)
		_ = h.WriteByte('\n')
	}
	for _, p := range r.have.Policies {
		fmt.Fprintf(h, "policy %q %q %q %d %s\n", p.Name, p.Pattern, p.ApplyTo, p.Priority, p.Definition)
	}
	for _, p := range r.want.Policies {
		fmt.Fprintf(h, "base %q %d %s\n", p.Name, p.Priority, p.Definition) // it starts from another team's policy
	}
	for _, c := range r.reroutes {
		fmt.Fprintf(h, "reroute %s %q %s %v\n", c.Action, c.Name, c.Reason, c.Fields)
	}
	for _, c := range r.protectionChanges(nil) { // they start from another team's policy too
		fmt.Fprintf(h, "protection %s %q %v\n", c.Action, c.Name, c.Fields)
	}
	for _, x := range r.drift {
		fmt.Fprintf(h, "drift %s\n", x.Identity())
	}
	for _, x := range r.goesAlong(changes) {
		fmt.Fprintf(h, "along %s\n", x.Identity())
	}
	for _, c := range r.refused {
		fmt.Fprintf(h, "refused %s %q %s\n", c.Kind, c.Name, c.Reason)
	}
	_ = h.Flush()
	return hex.EncodeToString(hash.Sum(nil))
}

// goesAlong returns the bindings, in order, that end or begin at a queue or exchange of
// this topology which is no longer wanted as it is: they are deleted with it, foreign ones
// included, when it is deleted or created again. changes are those of what is wanted.
func (r resolved) goesAlong(changes []Change) []topology.Binding {
	going := map[topology.Key]bool{}
	for _, c := range changes {
		if c.Before != nil {
			going[c.key()] = true
		}
	}
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, have := range r.have.Exchanges {
		if _, ok := exchanges[have.Name]; !ok {
			going[have.ID()] = true
		}
	}
	queues := namesOf(r.want.Queues, func(q topology.Queue) string { return q.Name })
	for _, have := range r.have.Queues {
		if !queues[have.Name] {
			going[have.ID()] = true
		}
	}
	if len(going) == 0 {
		return nil // as a rule: the bindings need not be gone through
	}
	out := slices.DeleteFunc(slices.Clone(r.bindings), func(b topology.Binding) bool {
		return !going[topology.Key{Kind: topology.Kind(b.DestinationType), Name: b.Destination}] &&
			!going[topology.Key{Kind: topology.KindExchange, Name: b.Source}]
	})
	slices.SortFunc(out, func(a, b topology.Binding) int { return cmp.Compare(a.Identity(), b.Identity()) })
	return out
}
