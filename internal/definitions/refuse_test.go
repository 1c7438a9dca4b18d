package definitions_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/definitions"
)

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const export = "write one with 'rabbitmqctl export_definitions FILE' or 'curl -u USER http://HOST:15672/api/definitions'"
	for name, tc := range map[string]struct{ data, want string }{
		"an empty file": {" \n", `f.json: the file is empty; ` + export},
		"a compressed file": {
			"\x1f\x8b\x08\x00",
			`f.json: the file is compressed; decompress it first: gunzip -c f.json > definitions.json`,
		},
		"Erlang's own format": {"\x83t\x00\x00", `f.json: the file is in Erlang's external term format; ` + export},
		"UTF-16": {
			"\xff\xfe[\x00]\x00",
			`f.json: the file is UTF-16, as PowerShell writes it; write UTF-8: … | Out-File -Encoding utf8 definitions.json`,
		},
		"binary data": {"{\x00}", `f.json: the file is not text; ` + export},
		"a web page":  {"\n<html>", `f.json:2:1: the file is a web page, not JSON; check the address and the credentials of the request`},
		"YAML": {
			"name: shop\nqueues:\n",
			`f.json:1:1: the file is YAML, not JSON: "name: shop"; pass a topology file of dlxctl with -f`,
		},
		"a table": {
			"name\targuments\nq\t[]\n",
			`f.json:1:1: the file is a table, not JSON: "name\targuments"; run rabbitmqctl with --formatter json, rabbitmqadmin with -f raw_json`,
		},
		"a message of rabbitmqctl": {
			"Listing queues for vhost / ...\n[]", `f.json:1:1: the file begins with a message of rabbitmqctl: "Listing queues for vhost / ..."; run it with --quiet --formatter json`,
		},
		"a file without its end": {
			`{"queues": [{"name": "q", "dur`,
			`f.json:1:31: the file ends in the middle of a value; it is incomplete, write it again`,
		},
		"without its end between objects": {
			"{\"queues\": [\n{\"name\": \"q\"}",
			`f.json:2:14: the file ends in the middle of a value; it is incomplete, write it again`,
		},
		"a comma too many": {
			"{\"queues\": [\n  {\"name\": \"q\",}\n]}",
			`f.json:2:16: the file is not valid JSON: invalid character '}' looking for beginning of object key string; correct it, or export the definitions again`,
		},
		"text after the end": {`{"queues": []} x`, `f.json:1:16: there is more text after the JSON; remove it`},
		"an object without any objects": {
			`{"hello": 1}`,
			`f.json:1:1: it has no queues, exchanges, bindings or policies; ` + export,
		},
		"a refusal of the API": {
			`{"error":"not_authorized","reason":"Login failed"}`,
			`f.json:1:1: it is an error of the management API: "not_authorized"; repeat the request with a user who may read the virtual host`,
		},
		"queues that are not a list": {
			`{"queues": {"q": {}}}`,
			`f.json:1:12: queues is an object; it must be a list, in [ ]`,
		},
		"a queue that is not an object": {
			`{"queues": [7]}`,
			`f.json:1:13: an element of queues is 7; it must be an object, in { }`,
		},
		"a queue without a name": {
			`{"queues": [{"durable": true}]}`,
			`f.json:1:13: a queue has no name; no line of RabbitMQ imports it; correct the file, or export the definitions again`,
		},
		"wrong types, all at once": {
			"{\"queues\": [\n{\"name\": \"q\", \"durable\": \"yes\"},\n{\"name\": 7}\n]}",
			"f.json:2:26: durable of queue \"q\" is \"yes\"; it must be true or false\n" +
				"f.json:3:10: name of a queue is 7; it must be text in quotes",
		},
		"arguments that are not an object": {
			`{"queues": [{"name": "q", "arguments": "x"}]}`,
			`f.json:1:40: arguments of queue "q" is "x"; it must be an object, in { }`,
		},
		"a number no table can hold": {
			`{"queues": [{"name": "q", "arguments": {"x-message-ttl": 1e999}}]}`,
			`f.json:1:40: arguments of queue "q": argument "x-message-ttl": "1e999" is not a number; correct it`,
		},
		"a priority that is text": {
			`{"policies": [{"name": "p", "pattern": "", "definition": {}, "priority": "9"}]}`,
			`f.json:1:74: priority of policy "p" is "9"; it must be a number`,
		},
		"a binding to nothing known": {
			`{"bindings": [{"source": "x", "destination": "q", "destination_type": "topic", "routing_key": ""}]}`,
			`f.json:1:71: destination_type of a binding is "topic"; it must be queue or exchange`,
		},
		"a list of consumers": {
			`[{"consumer_tag": "c"}]`,
			`f.json:1:2: it is a list of consumers, which cannot be used here; give lists of queues, exchanges, bindings and policies only`,
		},
		"a list of users": {
			`[{"name": "u", "password_hash": "secret"}]`,
			`f.json:1:2: it is a list of users, which cannot be used here; give lists of queues, exchanges, bindings and policies only`,
		},
		"a list without arguments": {
			`[{"name": "q", "durable": true, "messages": 7}]`,
			`f.json:1:2: queue "q" has no arguments, which say where its messages go; give it in full: 'rabbitmqctl --formatter json list_queues name type durable auto_delete exclusive arguments policy'`,
		},
		"a page of a list": {
			`{"items": [{"name": "q", "durable": true, "arguments": {}}], "total_count": 200}`,
			`f.json:1:1: it is one page with 1 of 200 objects; request all at once, without page and page_size`,
		},
		"lists without bindings": {
			`[{"name": "q", "durable": true, "arguments": {}}] [{"name": "x", "type": "topic", "durable": true, "arguments": {}}] []`,
			`f.json, f.json, f.json: the list of bindings or policies is missing; without it, dlxctl would report messages as lost that the broker routes: add the output of 'rabbitmqctl --formatter json list_bindings' and 'rabbitmqctl --formatter json list_policies'`,
		},
		"a list in arguments of rabbitmqctl": {
			`[{"source_name": "x", "destination_name": "q", "routing_key": "", "destination_kind": "queue", "arguments": [["a", "array", {"long": 1}]]}]`,
			`f.json:1:109: arguments of a binding: argument "a": it is a list, which rabbitmqctl does not print in full; use GET /api/definitions`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := definitions.Read([]definitions.File{file("f.json", tc.data)})
			if err == nil {
				t.Fatal("it was read")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("error (-want +got):\n%s", d)
			}
		})
	}
}

