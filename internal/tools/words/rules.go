package main

import "regexp"

// A rule bans a phrase in everything that a person reads.
type rule struct {
	// banned is a regular expression for whole words, in any case.
	banned string
	// write says what to write in its place.
	write string
	// unless is a regular expression for what may stand around the phrase: a match of it
	// that covers the phrase makes the phrase legitimate. Empty is no exception.
	unless string
}

// rules is the word list. docs/concepts.md says what the words of dlxctl mean.
func rules() []rule {
	return []rule{
		// The actor has a name.
		{`somebody|someone|anybody|anyone|nobody|everybody|whoever`, "the actor: a consumer, another team, no processor", ``},
		{`ours|theirs`, "the noun: dlxctl's objects, the other team's policy", ``},

		// The field's words.
		{`in force`, "in effect", ``},
		{`outrank(s|ed|ing)?`, "override", ``},
		{`turn(s|ed|ing)? back`, "roll back", ``},
		{`work(s|ed|ing)? off`, "process, consume or drain", ``},
		{`connect(s|ed|ing)? again`, "reconnect", ``},
		{`cut(s|ting)? off`, "interrupt, or lose the connection", ``},
		{`(come|comes|came|coming) to rest`, "settle", ``},
		{`rest(s|ed)? in|rests`, "is in", `the rest in`},
		{`puts? at stake|at stake`, "at risk", ``},
		{`for ever`, "forever", ``},
		{`so often`, "the number of times", ``},
		{`all the same`, "anyway, or still", ``},
		{`beside|besides`, "next to, with, or in addition to", `beside[- ]consumers`},
		{`stand(s|ing)? in`, "be defined in, or be listed in", ``},
		{`say(s|ing)? a name`, "set `name`", ``},
		{`learns? who is first`, "print who holds the lock", ``},
		{`what is there`, "what the broker holds", ``},
		{`way back|ways back`, "return path", ``},

		// Private words.
		{`ghosts?`, "orphaned policy", ``},
		{`bared|bares`, "loses its dead-lettering", ``},
		{
			`letters?`, "dead letter, or message",
			`(dead|capital|upper-case|lower-case|upper case|lower case|small|first|same|of|ASCII)[ -]letters?|letters? (or|and|,) ?(a )?digits?|letters?, digits?`,
		},
		{`toldError|unmake|hopeless|lastWords|beating|stumbles?|makeWay`, "a plain word", ``},
		{`ladders?`, "backoff", ``},
		{`foret(ell|ells|old|elling)`, "predict", ``},
		{`strangers?`, "foreign objects, or objects of other teams", ``},

		// Phrases that a newcomer has to guess.
		{`// [a-z.]+ gives`, "returns, in a doc comment", `// [a-z.]+ gives (back|up|everything back)`},
		{
			`(is|was|are|were|be|being) no [a-z0-9%*-]+`, "is not an integer, is not a text",
			`there( [a-z]+)? (is|was|are|were|be|being) no [a-z0-9%*-]+|` +
				`(is|was|are|were|be|being) no (longer|more|limit|reason|way|answer|consent|risk|news|help|other) ?`,
		},
		{`(gave|gives) all back`, "order kept", ``},
		{`doubles none`, "no message is duplicated", ``},
		{`way is computed`, "its path is checked first", ``},
		{`or a few more: the broker`, "counts are up to 5s old", ``},
		{`made up for`, "caught up", ``},
		{`it is no matter`, "any of them will do", ``},
		{`you know before`, "no surprises", ``},
		{`need be unlocked`, "you never need to", ``},

		// One form of a duration. A name that has a delay keeps the form of topology.FormatDelay.
		{`([0-9]+[dhm])*[0-9]+s[0-9]+ms`, "3.5s, as text.Duration does", `retry\.[0-9dhms]+|"[0-9dhms]+"`},
		{`([0-9]+[dhm])*[0-9]+m0s`, "1m, as text.Duration does", ``},

		// American spelling.
		{
			`colou?red?|coloured|colours?|behaviours?|licences?|favours?|honours?`, "the American spelling",
			`\b(color|colored)\b`,
		},
		{`cancelled|cancelling|labelled|labelling|travell(ed|ing)`, "the American spelling, with one l", `[a-z*]\.cancelled`},
	}
}

// compiled is a rule that is ready to be searched for.
type compiled struct {
	rule
	find, except *regexp.Regexp
}

func compile(list []rule) []compiled {
	var out []compiled
	for _, r := range list {
		c := compiled{rule: r, find: regexp.MustCompile(`(?i)(?:^|\b)(?:` + r.banned + `)\b`)}
		if r.unless != "" {
			c.except = regexp.MustCompile(`(?i)` + r.unless)
		}
		out = append(out, c)
	}
	return out
}

// in returns the first and last+1 byte of each banned phrase in the text.
func (c compiled) in(text string) [][]int {
	found := c.find.FindAllStringIndex(text, -1)
	if len(found) == 0 || c.except == nil {
		return found
	}
	exceptions := c.except.FindAllStringIndex(text, -1)
	var kept [][]int
	for _, at := range found {
		covered := false
		for _, e := range exceptions {
			covered = covered || e[0] <= at[0] && at[1] <= e[1]
		}
		if !covered {
			kept = append(kept, at)
		}
	}
	return kept
}
