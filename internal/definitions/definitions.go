// Package definitions reads the objects of virtual hosts from files: from the definitions that
// RabbitMQ exports, and from JSON lists that rabbitmqadmin, rabbitmqctl and the management API
// print.
//
// The package is pure: it gets bytes and gives values. It never keeps users, permissions or
// parameters, apart from operator policies, which a definitions file has among its parameters.
package definitions

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// File is an input: its name, for messages, and its bytes.
type File struct {
	Name string
	Data []byte
}

// VHost is one virtual host, as files describe it.
type VHost struct {
	// State has the objects, as an inspection of a broker gives them: with the predefined
	// exchanges, without the default exchange and its bindings, and with the type of each queue
	// in its arguments. Its Version is the version in the file, or empty.
	State topology.State
	// Unnamed says that no file names the virtual host. State.VHost is then "/".
	Unnamed bool
	// Positions tells where in the files each object begins. Predefined exchanges have none. The line
	// is 0 where it is not known.
	Positions map[topology.Key]topology.Place
	// Oddities are what the files say and a broker ignores or refuses.
	Oddities []Oddity
}

// OddityKind is what is odd about an object in a file.
type OddityKind string

// The kinds of oddities.
const (
	// FieldMissing is a field without which some line of RabbitMQ refuses the import, or stores
	// something else (measured on 3.10.8, 4.0.5 and 4.3.6):
	//   - durable or auto_delete of a queue: 3.10 refuses the import, 4.x takes true and false;
	//   - durable of an exchange: 3.10 and 4.0 refuse it, 4.3 takes true;
	//   - auto_delete of an exchange: 3.10 and 4.0 store "undefined", 4.3 stores false;
	//   - routing_key or destination_type of a binding, vhost of any object: all refuse it.
	// An object is read with the values that the other lines take.
	FieldMissing OddityKind = "field-missing"
	// TypeWithoutArgument is a queue with the field type, which an import ignores, and
	// without the argument x-queue-type.
	TypeWithoutArgument OddityKind = "type-without-argument"
	// ExchangeLeftOut is an exchange that bindings name and the file does not list, although
	// the broker that wrote the file must have had it. "rabbitmqctl export_definitions" leaves out
	// internal exchanges (3.10.8, 4.0.5 and 4.3.6 measured), and GET /api/definitions does since 4.3.
	// The exchange is among the objects, with an empty type. Its type, its arguments and its flags are
	// not known.
	ExchangeLeftOut OddityKind = "exchange-left-out"
	// DefinedTwice is an object that the file has more than once, with different values. An
	// import keeps the first queue or exchange and the last policy, and so does Read.
	DefinedTwice OddityKind = "defined-twice"
)

// Oddity is what a file says about an object, and a broker ignores or refuses.
type Oddity struct {
	Kind   OddityKind
	Object topology.Key
	// Field is the JSON field, such as type or durable. Value is what it says; empty for a
	// missing field.
	Field, Value string
}

// maxProblems is how many problems an error shows.
const maxProblems = 20

// Read reads files as one set of definitions, and gives its virtual hosts in the order of their
// names. A list without virtual hosts belongs to the virtual host "/". The error names file, line
// and column, and what to do; see [ProblemError].
//
// A file is a definitions file, or lists of queues, exchanges, bindings and policies, which are
// recognized by their fields. Where there are lists only, each of the four is needed: without its
// bindings, a virtual host would seem to lose what it routes. An empty list stands for any of them.
func Read(files []File) ([]VHost, error) {
	if len(files) == 0 {
		return nil, errors.New("no definitions file was given")
	}
	s := &set{hosts: map[string]*host{}, listed: map[string]bool{}}
	for _, f := range files {
		if err := s.read(f); err != nil {
			s.problems = append(s.problems, err)
		}
	}
	if len(s.problems) == 0 {
		s.checkLists()
		s.mergeAll()
	}
	var hosts []VHost
	for _, h := range s.hosts {
		hosts = append(hosts, s.virtualHost(h))
	}
	slices.SortFunc(hosts, func(a, b VHost) int { return cmp.Compare(a.State.VHost, b.State.VHost) })
	if len(s.problems) > 0 {
		return nil, text.FirstErrors(s.problems, maxProblems)
	}
	return hosts, nil
}
