package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// homeObjects returns the queue to which canaries come back, and its bindings. It is not
// exclusive: the broker would delete it in the moment in which verify is killed, and the canaries
// that come later would go to the unroutable queue. So it expires by itself, later than they come.
func homeObjects(t topology.Compiled, run string, expires time.Duration) (topology.Queue, []topology.Binding) {
	mark := topology.DeskMark(t.Name)
	q := topology.Queue{Name: topology.VerifyName(t.Name, run), Durable: true, Arguments: topology.Arguments{
		topology.ArgQueueType: topology.Classic, topology.ArgExpires: expires.Milliseconds(), topology.ArgManagedBy: mark,
	}}
	var bindings []topology.Binding
	for _, source := range homeExchanges(t.Name) {
		bindings = append(bindings, topology.Binding{
			Source: source, Destination: q.Name, DestinationType: topology.ToQueue, Key: topology.AddressKey(q.Name),
			Arguments: topology.Arguments{topology.ArgManagedBy: mark},
		})
	}
	return q, bindings
}

// homeExchanges returns the exchanges that lead canaries home: those that return messages and pick
// dead-letter queues, and the next exchange of that of failures, which gets a canary with a count
// that no tier has. The exchange of failures itself leads canaries for a processor to the failed
// queue alone.
func homeExchanges(name string) []string {
	return []string{
		topology.ReturnExchangeName(name), topology.DeadLetterName(name),
		topology.NextExchangeName(topology.FailedExchangeName(name)),
	}
}

// surveyor compares what the broker has with what the canaries need. It does no I/O.
type surveyor struct {
	topology topology.Compiled
	state    topology.State
	home     topology.Queue
	router   *route.Router
	policies *policy.Set // of others
	all      *policy.Set
	queues   map[string]topology.Queue
	report   *Report
	absent   []string // objects that do not exist
}

// newSurveyor returns one for what the broker has, with the queue for canaries as if it existed.
func newSurveyor(t topology.Compiled, state topology.State, home topology.Queue, bindings []topology.Binding,
	r *Report,
) *surveyor {
	queues := make(map[string]topology.Queue, len(state.Have.Queues))
	for _, q := range state.Have.Queues {
		queues[q.Name] = q
	}
	with := state
	with.Have.Queues = append(slices.Clone(state.Have.Queues), home)
	with.Have.Bindings = append(slices.Clone(state.Have.Bindings), bindings...)
	return &surveyor{
		topology: t, state: state, home: home, router: route.New(with), policies: policy.Foreign(state, t.Name),
		all: policy.All(state), queues: queues, report: r,
	}
}

// missing notes the objects of the plane that do not exist. It reports whether the canaries of a
// backoff have what all of them need.
func (s *surveyor) missing(b topology.Backoff) (complete bool) {
	before := len(s.absent)
	top := s.topology.Name
	for _, name := range append(homeExchanges(top), topology.FailedExchangeName(top), b.RetryExchange) {
		if !slices.ContainsFunc(s.state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == name }) {
			s.absent = append(s.absent, "exchange "+text.Name(name))
		}
	}
	if _, exists := s.queues[b.FailedQueue]; !exists {
		s.absent = append(s.absent, "queue "+text.Name(b.FailedQueue))
	}
	complete = len(s.absent) == before
	for _, tier := range b.Tiers {
		if _, exists := s.queues[tier.Queue]; !exists {
			s.absent = append(s.absent, "queue "+text.Name(tier.Queue))
		}
	}
	return complete
}

// mostNamed is how many missing objects a problem names.
const mostNamed = 8

// notApplied adds a problem that names the missing objects of all backoffs.
func (s *surveyor) notApplied() {
	slices.Sort(s.absent)
	list := slices.Compact(s.absent)
	if len(list) == 0 {
		return
	}
	s.report.add(Problem{Name: "missing-object", Text: fmt.Sprintf("these objects of the file do not exist: %s; run 'dlxctl apply'",
		text.FirstOf(list, mostNamed))})
}

// settings adds a problem if the settings of a tier, with the policies in effect, are not those of
// the file.
func (s *surveyor) settings(b topology.Backoff, tier topology.Tier) {
	q, exists := s.queues[tier.Queue]
	if !exists {
		return
	}
	s.harmed(b, q, topology.RoleRetry)
	if ttl, _ := q.Arguments[topology.ArgMessageTTL].(int64); ttl != tier.Delay.Milliseconds() {
		s.report.add(Problem{Name: "settings", Backoff: b.Name, Queue: tier.Queue, Text: fmt.Sprintf(
			"%s has the x-message-ttl %v, and not %d (%s); run 'dlxctl plan'", text.Name(q.Name),
			topology.FormatValue(q.Arguments[topology.ArgMessageTTL]), tier.Delay.Milliseconds(),
			text.Duration(tier.Delay))})
	}
}

