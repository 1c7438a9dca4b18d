package generate

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Languages returns the languages that Declare knows.
func Languages() []string { return []string{"go", "python", "java", "node", "dotnet", "elixir"} }

//go:embed declare
var declare embed.FS

// Declaration is how a service declares a work queue, so that it gets no error whether it comes
// before apply or after. With ByPolicy it comes after: see WriteDeclaration.
type Declaration struct {
	Queue    topology.Queue
	Topology string
	Backoff  string
	Dead     string
	// ByPolicy: dead-lettering comes by policy, as for all external queues, and the service's own call
	// stays as it is.
	ByPolicy bool
	// Native: RabbitMQ does the retries, of what the service requeues.
	Native bool

	// DeadLetterExchange and DeadLetterKey are where the queue dead-letters, by its arguments or its
	// policy. A consumer that says why it failed publishes there.
	DeadLetterExchange, DeadLetterKey string
	// ReturnExchange is where retries come from.
	ReturnExchange string
}

// Declare returns the declaration of a work queue. It reports false if the topology
// has no such work queue.
func Declare(t topology.Compiled, queue string) (Declaration, bool) {
	work, ok := t.WorkQueue(queue)
	i := slices.IndexFunc(t.Queues, func(q topology.Queue) bool { return q.Name == queue })
	if !ok || i < 0 {
		return Declaration{}, false
	}
	q := t.Queues[i]
	_, arguments := q.Arguments[topology.ArgDeadLetterExchange]
	exchange, key := deadLettering(t, q)
	_, native := t.NativeBackoff(work.Backoff)
	return Declaration{
		Native: native,
		Queue:  q, Topology: t.Name, Backoff: work.Backoff, Dead: work.DeadLetterQueue,
		ByPolicy: !arguments, DeadLetterExchange: exchange, DeadLetterKey: key,
		ReturnExchange: topology.ReturnExchangeName(t.Name),
	}, true
}

// deadLettering returns the exchange and the routing key with which a work queue dead-letters, by
// its arguments or by the policy of the topology.
func deadLettering(t topology.Compiled, q topology.Queue) (exchange, key string) {
	args, exchangeName, keyName := q.Arguments, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey
	if !args.HasAny(exchangeName) {
		i := slices.IndexFunc(t.Policies, func(p topology.Policy) bool {
			return p.Name == topology.PolicyName(t.Name, q.Name)
		})
		if i < 0 {
			return "", ""
		}
		args = t.Policies[i].Definition
		exchangeName, keyName = topology.PolicyKey(exchangeName), topology.PolicyKey(keyName)
	}
	exchange, _ = args[exchangeName].(string)
	key, _ = args[keyName].(string)
	return exchange, key
}

