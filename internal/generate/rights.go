// Package generate makes what others need from a topology: the rights of users,
// alerting rules, a dashboard, and the calls by which services declare their
// queues. It is pure.
package generate

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/pattern"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Grant is what one user must be permitted.
type Grant struct {
	// User is a name for the user, to be replaced by the real one.
	User string `json:"user"`
	// Purpose is what the user does, in a few words.
	Purpose string `json:"purpose"`
	// Tags are the user tags.
	Tags []string `json:"tags"`
	// Configure, Write and Read are regular expressions, as set_permissions accepts them.
	Configure Alternatives `json:"configure"`
	Write     Alternatives `json:"write"`
	Read      Alternatives `json:"read"`
	// Note is what the topology file does not contain, as a sentence. Empty: nothing.
	Note string `json:"-"`
}

// Alternatives are regular expressions, one for each name or family of names.
type Alternatives []string

// JSON implements jsondoc.Former.
func (a Alternatives) JSON() any { return Expression(a) }

// policymaker is the user tag that changing policies needs.
const policymaker = string(plan.Policymaker)

// Rights returns the grants that a topology needs: for plan and apply, for migrate if the
// topology replaces queues, for the processor, for each owner's services, for publishers, for
// verify, and for a person at the desk, to read, to act, and to act in work queues too.
// One expression covers all names that begin with the topology's name and a dot, so that
// tiers may be added and removed.
func Rights(t topology.Compiled) []Grant {
	grants := []Grant{applying(t)}
	if g := migrating(t); g.User != "" {
		grants = append(grants, g)
	}
	grants = append(grants, processing(t))
	others := []Grant{publishing(t), verifying(t), reading(t), acting(t), pulling(t)}
	services := consuming(t)
	for i, s := range services {
		same := func(g Grant) bool { return g.User == s.User }
		if slices.ContainsFunc(grants, same) || slices.ContainsFunc(others, same) {
			services[i].User += "-services" // permissions that are set replace those of the other user
		}
	}
	return slices.Concat(grants, services, others)
}

// applying needs what creating everything from nothing takes, the lock, and read
// on quorum queues of dead letters, which are asked whether they are empty before
// they are deleted. What the file lists as removed is deleted too.
func applying(t topology.Compiled) Grant {
	g := Grant{User: "ci", Purpose: "plan and apply", Tags: []string{"management"}}
	var have topology.Topology
	for _, e := range t.Exchanges {
		if e.External {
			e.Type = cmp.Or(e.Type, topology.Topic)
			have.Exchanges = append(have.Exchanges, e)
		}
	}
	for _, q := range t.Queues {
		if q.External {
			q.Arguments = q.Arguments.With(topology.ArgQueueType, cmp.Or(q.Type(), topology.Quorum))
			have.Queues = append(have.Queues, q)
		}
	}
	rights := plan.Rights(plan.Make(t, topology.State{Have: have}, plan.Options{}))
	rights = append(rights,
		plan.Right{Permission: plan.Configure, Kind: topology.KindQueue, Name: topology.LockName(t.Name)})
	for _, q := range t.Queues {
		if q.Label.Role == topology.RoleDeadLetter && q.Type() == topology.Quorum {
			rights = append(rights, plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: q.Name})
		}
	}
	for _, name := range t.Removed { // it is unbound and deleted, and so is its dead-letter queue
		for _, permission := range []plan.Permission{plan.Configure, plan.Write, plan.Read} {
			rights = append(rights, plan.Right{Permission: permission, Kind: topology.KindQueue, Name: name},
				plan.Right{Permission: permission, Kind: topology.KindQueue, Name: topology.DeadLetterQueueName(name)})
		}
	}
	lists := map[plan.Permission]*Alternatives{plan.Configure: &g.Configure, plan.Write: &g.Write, plan.Read: &g.Read}
	for _, r := range rights {
		if r.Permission == plan.Policymaker {
			g.Tags = append(g.Tags, policymaker)
			continue
		}
		list := lists[r.Permission]
		*list = append(*list, generatedPattern(t, r.Name))
	}
	g.Write = append(g.Write, covered(t)...) // to bind and unbind the queues that services have declared
	if len(t.Replace) > 0 {
		g.switching(t)
	}
	for _, list := range lists {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Contains(g.Tags, policymaker) {
		g.Note = "If plan overrides a policy of another team (docs/policies.md), apply needs the tag policymaker too."
	}
	return g
}

