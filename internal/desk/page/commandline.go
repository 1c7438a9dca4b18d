package page

import (
	"strconv"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// commandLine returns the command line that does what a request asks for. chosen is how many
// messages it must choose; negative only shows.
func (p *Page) commandLine(ask Ask, chosen int) string {
	words, kind := []string{"desk", string(ask.Action)}, ask.Action.Kind()
	if kind.Edits && len(ask.Handles) == 1 {
		return p.Line(ask.edits(words, chosen)...)
	}
	words = append(words, ask.Queue)
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, value)
		}
	}
	add("--where", ask.Where)
	add("--since", ask.Since)
	for _, h := range ask.Handles {
		add("--handle", h)
	}
	if ask.Limit > 0 {
		add("--limit", strconv.Itoa(ask.Limit))
	}
	if kind.Once && ask.Again {
		words = append(words, "--again")
	}
	if kind.Paced {
		add("--to", ask.To)
		add("--key", ask.Key)
		add("--rate", ask.Rate)
		add("--ramp", ask.Ramp)
		add("--stop-on", ask.StopOn)
	}
	add("--reason", ask.Reason)
	if chosen >= 0 {
		words = append(words, "--yes", "--expect", strconv.Itoa(chosen))
	}
	return p.Line(words...)
}

// edits adds to the words of a command line what an edit changes.
func (a Ask) edits(words []string, chosen int) []string {
	words = append(words, a.Handles[0], a.Queue)
	if a.Body != nil {
		words = append(words, "--body-file", "FILE")
	}
	for _, h := range a.Headers {
		if h.Remove {
			words = append(words, "--remove-header", h.Name)
			continue
		}
		set := h.String()
		if read, err := deadletter.ParseHeaderChange(set); err != nil || read != h {
			set = "NAME=VALUE" // the command line cannot set a header with such a name
		}
		words = append(words, "--set-header", set)
	}
	for _, option := range [][2]string{{"--to", a.To}, {"--key", a.Key}, {"--reason", a.Reason}} {
		if option[1] != "" {
			words = append(words, option[0], option[1])
		}
	}
	if chosen >= 0 {
		words = append(words, "--yes")
	}
	return words
}
