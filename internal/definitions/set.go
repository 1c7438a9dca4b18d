package definitions

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// set is what was read from all files.
type set struct {
	documents []*document
	hosts     map[string]*host
	problems  []error
	// version, cluster and types are those of the broker, where a file has them.
	version, cluster string
	types            []string
	// complete says that a file has definitions. Lists alone must be of all kinds.
	complete bool
	listed   map[string]bool // the kinds of lists
	empty    int             // how many lists were empty
	lists    []string        // the files that have lists
	home     string          // the virtual host of lists that state none; empty: unknown
}

// host is a virtual host as it is read.
type host struct {
	name    string
	named   bool
	objects map[topology.Key]*entry
	order   []topology.Key
	// operator are the operator policies. exported says that a broker wrote the objects.
	operator []topology.Policy
	// policies are the names of the policies in effect, by queue and exchange.
	policies map[topology.Key]string
	oddities []Oddity
	// version is that of the definitions file that the objects are from.
	version string
}

// entry is an object and where it is.
type entry struct {
	object   topology.Object
	position topology.Place
}

// document is one JSON value of a file: a list, a definitions file, or an answer of the API.
type document struct {
	*decoder
	records, operator []record
	list              bool
	fields            []string // the keys of an object
	version, cluster  string
	original          string            // the virtual host of a definitions file of one
	defaults          map[string]string // by virtual host, the default type of queues
	defaultType       string            // that of a definitions file of one virtual host
	types             []string
	items, total      int // of an answer that is one page of several
	refusal           string
	problems          []error
}

// read reads a file, which may have several lists one after the other.
func (s *set) read(f File) error {
	dec, err := newDecoder(f)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		doc := &document{decoder: dec, defaults: map[string]string{}}
		switch dec.peek() {
		case 0:
			if _, err := dec.json.Token(); !errors.Is(err, io.EOF) {
				return dec.syntax(err)
			}
			return nil
		case '[':
			err = s.readList(doc)
		case '{':
			err = s.readObject(doc)
		default:
			return dec.problem(dec.next(), "there is more text after the JSON; remove it")
		}
		if err != nil {
			return err
		}
		s.problems = append(s.problems, doc.problems...)
		s.documents = append(s.documents, doc)
	}
}

func (s *set) readList(doc *document) error {
	doc.list = true
	s.lists = append(s.lists, doc.file)
	n := 0
	err := doc.decoder.list("the list", func(e element) error {
		n++
		return s.readListed(doc, e)
	})
	if n == 0 {
		s.empty++
	}
	return err
}

// readListed reads an object of a list, whose kind its fields tell.
func (s *set) readListed(doc *document, e element) error {
	kind := kindOf(e)
	if listFix[kind] == "" {
		return doc.problem(e.at, "it is a list of %s, which cannot be used here; give lists of queues, exchanges, bindings and policies only", kind)
	}
	s.listed[kind] = true
	doc.add(kind, e)
	return nil
}

// kindOf recognizes the kind of an object of a list by its fields.
func kindOf(e element) string {
	typ, _ := e.fields["type"].value.(string)
	switch {
	case e.hasAny("destination", "destination_name"):
		return "binding"
	case e.has("pattern", "definition"):
		return "policy"
	case e.hasAny("password_hash", "hashing_algorithm"):
		return "users"
	case e.has("configure", "write"):
		return "permissions"
	case e.hasAny("component"):
		return "parameters"
	case e.hasAny("consumer_tag"):
		return "consumers"
	case e.hasAny("peer_host", "connection_details", "channel_max"):
		return "connections or channels"
	case e.hasAny("tracing", "cluster_state", "default_queue_type"):
		return "virtual hosts"
	case !e.has("name"):
		return "something else than queues, exchanges, bindings or policies"
	case typ != "" && !isQueueType(typ):
		return "exchange"
	default:
		return "queue"
	}
}

// isQueueType reports whether a type is one of queues. No exchange has such a type.
func isQueueType(s string) bool {
	return slices.Contains([]string{topology.Classic, topology.Quorum, topology.Stream}, s) ||
		strings.HasPrefix(s, "rabbit_") || strings.HasPrefix(s, "MQTT")
}

// add makes a record of an element.
func (doc *document) add(kind string, e element) {
	b := &builder{decoder: doc.decoder, element: e, kind: kind, list: doc.list}
	var r record
	switch kind {
	case "queue":
		r = b.queue()
	case "exchange":
		r = b.exchange()
	case "binding":
		r = b.binding()
	case "policy":
		r = b.policy()
	}
	doc.problems = append(doc.problems, b.problems...)
	if len(b.problems) > 0 {
		return
	}
	if doc.isOperator() && kind == "policy" {
		doc.operator = append(doc.operator, r)
		return
	}
	doc.records = append(doc.records, r)
}

// isOperator reports whether a list of policies has operator policies: they have the fields of
// other policies, so only the name of the file can tell.
func (doc *document) isOperator() bool {
	return doc.list && strings.Contains(strings.ToLower(path.Base(doc.file)), "operator")
}

