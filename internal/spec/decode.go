package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Load reads files and compiles them: [Decode], then [Compile]. It gives the
// warnings of both next to an error too.
func Load(files []Source, lookup func(string) (string, bool)) (topology.Compiled, []Problem, error) {
	return LoadFor("", files, lookup)
}

// LoadFor is [Load], and refuses the arguments of queues that RabbitMQ of a version refuses.
// Without a version it refuses those that every supported line refuses.
func LoadFor(version string, files []Source, lookup func(string) (string, bool)) (topology.Compiled, []Problem, error) {
	s, warnings, err := decode(version, files, lookup)
	if err != nil {
		return topology.Compiled{}, warnings, err
	}
	t, err := Compile(s)
	return t, warnings, err
}

// HasName reports whether a file gives the name of its topology, as one of its
// files does. One that cannot be read is taken to.
func HasName(f Source) bool {
	var root map[string]yaml.Node
	return yaml.Unmarshal(f.Data, &root) != nil || slices.Contains(slices.Collect(maps.Keys(root)), "name")
}

// RootKeys returns the keys of a file, sorted; none of one that cannot be read.
func RootKeys(f Source) []string {
	var root map[string]yaml.Node
	if yaml.Unmarshal(f.Data, &root) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(root))
}

// GuessVHost returns the virtual host that the files name, empty if none does. It does not parse
// the files, so the guess may be wrong: compare it with what [Compile] returns. It reports false if
// only the environment can tell.
func GuessVHost(files []Source) (string, bool) {
	var head struct{ VHost string }
	for _, f := range files {
		for line := range bytes.Lines(f.Data) {
			if bytes.HasPrefix(line, []byte("vhost:")) {
				_ = yaml.Unmarshal(line, &head) // Decode reports it
			}
		}
	}
	return head.VHost, !strings.Contains(head.VHost, "$")
}

// Decode reads one topology from one or several files. lookup gives environment
// variables. Warnings come next to an error too; the error is an [*Error] with
// every problem of all files.
func Decode(files []Source, lookup func(string) (string, bool)) (*Spec, []Problem, error) {
	return decode("", files, lookup)
}

// decode is [Decode] for RabbitMQ of a version; see [LoadFor].
func decode(version string, files []Source, lookup func(string) (string, bool)) (*Spec, []Problem, error) {
	d := newDecoder(version, lookup)
	files, over := separate(files)
	var parsed []document
	for _, f := range files {
		d.file = f.Name
		if root := d.parse(f); root != nil {
			parsed = append(parsed, document{f.Name, root})
		}
	}
	var roots []fields
	for _, f := range d.overlay(parsed, over) {
		d.file = f.file
		roots = append(roots, d.fields(f.root, "the file", fileKeys(), strings.HasPrefix))
	}
	for _, f := range roots {
		d.file = f.file
		d.head(f)
	}
	if len(roots) == len(files) && !slices.ContainsFunc(roots, func(f fields) bool { return d.mentions(f.node, "name") }) {
		pos, fix := Pos{File: files[0].Name, Line: 1, Col: 1}, "add a line such as: name: shop"
		for _, f := range roots {
			if by, gone := d.removedKey(f.node, "name"); gone {
				pos, fix = by, "an overlay may change the name, but not remove it"
			}
		}
		d.problem(pos, "the topology has no name", fix)
	}
	inherited := d.inherited(roots)
	for _, f := range roots { // backoffs first: queues of any file may name them
		d.file = f.file
		d.backoffs(f)
	}
	for _, f := range roots {
		d.file = f.file
		d.exchanges(f)
		d.delays(f)
	}
	for i, f := range roots {
		d.file, d.defaults = f.file, inherited[i]
		d.queues(f)
	}
	d.unusedLimits()
	for _, f := range roots {
		d.file = f.file
		d.removed(f)
		d.accept(f)
		d.notify(f)
	}
	d.references()
	d.matchHits()
	d.problems = append(d.problems, checkNames(d.spec)...)
	warnings := byPlace(d.unaccepted())
	if len(d.problems) > 0 {
		return nil, warnings, &Error{Problems: byPlace(d.problems)}
	}
	return d.spec, warnings, nil
}

