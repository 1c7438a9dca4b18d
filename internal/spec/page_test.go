package spec

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/templates"
)

const filePage = "../../docs/file.md"

// tables returns the tables of keys in docs/file.md, by the names in its comments.
func tables() map[string][]key {
	return map[string][]key{
		"file": fileKeys(), "defaults": defaultsKeys(),
		"backoff": backoffKeys(), "tier": tierKeys(), "outage": outageKeys(), "exponential": exponentialKeys(),
		"linear":   linearKeys(),
		"exchange": exchangeKeys(), "delay": delayKeys(), "queue": queueKeys(), "dead": deadKeys(), "binding": bindingKeys(),
		"severity": severityKeys(), "rule": severityRuleKeys(), "notify": notifyKeys(),
		"messages": messagesKeys(), "type": messageTypeKeys(), "redact": redactKeys(),
	}
}

// The tables of docs/file.md have every key of the format, as the schema describes it, and the
// starter that the page names has an example of each. With -update the test writes the tables.
func TestFilePage(t *testing.T) {
	t.Parallel()
	page := string(read(t, filePage))
	writer := tableWriter{t, examplesOfKeys(t), sectionsOfTables(page)}
	written := map[string]bool{}
	table := regexp.MustCompile(`<!-- keys: ([\w ]+) -->\n\n(?:\|.*\n)*`)
	want := table.ReplaceAllStringFunc(page, func(found string) string {
		names := table.FindStringSubmatch(found)[1]
		for name := range strings.FieldsSeq(names) {
			if _, ok := tables()[name]; !ok || written[name] {
				t.Errorf("docs/file.md has a table %q twice, or the format has no such keys", name)
			}
			written[name] = true
		}
		return fmt.Sprintf("<!-- keys: %s -->\n\n%s", names, writer.table(strings.Fields(names)))
	})
	for name := range tables() {
		if !written[name] {
			t.Errorf("docs/file.md has no table of the keys %q: add <!-- keys: %s -->", name, name)
		}
	}
	if want == page {
		return
	}
	if !*goldentest.Update {
		t.Error("the tables of docs/file.md differ from the keys of the format; make golden writes them")
		return
	}
	if err := os.WriteFile(filePage, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the repository
		t.Fatal(err)
	}
}

// Each object of the format has a table on the page, so that a new object needs one.
func TestEachObjectHasATable(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	for _, keys := range tables() {
		for _, k := range keys {
			described[k.doc] = true
		}
	}
	eachObject(object(fileKeys()), func(keys []key) {
		for _, k := range keys {
			if !described[k.doc] {
				t.Errorf("the key %s is in no table of docs/file.md: %s", k.name, k.doc)
			}
		}
	})
}

// eachObject calls see with the keys of each object in a shape.
func eachObject(s shape, see func([]key)) {
	if s.keys != nil {
		see(s.keys)
	}
	for _, k := range s.keys {
		eachObject(k.shape, see)
	}
	for _, inner := range append(slices.Clone(s.either), deref(s.items)...) {
		eachObject(inner, see)
	}
	for _, inner := range deref(s.values) {
		eachObject(inner, see)
	}
}

// deref returns a shape as a list of none or one.
func deref(s *shape) []shape {
	if s == nil {
		return nil
	}
	return []shape{*s}
}

// tableWriter writes the tables of keys.
type tableWriter struct {
	*testing.T
	examples map[string]string // of the starter full, by table and key, such as queue.type
	sections map[string]string // the link to each table
}

// sectionsOfTables returns a link to the section of each table.
func sectionsOfTables(page string) map[string]string {
	sections, section := map[string]string{}, ""
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = "#" + strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-")
		}
		if names, ok := strings.CutPrefix(line, "<!-- keys: "); ok {
			for name := range strings.FieldsSeq(strings.TrimSuffix(strings.TrimSpace(names), " -->")) {
				sections[name] = section
			}
		}
	}
	return sections
}

// table writes the table of the keys of an object, or of several: then each key has the name of its
// object before it.
func (w tableWriter) table(names []string) string {
	w.Helper()
	var b strings.Builder
	b.WriteString("| key | value | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, name := range names {
		before := ""
		if len(names) > 1 {
			inList := map[string]string{"tier": "tiers", "rule": "rules", "type": "types"}
			before = cmp.Or(inList[name], name) + "."
		}
		for _, k := range tables()[name] {
			if isScalar(k.shape) && w.examples[name+"."+k.name] == "" {
				w.Errorf("the starter full has no example of %s.%s", name, k.name)
			}
			meaning, standard := w.meaning(name, k)
			fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", before, k.name, w.value(k.shape), standard, meaning)
		}
	}
	return b.String()
}

// meaning returns what the description of a key says, and its default.
func (w tableWriter) meaning(table string, k key) (meaning, standard string) {
	w.Helper()
	meaning, standard, said := strings.Cut(k.doc, " Default: ")
	standard = strings.TrimSuffix(standard, ".")
	switch {
	case k.required:
		standard = "**required**"
	case said && isWord(k.shape, standard):
		standard = "`" + standard + "`"
	case !said && isScalar(k.shape):
		w.Errorf("%s: the description of %s has no default: end it with Default: …", table, k.name)
	case standard == "none":
		standard = "" // an empty cell says it
	}
	return asCode(meaning), asCode(standard)
}