// switching adds what it takes to move a queue with a switch exchange: its policy, the exchange and
// the hold, all with the prefix of the topology. A queue that is replaced under its name is read.
func (g *Grant) switching(t topology.Compiled) {
	for _, name := range t.Replace {
		g.Read = append(g.Read, generatedPattern(t, name))
	}
	generated := generatedPattern(t, topology.UnroutableName(t.Name))
	g.Configure, g.Write, g.Read = append(g.Configure, generated), append(g.Write, generated), append(g.Read, generated)
	if !slices.Contains(g.Tags, policymaker) {
		g.Tags = append(g.Tags, policymaker)
	}
}

// migrating needs what applying does, policies for the switch, and the legacy
// queues: to bind and unbind them, to take out what is in them, to put back what
// an abort moves, and to delete them. The zero grant is that of a topology that
// replaces none. What the legacy queues are bound to and the file does not declare
// cannot be told from the file: migrate names it before its first write.
func migrating(t topology.Compiled) Grant {
	g := applying(t)
	g.User, g.Purpose, g.Note = "", "migrate", ""
	for _, w := range t.WorkQueues {
		if w.Replaces == "" {
			continue
		}
		g.User = "migrator"
		legacy, successor := exactly(w.Replaces), generatedPattern(t, w.Name)
		g.Configure = append(g.Configure, legacy)
		g.Write = append(g.Write, legacy)
		g.Read = append(g.Read, legacy, successor)
	}
	if g.User != "" {
		g.Note = "Before its first write migrate names what it needs in addition: read on the exchanges of a legacy queue that the file does not have, and write on the default exchange if queues that stay retry through the same queue as a legacy queue."
	}
	if len(t.Replace) > 0 { // under its name
		g.User = "migrator"
	}
	g.switching(t)
	for _, list := range []*Alternatives{&g.Configure, &g.Write, &g.Read} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return g
}

// processing reads the failed queues and publishes to the exchanges that pick
// the tier, or to the exchange for unroutable messages. It needs any right on the
// retry queues, on the levels of delays, on those queues to which queues retry, and on the
// dead-letter queues of matches, to see that they exist, which 4.3 tells no one else: write permits
// to bind them. What is due it publishes to the exchanges of the file.
func processing(t topology.Compiled) Grant {
	g := Grant{User: "processor", Purpose: "process"}
	for _, l := range t.Backoffs {
		g.Write = append(g.Write, exactly(l.RetryExchange), exactly(topology.RetryQueuePrefix(t.Name, l.Name))+".*")
		g.Read = append(g.Read, exactly(l.FailedQueue))
		if l.Outage != nil { // statistics
			g.Tags = []string{"management"}
		}
	}
	for _, d := range t.Delays {
		g.Write = append(g.Write, exactly(d.LevelExchange), exactly(d.To))
		for _, l := range d.Levels {
			g.Write = append(g.Write, exactly(l.Queue))
		}
		g.Read = append(g.Read, exactly(d.Intake), exactly(d.Due))
		if d.Timer != "" {
			g.Read = append(g.Read, exactly(d.Timer))
		}
	}
	if len(t.Backoffs)+len(t.Delays) > 0 {
		g.Write = append(g.Write, exactly(topology.UnroutableName(t.Name)))
	}
	for _, w := range t.WorkQueues {
		if to := exactly(w.RetryTo); w.RetryTo != "" && !slices.Contains(g.Write, to) {
			g.Write = append(g.Write, to)
		}
	}
	if len(t.Matches) > 0 { // to bind the queues that no apply has seen
		g.Write = append(g.Write, covered(t)...)
		for _, m := range t.Matches {
			if dead := exactly(m.DeadLetterQueue); !slices.Contains(g.Write, dead) {
				g.Write = append(g.Write, dead)
			}
		}
		g.Read = append(g.Read, exactly(topology.ReturnExchangeName(t.Name)))
	}
	return g
}

