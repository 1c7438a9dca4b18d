package spec

import (
	"maps"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// defaults are what the queues of one file have unless they say otherwise. The file with the name
// of the topology has those of all files; another file has some for its own queues, which win.
type defaults struct {
	typ          string
	deadLetterBy string // empty where no file says
	backoff      string
	pos          Pos // of the backoff, or where an overlay removed it
	// values are the keys that a queue takes over as if they stood on it.
	values map[string]field
	// words are the other keys, which stand for the queues that do not have them.
	words map[string]field
}

// inherited returns the defaults of each file, and fills in what no file says.
func (d *decoder) inherited(files []fields) []defaults {
	if d.spec.CountHeader == "" {
		d.spec.CountHeader = topology.DefaultCountHeader
	}
	common := max(0, slices.IndexFunc(files, func(f fields) bool { return d.mentions(f.node, "name") }))
	d.spec.Type = topology.Quorum
	if len(files) == 0 {
		return nil
	}
	all := d.fileDefaults(files[common], defaults{typ: topology.Quorum})
	d.spec.Type = all.typ
	out := make([]defaults, len(files))
	for i, f := range files {
		if out[i] = all; i != common {
			out[i] = d.fileDefaults(f, all)
			d.unusedDefaults(f, files[common])
		}
		d.checkDefaults(f, out[i])
	}
	return out
}

// fileDefaults returns the defaults of a file, over those of all files.
func (d *decoder) fileDefaults(file fields, all defaults) defaults {
	d.file = file.file
	v, ok := file.values["defaults"]
	if !ok {
		return d.withoutBackoff(all, file.node, "defaults")
	}
	own := all
	own.values = map[string]field{}
	maps.Copy(own.values, all.values)
	own.words = maps.Clone(all.words)
	if own.words == nil {
		own.words = map[string]field{}
	}
	f := d.fields(v.value, "defaults", defaultsKeys(), nil)
	if t, ok := d.word(f, "type", []string{topology.Quorum, topology.Classic}); ok {
		own.typ = t
	}
	if b, ok := d.text(f, "backoff"); ok {
		own.backoff, own.pos = b, d.pos(f, "backoff")
	}
	own = d.withoutBackoff(d.withoutBackoff(own, file.node, "defaults"), f.node, "backoff")
	if by, ok := d.word(f, "deadLetterBy", deadLetterWords()); ok {
		own.deadLetterBy = by
	}
	for _, name := range []string{"type", "backoff", "deadLetterBy"} {
		if value, ok := f.values[name]; ok {
			own.words[name] = value
		}
	}
	for _, name := range []string{"owner", "severity", "deliveryLimit", "dead", "arguments"} {
		if value, ok := f.values[name]; ok {
			d.mark(value.key, d.file)
			d.mark(value.value, d.file)
			own.values[name] = value
		}
	}
	if common, both := all.values["arguments"]; both {
		own.values["arguments"] = d.under(common, own.values["arguments"])
	}
	return own
}

// withoutBackoff notes in defaults that have no backoff where an overlay removed it: a key of a
// mapping.
func (d *decoder) withoutBackoff(own defaults, n *yaml.Node, key string) defaults {
	if by, gone := d.removedKey(n, key); gone && own.backoff == "" {
		own.pos = by
	}
	return own
}

// checkDefaults reports what is wrong with the values of a file's defaults, whether or not a queue
// takes them over.
func (d *decoder) checkDefaults(file fields, own defaults) {
	d.file = file.file
	v, ok := file.values["defaults"]
	if !ok {
		return
	}
	f := fields{file: file.file, node: v.value, what: "defaults", values: own.values}
	d.text(f, "owner")
	d.severity(f)
	d.limit(f)
	d.dead(f, Dead{Queue: topology.DeadLetterQueueName(d.spec.Name)})
	_, nodes := d.arguments(f, "arguments")
	d.reserved(nodes, topology.ArgQueueType, topology.ArgDeliveryLimit, topology.ArgManagedBy,
		topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey)
	for _, v := range nodes {
		d.common[v.key] = true
	}
}

// unusedDefaults refuses the defaults of a file that has no queues, and is not the common file.
func (d *decoder) unusedDefaults(file, common fields) {
	queues, ok := file.values["queues"]
	v, has := file.values["defaults"]
	if !has || ok && (queues.value.Kind != yaml.SequenceNode || len(queues.value.Content) > 0) ||
		!d.mentions(common.node, "name") {
		return
	}
	d.problem(d.at(v.key), "defaults is for the queues of this file, which has none",
		"move it to "+common.file+", which has the name of the topology: its defaults are for the queues of all files")
}

// inherit adds the defaults that fit a queue to its keys, as if they stood there. Their places
// stay those of the defaults.
func (d *decoder) inherit(f fields, q Queue) {
	limited := q.Type == topology.Quorum && (!q.External || !q.Unmanaged)
	for name, v := range d.defaults.values {
		own, has := f.values[name]
		switch {
		case name == "arguments" && !q.External && has:
			f.values[name] = d.under(v, own)
		case has || d.mentions(f.node, name):
		case name == "arguments" && q.External:
		case name == "dead" && q.Unmanaged:
		case name == "deliveryLimit" && !limited:
		default:
			f.values[name] = v
		}
	}
	if v, ok := d.defaults.values["deliveryLimit"]; ok {
		d.limits[v.key] = d.limits[v.key] || limited
	}
}

// overlaidQueue returns the first place at which an overlay changes a queue, or a default of it.
// Zero: none.
func (d *decoder) overlaidQueue(f fields) Pos {
	values := append(slices.Collect(maps.Values(f.values)), field{f.node, f.node})
	for name, v := range d.defaults.words {
		if _, own := f.values[name]; !own {
			values = append(values, v)
		}
	}
	return d.overlaid(values...)
}

// unusedLimits refuses a deliveryLimit of defaults where none of the queues counts deliveries.
func (d *decoder) unusedLimits() {
	for key, fits := range d.limits {
		if !fits {
			d.problem(d.at(key), "defaults has a deliveryLimit, but it applies to no quorum queue",
				"only quorum queues count deliveries: remove it, or write type: quorum, on external queues too")
		}
	}
}

// under returns the arguments of a queue with those defaults that it does not have. With null it
// does without one.
func (d *decoder) under(common, own field) field {
	switch {
	case own.value == nil:
		return common
	case own.value == common.value || common.value.Kind != yaml.MappingNode || own.value.Kind != yaml.MappingNode:
		return own // what is not a mapping is reported where it is read
	}
	out := *own.value
	out.Content = nil
	has := map[string]bool{}
	inherited := d.pairs(common.value, "arguments")
	for _, p := range d.pairs(own.value, "arguments") {
		has[p.name] = true
		without := isNullWord(p.value) && slices.ContainsFunc(inherited, func(c pair) bool { return c.name == p.name })
		if !without {
			out.Content = append(out.Content, p.key, p.value)
		}
	}
	for _, p := range inherited {
		if !has[p.name] {
			out.Content = append(out.Content, p.key, p.value)
		}
	}
	d.origin[&out] = d.at(own.value).File
	return field{own.key, &out}
}

// isNullWord reports whether a value is null by a word, and not because nothing stands there.
func isNullWord(n *yaml.Node) bool {
	n = follow(n)
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && n.Value != ""
}
