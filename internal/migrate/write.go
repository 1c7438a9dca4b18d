package migrate

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WritePreviews writes previews for a person to read: the steps that Run takes with these options,
// and what they mean for the messages. Migrations that the file does not have follow.
func (r *Runner) WritePreviews(w io.Writer, state topology.State, list []Preview) error {
	var b strings.Builder
	strays := strayLines(r.Topology, state)
	for _, o := range list {
		for _, line := range r.previewLines(o) {
			b.WriteString(topology.Printable(line) + "\n")
		}
	}
	for _, line := range strays {
		b.WriteString(topology.Printable(line) + "\n")
	}
	if len(list)+len(strays) == 0 {
		b.WriteString(None + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Runner) previewLines(o Preview) []string {
	lines := []string{o.String()}
	line := func(word, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-7s  %s", word, fmt.Sprintf(format, args...)))
	}
	ends := slices.Index(Stages(), r.Until) // -1 without Until: no stage is left out
	within := func(stage Stage) bool { return ends <= 0 || slices.Index(Stages(), stage) <= ends }
	if o.Made > 0 {
		line("prepare", "%s to create: the successor and its retry queues", text.Count(o.Made, "object"))
	}
	if (o.Stage == Prepare || o.Stage == Cutover) && within(Cutover) {
		from := ""
		if len(o.Sources) > 0 {
			from = " from " + strings.Join(o.Sources, ", ")
		}
		line("cutover", "%s%s, all rerouted at one moment", text.Count(o.Bindings, "binding"), from)
		for _, added := range o.Added {
			line("", "added, as the file says: %s", added)
		}
		for _, kept := range o.Kept {
			line("", "kept, as drift: %s", kept)
		}
	}
	if within(Drain) {
		when := "once " + o.Legacy + " has no consumers"
		if r.DrainNow {
			when = "while " + o.Legacy + " has consumers too"
		}
		line("drain", "%s to move, %s; each stays in %s until its copy in %s is confirmed",
			messages(o.Ready+o.Unacknowledged), when, o.Legacy, o.New)
	}
	switch {
	case within(Retire) && o.Stays != "" && r.Forward:
		line("retire", "%s stays and forwards to %s, at most once, because publishers may send to it by its name: %s",
			o.Legacy, o.New, o.Stays)
	case within(Retire) && o.Stays != "":
		line("retire", "%s is kept, and migrate exits with code 2, because publishers may send to it by its name: %s; %s",
			o.Legacy, o.Stays, o.WaysOut())
	case within(Retire):
		line("retire", "%s is deleted, once it is proved empty, no message has arrived for %s, no message in it was "+
			"published to its name, and no queue can dead-letter to it", o.Legacy, r.Idle)
		if r.Forward {
			line("", "if publishers use its name, it stays and forwards what they send to %s, at most once", o.New)
		}
	default:
		line("stop", "after the stage %s: %s stays", r.Until, o.Legacy)
	}
	if o.ByName != "" {
		line("by name", "%s", o.ByName)
	}
	for _, n := range o.Notes {
		word := "note"
		if n.Decide {
			word = "decide"
		}
		line(word, "%s", n.Text)
	}
	for _, reason := range o.Reasons {
		line("refused", "%s", reason)
	}
	return lines
}

// None says that there is nothing to migrate.
const None = "nothing to migrate: no legacy queue of the file exists"

// WriteRollbacks writes what an abort of these moves does, for a person to read.
func WriteRollbacks(w io.Writer, state topology.State, moves []Move) error {
	var b strings.Builder
	for _, m := range moves {
		u := state.Usage[m.New]
		fmt.Fprintf(&b, "%s <- %s\n", topology.Printable(m.Legacy), topology.Printable(m.New))
		if m.find(state).forwarder != nil {
			fmt.Fprintf(&b, "  forward  %s stops forwarding\n", topology.Printable(m.Legacy))
		}
		fmt.Fprintf(&b, "  cutover  messages are routed to %s again, all at one moment\n", topology.Printable(m.Legacy))
		fmt.Fprintf(&b, "  drain    %s in %s are moved back, and the messages in its tiers return\n",
			messages(u.Ready), topology.Printable(m.New))
		fmt.Fprintf(&b, "  remove   %s and what was created for it are deleted once they are proved empty\n",
			topology.Printable(m.New))
		if m.find(state).successorByName {
			fmt.Fprintf(&b, "  by name  publishers have sent to %s by its name: it is deleted only with %s\n",
				topology.Printable(m.New), consentTo(m.New))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteStatuses writes how far each move is, one line per move, which replacements of queues under
// their names are not finished, and which migrations the file does not have. Without any it writes
// none, unless that is empty.
func WriteStatuses(w io.Writer, want topology.Compiled, state topology.State, list []Status, none string) error {
	others := append(replacementLines(want, state, nil), strayLines(want, state)...)
	for _, s := range list {
		fmt.Fprintln(w, topology.Printable(s.String()))
	}
	for _, line := range others {
		fmt.Fprintln(w, topology.Printable(line))
	}
	if len(list)+len(others) > 0 || none == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, none)
	return err
}

// StatusDocument is how far each move is, as scripts read it.
type StatusDocument struct {
	Version    int      `json:"version"`
	Topology   string   `json:"topology"`
	VHost      string   `json:"vhost"`
	Migrations []Status `json:"migrations"`
	// Replacing are the queues whose replacement under their names is not finished.
	Replacing []string `json:"replacing,omitempty"`
	// Stray are the holds in which messages of a queue wait that is being replaced under its name, and
	// that the file does not have.
	Stray []string `json:"strayHolds,omitempty"`
	// StrayMoves are the legacy queues of unfinished migrations that the file does not have.
	StrayMoves []string `json:"strayMigrations,omitempty"`
}

// statusJSON is how far a move is.
type statusJSON struct {
	// Legacy is the queue that is replaced, and New its successor.
	Legacy string `json:"legacy"`
	New    string `json:"new"`
	// Stage is the next stage.
	Stage Stage `json:"stage"`
	// Messages, Unacknowledged and Consumers are those of the legacy queue.
	Messages       int64 `json:"messages"`
	Unacknowledged int64 `json:"unacknowledged"`
	Consumers      int64 `json:"consumers"`
	// Other is how many messages no consumer holds: RabbitMQ delays or dead-letters them.
	Other int64 `json:"other,omitempty"`
	// Bindings counts the bindings of the legacy queue.
	Bindings int64 `json:"bindings"`
	// Forwards reports that the broker forwards what comes to the legacy queue.
	Forwards bool `json:"forwards"`
	// Quiet is for how many seconds nothing has come to a legacy queue that forwards, an hour at most.
	// Null: not known, or it does not forward.
	Quiet *int64 `json:"quietSeconds"`
	// Waits says for what the end of the migration waits.
	Waits string `json:"waits,omitempty"`
}

// JSON implements jsondoc.Former.
func (s Status) JSON() any {
	out := statusJSON{
		s.Legacy, s.New, s.Stage, s.Ready, s.Held(), s.Consumers, s.Other, s.Bindings, s.Forwards, nil, s.Waits,
	}
	if s.Quiet != nil {
		out.Quiet = new(int64(s.Quiet.Seconds()))
	}
	return out
}

//go:embed page.md
var page string

// WritePages writes a page for the team of each queue, in Markdown.
func WritePages(w io.Writer, want topology.Compiled, list []Preview) error {
	type filled struct {
		Preview
		PolicyFits        bool
		Arguments, Return string
		Own, Read         string
	}
	var pages []filled
	for _, o := range list {
		p := filled{
			Preview: o, Return: topology.ReturnExchangeName(want.Name),
			Own: expression(o.New), Read: expression(append([]string{o.New}, o.Sources...)...),
		}
		p.PolicyFits = !slices.ContainsFunc(o.Notes, func(n Note) bool {
			return strings.HasPrefix(n.Text, topology.ArgDeadLetterExchange)
		})
		for _, q := range want.Queues {
			if q.Name == o.New {
				p.Arguments = q.Arguments.Without(topology.ArgManagedBy).String()
			}
		}
		pages = append(pages, p)
	}
	if len(pages) == 0 {
		_, err := fmt.Fprintln(w, None)
		return err
	}
	functions := template.FuncMap{
		"code": text.Code,
		"codes": func(list []string) string {
			return strings.Join(text.Each(list, text.Code), ", ")
		},
		"cell":  func(s string) string { return strings.ReplaceAll(s, "|", `\|`) },
		"count": text.Count[int64],
		"entry": func(queue string) string {
			return text.Code("{name: " + text.YAML(queue) + ", external: true, deadLetterBy: policy}")
		},
		"run": func(command, queue, flags string) string {
			return text.Code("dlxctl " + command + " " + text.ShellQuote(queue) + " " + flags)
		},
	}
	t, err := template.New("page").Funcs(functions).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, pages)
}

// expression returns the regular expression for names, as set_permissions accepts it.
func expression(names ...string) string {
	for i, n := range names {
		names[i] = regexp.QuoteMeta(n)
	}
	if len(names) == 1 {
		return "^" + names[0] + "$"
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