// consuming returns a grant for each owner, for each queue that has none, and for the services of
// each match whose pattern begins with plain text: to consume, to publish a failed message, with
// the reason, to where the queue dead-letters, and to declare and bind the queue again as services
// do at their start. To declare a queue that dead-letters takes write on that exchange too.
func consuming(t topology.Compiled) []Grant {
	var grants []Grant
	sources := map[string][]string{}
	for _, b := range t.Bindings {
		if b.Label.Role == topology.RoleBusiness && b.DestinationType == topology.ToQueue {
			sources[b.Destination] = append(sources[b.Destination], exactly(b.Source))
		}
	}
	exchanges := map[string]string{}
	for _, q := range t.Queues {
		if q.Label.Role == topology.RoleWork {
			exchanges[q.Name], _ = deadLettering(t, q)
		}
	}
	consumer := func(user string) *Grant {
		i := slices.IndexFunc(grants, func(g Grant) bool { return g.User == user })
		if i < 0 {
			i = len(grants)
			purpose := "consume, say why a message failed, and declare and bind as the services of " + text.Name(user) + " do"
			grants = append(grants, Grant{User: user, Purpose: purpose})
		}
		return &grants[i]
	}
	for _, w := range t.WorkQueues {
		g, queue := consumer(cmp.Or(w.Owner, w.Name)), exactly(w.Name)
		g.Configure, g.Write = append(g.Configure, queue), append(g.Write, queue)
		if failed := exactly(exchanges[w.Name]); !slices.Contains(g.Write, failed) {
			g.Write = append(g.Write, failed)
		}
		for _, name := range append([]string{queue}, sources[w.Name]...) {
			if !slices.Contains(g.Read, name) {
				g.Read = append(g.Read, name)
			}
		}
	}
	for _, m := range t.Matches {
		begin := pattern.Begin(m.Pattern)
		if begin == "" {
			continue // an expression for its queues would permit to read every queue
		}
		g := consumer(cmp.Or(m.Owner, "services"))
		g.Note = "The file does not have all exchanges to which these services bind their queues: add read on the others."
		queues := exactly(begin) + ".*"
		g.Configure, g.Read = append(g.Configure, queues), append(g.Read, queues)
		g.Write = append(g.Write, queues)
		if failed := exactly(topology.FailedExchangeName(t.Name)); !slices.Contains(g.Write, failed) {
			g.Write = append(g.Write, failed)
		}
	}
	return grants
}

// publishing writes to the declared exchanges.
func publishing(t topology.Compiled) Grant {
	g := Grant{User: "publisher", Purpose: "publish"}
	for _, e := range t.Exchanges {
		if e.Label.Role == topology.RoleBusiness && !e.Internal {
			g.Write = append(g.Write, exactly(e.Name))
		}
	}
	for _, d := range t.Delays {
		g.Write = append(g.Write, exactly(d.Name))
	}
	return g
}