// harmed reports whether a policy in effect does harm to a queue of a backoff, and adds a problem
// then.
func (s *surveyor) harmed(b topology.Backoff, q topology.Queue, role topology.Role) bool {
	q.Label = topology.Label{Role: role, Backoff: b.Name}
	harmed := false
	for _, p := range s.all.InEffect(q) {
		for _, key := range s.policies.Harms(q, p.Definition) {
			harmed = true
			s.report.add(Problem{Name: "harmful-policy", Backoff: b.Name, Queue: q.Name, Text: fmt.Sprintf(
				"%s (pattern %s) would %s; run 'dlxctl plan', which proposes what to do about it",
				p, text.Name(p.Pattern),
				policy.Consequence(q, key, p.Definition, text.Name(q.Name)))})
		}
	}
	return harmed
}

// comesBack reports whether a canary goes from its exchange to its tier, from there to the queue
// for canaries, and nowhere else. If not, it adds a problem: such a canary is not sent.
func (s *surveyor) comesBack(c *canary) bool {
	if _, exists := s.queues[c.tier.Queue]; !exists {
		return false
	}
	into := s.router.Publish(c.exchange, c.key, c.message.Headers)
	target, enters := c.tier.Queue, "a retry of attempt"
	if c.processed {
		target, enters = c.backoff.FailedQueue, "a failed message of attempt"
	}
	if !s.only(c, into, target, fmt.Sprintf("%s %d", enters, c.attempt)) {
		return false
	}
	if c.processed {
		// What a policy takes out of the failed queue is a dead letter of the work queue by whose
		// address the canary came there. The canary without a processor shows the rest.
		return !s.harmed(c.backoff, s.queues[c.backoff.FailedQueue], topology.RoleFailed)
	}
	back := s.router.DeadLetter(c.tier.Queue, into.Message, route.Expired)
	return s.only(c, back, s.home.Name, "a retry that leaves "+text.Name(c.tier.Queue))
}

// only reports whether a message reaches a queue, and no other than listeners of the desk. If not,
// it adds a problem.
func (s *surveyor) only(c *canary, r route.Result, queue, what string) bool {
	var others []string
	reached := false
	for _, name := range r.Queues {
		switch q := s.queues[name]; {
		case name == queue:
			reached = true
		case q.Exclusive && topology.IsDeskQueue(s.topology.Name, q): // it hears failures of a run
		case name == s.home.Name && c.processed: // failures without a binding come here, others do not
			others = append(others, text.Name(topology.UnroutableName(s.topology.Name)))
		case name == s.home.Name: // and gets a retry that no tier takes, as does the exchange of dead letters
			others = append(others, "the dead-letter queue")
		default:
			others = append(others, text.Name(name))
		}
	}
	problem := Problem{Name: "route", Backoff: c.backoff.Name, Queue: c.tier.Queue}
	shown := text.Name(queue)
	if queue == s.home.Name {
		shown = "its work queue"
	}
	switch {
	case !reached && len(others) > 0:
		problem.Text = fmt.Sprintf("%s goes to %s, and not to %s; no canary was sent there; run 'dlxctl plan'",
			what, strings.Join(others, ", "), shown)
	case !reached:
		problem.Text = fmt.Sprintf("%s does not reach %s%s; no canary was sent there; run 'dlxctl plan'", what, shown, why(r))
	case len(others) > 0 || len(r.Unknown) > 0:
		problem.Name = "copies"
		problem.Text = fmt.Sprintf("%s also goes to %s, so no canary was sent there; run 'dlxctl plan', which shows bindings that the file does not have", what,
			strings.Join(append(others, unknown(r)...), ", "))
	default:
		return true
	}
	s.report.add(problem)
	return false
}

// why says why a message reaches no queue.
func why(r route.Result) string {
	for _, end := range append(slices.Clone(r.Lost), r.Stuck...) {
		return ": " + end.String()
	}
	return ""
}

// unknown returns where a message may go, as far as the objects do not tell.
func unknown(r route.Result) []string {
	var out []string
	for _, u := range r.Unknown {
		out = append(out, fmt.Sprintf("what the exchange %s leads to (%s)", text.Name(u.Exchange), u.Why))
	}
	return out
}

// worked returns a work queue of a backoff by whose address a canary reaches the failed queue. The
// first one will do: if its own binding is wrong, the canary is not sent, and the report says why.
func worked(t topology.Compiled, b topology.Backoff) string {
	for _, w := range t.WorkQueues {
		if w.Backoff == b.Name {
			return w.Name
		}
	}
	return ""
}
