package survey_test

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/graph"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// agree fails if the import's comments, the audit's fates, the drawing, the trace and the survey
// contradict each other about a virtual host, or the messages that the router follows through it:
// for each queue, where a rejected message goes next, and whether it is lost.
func agree(t rapid.TB, state topology.State) {
	t.Helper()
	if said := contradictions(state); len(said) > 0 {
		t.Fatalf("%s\n%+v", strings.Join(said, "\n"), state.Have)
	}
}

// contradictions returns what agree fails for.
func contradictions(state topology.State) []string {
	c := checker{
		world: newWorld(state), survey: survey.New(state), fates: audit.Run(audit.Input{State: state}).Fates,
		drawn: graph.Make(graph.Input{State: state}),
	}
	files, err := importer.Import(state, importer.Options{})
	if err != nil {
		return []string{err.Error()}
	}
	c.readFile(files)
	c.headline(state)
	for _, q := range state.Have.Queues {
		c.queue = q.Name
		c.checkSurvey()
		c.checkComment()
		c.checkDrawing()
	}
	c.checkTraces(state)
	return c.said
}

// checker compares what is said with the messages of a world.
type checker struct {
	*world
	survey *survey.Survey
	fates  map[string]audit.Fate
	drawn  graph.Graph
	// comments are those of the imported file, by queue, and top is what stands above the queues.
	comments  map[string]string
	top, file string
	queue     string
	said      []string
}

// says notes a contradiction about the queue.
func (c *checker) says(what string) { c.said = append(c.said, c.queue+": "+what) }

// readFile finds the comments at the queues of an imported file.
func (c *checker) readFile(r importer.Result) {
	c.comments, c.file = map[string]string{}, string(r.Files[0].Data)
	name, inQueues := "", false
	for line := range strings.Lines(c.file) {
		line = strings.TrimSpace(line)
		text, isComment := strings.CutPrefix(line, "# ")
		switch found, isName := strings.CutPrefix(line, "- name: "); {
		case line == "queues:":
			inQueues = true
		case !inQueues && isComment:
			c.top += text + " "
		case inQueues && isName:
			if err := yaml.Unmarshal([]byte(found), &name); err != nil {
				c.says(err.Error())
			}
			name = strings.ReplaceAll(name, "$${", "${")
			c.comments[name] = ""
		case line == "":
			name = ""
		case isComment && name != "":
			c.comments[name] += text + " "
		}
	}
}

// headline checks that import and audit begin with the same sentence.
func (c *checker) headline(state topology.State) {
	score := audit.NewResult([]audit.Report{audit.Run(audit.Input{State: state})}).Score()
	if len(c.fates) > 0 && !strings.Contains(c.top, "Today "+score+". ") {
		c.says("the audit says that " + score + "; the import: " + c.top)
	}
}

// checkSurvey compares the survey with what the router does to messages.
func (c *checker) checkSurvey() {
	f, q := c.failed[c.queue], c.survey.Queue(c.queue)
	if f == nil || !q.DeadLetters {
		return
	}
	for _, name := range f.next {
		if !slices.Contains(q.Targets(), name) {
			c.says("the survey does not know that dead letters go to " + name)
		}
	}
	if f.open {
		return
	}
	for _, name := range q.Targets() {
		if !slices.Contains(f.next, name) && !q.ByKey() && !f.guess {
			c.says("no dead letter goes to " + name + ", as the survey says")
		}
	}
	nowhere := slices.ContainsFunc(q.Hops, survey.Hop.Loses)
	some := nowhere || slices.ContainsFunc(q.Hops, func(h survey.Hop) bool { return h.Verdict == survey.Partly })
	if f.lost && !some || nowhere && !f.lost && !f.guess {
		c.says("the survey is wrong about lost dead letters")
	}
	if fate := c.fates[c.queue]; f.lost && (fate == audit.Kept || fate == audit.Endless) {
		c.says("a dead letter is lost, and the audit says " + string(fate))
	}
}