// verifying needs its own queue, which it binds to the exchanges that return messages and that pick
// dead-letter queues and to the next exchange of failures, and write on the exchanges that its
// canaries enter. It needs any right on the
// failed queues to count their consumers, which 4.3 tells no one else: write permits to bind them.
func verifying(t topology.Compiled) Grant {
	own := exactly(topology.VerifyName(t.Name, "")) + ".*"
	g := Grant{
		User: "verify", Purpose: "verify", Tags: []string{"management"},
		Note:      "Who may bind a queue to the exchanges of retries and dead letters can read copies of the messages.",
		Configure: []string{own}, Write: []string{own},
		Read: []string{own, exactly(topology.NextExchangeName(topology.FailedExchangeName(t.Name)))},
	}
	if len(t.Backoffs) > 0 {
		g.Read = append(g.Read, exactly(topology.ReturnExchangeName(t.Name)), exactly(topology.DeadLetterName(t.Name)))
	}
	g.Write = append(g.Write, exactly(topology.FailedExchangeName(t.Name)))
	for _, b := range t.Backoffs {
		g.Write = append(g.Write, exactly(b.RetryExchange), exactly(b.FailedQueue))
	}
	return g
}

// reading reads dead letters at the desk: it consumes them and gives them back. That takes read on
// the queues where they are, and the tag to see what the virtual host has.
func reading(t topology.Compiled) Grant {
	g := Grant{
		User: deskReader, Purpose: "desk, to read: peek, desk list, groups, show, export, run list",
		Tags: []string{"management"},
		Note: "Who may read a queue may also consume from it with any other program.",
	}
	g.Read = append(deadLetterQueues(t), deskPattern(t), exactly(topology.ParkedName(t.Name)))
	if slices.ContainsFunc(t.Queues, func(q topology.Queue) bool {
		return q.External && q.Label.Role == topology.RoleDeadLetter
	}) {
		g.Note += noteLimited + " The file does not say whether an external dead-letter queue has one: add that if it has."
	}
	return g
}

// noteLimited is what a look takes where the broker could drop a message that is given back.
const noteLimited = " A look at a queue with a delivery limit takes write on the default exchange, which permits to publish to every queue of the virtual host."

// acting needs what reading does, and in addition:
//   - configure on holds, locks and exchanges of runs, and on the queue of parked messages;
//   - configure on the lock of the topology, which a run holds while it begins to hear failures;
//   - write on the exchange that returns messages, where replays go, and on the default exchange,
//     through which the desk fills holds and the parked queue;
//   - write on the dead-letter queues, to bind them to the exchange that gives messages back;
//   - write on the work queues: to ask how many messages wait there, 4.3 wants any permission;
//   - read on the exchange of failures, to hear which messages fail again.
func acting(t topology.Compiled) Grant {
	g := reading(t)
	g.User, g.Purpose = deskActor, "desk, to act: replay, edit, park, restore, discard, import, run resume, run return, run cancel"
	g.Note = "Write on the default exchange permits to publish to every queue of the virtual host. To replay to another exchange or queue (--to), add write on it."
	parked := exactly(topology.ParkedName(t.Name))
	g.Configure = []string{deskPattern(t), exactly(topology.LockName(t.Name)), parked}
	g.Write = append(deadLetterQueues(t), deskPattern(t), exactly(topology.DefaultExchange),
		exactly(topology.ReturnExchangeName(t.Name)))
	for _, w := range t.WorkQueues {
		g.Write = append(g.Write, exactly(w.Name))
	}
	g.Write = append(g.Write, covered(t)...)
	g.Read = append(g.Read, exactly(topology.FailedExchangeName(t.Name)))
	return g
}

// pulling needs what acting does, and read on the work queues, to take messages out of them, and on
// the failed queues and retry queues, to find messages there. It is a user of its own: who may read
// a work queue can take all of it from the services.
func pulling(t topology.Compiled) Grant {
	g := acting(t)
	g.User, g.Purpose = deskPuller, "desk, to act in work queues too: what desk does, desk pull and desk find"
	g.Note = "Who may read a work queue may also consume from it with any other program, in place of the services."
	for _, w := range t.WorkQueues {
		g.Read = append(g.Read, exactly(w.Name))
	}
	g.Read = append(g.Read, covered(t)...)
	for _, b := range t.Backoffs {
		g.Read = append(g.Read, exactly(b.FailedQueue), exactly(topology.RetryQueuePrefix(t.Name, b.Name))+".*")
	}
	return g
}

