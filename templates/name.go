package templates

import (
	"bytes"
	"regexp"
	"strings"
)

// Named returns a starter for a topology of another name, which is made of that of a
// folder, such as /home/me/Orders (old): Orders-old. What the starter's own queues and
// exchanges begin with changes too, so that those of two teams differ.
func Named(starter []byte, folder string) []byte {
	own := regexp.MustCompile(`(?m)^name: ([A-Za-z0-9_-]+)`).FindSubmatch(starter)
	if own == nil {
		return starter
	}
	name, value := TopologyName(folder), TopologyName(folder)
	if !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`).MatchString(name) || isWord(name) {
		value = `"` + name + `"` // YAML would take it for a number or a truth value
	}
	out := bytes.Replace(starter, own[0], []byte("name: "+value), 1)
	return regexp.MustCompile(`\b`+regexp.QuoteMeta(string(own[1]))+`\.\b`).ReplaceAll(out, []byte(name+"."))
}

// isWord reports whether YAML takes a plain text for something else.
func isWord(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// TopologyName makes a name for a topology of that of a folder: letters, digits, _
// and -, beginning with a letter or a digit, and at most 63 of them. Where nothing is
// left of it, the name is shop.
func TopologyName(folder string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(folder, "-")
	name = strings.TrimRight(strings.TrimLeft(name, "-_"), "-")
	if len(name) > 63 {
		name = name[:63]
	}
	if name == "" {
		return "shop"
	}
	return name
}