// WriteDeclaration writes a small program in a language of Languages: the declare
// call with exactly the queue's arguments, and a consumer that acknowledges what
// it could do. What it could not do it publishes, with the reason, to where the queue
// dead-letters; if the broker does not accept that, it rejects the message without requeue. With a
// native backoff it does so only with what no retry would help, and requeues the rest.
//
// With ByPolicy the call is passive. Such a queue may have been declared with other arguments, by
// its service or by apply before a policy took over, and keeps them: the file does not tell them,
// and any call but the first declarer's would get error 406.
func WriteDeclaration(w io.Writer, d Declaration, language string) error {
	s := syntaxes()[language]
	text, err := declare.ReadFile("declare/" + language + ".tmpl")
	if err != nil {
		return fmt.Errorf("there is no language %q, only %s", language, strings.Join(Languages(), ", "))
	}
	tmpl, err := template.New(language).Funcs(template.FuncMap{
		"string":  s.text,
		"value":   s.value,
		"notes":   func(indent string) string { return notes(d, indent+s.comment) },
		"twice":   func(indent string) string { return comments(twice(), indent+s.comment) },
		"exact":   func() bool { return !d.ByPolicy },
		"entries": func() []string { return s.entries(d.Queue.Arguments) },
	}).Parse(string(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := tmpl.Execute(&out, d); err != nil {
		return err
	}
	code := out.Bytes()
	if language == "go" {
		if code, err = format.Source(code); err != nil {
			return err
		}
	}
	_, err = w.Write(code)
	return err
}

// notes returns comments on what the queue's arguments mean for a service.
func notes(d Declaration, mark string) string {
	var lines []string
	switch {
	case d.Queue.External:
		lines = append(lines, "In the topology this queue is external: a service declares it, and a policy sets its",
			"dead-lettering. No arguments change: leave your declare call as it is. The one here is",
			"passive: it only checks that the queue exists.")
	case d.ByPolicy:
		lines = append(lines, "A policy sets dead-lettering. The queue keeps the arguments that it was declared with, which",
			"the topology file does not tell: leave your declare call as it is. The one here is passive:",
			"it only checks that the queue exists. dlxctl apply creates it.")
	default:
		lines = append(lines, "These are exactly the arguments that dlxctl apply sets: with other arguments the",
			"declare call fails with error 406.")
	}
	return comments(lines, mark)
}

// twice returns what a service does about a message that comes twice.
func twice() []string {
	return []string{
		"A message may come twice. once skips it if this process has finished it: one of the last",
		"10,000, with the same message-id, type, key and body. Other consumers, and this one after a",
		"restart, do not know of it. If that does harm, save its message-id in the same transaction as",
		"the work, and do nothing if it is saved already. Save what is done, not what was seen.",
	}
}

// comments writes lines as comments.
func comments(lines []string, mark string) string {
	return strings.Join(text.Each(lines, func(l string) string { return mark + " " + l }), "\n")
}

// syntax is how a language writes values.
type syntax struct {
	comment string
	text    func(string) string
	integer func(int64) string
	boolean func(bool) string
	null    string
	list    func([]string) string
	table   func(names, values []string) string
}

// value writes a canonical value of arguments.
func (s syntax) value(v any) string {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case int64:
		return s.integer(v)
	case bool:
		return s.boolean(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		return s.list(text.Each(v, s.value))
	case topology.Arguments:
		var names, values []string
		for _, name := range v.Names() {
			names, values = append(names, s.text(name)), append(values, s.value(v[name]))
		}
		return s.table(names, values)
	default:
		return s.null
	}
}

// entries returns each argument as a table of its own, without what holds a table
// together.
func (s syntax) entries(args topology.Arguments) []string {
	var out []string
	for _, name := range args.Names() {
		one := s.table([]string{s.text(name)}, []string{s.value(args[name])})
		out = append(out, one[1:len(one)-1])
	}
	return out
}

// quoted writes a string as JSON does, which the languages here but Go take too.
// Control characters are escaped that JSON does not: some end a line of C#.
func quoted(s string) string {
	line, _ := text.JSON(s) // a string can be encoded
	var escaped strings.Builder
	for _, r := range line {
		if r >= 0x7f && r <= 0x9f {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// pairs joins names and values.
func pairs(names, values []string, between string) string {
	parts := make([]string, len(names))
	for i := range names {
		parts[i] = names[i] + between + values[i]
	}
	return strings.Join(parts, ", ")
}

// syntaxes returns how each language writes values.
func syntaxes() map[string]syntax {
	decimal := func(i int64) string { return strconv.FormatInt(i, 10) }
	long := func(i int64) string { return decimal(i) + "L" }
	lower := strconv.FormatBool
	comma := func(v []string) string { return strings.Join(v, ", ") }
	brackets := func(v []string) string { return "[" + comma(v) + "]" }
	return map[string]syntax{
		"go": {
			"//", strconv.Quote, func(i int64) string { return "int64(" + decimal(i) + ")" }, lower, "nil",
			func(v []string) string { return "[]any{" + comma(v) + "}" },
			func(n, v []string) string { return "amqp.Table{" + pairs(n, v, ": ") + "}" },
		},
		"python": {"#", quoted, decimal, func(b bool) string {
			if b {
				return "True"
			}
			return "False"
		}, "None", brackets, func(n, v []string) string { return "{" + pairs(n, v, ": ") + "}" }},
		"node": {
			"//", quoted, decimal, lower, "null", brackets,
			func(n, v []string) string { return "{" + pairs(n, v, ": ") + "}" },
		},
		"java": {
			"//", quoted, long, lower, "null",
			func(v []string) string { return "java.util.Arrays.asList(" + comma(v) + ")" },
			func(n, v []string) string {
				entries := make([]string, len(n))
				for i := range n {
					entries[i] = "Map.entry(" + n[i] + ", " + v[i] + ")"
				}
				return "Map.ofEntries(" + comma(entries) + ")"
			},
		},
		"dotnet": {
			"//", quoted, long, lower, "null",
			func(v []string) string { return "new List<object?> { " + comma(v) + " }" },
			func(n, v []string) string {
				entries := make([]string, len(n))
				for i := range n {
					entries[i] = "[" + n[i] + "] = " + v[i]
				}
				return "new Dictionary<string, object?> { " + comma(entries) + " }"
			},
		},
		"elixir": {
			"#", func(s string) string { return strings.ReplaceAll(quoted(s), "#", `\#`) }, decimal, lower, "nil", brackets,
			func(n, v []string) string {
				entries := make([]string, len(n))
				for i := range n {
					entries[i] = "{" + n[i] + ", " + v[i] + "}"
				}
				return "[" + comma(entries) + "]"
			},
		},
	}
}

// declarationJSON is a declaration as scripts read it.
type declarationJSON struct {
	Version int `json:"version"`
	// Queue is the name of the queue.
	Queue      string `json:"queue"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"autoDelete"`
	Exclusive  bool   `json:"exclusive"`
	// Arguments are those of a new queue; with ByPolicy, one that exists may have others.
	Arguments topology.Arguments `json:"arguments"`
	// External reports that the service declares the queue, not dlxctl.
	External bool `json:"external"`
	// ByPolicy reports that dead-lettering comes by policy: the call of the service stays as it is.
	ByPolicy bool `json:"deadLetteringByPolicy"`
}

// JSON implements jsondoc.Former.
func (d Declaration) JSON() any {
	q := d.Queue
	return declarationJSON{1, q.Name, q.Durable, q.AutoDelete, q.Exclusive, q.Arguments, q.External, d.ByPolicy}
}