// DeskRights returns the grants for people at the desk of a virtual host without a topology file,
// to read, to act, and to act in work queues too, by the names that t has.
func DeskRights(t DeskObjects) []Grant {
	names := func(list []string) Alternatives { return text.Each(list, exactly) }
	own, parked := exactly(topology.HoldName(t.Name, ""))+".*", exactly(topology.ParkedName(t.Name))
	reader := Grant{
		User: deskReader, Purpose: reading(topology.Compiled{}).Purpose, Tags: []string{"management"},
		Note: "Who may read a queue may also consume from it with any other program.",
		Read: append(names(t.DeadLetters), own, parked),
	}
	if t.Limited {
		reader.Write = Alternatives{exactly(topology.DefaultExchange)}
		reader.Note += noteLimited
	}
	actor := acting(topology.Compiled{})
	actor.Note = "Write on the default exchange permits to publish to every queue of the virtual host. To replay to another exchange or queue (--to), add write on it."
	actor.Configure = Alternatives{own, parked}
	actor.Write = slices.Concat(names(t.DeadLetters), names(t.Work), Alternatives{own, exactly(topology.DefaultExchange)})
	actor.Read = slices.Clone(reader.Read)
	if t.Applied {
		unroutable := exactly(topology.UnroutableName(t.Name))
		reader.Read = append(reader.Read, unroutable)
		actor.Configure = append(actor.Configure, exactly(topology.LockName(t.Name)))
		actor.Write = append(actor.Write, exactly(topology.ReturnExchangeName(t.Name)), unroutable)
		actor.Read = append(actor.Read, exactly(topology.FailedExchangeName(t.Name)), unroutable)
	}
	puller := pulling(topology.Compiled{})
	puller.Configure, puller.Write = slices.Clone(actor.Configure), slices.Clone(actor.Write)
	puller.Read = slices.Concat(actor.Read, names(t.Work), names(t.Sought))
	puller.Note += " Write on the default exchange permits to publish to every queue of the virtual host."
	return []Grant{reader, actor, puller}
}

// IsForDesk reports whether a grant is for a person at the desk.
func IsForDesk(g Grant) bool {
	return g.User == deskReader || g.User == deskActor || g.User == deskPuller
}

// DeskObjects are the objects of a virtual host that a person at the desk needs rights on.
type DeskObjects struct {
	// Name begins the names of what the desk makes. Applied reports that it is a topology that dlxctl
	// has applied.
	Name    string
	Applied bool
	// DeadLetters are the dead-letter queues. Limited reports that some of them limit how often a
	// message is returned.
	DeadLetters []string
	Limited     bool
	// Work are the queues to which messages go back, and Sought those in which one is looked for.
	Work, Sought []string
}

// covered returns expressions for the names of the queues that matches cover, and for more: how the
// names begin is all that the expression of a permission takes from a pattern.
func covered(t topology.Compiled) []string {
	return text.Each(t.Matches, func(m topology.Match) string { return exactly(pattern.Begin(m.Pattern)) + ".*" })
}

// The users of people at the desk, who read, who act, and who act in work queues too.
const (
	deskReader = "desk-reader"
	deskActor  = "desk"
	deskPuller = "desk-pull"
)

// deadLetterQueues returns expressions for the queues where dead letters are, and for the
// unroutable queue.
func deadLetterQueues(t topology.Compiled) []string {
	out := text.Each(t.WorkQueues, func(w topology.WorkQueue) string { return exactly(w.DeadLetterQueue) })
	out = append(out, text.Each(t.Matches, func(m topology.Match) string { return exactly(m.DeadLetterQueue) })...)
	out = append(out, exactly(topology.UnroutableName(t.Name)))
	slices.Sort(out)
	return slices.Compact(out)
}

// deskPattern returns an expression for the names that runs of the desk use.
func deskPattern(t topology.Compiled) string { return exactly(topology.HoldName(t.Name, "")) + ".*" }

