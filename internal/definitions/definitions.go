// Package definitions reads the objects of virtual hosts from files: from the definitions that
// RabbitMQ exports, and from JSON lists that rabbitmqadmin, rabbitmqctl and the management API
// print.
//
// The package is pure: it gets bytes and gives values. It never keeps users, permissions or
// parameters.
package definitions

import (
	"errors"

	"github.com/dlxctl/dlxctl/topology"
)

// File is an input: its name, for messages, and its bytes.
type File struct {
	Name string
	Data []byte
}

// VHost is one virtual host, as files describe it.
type VHost struct {
	// State has the objects. Its Version is the version in the file, or empty.
	State topology.State
	// Positions tells where in the files each object begins.
	Positions map[topology.Key]Position
	// Oddities are what the files say and a broker ignores or refuses.
	Oddities []Oddity
}

// Position is a place in a file. Line counts from 1; 0 means not known.
type Position struct {
	File string
	Line int
}

// OddityKind is what is odd about an object in a file.
type OddityKind string

// The kinds of oddities.
const (
	// FieldMissing is a field without which some line of RabbitMQ refuses the import.
	FieldMissing OddityKind = "field-missing"
	// TypeWithoutArgument is a queue with the field type, which an import ignores, and
	// without the argument x-queue-type.
	TypeWithoutArgument OddityKind = "type-without-argument"
)

// Oddity is what a file says about an object, and a broker ignores or refuses.
type Oddity struct {
	Kind   OddityKind
	Object topology.Key
	// Field is the JSON field, such as type or durable. Value is what it says; empty for a
	// missing field.
	Field, Value string
}

// Read reads files as one set of definitions, and gives its virtual hosts in the order of their
// names. A list without virtual hosts belongs to the virtual host "/". The error names file, line
// and column, and what to do.
func Read(files []File) ([]VHost, error) {
	return nil, errors.New("not yet")
}
