// Package audit says what a virtual host loses when messages fail: which queues dead-letter into
// nothing, which dead-letter queues drop what they should keep, which policies are not what they
// seem, and what to do about each.
//
// The package is pure. It asks package route where messages go, and package policy which
// arguments are in effect.
package audit

import (
	"cmp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Severity says how bad a finding is.
type Severity string

// The severities, worst first.
const (
	// Error is a finding by which messages are lost, or a write is refused.
	Error Severity = "error"
	// Warning is a finding by which messages are lost in some cases.
	Warning Severity = "warning"
	// Note is a fact worth knowing.
	Note Severity = "note"
)

// Input is what an audit reads.
type Input struct {
	// State has the objects of one virtual host.
	State topology.State
	// Live is what only a running broker tells. Nil for files: nothing is then said about
	// consumers, messages and effect.
	Live *topology.Live
	// Positions tells where in a file each object begins. The line is 0 where it is not known. Nil
	// for a broker.
	Positions map[topology.Key]topology.Place
	// Declared says that the objects are those that topology files declare: what to do is then a
	// change of the files, and no request.
	Declared bool
	// Several says that other virtual hosts are audited too, so that a command names also the default
	// one: the URL of the broker may be that of another.
	Several bool
	// Oddities are what a file says and a broker ignores. Nil for a broker.
	Oddities []definitions.Oddity
	// Rules are the IDs of the rules to run. Nil runs all that are not off, or with For those about an
	// upgrade.
	Rules []string
	// For is the line of RabbitMQ for which the objects are judged, one of [UpgradeLines]. Empty: the
	// line of State.
	For string
	// from is State as it was read, where For is set.
	from topology.State
}

// Finding is what one rule says about one object.
type Finding struct {
	Rule     string
	Severity Severity
	VHost    string
	// Object is what the finding is about.
	Object topology.Key
	// Evidence is one line that names the binding, argument or policy.
	Evidence string
	// Consequence says what happens to messages.
	Consequence string
	// Remedy says what to do: the commands that make the changes of Fix, or its lines for a topology
	// file. Without a Fix it says what a person has to decide.
	Remedy string
	// Fix are changes that remove the finding and make nothing worse, alone and together with the
	// fixes of all other findings. None if no such changes are known.
	Fix Fix
	// Tries are the fixes that a rule proposes, the best first. Nil after the audit.
	Tries []Fix
	// Upgrade is what happens to the object on the line of [Input.For]. Empty without that.
	Upgrade Upgrade
	// Source is where the fact about the upgrade is from.
	Source string
	// Position is where the object is in a file. Zero for a broker.
	Position topology.Place
}

// Fate is what happens to the messages of a queue that fail.
type Fate = survey.Fate

// The fates.
const (
	Kept      = survey.Kept
	Endless   = survey.Endless
	Lost      = survey.Lost
	Undecided = survey.Undecided
)

// Report is the result of the audit of one virtual host.
type Report struct {
	VHost string `json:"name"`
	// Version is the broker's version. Empty where it is not known: what differs between
	// lines is then said for each.
	Version string `json:"broker"`
	// For is the line of RabbitMQ for which the virtual host was judged; its fates are those on that
	// line. Empty: its own.
	For string `json:"for,omitempty"`
	// Findings are sorted: the worst first, then by rule and object.
	Findings []Finding `json:"-"`
	// Rules are the IDs of the rules that ran. Nil: all.
	Rules []string `json:"-"`
	// Fates says by work queue what happens to messages that fail. Dead-letter queues and
	// retry queues are not in it.
	Fates map[string]Fate `json:"fates"`
	// Unseen says what could not be read.
	Unseen []string `json:"unseen"`
}

// Run audits one virtual host. It does not change its input, and gives equal reports for equal
// inputs.
func Run(in Input) Report {
	r := Report{VHost: in.State.VHost, Version: in.State.Version, For: in.For}
	in = withDown(forLine(in))
	r.Rules = runningRules(in)
	x := newIndex(in)
	r.Fates = x.Fates()
	for _, name := range in.State.Down {
		delete(r.Fates, name)
	}
	if in.Live != nil {
		r.Unseen = in.Live.Unseen
	}
	if in.For != "" {
		r.Unseen = slices.Concat(r.Unseen, unseenFor(in.For))
	}
	x.trying = objects(in.State) > maxTriedObjects // no fix could be tried
	r.Findings = x.findings(in)
	slices.SortFunc(r.Findings, compareFindings)
	if n := settle(in, r.Findings); n > 0 || x.trying && len(r.Findings) > 0 {
		r.Unseen = append(slices.Clone(r.Unseen), "which fixes help: the virtual host is too large to try all of them")
	}
	return r
}

// withDown returns the input with the queues whose node is down among the others: they exist, and
// no node answers for them. Nothing else is known of them, so no other rule judges them.
func withDown(in Input) Input {
	if in.Live == nil || len(in.State.Down) == 0 {
		return in
	}
	live := *in.Live
	live.Leaderless = slices.Concat(live.Leaderless, in.State.Down)
	in.Live, in.State = &live, in.State.WithDown()
	return in
}

// findings returns what the rules of an audit find, in any order.
func (x *index) findings(in Input) []Finding {
	var out []Finding
	for _, c := range checks() {
		if !c.runs(in) {
			continue
		}
		found := slices.DeleteFunc(c.find(x), func(f Finding) bool {
			return c.ID != noLeader && f.Object.Kind == topology.KindQueue && slices.Contains(in.State.Down, f.Object.Name)
		})
		for i := range found {
			f := &found[i]
			f.Rule, f.VHost, f.Position = c.ID, in.State.VHost, in.Positions[f.Object]
			if in.Declared {
				f.Remedy, f.Tries = "in the topology file: "+lowerFirst(c.Fix), nil
			}
			if f.Severity == "" {
				f.Severity = c.Severity
			}
			if in.For != "" && c.Upgrade != "" {
				f.Upgrade, f.Source = cmp.Or(f.Upgrade, c.Upgrade), c.Source
			}
		}
		out = append(out, found...)
	}
	return out
}

// rank orders severities, the worst first.
func (s Severity) rank() int { return slices.Index(Severities(), s) }

// check is a rule with the function that finds what it is about.
type check struct {
	Rule
	find func(*index) []Finding
}

// runs reports whether the rule is asked for and can be checked.
func (c check) runs(in Input) bool {
	switch {
	case c.Live && in.Live == nil, c.For && in.For == "":
		return false
	case in.Rules != nil:
		return slices.Contains(in.Rules, c.ID)
	case in.For != "":
		return c.Upgrade != ""
	default:
		return !c.Off
	}
}

// runningRules returns the IDs of the rules that run.
func runningRules(in Input) []string {
	out := []string{}
	for _, c := range checks() {
		if c.runs(in) {
			out = append(out, c.ID)
		}
	}
	return out
}

// checks returns all rules, family by family.
func checks() []check {
	return slices.Concat(
		deadLetteringChecks(), loopChecks(), lossChecks(), keeperChecks(), policyChecks(), bindingChecks(),
		compatibilityChecks(), liveChecks(), leftoverChecks(), astrayChecks(), upgradeChecks(),
	)
}

// Rule is a rule of the audit.
type Rule struct {
	// ID is its name in kebab case, such as dead-letter-unrouted.
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Group is the title under which reports have its findings.
	Group Group `json:"-"`
	// Off says that the rule runs only when asked for.
	Off bool `json:"-"`
	// Live says that the rule needs a running broker.
	Live bool `json:"live"`
	// Upgrade is what happens to the objects that the rule finds on another line of RabbitMQ.
	Upgrade Upgrade `json:"upgrade,omitempty"`
	// Source is where the fact about an upgrade is from.
	Source string `json:"source,omitempty"`
	// For says that the rule runs only for an upgrade.
	For bool `json:"-"`
	// Title is one line: what is wrong.
	Title string `json:"title"`
	// Why says what happens to messages. Fix says what to do.
	Why string `json:"why"`
	Fix string `json:"fix"`
	// Hit and Miss are definitions, as JSON: of one that the rule is about, and of one that
	// it is not. Live rules have the facts of the broker with them; see LiveExample.
	Hit  Example `json:"-"`
	Miss Example `json:"-"`
}

// Example is a virtual host for a rule's page and test.
type Example struct {
	// Definitions is JSON in the format of RabbitMQ.
	Definitions string
	// Version is the broker's version for it. Empty for any.
	Version string
	// For is the line of an upgrade. Empty: none.
	For string
	// Live is what the broker tells. Nil for a rule about files.
	Live *topology.Live
	// Usage and QueuePolicies are those of the State, which definitions do not have.
	Usage         map[string]topology.Usage
	QueuePolicies map[string]string
}

// Rules returns all rules, sorted by ID.
func Rules() []Rule {
	out := text.Each(checks(), func(c check) Rule { return c.Rule })
	slices.SortFunc(out, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
