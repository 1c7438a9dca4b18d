package cmd

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/jsondoc/jsondoctest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/internal/simulate"
	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/internal/try"
	"github.com/dlxctl/dlxctl/internal/verify"
	"github.com/dlxctl/dlxctl/topology"
)

const jsonPage = "../docs/json.md"

// document is a JSON document that dlxctl writes.
type document struct {
	title string
	// commands print it with -o json.
	commands []string
	// about says what it is, in whole lines of Markdown.
	about string
	value any
}

// documents are all JSON documents in the dialect of dlxctl.
func documents() []document {
	run := []string{"desk replay", "desk edit", "desk park", "desk restore", "desk discard", "desk pull"}
	return []document{
		{
			"A plan",
			[]string{"plan", "apply", "destroy"},
			"What would change on the broker. A file of `plan --out` has the same under `plan`;\n" +
				"its other keys are for `apply` alone.",
			planview.Document{},
		},
		{
			"A topology",
			[]string{"generate compile"},
			"The objects that the topology file compiles to.",
			topology.Compiled{},
		},
		{
			"Problems of a file",
			[]string{"validate"},
			"What is wrong with topology files.",
			validationJSON{},
		},
		{"A status", []string{"status"}, "One document for each topology.", status.Report{}},
		{
			"An audit",
			[]string{"audit"},
			"What a broker, or a file of definitions, loses.",
			audit.Document{},
		},
		{
			"The rules of the audit",
			[]string{"audit --rules"},
			"What the audit looks for.",
			audit.RuleList{},
		},
		{"The path of a message", []string{"trace"}, "Where a message would go.", trace.Report{}},
		{
			"An outage",
			[]string{"simulate"},
			"What an outage would do to the work queues.",
			simulate.Report{},
		},
		{"A trial", []string{"try"}, "What the messages of a trial did.", try.Report{}},
		{"A verification", []string{"verify"}, "What the canaries found.", verify.Report{}},
		{
			"Migrations",
			[]string{"migrate status"},
			"How far each migration is.",
			migrate.StatusDocument{},
		},
		{
			"A run of several migrations",
			[]string{"migrate", "apply"},
			"What became of each queue, with `--match` or `--parallel`. `apply` prints it behind the\n" +
				"plan, as a document of its own, if it replaces queues under their names.",
			migrate.ResultDocument{},
		},
		{
			"A message",
			[]string{"desk show", "desk list", "peek"},
			"`desk list` and `peek` print a list of messages,\n" +
				"and with `-o jsonl` a message on each line.\n" +
				"[What a dead letter tells](looking.md) says more about the keys.",
			deadletter.View{},
		},
		{
			"A group of messages",
			[]string{"desk groups"},
			"A list of groups, and with `-o jsonl` a group on each line.",
			deadletter.Group{},
		},
		{
			"A comment",
			[]string{"desk comment"},
			"What was said, and about which group.",
			desk.Comment{},
		},
		{
			"A comparison",
			[]string{"desk diff"},
			"In what two messages differ, as a person may see them.",
			deadletter.Comparison{},
		},
		{
			"A digest",
			[]string{"desk digest"},
			"What died since a time. A webhook gets it under `digest`, with a `text` next to it.",
			desk.Digest{},
		},
		{
			"Messages found",
			[]string{"desk find"},
			"Where the messages with a message-id are.",
			desk.Sought{},
		},
		{
			"The desk at a glance",
			[]string{"desk"},
			"The dead-letter queues of a topology, and the runs of the desk.",
			desk.Overview{},
		},
		{
			"A run in progress",
			[]string{"desk run list"},
			"A list of runs. `desk run resume` and `desk run return` print it without `--yes`.",
			desk.Run{},
		},
		{
			"A run that has ended",
			[]string{"desk run list --ended"},
			"A list of runs, the newest first.",
			desk.EndedRun{},
		},
		{
			"A proposal", run,
			"What a run would do: without `--yes`, or if nothing can be done.",
			desk.ProposalDocument{},
		},
		{
			"A result", append(run, "desk run resume", "desk run return"),
			"How the work on a run ended: with `--yes`.",
			desk.Result{},
		},
		{
			"Rights",
			[]string{"generate rights"},
			"What each user of the broker needs.",
			generate.RightsDocument{},
		},
		{
			"A queue to declare",
			[]string{"generate args"},
			"How a service declares its work queue.",
			generate.Declaration{},
		},
		{"A notice", nil, "What `dlxctl process` posts to a webhook.", notify.Post{}},
		{"The version", []string{"version"}, "Which dlxctl this is.", versionJSON{}},
	}
}