// generatedPattern returns an expression for a name, or for all that is generated.
func generatedPattern(t topology.Compiled, name string) string {
	if strings.HasPrefix(name, t.Name+".") {
		return exactly(t.Name+".") + ".*"
	}
	return exactly(name)
}

// exactly returns an expression for one name. What a terminal would obey is written
// in its code.
func exactly(name string) string {
	var b strings.Builder
	for _, r := range regexp.QuoteMeta(name) {
		if r < ' ' || r == 0x7f {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// lengthNote says which names the expressions cover in addition to those of the file, because the
// broker accepts no longer expression. Empty: none.
func (g Grant) lengthNote() string {
	var covered []string
	longest := 0
	for _, list := range [][]string{g.Configure, g.Write, g.Read} {
		longest = max(longest, len(Expression(list)))
		for _, prefix := range Covered(list) {
			if name := strings.ReplaceAll(prefix, `\`, ""); !slices.Contains(covered, name) {
				covered = append(covered, name)
			}
		}
	}
	switch {
	case longest > maxExpression:
		return fmt.Sprintf("An expression has %d bytes, and RabbitMQ 4.3 accepts %d: write what the names have in common, or '.*'.",
			longest, maxExpression)
	case len(covered) > 0:
		slices.Sort(covered)
		return fmt.Sprintf("RabbitMQ 4.3 accepts expressions of %d bytes, too few for all names. They cover every name that begins with %s.",
			maxExpression, strings.Join(covered, ", "))
	}
	return ""
}

// replaceNote says what becomes of the rights that a user has: the user of two roles, or of two
// topologies, would be left with those of the last command.
const replaceNote = "These commands replace the permissions and tags of a user. " +
	"Give each role and each topology a user of its own, or join the expressions with | and list all tags."

// WriteRights writes grants as commands.
func WriteRights(w io.Writer, vhost string, grants []Grant) error {
	fmt.Fprintf(w, "# %s\n", replaceNote)
	for _, g := range grants {
		fmt.Fprintf(w, "\n# %s\n", g.Purpose)
		if g.Note != "" {
			fmt.Fprintf(w, "# %s\n", g.Note)
		}
		if note := g.lengthNote(); note != "" {
			fmt.Fprintf(w, "# %s\n", note)
		}
		fmt.Fprintf(w, "# if the user does not exist: rabbitmqctl add_user %s\n", text.ShellQuote(g.User))
		fmt.Fprintf(w, "rabbitmqctl set_permissions -p %s %s %s %s %s\n", text.ShellQuote(vhost), text.ShellQuote(g.User),
			text.ShellQuote(Expression(g.Configure)), text.ShellQuote(Expression(g.Write)), text.ShellQuote(Expression(g.Read)))
		if len(g.Tags) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "rabbitmqctl set_user_tags %s %s\n", text.ShellQuote(g.User),
			strings.Join(g.Tags, " ")); err != nil {
			return err
		}
	}
	return nil
}

// RightsDocument is grants as scripts read them.
type RightsDocument struct {
	Version int     `json:"version"`
	VHost   string  `json:"vhost"`
	Grants  []Grant `json:"grants"`
}

// WriteRightsDefinitions writes the permissions of grants in RabbitMQ's format for definitions,
// without the users: an import of users would replace their passwords. The users must exist.
func WriteRightsDefinitions(w io.Writer, vhost string, grants []Grant) error {
	type permission struct {
		User      string `json:"user"`
		VHost     string `json:"vhost"`
		Configure string `json:"configure"`
		Write     string `json:"write"`
		Read      string `json:"read"`
	}
	out := struct {
		Permissions []permission `json:"permissions"`
	}{[]permission{}}
	for _, g := range grants {
		out.Permissions = append(out.Permissions,
			permission{g.User, vhost, Expression(g.Configure), Expression(g.Write), Expression(g.Read)})
	}
	return text.WriteJSON(w, out)
}
