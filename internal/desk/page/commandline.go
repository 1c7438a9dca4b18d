package page

import "strconv"

// commandLine returns the command line that does what a request asks for. chosen is how many
// messages it must choose; negative only shows.
func (p *Page) commandLine(ask Ask, chosen int) string {
	words, kind := []string{"desk", string(ask.Action)}, ask.Action.Kind()
	if kind.Edits && len(ask.Handles) == 1 {
		words = append(words, ask.Handles[0], ask.Queue)
		if chosen >= 0 {
			words = append(words, "--body-file", "FILE", "--yes")
		}
		return p.Line(words...)
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