// foreign are the commands whose JSON has the format of another program.
func foreign() []string { return []string{"generate schema", "generate alerts", "generate dashboard"} }

// Each command that prints JSON is in the list of documents, and all keys are in camelCase.
func TestJSONIsOneDialect(t *testing.T) {
	t.Parallel()
	known := foreign()
	for _, d := range documents() {
		known = append(known, d.commands...)
		for _, problem := range jsondoctest.Problems(d.value) {
			t.Errorf("%s: %s", d.title, problem)
		}
	}
	var printed []string
	for _, c := range commands(newRoot(&app{}))[1:] {
		short := c.Hidden && c.Name() != "version" // for a command of generate
		if name := strings.TrimPrefix(c.CommandPath(), "dlxctl "); slices.Contains(outputs(c), "json") && !short {
			printed = append(printed, name)
			if !slices.Contains(known, name) && c.Runnable() {
				t.Errorf("%s prints JSON; add its document to documents in json_test.go", name)
			}
		}
	}
	for _, name := range known {
		if command, _, _ := strings.Cut(name, " --"); !slices.Contains(printed, command) {
			t.Errorf("%s prints no JSON", name)
		}
	}
}

// The page of the JSON documents matches the types that they are written from.
func TestJSONPage(t *testing.T) {
	t.Parallel()
	p := keyPage{comments: map[reflect.Type]map[string]string{}}
	for _, d := range documents() {
		p.document(t, d)
	}
	got, err := os.ReadFile(jsonPage)
	if err != nil {
		t.Fatal(err)
	}
	const marker = "<!-- What follows is made from the types. -->\n"
	head, tail, ok := strings.Cut(string(got), marker)
	if !ok {
		t.Fatalf("%s has no line %q", jsonPage, marker)
	}
	if *update {
		if err := os.WriteFile(jsonPage, []byte(head+marker+p.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if tail != p.String() {
		t.Error("docs/json.md differs from the types; run make golden")
	}
}

// keyPage writes the tables of the keys.
type keyPage struct {
	strings.Builder
	comments map[reflect.Type]map[string]string
}

// required returns the arguments that a command requires, each with a space in front.
func required(t *testing.T, command string) (arguments string) {
	t.Helper()
	c, _, err := newRoot(&app{}).Find(strings.Fields(command))
	if err != nil {
		t.Fatal(err)
	}
	for _, argument := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(argument, "[") {
			break
		}
		first, _, _ := strings.Cut(argument, "|")
		arguments += " " + first
	}
	return strings.ReplaceAll(arguments, "HANDLE", "4f9a01c2d3e4") // a command of a page can be run
}

// document writes the section of a document: a table for each of its objects.
func (p *keyPage) document(t *testing.T, d document) {
	t.Helper()
	fmt.Fprintf(p, "\n## %s\n\n", d.title)
	if len(d.commands) > 0 {
		var lines []string
		for _, c := range d.commands {
			lines = append(lines, "`dlxctl "+c+required(t, c)+" -o json`")
		}
		fmt.Fprintf(p, "%s\n\n", strings.Join(lines, ",\n"))
	}
	fmt.Fprintf(p, "%s\n", d.about)
	objects := jsondoctest.Objects(d.value)
	for i, object := range objects {
		if i > 0 {
			fmt.Fprintf(p, "\nIn %s:\n", strings.Join(places(objects, object), ", "))
		}
		p.WriteString("\n| key | value | meaning |\n| --- | --- | --- |\n")
		first := map[string]string{} // the key that has a meaning first, by meaning
		for _, f := range jsondoc.Fields(object) {
			value, meaning := kind(f.Type), p.meaning(t, object, f)
			if f.Known {
				value += " or null"
			}
			if f.Optional {
				value = strings.TrimSuffix(value, " or null") + ", may be left out"
			}
			if other := first[meaning]; other != "" {
				meaning = "see `" + other + "`"
			} else {
				first[meaning] = f.Key
			}
			fmt.Fprintf(p, "| `%s` | %s | %s |\n", f.Key, value, cell(meaning))
		}
	}
}

// places returns the keys under which an object is.
func places(objects []reflect.Type, object reflect.Type) []string {
	var out []string
	for _, in := range objects {
		for _, f := range jsondoc.Fields(in) {
			if key := "`" + f.Key + "`"; jsondoctest.Element(f.Type) == object && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// kind names the type of a value.
func kind(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "milliseconds"
	case reflect.TypeFor[jsondoc.Seconds]():
		return "seconds"
	case reflect.TypeFor[jsondoc.V1]():
		return "number"
	case reflect.TypeFor[time.Time]():
		return "time or null"
	}
	t = jsondoc.Form(t)
	switch t.Kind() { //nolint:exhaustive // no document has others
	case reflect.Pointer:
		return strings.TrimSuffix(kind(t.Elem()), " or null") + " or null"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list of " + kind(t.Elem()) + "s"
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return "object"
		}
		return "object of " + kind(t.Elem()) + "s"
	case reflect.Struct:
		return "object"
	case reflect.Interface:
		return "any value"
	default:
		return "number"
	}
}

// meaning returns what a key means: the comment of its field, or that of a field before it that
// names it, and otherwise a common meaning.
func (p *keyPage) meaning(t *testing.T, object reflect.Type, f jsondoc.Field) string {
	t.Helper()
	if p.comments[f.Owner] == nil {
		p.comments[f.Owner] = fieldComments(t, f.Owner)
	}
	meaning := cmp.Or(p.comments[f.Owner][f.Name], common()[f.Owner.Name()+"."+f.Key], common()[f.Key])
	if meaning == "" {
		t.Errorf("%s: say in a comment of the field %s, or in common, what the key %q means", object, f.Name, f.Key)
	}
	// "Ended reports that the run has no hold" becomes "whether the run has no hold".
	meaning = regexp.MustCompile(`^`+f.Name+` (reports|says) (that|whether) `).ReplaceAllString(meaning, "whether ")
	meaning = regexp.MustCompile(`^`+f.Name+` (is|are|says) `).ReplaceAllString(meaning, "")
	for _, other := range jsondoc.Fields(object) { // comments name fields, readers know keys
		meaning = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(meaning, "`"+other.Key+"`")
	}
	return strings.TrimSuffix(meaning, ".")
}

// common is what keys mean that need no comment where they are, for all objects or for one type.
func common() map[string]string {
	return map[string]string{
		"dlxctl":             "the version of dlxctl",
		"brokerJSON.version": "the version of RabbitMQ",
		"Label.role":         "what the object is for",
		"summaryJSON.queues": "how many queues were judged",
		"Notice.reason":      "why the message died",
		"broker":             "the broker",
		"fingerprint":        "the plan in short: `apply` refuses a saved plan if a new one differs",
		"Document.summary":   "how many changes there are, by action",
		"changes":            "the changes, in the order in which they are made",
		"drift":              "what was found that the file does not declare, and is left alone",
		"Document.warnings":  "what a person should know before",
		"cluster":            "the name of the cluster",
		"changeJSON.kind":    "the kind of the object",
		"fields":             "what differs",
		"hazards":            "the dangers that need consent",
		"changeJSON.reason":  "why",
		"stake":              "what the queue holds",
		"position":           "where a file declares the object",
		"before":             "what it is now",
		"after":              "what it becomes",
		"file":               "the file",
		"line":               "the line, from 1",
		"overlay":            "the file and line at which an overlay changes what stands there",
		"column":             "the column, from 1",
		"text":               "what it is about, in words",
		"exchanges":          "the exchanges",
		"bindings":           "the bindings",
		"policies":           "the policies",
		"source":             "the exchange from which it leads",
		"destination":        "the queue or the exchange to which it leads",
		"destinationType":    "queue or exchange",
		"pattern":            "the regular expression for the names to which it applies",
		"applyTo":            "the kinds of objects to which it applies",
		"priority":           "the priority",
		"definition":         "what it sets",
		"summary":            "the counts",
		"vhosts":             "the virtual hosts that were read",
		"baseline":           "what is wrong with the baseline",
		"errors":             "findings that are errors",
		"warnings":           "findings that are warnings",
		"notes":              "findings that are notes",
		"rule":               "the name of the rule",
		"reason":             "why",
		"object":             "the name of the object",
		"rules":              "the rules",
		"binding":            "the binding, in words",
		"End.kind":           "how it ends",
		"migrations":         "the migrations",
		"Hop.reason":         "why the message died there",
		"time":               "when",
		"keys":               "the routing keys with which the message was there",
		"grants":             "what each user needs",
		"messageId":          "the message-id",
		"Notice.attempts":    "how many deliveries failed",
		"firstFailure":       "when the message failed first, as its header says",
		"viewJSON.name":      "the handle with the number of the copy",
		"handle":             "the handle",
		"copy":               "whether an equal message is before it; null where a part of the message is masked",
		"copyNumber":         "which of several equal messages it is, from 1",
		"liesIn":             "the queue in which it is",
		"viewJSON.position":  "its place in that queue, from 0",
		"attempts":           "how many deliveries failed; null is unknown",
		"id":                 "the message-id",
		"contentType":        "the content type",
		"contentEncoding":    "the content encoding",
		"correlationId":      "the correlation-id",
		"replyTo":            "the reply-to",
		"appId":              "the app-id",
		"userId":             "the user-id",
		"expiration":         "the expiration that the publisher set",
		"persistent":         "whether it is persistent",
		"body":               "the decoded body: a tree, or its text; a whole number above 2^63 is a text",
		"bodyFormat":         "the format of the body",
		"bodySteps":          "how the body was decoded",
		"bodyNote":           "what was not decoded",
		"envelope":           "what a framework wraps around the body",
		"size":               "the size of the body in bytes; null where a part is masked",
		"version":            "the version of the format of the document",
		"topology":           "the name of the topology",
		"vhost":              "the virtual host",
		"name":               "the name",
		"queue":              "the name of a queue",
		"exchange":           "the name of an exchange; empty is the default exchange",
		"key":                "the routing key",
		"headers":            "the headers",
		"backoff":            "the name of the backoff",
		"role":               "what the queue is for",
		"type":               "the type",
		"action":             "what is done",
		"phase":              "how far it is: taking or sending",
		"messages":           "how many messages",
		"unacknowledged":     "how many messages consumers hold",
		"consumers":          "how many consumers",
		"ready":              "how many messages wait",
		"count":              "how many",
		"durable":            "whether it survives a restart of the broker",
		"autoDelete":         "whether the broker deletes it when its last user goes",
		"internal":           "whether only other exchanges may publish to it",
		"exclusive":          "whether only the connection that declares it may use it",
		"external":           "whether another program creates it",
		"arguments":          "the arguments",
		"owner":              "who owns the work queue",
		"severity":           "how severe it is",
		"looked":             "the look on which it is based",
		"tiers":              "the tiers",
		"queues":             "the queues",
		"problems":           "what is wrong",
		"lookedAt":           "how many messages were looked at, from the head",
	}
}

// fieldComments returns the comments of the fields of a struct of this module, by field.
func fieldComments(t *testing.T, owner reflect.Type) map[string]string {
	t.Helper()
	folder := filepath.Join("..", strings.TrimPrefix(owner.PkgPath(), "github.com/dlxctl/dlxctl"))
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != owner.Name() {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				read(s, out)
			}
			return false
		})
	}
	return out
}

// read notes the comments of the fields of a struct.
func read(s *ast.StructType, out map[string]string) {
	before := ""
	for _, f := range s.Fields.List {
		comment := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		for _, name := range f.Names {
			named := regexp.MustCompile(`\b` + name.Name + `\b`)
			if comment == "" && named.MatchString(before) {
				comment = before
			}
			out[name.Name] = comment
		}
		if comment != "" {
			before = comment
		}
	}
}
