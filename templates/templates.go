// Package templates holds the files that dlxctl writes for a team to start
// from, embedded in the program.
package templates

import (
	"embed"
	"slices"
)

//go:embed starters/*.yaml
var starters embed.FS // go:embed can fill nothing else

// Starters returns the names of the starters, the simplest first.
func Starters() []string {
	return []string{
		"minimal", "full", "direct", "in-place", "tail", "tiers", "repeats", "crashes", "filter", "elsewhere",
		"priority", "deadline", "discard", "native",
	}
}

// Starter returns the topology file of that name. It reports false if there is
// none.
func Starter(name string) ([]byte, bool) {
	if !slices.Contains(Starters(), name) {
		return nil, false
	}
	data, err := starters.ReadFile("starters/" + name + ".yaml")
	return data, err == nil
}