// checkComment compares the comment of the import with what the audit says, and with messages.
func (c *checker) checkComment() {
	comment, written := c.comments[c.queue]
	fate, counted := c.fates[c.queue]
	q := c.survey.Queue(c.queue)
	_, marked := topology.Owner(q.Arguments)
	leftOut := strings.Contains(c.file, "#   queue "+text.Name(c.queue)+" ")
	if counted && !written && !leftOut && !marked {
		c.says("the audit counts it, and the import does not declare it")
	}
	if !written || q.Type() == topology.Stream {
		return
	}
	if !counted {
		c.says("the import declares it, and the audit does not count it")
		return
	}
	may := strings.Contains(comment, "may be lost")
	lost := strings.Contains(strings.ReplaceAll(comment, "may be lost", ""), " lost")
	endless := strings.Contains(comment, "without end")
	if lost != (fate == audit.Lost) || fate == audit.Undecided && !may || fate == audit.Endless && !endless ||
		fate == audit.Kept && endless {
		c.says("the audit says " + string(fate) + ", the import: " + comment)
	}
	_, ways, told := strings.Cut(comment, "failed messages go to ")
	f := c.failed[c.queue]
	if !told || f == nil || f.open || strings.Contains(ways, "exchange") {
		return
	}
	ways, _, _ = strings.Cut(ways, ". ")
	var names []string
	for way := range strings.SplitSeq(ways, ", and to ") {
		name, _, _ := strings.Cut(way, ",")
		if strings.HasPrefix(name, "the queue itself") {
			name = text.Name(c.queue)
		}
		names = append(names, name)
	}
	for _, name := range names {
		if !slices.Contains(text.Names(f.next), name) && !strings.Contains(name, " more") && !f.guess {
			c.says("no dead letter goes to " + name + ", as the import says: " + comment)
		}
	}
	for _, name := range f.next {
		if !slices.Contains(names, text.Name(name)) && !strings.Contains(ways, " more") {
			c.says("dead letters go to " + name + "; the import: " + comment)
		}
	}
}

// checkDrawing follows the arrows from a queue through exchanges.
func (c *checker) checkDrawing() {
	f := c.failed[c.queue]
	box := slices.IndexFunc(c.drawn.Nodes, func(n graph.Node) bool {
		return n.Name == c.queue && n.Kind != graph.Exchange && n.Kind != graph.Loss
	})
	if f == nil || box < 0 {
		return
	}
	reached, losses := map[string]bool{}, false
	var walk func(from int, first bool, seen map[int]bool)
	walk = func(from int, first bool, seen map[int]bool) {
		if seen[from] && !first {
			return
		}
		seen[from] = true
		for _, e := range c.drawn.Edges {
			switch to := c.drawn.Nodes[e.To]; {
			case e.From != from:
			case to.Kind == graph.Loss:
				losses = true
			case to.Kind == graph.Exchange && to.Name == "default exchange":
				for _, name := range f.next {
					reached[name] = true
				}
				losses = true
			case to.Kind == graph.Exchange:
				walk(e.To, false, seen)
			default:
				reached[to.Name] = true
			}
		}
	}
	walk(box, true, map[int]bool{})
	for _, name := range f.next {
		if !reached[name] {
			c.says("dead letters go to " + name + "; the drawing has no arrow")
		}
	}
	_, deadLetters := c.router.DeadLettering(c.queue)
	if _, counted := c.fates[c.queue]; f.all && !f.open && (counted || deadLetters) && !losses {
		c.says("all dead letters are lost; the drawing has no loss")
	}
}

// checkTraces compares the trace with what the router does to the same messages.
func (c *checker) checkTraces(state topology.State) {
	const most = 30
	for _, m := range c.published[:min(len(c.published), most)] {
		report := trace.Run(trace.Input{
			State: state, Exchange: m.exchange, Key: m.key, Failures: 1, Cause: trace.Rejected,
		})
		for _, j := range report.Journeys {
			if first := j.Stops[0]; first.Event != trace.Failed || first.Reason != route.Rejected {
				continue
			}
			c.queue = j.Queue
			f := c.failed[j.Queue]
			for _, s := range j.Stops[1:] {
				if s.From == 0 && !slices.Contains(f.next, s.Queue) {
					c.says("the trace goes on to " + s.Queue)
				}
			}
			lost := slices.ContainsFunc(j.Stops[0].Ends, func(e trace.End) bool { return e.Kind == trace.Lost })
			if lost && !f.lost {
				c.says("the trace loses a message with key " + m.key)
			}
		}
	}
}
