package migrate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteOutlooks writes what is ahead, for a person to read.
func WriteOutlooks(w io.Writer, list []Outlook) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(topology.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	for _, o := range list {
		line("%s", o.Standing)
		if o.Made > 0 {
			line("  prepare  %s to make: the new queue and its retry plane", number(o.Made, "object"))
		}
		if o.Stage == Prepare || o.Stage == Cutover {
			from := ""
			if len(o.Sources) > 0 {
				from = " from " + strings.Join(o.Sources, ", ")
			}
			line("  cutover  %s%s, turned at one moment", number(o.Bindings, "binding"), from)
			for _, added := range o.Added {
				line("           added, as the file says: %s", added)
			}
			for _, kept := range o.Kept {
				line("           kept, as drift: %s", kept)
			}
		}
		line("  drain    %s to move, when nobody consumes there any more", number(o.Ready+o.Unacknowledged, "message"))
		line("  retire   %s is deleted once it is proved empty and nothing comes", o.Legacy)
		if o.ByName != "" {
			line("  by name  %s", o.ByName)
		}
		for _, n := range o.Notes {
			word := "note"
			if n.Decide {
				word = "decide"
			}
			line("  %-7s  %s", word, n.Text)
		}
		for _, r := range o.Reasons {
			line("  refused  %s", r)
		}
	}
	if len(list) == 0 {
		line("%s", none)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// none says that there is nothing to move.
const none = "no migration is to be done: no legacy queue of the file exists"

// WriteReturns writes what an abort of these moves does, for a person to read.
func WriteReturns(w io.Writer, state plan.State, moves []Move) error {
	var b strings.Builder
	for _, m := range moves {
		u := state.Usage[m.New]
		fmt.Fprintf(&b, "%s <- %s\n", topology.Printable(m.Legacy), topology.Printable(m.New))
		if m.find(state).forwarder != nil {
			fmt.Fprintf(&b, "  forward  %s stops forwarding\n", topology.Printable(m.Legacy))
		}
		fmt.Fprintf(&b, "  cutover  messages are routed to %s again, from one moment to the next\n", topology.Printable(m.Legacy))
		fmt.Fprintf(&b, "  drain    %s in %s move back, and what waits in its tiers comes back\n", number(u.Ready, "message"), topology.Printable(m.New))
		fmt.Fprintf(&b, "  remove   %s and what was made for it are deleted once they are proved empty\n", topology.Printable(m.New))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteStandings writes where each move stands, a line each.
func WriteStandings(w io.Writer, list []Standing) error {
	for _, s := range list {
		fmt.Fprintln(w, topology.Printable(s.String()))
	}
	if len(list) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, none)
	return err
}

// WriteStandingsJSON writes where each move stands, for scripts.
func WriteStandingsJSON(w io.Writer, t topology.Topology, vhost string, list []Standing) error {
	type migration struct {
		Legacy         string `json:"legacy"`
		New            string `json:"new"`
		Stage          Stage  `json:"stage"`
		Messages       int64  `json:"messages"`
		Unacknowledged int64  `json:"unacknowledged"`
		Consumers      int64  `json:"consumers"`
		Bindings       int64  `json:"bindings"`
		Forwards       bool   `json:"forwards"`
		QuietSeconds   *int64 `json:"quietSeconds"` // nil: not known, or it does not forward
		Waits          string `json:"waits,omitempty"`
	}
	out := struct {
		Version    int         `json:"version"`
		Topology   string      `json:"topology"`
		VHost      string      `json:"vhost"`
		Migrations []migration `json:"migrations"`
	}{1, t.Name, vhost, []migration{}}
	for _, s := range list {
		var quiet *int64
		if s.Quiet != nil {
			seconds := int64(s.Quiet.Seconds())
			quiet = &seconds
		}
		out.Migrations = append(out.Migrations, migration{s.Legacy, s.New, s.Stage, s.Ready, s.Unacknowledged, s.Consumers, s.Bindings, s.Forwards, quiet, s.Waits})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

//go:embed page.md
var page string

// WritePages writes a page for the team of each queue, in Markdown.
func WritePages(w io.Writer, want topology.Topology, list []Outlook) error {
	type filled struct {
		Outlook
		PolicyFits        bool
		Arguments, Return string
		Own, Read         string
	}
	var pages []filled
	for _, o := range list {
		p := filled{Outlook: o, Return: topology.ReturnName(want.Name), Own: expression(o.New), Read: expression(append([]string{o.New}, o.Sources...)...)}
		p.PolicyFits = !slices.ContainsFunc(o.Notes, func(n Note) bool { return strings.HasPrefix(n.Text, topology.ArgDeadLetterExchange) })
		for _, q := range want.Queues {
			if q.Name == o.New {
				p.Arguments = q.Arguments.Without(topology.ArgManagedBy).String()
			}
		}
		pages = append(pages, p)
	}
	if len(pages) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	quoted := func(s string) string { return "`" + s + "`" }
	functions := template.FuncMap{
		"code": quoted,
		"codes": func(list []string) string {
			out := make([]string, 0, len(list))
			for _, s := range list {
				out = append(out, quoted(s))
			}
			return strings.Join(out, ", ")
		},
		"count": number,
	}
	t, err := template.New("page").Funcs(functions).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, pages)
}

// expression gives the regular expression of names, as set_permissions takes it.
func expression(names ...string) string {
	for i, n := range names {
		names[i] = regexp.QuoteMeta(n)
	}
	if len(names) == 1 {
		return "^" + names[0] + "$"
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