// decoder collects what the files say and what is wrong with them.
type decoder struct {
	version  string // of RabbitMQ; empty: any
	lookup   func(string) (string, bool)
	file     string // the file that is being read
	begin    string // how to begin the file, if it is not a topology
	nodes    int    // how many values were read
	compared int    // how many names were compared for suggestions
	spec     *Spec
	places   places
	defaults defaults // of the file that is being read
	// origin are the files of values that may be read as part of another file.
	origin map[*yaml.Node]string
	// gone are the places where overlays removed keys of a mapping, by the key, and goneBackoffs
	// those where they removed backoffs, by the name.
	gone         map[*yaml.Node]map[string]Pos
	goneBackoffs map[string]Pos
	overlays     map[string]bool // the names of the overlays
	// common are the keys of the arguments that defaults has.
	common map[*yaml.Node]bool
	// limits are the deliveryLimits of defaults that are for a queue, and whether one can have it.
	limits map[*yaml.Node]bool
	// lengths are the places of limits of length that queues have by default, or by an overlay.
	lengths map[length]Pos
	heads   map[string]Pos // where name, vhost and so on were given
	// bindingKeys are the keys of a binding. Nil: none was read yet.
	bindingKeys []key
	// missing are the places of bindings from exchanges that no file declares.
	missing  map[string][]Pos
	problems []Problem
	reported map[Problem]bool // the problems, each of which is reported once
	warnings []Problem
}

// length names an argument of a queue that limits its length.
type length struct{ queue, argument string }

// places say, by name, where in the Spec things stand.
type places struct{ backoffs, exchanges, queues map[string]int }

func newDecoder(version string, lookup func(string) (string, bool)) *decoder {
	return &decoder{
		version: version, lookup: lookup, spec: &Spec{},
		places: places{map[string]int{}, map[string]int{}, map[string]int{}},
		origin: map[*yaml.Node]string{}, gone: map[*yaml.Node]map[string]Pos{}, goneBackoffs: map[string]Pos{},
		overlays: map[string]bool{},
		common:   map[*yaml.Node]bool{}, limits: map[*yaml.Node]bool{},
		lengths: map[length]Pos{}, reported: map[Problem]bool{},
	}
}

func (d *decoder) problem(pos Pos, msg, fix string) {
	p := Problem{Pos: pos, Msg: msg, Fix: fix}
	if !d.reported[p] { // a value of defaults is read for each queue
		d.reported[p] = true
		d.problems = append(d.problems, p)
	}
}

// warn adds the warning name about an object of the file.
func (d *decoder) warn(pos Pos, name, object, msg, fix string) {
	d.warnings = append(d.warnings, Problem{Pos: pos, Name: name, About: object, Msg: msg, Fix: fix})
}

// at returns the place of a value.
func (d *decoder) at(n *yaml.Node) Pos {
	file, known := d.origin[n]
	if !known {
		file = d.file
	}
	return Pos{File: file, Line: n.Line, Col: n.Column}
}

// removedKey returns where an overlay removed a key of a mapping. It reports false if none did.
func (d *decoder) removedKey(n *yaml.Node, key string) (Pos, bool) {
	pos, gone := d.gone[n][key]
	return pos, gone
}

// overlaid returns the first place at which an overlay changes one of the values. Zero: none.
func (d *decoder) overlaid(values ...field) Pos {
	var first Pos
	note := func(at Pos) {
		if d.overlays[at.File] && (first == Pos{} || cmp.Or(cmp.Compare(at.File, first.File),
			cmp.Compare(at.Line, first.Line), cmp.Compare(at.Col, first.Col)) < 0) {
			first = at
		}
	}
	var look func(n *yaml.Node)
	look = func(n *yaml.Node) {
		note(d.at(n))
		for _, at := range d.gone[n] {
			note(at)
		}
		for _, c := range n.Content {
			look(c)
		}
	}
	for _, v := range values {
		if len(d.overlays) > 0 {
			look(v.key)
			look(v.value)
		}
	}
	return first
}

// mark notes from which file a value and its parts are.
func (d *decoder) mark(n *yaml.Node, file string) {
	if _, known := d.origin[n]; known {
		return
	}
	d.origin[n] = file
	if n.Kind == yaml.AliasNode {
		d.mark(n.Alias, file)
	}
	for _, c := range n.Content {
		d.mark(c, file)
	}
}

// startFix says how to begin a file. init writes topology.yaml unless it is given another one.
func startFix(file string) string {
	if file == "stdin" {
		return "'dlxctl init -' prints a topology to start from"
	}
	return fmt.Sprintf("'dlxctl init --force %s' writes a topology in its place", text.ShellQuote(file))
}

