package text

import (
	"errors"
	"fmt"
	"strings"
)

// Each returns what of returns for each element.
func Each[T, U any](list []T, of func(T) U) []U {
	out := make([]U, len(list))
	for i, element := range list {
		out[i] = of(element)
	}
	return out
}

// Names returns each name as Name does.
func Names(names []string) []string { return Each(names, Name) }

// List joins words for a sentence: "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Or joins words with commas and "or": "a, b or c".
func Or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// ListFirst joins words as List does: the first ones of more than most words, and it counts the
// others, at least two: "a, b and 3 more".
func ListFirst(words []string, most int) string {
	if len(words) <= most+1 {
		return List(words)
	}
	return More(words[:most], len(words))
}

// FirstOf joins names with commas alone: the first ones of more than most names, and it counts the
// others as ListFirst does.
func FirstOf(names []string, most int) string {
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return More(names[:most], len(names))
}

// More joins the first ones of so many names with commas, and counts the others.
func More(names []string, of int) string {
	list := strings.Join(names, ", ")
	if more := of - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// FirstLines returns lines as they are, or the first ones and one that counts the others.
func FirstLines(lines []string, most int) []string {
	if len(lines) <= most+1 {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("… and %d more", len(lines)-most))
}

// FirstErrors joins errors: the first ones, and one that counts the others.
func FirstErrors(problems []error, most int) error {
	if more := len(problems) - most; more > 0 {
		problems = append(problems[:most:most], fmt.Errorf("and %d more problems", more))
	}
	return errors.Join(problems...)
}