func TestFilesThatContradictEachOther(t *testing.T) {
	t.Parallel()
	_, err := definitions.Read([]definitions.File{
		file("a.json", `{"queues": [{"name": "q", "durable": true, "auto_delete": false}]}`),
		file("b.json", "{\"queues\": [\n {\"name\": \"q\", \"durable\": false, \"auto_delete\": false}]}"),
	})
	const want = `b.json:2:2: queue "q" differs from the one at a.json:1; give files of the same broker and time`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestTheErrorShowsTwentyProblems(t *testing.T) {
	t.Parallel()
	_, err := definitions.Read([]definitions.File{file("f.json", `{"queues": [`+strings.Repeat("{},", 29)+`{}]}`)})
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasSuffix(err.Error(), "and 10 more problems") {
		t.Errorf("got %v", err)
	}
}

// A secret near a mistake is not shown.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"users": [{"password_hash": "hunter2"`, `{"users": [{"password_hash": "hunter2"]}`,
		`{"users": "hunter2", "queues": 1}`, `{"parameters": "hunter2"}`, `{"parameters": [{"value": "hunter2", "component": "shovel"}, "x"]}`,
		`{"parameters": ["hunter2"]}`,
	} {
		if _, err := definitions.Read([]definitions.File{file("f.json",
			data)}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", data, err)
		}
	}
}
