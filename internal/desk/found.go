package desk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Found is what the broker tells of the dead letters of a virtual host, in the place of a topology
// file.
type Found struct {
	VHost string
	// Topology is the topology that dlxctl has applied. Empty: none, and [topology.DeskName] stands
	// for its name.
	Topology string
	// File is the name of the topology file, if it leaves all queues the dead-lettering that they
	// have. Empty: there is none. The caller of Discover sets it.
	File string
	// Queues are the dead-letter queues, sorted by name.
	Queues []survey.Keeping
	// Work are the queues whose dead letters they keep, and all work queues where that is not known of
	// one of them. Sorted.
	Work []string
	// Masked reports that what to mask is known. The caller of Discover sets it.
	Masked bool
	// Limited reports that some of Queues limit how often a message is returned.
	Limited bool
	// sought are the queues in which a message may be that failed or will: dead-letter queues, those
	// that dead-letter, and all of the topology.
	sought map[string]bool
}

// Discover finds the dead-letter queues of the virtual host on the broker, in the place of a
// topology file, and lets the reader know them. If dlxctl has applied several topologies there,
// name is the one to look at, with the queues of no topology. Empty is the only one.
func (d *Desk) Discover(ctx context.Context, name string) error {
	state, err := d.inspect(ctx)
	if err != nil {
		return err
	}
	if name, err = d.chosenTopology(topologiesOf(state), name); err != nil {
		return err
	}
	s := survey.New(state.WithDown())
	d.Found = &Found{VHost: d.Endpoint.VHost, Topology: name, sought: map[string]bool{}}
	name = cmp.Or(name, topology.DeskName)
	d.Topology = topology.Compiled{Name: name, CountHeader: countHeaderOf(name, state)}
	anyWork := false
	for _, k := range s.DeadLetterQueues() {
		if k.Topology != "" && k.Topology != name {
			continue
		}
		d.Found.Queues = append(d.Found.Queues, k)
		d.Found.sought[k.Queue] = true
		d.Found.Work = append(d.Found.Work, k.Of...)
		anyWork = anyWork || len(k.Of) == 0
		if t, err := termsOf(state, k.Queue); err == nil && t.limited {
			d.Found.Limited = true
		}
		for _, work := range k.Of {
			d.Topology.WorkQueues = append(d.Topology.WorkQueues, topology.WorkQueue{Name: work, DeadLetterQueue: k.Queue})
		}
	}
	for _, q := range s.Queues {
		owner, owned := topology.Owner(q.Arguments)
		if anyWork && q.Role == topology.RoleWork {
			d.Found.Work = append(d.Found.Work, q.Name)
		}
		ofOther := owned && survey.DeskOwner(owner) != name
		if !ofOther && (owned || q.DeadLetters) {
			d.Found.sought[q.Name] = true
		}
		if backoff, ok := topology.FailedBackoff(name, q.Name); ok && owned && !ofOther {
			d.Topology.Backoffs = append(d.Topology.Backoffs, topology.Backoff{Name: backoff, FailedQueue: q.Name})
		}
	}
	slices.Sort(d.Found.Work)
	d.Found.Work = slices.Compact(d.Found.Work)
	if d.Reader != nil {
		d.Reader.Known = deadletter.Knows(d.Topology)
		d.Reader.Known.Route = d.Route
	}
	return nil
}

// Again returns the desk of a virtual host without a topology file, with what the broker tells now.
// The receiver stays as it is.
func (d *Desk) Again(ctx context.Context) (*Desk, error) {
	now := d.As(d.By)
	if d.Reader != nil {
		reader := *d.Reader
		now.Reader = &reader
	}
	err := now.Discover(ctx, cmp.Or(d.Found.Topology, topology.DeskName))
	if err == nil {
		now.Found.Masked, now.Found.File = d.Found.Masked, d.Found.File
	}
	return now, err
}

// countHeaderOf returns the header in which the processor of a topology counts attempts, as its
// retry exchanges tell. Empty: it has none, and so no processor.
func countHeaderOf(name string, state topology.State) string {
	for _, b := range state.Have.Bindings {
		if owner, _ := topology.Owner(b.Arguments); owner != name || !topology.IsRetryExchangeName(name, b.Source) {
			continue
		}
		for header, v := range b.Arguments {
			if _, counts := v.(int64); counts && !strings.HasPrefix(header, "x-") {
				return header
			}
		}
	}
	return ""
}