// parse returns the mapping that a file is, or nil.
func (d *decoder) parse(f Source) *yaml.Node {
	start := Pos{File: f.Name, Line: 1, Col: 1}
	switch {
	case len(f.Data) > MaxFileBytes:
		d.problem(start, fmt.Sprintf("the file is larger than %d MiB", MaxFileBytes>>20),
			"split it, and pass each part with -f")
		return nil
	case !utf8.Valid(f.Data):
		d.problem(start, "the file is not UTF-8", "save it as UTF-8")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) || err == nil && isNull(&doc) {
		if !f.Overlay { // an empty one changes nothing
			d.problem(start, "the file declares nothing", cmp.Or(d.begin, startFix(f.Name)))
		}
		return nil
	} else if err != nil {
		d.syntax(f, err)
		return nil
	}
	if err := dec.Decode(&next); err == nil {
		fix := "put each document into a file of its own, and pass both with -f"
		switch {
		case d.begin != "":
			fix = "put all into one document"
		case f.Overlay:
			fix = "put each document into a file of its own, and pass both with --overlay"
		}
		d.problem(d.at(&next), "the file holds a second document", fix)
	} else if !errors.Is(err, io.EOF) {
		d.syntax(f, err)
	}
	if !d.bounded(doc.Content[0], 0) {
		return nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		fix := cmp.Or(d.begin, "run 'dlxctl init' to create one")
		if f.Overlay {
			fix = "write the keys of a topology file that change, and their values"
		}
		d.problem(d.at(doc.Content[0]), "the file is "+kindOf(doc.Content[0])+", not a mapping", fix)
		return nil
	}
	return doc.Content[0]
}

// isNull reports whether a document holds nothing.
func isNull(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].ShortTag() == "!!null"
}

// syntax turns an error of the YAML parser into a problem with a place.
func (d *decoder) syntax(f Source, err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	pos := Pos{File: f.Name, Line: 1, Col: 1}
	lines := strings.Split(string(f.Data), "\n")
	if m := regexp.MustCompile(`^(?:unmarshal errors:\n\s*)?line (\d+): (.*)`).FindStringSubmatch(msg); m != nil {
		pos.Line, _ = strconv.Atoi(m[1])
		pos.Line = min(pos.Line, len(lines)) // the parser counts the end of the file as a line
		msg = m[2]
	}
	if star := regexp.MustCompile(`(?:^|[\s\[,:])(\*[^\s,\]}]*)`); strings.Contains(msg, "anchor") ||
		strings.Contains(msg, "alphabetic") {
		for i, line := range lines {
			if pos.Line > 1 && i+1 < pos.Line-1 {
				continue
			}
			if m := star.FindStringSubmatchIndex(line); m != nil {
				pos.Line, pos.Col = i+1, utf8.RuneCountInString(line[:m[2]])+1
				word := line[m[2]:m[3]]
				d.problem(pos, fmt.Sprintf("%s is read as a YAML alias that is not defined", word),
					fmt.Sprintf("a routing key that begins with * needs quotes: %q", word))
				return
			}
		}
	}
	hash := regexp.MustCompile(`(?:keys?:|,|\[)\s+(#\S*)|\[(#)`)
	for i := max(0, pos.Line-4); i < pos.Line; i++ { // the parser notices up to three lines later
		if m := hash.FindStringIndex(lines[i]); m != nil {
			col := m[0] + strings.Index(lines[i][m[0]:], "#")
			pos := Pos{File: f.Name, Line: i + 1, Col: utf8.RuneCountInString(lines[i][:col]) + 1}
			d.problem(pos, "# begins a comment here, and the rest of the line is not read",
				`a routing key that begins with # needs quotes: "#"`)
			return
		}
	}
	if strings.Contains(strings.Join(lines[max(0, pos.Line-2):min(len(lines), pos.Line+1)], "\n"), "${") {
		d.problem(pos, "this is not YAML: "+msg,
			"inside { } or [ ] YAML reads ${ as a mapping: write key: ${VAR} on a line of its own, or put the value in quotes")
		return
	}
	fix := "check the indentation, and quote values that hold : # { } [ ] or begin with * & ! @"
	if strings.Contains(lines[pos.Line-1], "\t") {
		fix = "indent with spaces: YAML does not accept tabs"
	}
	d.problem(pos, "this is not YAML: "+msg, fix)
}
