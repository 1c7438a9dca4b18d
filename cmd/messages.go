package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// maxSchemaBytes is the size of the largest schema file that is read.
const maxSchemaBytes = 64 << 20

// messageFlags are the flags that say how bodies are read and what is masked. They add to the
// key messages of the topology file.
type messageFlags struct {
	protosets, protos, importPaths, types, redact []string

	read func(name string) ([]byte, error) // reads a schema; nil is readSchema
}

func (m *messageFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&m.protosets, "protoset", nil, "`FILE` with a descriptor set of protobuf; may be repeated")
	f.StringArrayVar(&m.protos, "proto", nil, "`FILE` with protobuf source; may be repeated")
	f.StringArrayVar(&m.importPaths, "import-path", nil, "`FOLDER` in which --proto and its imports are looked up; may be repeated")
	f.StringArrayVar(&m.types, "type", nil, "protobuf `TYPE` of the messages, or KEY=TYPE for a pattern of the routing key; may be repeated")
	f.StringArrayVar(&m.redact, "redact", nil, "mask a `PATH` such as body.customer.email, a kind (email, iban, bearer) or bodies; may be repeated")
	markAdvanced(f, "protoset", "proto", "import-path", "type")
}

// reader returns the reader of dead letters for a topology.
func (m *messageFlags) reader(t topology.Compiled) (*deadletter.Reader, error) {
	decoder, err := m.decoder(t.Messages)
	if err != nil {
		return nil, err
	}
	redactor, err := m.redactors(t)
	if err != nil {
		return nil, err
	}
	if !redactor("").Masks() { // the strictest rules
		redactor = nil
	}
	return &deadletter.Reader{Decoder: decoder, Redactor: redactor}, nil
}

func (m *messageFlags) decoder(t topology.Messages) (*decode.Decoder, error) {
	rules, err := m.typeRules(t)
	if err != nil {
		return nil, err
	}
	files := decode.SchemaFiles{
		Protosets: slices.Concat(m.protosets, t.Protosets), Protos: slices.Concat(m.protos, t.Protos),
		ImportPaths: slices.Concat(m.importPaths, t.ImportPaths), Read: m.read,
	}
	if files.Read == nil {
		files.Read = readSchema
	}
	if len(m.protos) > 0 && len(m.importPaths) == 0 {
		files.ImportPaths = slices.Concat([]string{"."}, t.ImportPaths)
	}
	if len(files.Protosets) == 0 && len(files.Protos) == 0 {
		return decode.New(nil, rules)
	}
	schemas, err := decode.NewSchemas(files)
	if err != nil {
		return nil, err
	}
	return decode.New(schemas, rules)
}

// typeRules returns the rules of the flags, then those of the work queues, then those of all
// messages: the first that fits applies.
func (m *messageFlags) typeRules(t topology.Messages) ([]decode.TypeRule, error) {
	var rules []decode.TypeRule
	for _, v := range m.types {
		key, name, found := strings.Cut(v, "=")
		if !found {
			key, name = "", v
		}
		if name == "" {
			return nil, usageError{fmt.Errorf("--type is %q; write TYPE or KEY=TYPE, such as shop.Order or 'order.*=shop.Order'", v)}
		}
		rules = append(rules, decode.TypeRule{Key: key, Type: name})
	}
	slices.SortStableFunc(rules, func(a, b decode.TypeRule) int { return len(b.Key) - len(a.Key) })
	for _, q := range t.Queues {
		rules = append(rules, rulesOf(q.Queue, q.Types)...)
	}
	return append(rules, rulesOf("", t.Types)...), nil
}

// rulesOf returns the rules of a list of the topology file.
func rulesOf(queue string, types []topology.MessageType) []decode.TypeRule {
	rules := make([]decode.TypeRule, len(types))
	for i, r := range types {
		rules[i] = decode.TypeRule{
			Queue: queue, Key: r.Key, ContentType: r.ContentType, Header: r.Header, Value: r.Value, Type: r.Type,
		}
	}
	return rules
}

// redactors returns the redactor for each work queue. A message whose work queue is unknown, or
// not in the topology, gets the rules of all queues: which rules it needs is not known.
func (m *messageFlags) redactors(t topology.Compiled) (func(workQueue string) *redact.Redactor, error) {
	all := m.redactions()
	all = merged(all, rulesFor(t.Messages.Redact))
	union := all
	queues := map[string]*redact.Redactor{}
	var err error
	for _, w := range t.WorkQueues {
		if queues[w.Name], err = redact.New(all); err != nil {
			return nil, badRule(err)
		}
	}
	for _, q := range t.Messages.Queues {
		own := rulesFor(q.Redact)
		union = merged(union, own)
		if queues[q.Queue], err = redact.New(merged(all, own)); err != nil {
			return nil, badRule(err)
		}
	}
	strictest, err := redact.New(union)
	if err != nil {
		return nil, badRule(err)
	}
	return func(workQueue string) *redact.Redactor {
		if r, ok := queues[workQueue]; ok {
			return r
		}
		return strictest
	}, nil
}

// badRule returns the error for a rule that cannot be read. Those of the topology file were
// checked before, so that it is one of a flag.
func badRule(err error) error { return usageError{fmt.Errorf("--redact: %w", err)} }

func (m *messageFlags) redactions() redact.Rules {
	var r redact.Rules
	for _, v := range m.redact {
		switch {
		case v == "bodies":
			r.HideBodies = true
		case slices.Contains(topology.RedactionTypes(), v):
			r.Types = append(r.Types, v)
		default:
			r.Paths = append(r.Paths, v)
		}
	}
	return r
}

func rulesFor(r topology.Redaction) redact.Rules {
	return redact.Rules{Paths: r.Paths, Types: r.Types, HideBodies: r.HideBodies}
}

// merged returns rules that mask what either of two masks.
func merged(a, b redact.Rules) redact.Rules {
	return redact.Rules{
		Paths: slices.Concat(a.Paths, b.Paths), Types: slices.Concat(a.Types, b.Types),
		HideBodies: a.HideBodies || b.HideBodies,
	}
}

func readSchema(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w; check the path", reasonOrNotExist(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSchemaBytes+1))
	if err != nil {
		return nil, reason(err)
	}
	if len(data) > maxSchemaBytes {
		return nil, fmt.Errorf("the file is larger than %d MiB; write a smaller descriptor set", maxSchemaBytes>>20)
	}
	return data, nil
}

// reasonOrNotExist removes the path from a file error, and keeps that the file does not exist.
func reasonOrNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return os.ErrNotExist
	}
	return reason(err)
}
