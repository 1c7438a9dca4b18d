// Package site answers what the page of the site asks: the audit, the graph, the topology file and
// the traces of a definitions file. It does no I/O: in a browser it runs as WebAssembly, in a
// worker of the page, so that the file stays on the reader's machine.
package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/graph"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// MaxBytes is the size of the largest file that the page reads. A browser gives a page less memory
// than a process has.
const MaxBytes = 64 << 20

// The largest pictures that the page draws. A larger one is unreadable, and takes a browser long to
// show. Of too many objects no graph is made, unless a queue is named: it would take gigabytes.
const (
	mostArrows  = 600
	mostObjects = 5000 // queues and bindings
)

// Page answers the questions of a page about the file that was opened last.
type Page struct {
	// Version is the version of dlxctl.
	Version string

	file  string
	hosts []definitions.VHost
}

// question is what the page asks. Do decides which fields count.
type question struct {
	// Do is open, graph, import or trace.
	Do string `json:"do"`
	// Name is the name of the file to open.
	Name string `json:"name"`
	// VHost is the index of the virtual host in the answer of open.
	VHost int `json:"vhost"`
	// Queue: draw only what leads to this queue, and all that its messages can reach. Empty: all.
	Queue string `json:"queue"`
	// Exchange, Key, Fail and Reason describe the message to trace. Fail is how often it fails in
	// each queue; trace.Always has no end.
	Exchange string      `json:"exchange"`
	Key      string      `json:"key"`
	Fail     int         `json:"fail"`
	Reason   trace.Cause `json:"reason"`
}

type opened struct {
	// Audit is the document that "dlxctl audit FILE -o json" prints.
	Audit json.RawMessage `json:"audit"`
	// Score is the line that says of how many queues failed messages are kept.
	Score string `json:"score"`
	// Titles are the titles of the rules that found something.
	Titles map[string]string `json:"titles"`
	VHosts []vhost           `json:"vhosts"`
}

// vhost is what a person may choose from.
type vhost struct {
	Name      string   `json:"name"`
	Queues    []string `json:"queues"`
	Exchanges []string `json:"exchanges"`
}

// picture is the answer to graph.
type picture struct {
	// SVG is empty if the picture is too large.
	SVG string `json:"svg"`
}

type imported struct {
	Name      string `json:"name"`
	Text      string `json:"text"`
	Queues    int    `json:"queues"`
	Exchanges int    `json:"exchanges"`
}

// traced is the answer to trace.
type traced struct {
	Text string `json:"text"`
	Lost bool   `json:"lost"`
}

// failure is the answer to a question that cannot be answered.
type failure struct {
	Error string `json:"error"`
}

// Answer returns the answer to a question, as JSON. file is what the question open opens. A fault
// of dlxctl itself is an answer too: the worker lives on, and the page can say it.
func (p *Page) Answer(asked, file []byte) (answer []byte) {
	defer func() {
		if r := recover(); r != nil {
			answer, _ = json.Marshal(failure{fmt.Sprintf("dlxctl has a fault, please report it: %v", r)})
		}
	}()
	out, err := p.answer(asked, file)
	if err != nil {
		out = failure{err.Error()}
	}
	if answer, err = json.Marshal(out); err != nil {
		answer, _ = json.Marshal(failure{err.Error()})
	}
	return answer
}

func (p *Page) answer(asked, file []byte) (any, error) {
	var q question
	if err := json.Unmarshal(asked, &q); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if q.Do == "open" {
		return p.open(q.Name, file)
	}
	if q.VHost < 0 || q.VHost >= len(p.hosts) {
		return nil, errors.New("no file is open; open one first")
	}
	switch h := p.hosts[q.VHost]; q.Do {
	case "graph":
		return draw(h, q.Queue)
	case "import":
		return p.write(h)
	case "trace":
		return follow(h, q)
	}
	return nil, fmt.Errorf("the page asks for %q, which is not known", q.Do)
}

// open reads a file and audits it.
func (p *Page) open(name string, data []byte) (opened, error) {
	p.file, p.hosts = name, nil
	if len(data) > MaxBytes {
		return opened{}, fmt.Errorf("%s is larger than %d MiB, the limit of this page; run 'dlxctl audit' on it", name, MaxBytes>>20)
	}
	hosts, err := definitions.Read([]definitions.File{{Name: name, Data: data}})
	if err != nil {
		return opened{}, err
	}
	out := opened{Titles: map[string]string{}}
	var reports []audit.Report
	for _, h := range hosts {
		reports = append(reports, audit.Run(audit.Input{State: h.State, Positions: h.Positions, Oddities: h.Oddities}))
		v := vhost{Name: h.State.VHost, Queues: h.State.Have.QueueNames(), Exchanges: []string{}}
		for _, e := range h.State.Have.Exchanges {
			v.Exchanges = append(v.Exchanges, e.Name)
		}
		out.VHosts = append(out.VHosts, v)
	}
	result := audit.NewResult(reports)
	result.Source = name
	out.Score = result.Score()
	for _, f := range result.Findings {
		if rule, ok := audit.RuleByID(f.Rule); ok {
			out.Titles[f.Rule] = rule.Title
		}
	}
	if out.Audit, err = jsondoc.Marshal(audit.Document{Result: result, Program: p.Version}); err != nil {
		return opened{}, err
	}
	p.hosts = hosts
	return out, nil
}

// draw draws a virtual host, or what has to do with a queue.
func draw(h definitions.VHost, queue string) (picture, error) {
	in := graph.Input{State: h.State}
	if queue != "" {
		if err := known(h, "queue", queue, h.State.Have.QueueNames()); err != nil {
			return picture{}, err
		}
		in.Queues = []string{queue}
	} else if len(h.State.Have.Queues)+len(h.State.Have.Bindings) > mostObjects {
		return picture{}, nil
	}
	g := graph.Make(in)
	if len(g.Edges) > mostArrows {
		return picture{}, nil
	}
	var b strings.Builder
	err := graph.WriteSVG(&b, g)
	return picture{b.String()}, err
}

// known refuses a name that the virtual host does not have, and suggests one.
func known(h definitions.VHost, kind, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("%s %q does not exist in vhost %s%s", kind, name, text.Name(h.State.VHost),
		topology.Suggestion(name, names))
}

// write imports a virtual host.
func (p *Page) write(h definitions.VHost) (imported, error) {
	if h.Unnamed {
		h.State.VHost = ""
	}
	var o importer.Options
	o.ReadFrom(p.file)
	result, err := importer.Import(h.State, o)
	if err == nil {
		err = importer.Prove(h.State, result, o, func(string) (string, bool) { return "", false })
	}
	if err != nil {
		return imported{}, err
	}
	file := result.Files[0]
	return imported{Name: file.Name, Text: string(file.Data), Queues: result.Queues, Exchanges: result.Exchanges}, nil
}

func follow(h definitions.VHost, q question) (traced, error) {
	if q.Exchange != "" {
		if err := known(h, "exchange", q.Exchange, h.State.Have.ExchangeNames()); err != nil {
			return traced{}, err
		}
	}
	r := trace.Run(trace.Input{
		State: h.State, Exchange: q.Exchange, Key: q.Key, Headers: map[string]any{},
		Failures: q.Fail, QueueFailures: map[string]int{}, Cause: q.Reason,
		Place: func(key topology.Key) string {
			if at, ok := h.Positions[key]; ok && at.Line > 0 {
				return fmt.Sprintf("%s:%d", at.File, at.Line)
			}
			return ""
		},
	})
	var b strings.Builder
	err := trace.WriteText(&b, r, false)
	return traced{b.String(), r.Lost()}, err
}