// uncounted says why the attempts of a message cannot begin again. Empty: they can.
func (d *Desk) uncounted(facts deadletter.Facts, headers amqp091.Table) string {
	if d.Found == nil || d.Topology.CountHeader != "" || !facts.FromProcessor || pulledUncounted(facts, headers) {
		return ""
	}
	return "the topology file tells in which header their attempts are counted; name it with -f"
}

// pulledUncounted reports whether a desk that knew no count header has pulled a message. One that
// knew it has written the count of a dead letter into it.
func pulledUncounted(facts deadletter.Facts, headers amqp091.Table) bool {
	for _, v := range headers {
		if n, counts := topology.Integer(v); counts && n == topology.DeadLetterCount {
			return false
		}
	}
	return facts.Cause == string(topology.ReasonPulled)
}

// topologiesOf names the topologies that dlxctl has applied in a virtual host, sorted. What the
// desk leaves in a virtual host that has none is of no topology.
func topologiesOf(state topology.State) []string {
	names := map[string]bool{}
	note := func(args topology.Arguments) {
		if owner, ok := topology.Owner(args); ok && args[topology.ArgManagedBy] != topology.DeskMark(topology.DeskName) {
			names[survey.DeskOwner(owner)] = true
		}
	}
	for _, q := range state.Have.Queues {
		note(q.Arguments)
	}
	for _, e := range state.Have.Exchanges {
		note(e.Arguments)
	}
	return slices.Sorted(maps.Keys(names))
}

// chosenTopology returns the topology of a virtual host that a person means by name. Empty: there
// is none.
func (d *Desk) chosenTopology(have []string, name string) (string, error) {
	vhost := text.Name(d.Endpoint.VHost)
	switch {
	case name == topology.DeskName && !slices.Contains(have, name): // what it left before a topology was applied
		return "", nil
	case name != "" && !slices.Contains(have, name):
		if len(have) == 0 {
			return "", refusef("vhost %s has no topology of dlxctl; remove --name", vhost)
		}
		return "", refusef("vhost %s has no topology %q; it has %s", vhost, name, text.List(text.Names(have)))
	case name == "" && len(have) > 1:
		return "", refusef("vhost %s has the topologies %s; pass --name %s, or another of them", vhost,
			text.List(text.Names(have)), text.ShellQuote(have[0]))
	case name == "" && len(have) == 1:
		return have[0], nil
	default:
		return name, nil
	}
}

// DeadLettersOf names the dead-letter queues that keep the failed messages of a work queue.
func (f *Found) DeadLettersOf(work string) (out []string) {
	for _, k := range f.Queues {
		if slices.Contains(k.Of, work) {
			out = append(out, k.Queue)
		}
	}
	return out
}

// Sought names the queues in which a message is looked for, sorted.
func (f *Found) Sought() []string { return slices.Sorted(maps.Keys(f.sought)) }

// Has reports whether a queue is one of the dead-letter queues.
func (f *Found) Has(queue string) bool {
	return slices.ContainsFunc(f.Queues, func(k survey.Keeping) bool { return k.Queue == queue })
}

// String says why no topology file tells of dead letters, and how the dead-letter queues were
// found.
func (f *Found) String() string {
	var made, fed int
	var named []string
	name := ""
	for _, k := range f.Queues {
		switch k.By {
		case survey.ByMark:
			made, name = made+1, k.Topology
		case survey.ByDeadLettering:
			fed++
		case survey.ByName:
			named = append(named, text.Name(k.Queue))
		}
	}
	var how []string
	if made > 0 {
		how = append(how, fmt.Sprintf("%d of the topology %s", made, text.Name(name)))
	}
	if fed > 0 {
		how = append(how, fmt.Sprintf("%d to which queues dead-letter", fed))
	}
	if len(named) > 0 {
		how = append(how, fmt.Sprintf("%d by %s (%s)", len(named), text.Choose(len(named), "its name", "their names"),
			text.ListFirst(named, 3)))
	}
	line := "vhost " + text.Name(f.VHost) + " has no dead-letter queues, as far as its objects tell"
	if len(how) > 0 {
		line = fmt.Sprintf("vhost %s has %s: %s", text.Name(f.VHost), text.Count(len(f.Queues), "dead-letter queue"),
			text.List(how))
	}
	if f.File != "" {
		return fmt.Sprintf("topology %s manages the dead-lettering of no queue; %s", text.Name(f.File), line)
	}
	return "no topology file; " + line
}

// overviews returns the dead-letter queues, with what the broker tells.
func (f *Found) overviews() (out []QueueOverview) {
	for _, k := range f.Queues {
		out = append(out, QueueOverview{Queue: k.Queue, WorkQueues: k.Of, FoundBy: string(k.By)})
	}
	return out
}
