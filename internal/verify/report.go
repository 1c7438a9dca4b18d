package verify

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Result is what became of the canaries of a tier. The zero Result says that none was to be sent.
type Result string

// The results. Where the canaries of a tier differ, the worst one counts: the last of this list.
const (
	// NotWaitedFor: the delay is longer than MaxWait. Only the settings of the tier were read.
	NotWaitedFor Result = "not waited for"
	// NoProcessor: no processor is consuming the failed queue, and no canary was sent there.
	NoProcessor Result = "no processor"
	// OK: back in time, from the right tier, with the right headers.
	OK Result = "ok"
	// Late: back, and too late.
	Late Result = "late"
	// Headers: back with headers that differ from those that a service relies on.
	Headers Result = "wrong headers"
	// Early: back before its time.
	Early Result = "early"
	// Astray: back from another tier, or as a dead letter.
	Astray Result = "astray"
	// Missing: not back.
	Missing Result = "missing"
	// NotSent: by the objects of the broker the canary would not come back, or the objects are
	// missing.
	NotSent Result = "not sent"
)

func (r Result) worse(other Result) bool {
	rank := map[Result]int{
		NotWaitedFor: 1, NoProcessor: 2, OK: 3, Late: 4, Headers: 5, Early: 6, Astray: 7, Missing: 8, NotSent: 9,
	}
	return rank[r] > rank[other]
}

// Tier is what was found out about the tier of a backoff.
type Tier struct {
	Backoff string `json:"backoff"`
	// Queue is the retry queue. Empty: RabbitMQ does the retries, in the work queue itself.
	Queue string `json:"queue"`
	// Delay is how long the tier keeps a message.
	Delay time.Duration `json:"delay"`
	// Attempts are the attempts that wait in the tier, from 1.
	Attempts []int `json:"attempts"`
	// Result and Waited are about canaries that verify itself put into the tier.
	Result Result        `json:"result"`
	Waited time.Duration `json:"waited"`
	// Processor and ProcessorWaited are about canaries that verify put where rejected messages
	// go, and a processor into the tier.
	Processor       Result        `json:"processor"`
	ProcessorWaited time.Duration `json:"processorWaited"`
}

// Failure is a way in which a consumer fails a message of a native backoff, and what RabbitMQ did.
type Failure struct {
	Backoff string `json:"backoff"`
	// Consumer is what the consumer calls, or what happens to it.
	Consumer string `json:"consumer"`
	// Expected is what is to become of the message, for people.
	Expected string `json:"expected"`
	// Result and Waited are about the canary that failed in this way. Waited is the time since its
	// last failure.
	Result Result        `json:"result"`
	Waited time.Duration `json:"waited"`
}

// Problem is something that is not as it should be.
type Problem struct {
	// Name is what it is, in a word for scripts.
	Name string `json:"name"`
	// Backoff and Queue are where. Empty: it concerns all.
	Backoff string `json:"backoff,omitempty"`
	Queue   string `json:"queue,omitempty"`
	// Text says what is wrong and what to do, as a sentence without a full stop.
	Text string `json:"text"`
}

// Report is what a run of verify found out about a topology.
type Report struct {
	Format   jsondoc.V1 `json:"version"`
	Topology string     `json:"topology"`
	VHost    string     `json:"vhost"`
	// OK reports that there are no problems.
	OK    bool   `json:"ok"`
	Tiers []Tier `json:"tiers"`
	// Failures are about native backoffs: what became of canaries that failed in each way.
	Failures []Failure `json:"failures,omitempty"`
	// Problems are what is not as it should be.
	Problems []Problem `json:"problems"`
	// Left is what the run could not remove, as a sentence.
	Left string `json:"left,omitempty"`
}

// add adds a problem, unless the same queue has one of that name already.
func (r *Report) add(p Problem) {
	for _, old := range r.Problems {
		if old.Name == p.Name && old.Backoff == p.Backoff && old.Queue == p.Queue {
			return
		}
	}
	r.Problems, r.OK = append(r.Problems, p), false
}

// join adds what was found out about another backoff.
func (r *Report) join(other Report) {
	r.Tiers = append(r.Tiers, other.Tiers...)
	r.Failures = append(r.Failures, other.Failures...)
	for _, p := range other.Problems {
		r.add(p)
	}
	if other.Left != "" {
		r.Left = strings.TrimPrefix(r.Left+"\n"+other.Left, "\n")
	}
}

// WriteText writes a report for people: a row for each tier, and the problems.
func WriteText(w io.Writer, r Report, width int) error {
	fmt.Fprintf(w, "topology %s, vhost %s\n\n", r.Topology, topology.Printable(r.VHost))
	rows := [][]string{{"BACKOFF", "TIER", "ATTEMPTS", "TIER ALONE", "WITH PROCESSOR"}}
	for _, t := range r.Tiers {
		rows = append(rows, []string{
			t.Backoff, text.Duration(t.Delay), attempts(t.Attempts), after(t.Result, t.Waited),
			after(t.Processor, t.ProcessorWaited),
		})
	}
	failures := [][]string{{"BACKOFF", "FAILED BY", "EXPECTED", "RESULT"}}
	for _, f := range r.Failures {
		failures = append(failures, []string{f.Backoff, f.Consumer, f.Expected, after(f.Result, f.Waited)})
	}
	for _, table := range [][][]string{rows, failures} {
		if len(table) == 1 { // the heading alone
			continue
		}
		if err := (text.Table{Rows: table}).Write(w, width); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem %s: %s\n", p.Name, topology.Printable(p.Text))
	}
	if r.Left != "" {
		fmt.Fprintln(w, topology.Printable(r.Left))
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

// summary says in a line whether the retry plane works.
func (r Report) summary() string {
	worked, unwaited := 0, 0
	for _, t := range r.Tiers {
		switch {
		case t.Result == NotWaitedFor:
			unwaited++
		case t.Result == OK && (t.Processor == OK || t.Processor == ""):
			worked++
		}
	}
	out := fmt.Sprintf("%s of %s verified", text.Count(worked, "tier"), fmt.Sprint(len(r.Tiers)))
	if len(r.Tiers) == 0 {
		out = "no tiers to verify"
	}
	if unwaited > 0 {
		out += fmt.Sprintf("; of %s beyond --max-wait only the settings were read", text.Count(unwaited, "tier"))
	}
	if len(r.Problems) > 0 {
		out += "; " + text.Count(len(r.Problems), "problem")
	}
	return out
}

// attempts returns attempts for people: "1", "2-4" or "1, 3".
func attempts(list []int) string {
	out := ""
	for i := 0; i < len(list); i++ {
		first := list[i]
		for i+1 < len(list) && list[i+1] == list[i]+1 {
			i++
		}
		if out != "" {
			out += ", "
		}
		if out += fmt.Sprint(first); list[i] > first {
			out += fmt.Sprintf("-%d", list[i])
		}
	}
	return out
}

// after returns a result with the time that the canary took.
func after(r Result, d time.Duration) string {
	if d == 0 {
		return string(r)
	}
	return fmt.Sprintf("%s, %s", r, text.Duration(d.Round(10*time.Millisecond)))
}
