package site_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/site"
)

// asked returns the answer to a question, in the form of the page.
func asked(t *testing.T, p *site.Page, question map[string]any, file []byte) map[string]any {
	t.Helper()
	q, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(p.Answer(q, file), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// opened opens a file of testdata.
func opened(t *testing.T, path string) (*site.Page, map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &site.Page{Version: "v1"}
	return p, asked(t, p, map[string]any{"do": "open", "name": filepath.Base(path)}, data)
}

// Each answer is the same as that of the command.
func TestAnswersAreThoseOfTheCommands(t *testing.T) {
	t.Parallel()
	dlxctl := program(t)
	for _, path := range []string{
		"../../testdata/real/ons-census-rm.json", "../../testdata/real/neic-sda.json",
		"../../testdata/real/datban.json", "../../testdata/genomics/legacy.json",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			p, answer := opened(t, path)
			name := filepath.Base(path)
			var want map[string]any
			document := dlxctl(path, "audit", name, "-o", "json", "--fail-on", "never")
			if err := json.Unmarshal([]byte(document), &want); err != nil {
				t.Fatal(err)
			}
			got, _ := answer["audit"].(map[string]any)
			if got["dlxctl"] != "v1" {
				t.Errorf("the version is %v", got["dlxctl"])
			}
			got["dlxctl"] = want["dlxctl"]
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("audit (-command +page):\n%s", d)
			}
			file := asked(t, p, map[string]any{"do": "import"}, nil)
			if d := cmp.Diff(dlxctl(path, "import", name), file["text"]); d != "" {
				t.Errorf("import (-command +page):\n%s", d)
			}
			graph := dlxctl(path, "graph", "--definitions", name, "-o", "svg")
			if d := cmp.Diff(graph, asked(t, p, map[string]any{"do": "graph"}, nil)["svg"]); d != "" {
				t.Errorf("graph (-command +page):\n%s", d)
			}
			traced := asked(t, p, map[string]any{"do": "trace", "key": "x", "fail": 2, "reason": "rejected"}, nil)
			way := dlxctl(path, "trace", name, "--exchange", "", "--key", "x", "--fail", "2")
			if d := cmp.Diff(way, traced["text"]); d != "" {
				t.Errorf("trace (-command +page):\n%s", d)
			}
		})
	}
}

// Another file than a definitions file gets a message that says what is wrong, and what to do.
func TestOtherFilesGetAMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ data, want string }{
		"empty":               {"", "f.json: the file is empty; write one with 'rabbitmqctl export_definitions FILE'"},
		"no JSON":             {"hello", "f.json:1:1: the file is not JSON"},
		"ends early":          {`{"queues": [`, "f.json:1:"},
		"another JSON":        {`{"a": 1}`, "f.json"},
		"a list of numbers":   {`[1, 2]`, "f.json"},
		"a web page":          {"<!doctype html>", "the file is a web page, not JSON"},
		"YAML":                {"queues:\n- a\n", "the file is YAML, not JSON"},
		"deep":                {strings.Repeat("[", 1<<20), "f.json"},
		"a queue of a number": {`{"queues": [7], "exchanges": [], "bindings": []}`, "f.json:1:"},
		"too large":           {strings.Repeat(" ", site.MaxBytes+1), "f.json is larger than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &site.Page{}
			got, _ := asked(t, p, map[string]any{"do": "open", "name": "f.json"}, []byte(tc.data))["error"].(string)
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := asked(t, p, map[string]any{"do": "graph"}, nil)["error"]; got != "no file is open; open one first" {
				t.Errorf("after it, graph answers %v", got)
			}
		})
	}
}

// A picture that is too large to be read is not made, unless a queue is named.
func TestLargePicturesAreNotMade(t *testing.T) {
	t.Parallel()
	var queues, bindings []any
	for i := range 700 {
		name := fmt.Sprintf("q%d", i)
		queues = append(queues, map[string]any{
			"name": name, "vhost": "/", "durable": true, "auto_delete": false, "arguments": map[string]any{},
		})
		bindings = append(bindings, map[string]any{
			"source": "amq.topic", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": name,
			"arguments": map[string]any{},
		})
	}
	data, err := json.Marshal(map[string]any{"exchanges": []any{}, "queues": queues, "bindings": bindings})
	if err != nil {
		t.Fatal(err)
	}
	p := &site.Page{}
	asked(t, p, map[string]any{"do": "open", "name": "f.json"}, data)
	if got := asked(t, p, map[string]any{"do": "graph"}, nil); got["svg"] != "" {
		t.Errorf("the answer is %.80v", got)
	}
	got, _ := asked(t, p, map[string]any{"do": "graph", "queue": "q7"}, nil)["svg"].(string)
	if !strings.Contains(got, "q7") {
		t.Errorf("of one queue, the answer is %.80v", got)
	}
}

// A name that does not exist is refused, with the nearest one.
func TestNamesThatDoNotExist(t *testing.T) {
	t.Parallel()
	p, _ := opened(t, "../../testdata/real/datban.json")
	data, err := os.ReadFile("../../testdata/real/datban.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Queues []struct{ Name string } }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	queue := file.Queues[0].Name
	got, _ := asked(t, p, map[string]any{"do": "graph", "queue": queue + "x"}, nil)["error"].(string)
	if !strings.Contains(got, "does not exist") || !strings.Contains(got, `did you mean "`+queue+`"?`) {
		t.Errorf("graph answers %q", got)
	}
	q := map[string]any{"do": "trace", "exchange": "nowhere", "fail": -1, "reason": "rejected"}
	got, _ = asked(t, p, q, nil)["error"].(string)
	if got != `exchange "nowhere" does not exist in vhost /` {
		t.Errorf("trace answers %q", got)
	}
	for _, q := range []map[string]any{{"do": "draw"}, {"do": "graph", "vhost": 7}, {"do": "graph", "vhost": -1}} {
		if asked(t, p, q, nil)["error"] == nil {
			t.Errorf("%v has an answer", q)
		}
	}
}
