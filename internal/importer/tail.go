package importer

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// maxListed is how many objects of a kind the end of a file names.
const maxListed = 50

// tail writes what the file does not declare, as comments.
func (w *writer) tail() {
	if !w.adopt && !w.quorum && w.options.Match == nil {
		w.aside(topology.RoleRetry, "Retry queues")
		w.aside(survey.Delay, "Delay queues")
		w.aside(topology.RoleDeadLetter, "Queues that keep dead letters")
		w.aside(topology.RoleUnroutable, "Queues for messages that no other binding takes")
	}
	w.leftOut()
	w.policyList()
}

// aside lists the queues of a role, which the file does not declare.
func (w *writer) aside(role topology.Role, what string) {
	var lines []string
	chains := w.delaysOf()
	for _, q := range w.survey.Queues {
		framework, prefix, ok := delayer(q.Name)
		if _, marked := topology.Owner(q.Arguments); q.Role != role || marked {
			continue
		}
		switch chain := chains[prefix]; {
		case !ok || len(chain) == 1 || q.Role != survey.Delay:
			lines = append(lines, quoted(q.Name)+": "+lower(w.asideText(q)))
		case q == chain[0]:
			lines = append(lines, fmt.Sprintf("%s* (%s, each with an exchange): %s", prefix, text.Count(len(chain), "queue"),
				lower(delaysText(framework, chain))))
		}
	}
	w.listed(what+", which this file does not declare:", lines)
}

// listed writes a title, and lines below it.
func (w *writer) listed(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	w.raw(0, "")
	w.comment(0, title)
	for _, s := range text.FirstLines(lines, maxListed) {
		w.raw(0, "#   "+strings.Join(words(s), " "))
	}
}

// leftOut lists what a topology file cannot declare, or should not.
func (w *writer) leftOut() {
	var lines []string
	owners := map[string]int{}
	for _, l := range w.left {
		if owner, ok := strings.CutPrefix(l.why, "belongs to the topology "); ok {
			owners[owner]++
			continue
		}
		s := string(l.key.Kind) + " " + quoted(l.key.Name) + " " + l.why
		if l.rule != "" {
			s += " (" + l.rule + ")"
		}
		lines = append(lines, s)
	}
	for _, owner := range sortedKeys(owners) {
		name, rest, _ := strings.Cut(owner, ",")
		if owners[owner] > 1 {
			rest = strings.Replace(rest, "declares it", "declares them", 1)
		}
		lines = append(lines, fmt.Sprintf("%s of the topology %s,%s", text.Count(owners[owner], "queue"), name, rest))
	}
	w.listed("Not in this file:", lines)
}

// policyList names the policies: a file has none but those of its queues.
func (w *writer) policyList() {
	var lines []string
	for _, p := range w.state.Have.Policies {
		if _, made := topology.PolicyOwner(p.Name); !made {
			lines = append(lines, fmt.Sprintf("%s: %s", quoted(p.Name), strings.Join(p.Definition.Names(), ", ")))
		}
	}
	w.listed("Policies, which no topology file has:", lines)
}

// lower makes the first letter of a sentence small.
func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