// readObject reads an object at the top of a file: definitions, an overview, a page of a list, or
// a refusal.
func (s *set) readObject(doc *document) error {
	at := doc.next()
	if err := doc.open('{', "the file"); err != nil {
		return err
	}
	if err := doc.members(func(key string, _ int) error { return s.member(doc, key) }); err != nil {
		return err
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(doc.fields, n) })
	}
	switch {
	case has("queues", "exchanges", "bindings", "policies"):
		s.complete = true
	case has("items"):
		s.lists = append(s.lists, doc.file)
		if doc.items < doc.total {
			return doc.problem(at, "it is one page with %d of %d objects; request all at once, without page and page_size",
				doc.items, doc.total)
		}
	case has("management_version", "vhosts"): // an overview, or a file without objects
		s.complete = s.complete || has("vhosts")
	case doc.refusal != "":
		return doc.problem(at, "it is an error of the management API: %s; repeat the request with a user who may read the virtual host",
			quoteShort(doc.refusal))
	default:
		return doc.problem(at, "it has no queues, exchanges, bindings or policies; %s", exportFix)
	}
	return nil
}

// member reads a member of the object at the top of a file.
func (s *set) member(doc *document, key string) error {
	doc.fields = append(doc.fields, key)
	kinds := map[string]string{"queues": "queue", "exchanges": "exchange", "bindings": "binding", "policies": "policy"}
	switch key {
	case "queues", "exchanges", "bindings", "policies":
		if doc.peek() == 'n' { // null
			return doc.skip()
		}
		return doc.decoder.list(key, func(e element) error { doc.add(kinds[key], e); return nil })
	case "items":
		doc.list = true
		return doc.decoder.list(key, func(e element) error { doc.items++; return s.readListed(doc, e) })
	case "parameters":
		return doc.parameters()
	case "vhosts":
		return doc.vhosts()
	}
	return doc.scalar(key)
}

// scalar reads a member that tells something about the broker or the file.
func (doc *document) scalar(key string) error {
	to := map[string]any{
		"rabbitmq_version": &doc.version, "original_vhost_name": &doc.original, "cluster_name": &doc.cluster,
		"error": &doc.refusal, "total_count": &doc.total,
	}[key]
	if key == "rabbit_version" && doc.version == "" {
		to = &doc.version
	}
	var typed struct {
		Default string `json:"default_queue_type"`
	}
	var types []struct{ Name string }
	switch key {
	case "metadata":
		to = &typed
	case "default_queue_type":
		to = &typed.Default
	case "exchange_types":
		to = &types
	}
	var raw json.RawMessage
	if err := doc.json.Decode(&raw); err != nil || to == nil {
		return err
	}
	if json.Unmarshal(raw, to) != nil {
		return nil //nolint:nilerr // another type than expected: it tells nothing
	}
	for _, t := range types {
		doc.types = append(doc.types, t.Name)
	}
	doc.defaultType = cmp.Or(stated(typed.Default), doc.defaultType)
	return nil
}

// stated returns a default type of queues. Brokers write "undefined" where there is none.
func stated(defaultType string) string {
	if defaultType == "undefined" {
		return ""
	}
	return queueType(defaultType)
}

// vhosts reads the virtual hosts of a definitions file: their names and default types of queues.
func (doc *document) vhosts() error {
	if doc.peek() != '[' {
		return doc.skip()
	}
	return doc.decoder.list("vhosts", func(e element) error {
		name, ok := e.fields["name"].value.(string)
		if !ok {
			return nil
		}
		byDefault, _ := e.fields["default_queue_type"].value.(string)
		if metadata, ok := e.fields["metadata"].value.(map[string]any); ok && stated(byDefault) == "" {
			byDefault, _ = metadata["default_queue_type"].(string)
		}
		doc.defaults[name] = stated(byDefault)
		return nil
	})
}

// parameters reads the operator policies among the parameters, and forgets the others: shovels and
// upstreams have passwords.
func (doc *document) parameters() error {
	if doc.peek() != '[' {
		return doc.skip()
	}
	return doc.decoder.list("parameters", func(e element) error {
		value, ok := e.fields["value"].value.(map[string]any)
		if !ok || e.fields["component"].value != "operator_policy" {
			return nil
		}
		at := e.fields["value"].at
		inner := element{at: e.at, fields: map[string]field{"name": e.fields["name"]}}
		if v, ok := e.fields["vhost"]; ok {
			inner.fields["vhost"] = v
		}
		for key, v := range value {
			inner.fields[key] = field{at, v}
		}
		b := &builder{decoder: doc.decoder, element: inner, kind: "policy"}
		r := b.policy()
		doc.problems = append(doc.problems, b.problems...)
		if len(b.problems) == 0 {
			doc.operator = append(doc.operator, r)
		}
		return nil
	})
}

// checkLists refuses lists that leave out a kind.
func (s *set) checkLists() {
	if s.complete || len(s.lists) == 0 {
		return
	}
	var missing, fixes []string
	for _, kind := range slices.Sorted(maps.Keys(listFix)) {
		if !s.listed[kind] {
			missing = append(missing, kind)
			fixes = append(fixes, listFix[kind])
		}
	}
	if len(missing) <= s.empty {
		return
	}
	s.problems = append(s.problems, &ProblemError{
		File: strings.Join(s.lists, ", "),
		Text: "the list of " + plurals(missing) + " is missing; without it, dlxctl would report messages as lost that the broker routes: add the output of " +
			strings.Join(fixes, " and "),
	})
}

// plurals lists kinds for a message.
func plurals(kinds []string) string {
	names := map[string]string{"queue": "queues", "exchange": "exchanges", "binding": "bindings", "policy": "policies"}
	return strings.Join(text.Each(kinds, func(k string) string { return names[k] }), " or ")
}