// asCode marks what a text quotes of a file or a command line: flags, names of keys that have
// capitals inside, placeholders, paths and prefixes.
func asCode(text string) string {
	quoted := regexp.MustCompile(`buf build -o FILE|protoc --include_imports --descriptor_set_out=FILE|--[a-z]+\b` +
		`|\b[a-z]+[A-Z]\w*\b|\b[A-Z]+[.=]\w+|\b(?:body|headers)\.[\w.\[\]*]*\w\b|\bx-(?:\W|$)|\* is any`)
	return quoted.ReplaceAllStringFunc(text, func(found string) string {
		inner := strings.TrimRight(found, " :.,")
		rest := found[len(inner):]
		if inner == "* is any" {
			return "`*` is any"
		}
		return "`" + inner + "`" + rest
	})
}

// isScalar reports whether a value is a text, a number or a boolean.
func isScalar(s shape) bool {
	return s.either == nil && len(s.types) > 0 && s.types[0] != "object" && s.types[0] != "array"
}

// isWord reports whether a default is a value that the key takes, and no sentence.
func isWord(s shape, standard string) bool {
	if s.enum != nil {
		return slices.Contains(s.enum, standard)
	}
	for _, e := range s.either {
		if isWord(e, standard) {
			return true
		}
	}
	return regexp.MustCompile(`^([0-9]+|topic|count|true|false)$`).MatchString(standard)
}

// value says what a value may be.
func (w tableWriter) value(s shape) string {
	switch {
	case s.either != nil:
		var all []string
		for _, e := range s.either {
			all = append(all, w.value(e))
		}
		return strings.Join(all, ", or a ")
	case s.enum != nil:
		return "`" + strings.Join(s.enum, "`, `") + "`"
	case s.keys != nil:
		return "[mapping](" + w.sectionOf(s) + ")"
	case s.values != nil && s.values.keys != nil:
		return "[mapping](" + w.sectionOf(*s.values) + ") by name"
	case s.items != nil && s.items.keys != nil:
		return "[list](" + w.sectionOf(*s.items) + ")"
	case s.items != nil && s.items.enum != nil:
		return "list of " + w.value(*s.items)
	case s.items != nil && s.items.either != nil:
		return "list, each a " + w.value(*s.items)
	case s.items != nil:
		return "texts"
	case s.match == delay().match:
		return "delay"
	case s.match == namePattern:
		return "name"
	case s.values != nil:
		return "mapping"
	}
	return map[string]string{
		"string": "text", "integer": fmt.Sprintf("integer from %d", s.least), "number": "number", "boolean": "boolean",
	}[s.types[0]]
}

// sectionOf returns the link to the table of an object's keys.
func (w tableWriter) sectionOf(s shape) string {
	for name, keys := range tables() {
		if keys[0].doc == s.keys[0].doc {
			return w.sections[name]
		}
	}
	return w.sections["messages"] // a queue has a part of these keys
}

// examplesOfKeys returns an example for each key that is neither an object nor a list of objects,
// by the name of its table and the key: the first one in the starter that has them all.
func examplesOfKeys(t *testing.T) map[string]string {
	t.Helper()
	data, ok := templates.Starter("full")
	if !ok {
		t.Fatal("there is no starter full")
	}
	var file yaml.Node
	if err := yaml.Unmarshal(uncommented(data), &file); err != nil {
		t.Fatal(err)
	}
	tableOf := map[string]string{}
	for name, keys := range tables() {
		tableOf[keys[0].doc] = name
	}
	examples := map[string]string{}
	collectExamples(t, file.Content[0], object(fileKeys()), func(keys []key, name, example string) {
		at := tableOf[keys[0].doc] + "." + name
		if tableOf[keys[0].doc] == "" { // a queue has a part of the keys of messages
			at = "messages." + name
		}
		if _, taken := examples[at]; !taken {
			examples[at] = example
		}
	})
	return examples
}

// collectExamples calls found for the keys of a node that have a plain value.
func collectExamples(t *testing.T, n *yaml.Node, s shape, found func(keys []key, name, example string)) {
	t.Helper()
	n = follow(n)
	for _, e := range s.either {
		collectExamples(t, n, e, found)
	}
	if n.Kind == yaml.SequenceNode && s.items != nil {
		for _, item := range n.Content {
			collectExamples(t, item, *s.items, found)
		}
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, follow(n.Content[i+1])
		if name == "<<" {
			collectExamples(t, value, s, found)
		}
		if s.values != nil {
			collectExamples(t, value, *s.values, found)
		}
		for _, k := range s.keys {
			if k.name == name {
				if example, ok := inOneLine(t, value, k.shape); ok {
					found(s.keys, name, example)
				}
				collectExamples(t, value, k.shape, found)
			}
		}
	}
}

// inOneLine returns a value as one line of YAML, unless it is empty or its keys have a table of
// their own.
func inOneLine(t *testing.T, n *yaml.Node, s shape) (string, bool) {
	t.Helper()
	own := s.keys != nil || s.values != nil && s.values.keys != nil || s.items != nil && s.items.keys != nil
	if own || n.Kind != yaml.ScalarNode && len(n.Content) == 0 {
		return "", false
	}
	line := *n
	line.Style |= yaml.FlowStyle
	line.HeadComment, line.LineComment, line.FootComment, line.Anchor = "", "", "", ""
	var b bytes.Buffer
	if err := yaml.NewEncoder(&b).Encode(&line); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String()), true
}
