package spec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/cputime"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// seeds returns topology files that mean something: samples, starters and what is
// in the tables of other tests.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	out := [][]byte{
		[]byte("version: 1\nname: a\nqueues: [{name: q, backoff: none}]\n"),
		[]byte("version: 1\nname: a\nx-a: &a [*a]\nqueues: *a\n"),
		[]byte("version: 1\nname: a\nbackoff: {b: {exponential: {first: 1ms, factor: .inf, steps: 9}}}\n"),
		[]byte("version: 1\nname: a\n<<: {<<: [{name: b}], queues: []}\n"),
		[]byte("version: 1\nname: ${NAME:-a}\nvhost: \"$${X}${UNSET}\"\n"),
		[]byte("? [a, b]\n: {c: d}\n---\nx: 1\n"),
		[]byte("queues: [{name: legacy, bindings: [{exchange: e, key: #}]}, {bindings: [{key: *.x}]}]"),
	}
	for _, pattern := range []string{
		"../../testdata/*.yaml", "../../testdata/genomics/*.yaml",
		"../../templates/starters/*.yaml",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			out = append(out, data)
		}
	}
	return out
}

func fuzzEnvironment(name string) (string, bool) { return "v-" + name, name != "UNSET" }

// Whatever a file holds, reading it ends in a topology or in problems that each
// have a place in the file, one line and no more than a person can read. What was
// compiled is the same when it is compiled again.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer quick(data)()
		source := Source{Name: "f", Data: data}
		HasName(source)
		compiled, warnings, err := Load([]Source{source}, fuzzEnvironment)
		lines := linesOfFile(data)
		for _, w := range warnings {
			checkProblem(t, w, lines)
		}
		if err != nil {
			problems, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("an error without a place: %v", err)
			}
			for _, p := range problems.Problems {
				checkProblem(t, p, lines)
			}
			return
		}
		again, _, err := Load([]Source{source}, fuzzEnvironment)
		var one, two bytes.Buffer
		_, _ = jsondoc.Write(&one, compiled), jsondoc.Write(&two, again)
		if err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("it compiles to something else each time: %v", err)
		}
	})
}

// Whatever two files hold, one as an overlay of the other: reading ends, each problem has a place
// in the file that it names, and the laws of overlays hold.
func FuzzOverlay(f *testing.F) {
	for _, part := range partsOfOverlays() {
		f.Add([]byte(overlayBase), []byte(part))
	}
	for _, s := range seeds(f)[:7] {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, data, over []byte) {
		defer quick(append(data, over...))()
		lawsOfOverlays(t, data, over)
		_, _, err := Load([]Source{{Name: "f", Data: data}, {Name: "o", Data: over, Overlay: true}}, fuzzEnvironment)
		problems, ok := errors.AsType[*Error](err)
		if !ok {
			return
		}
		for _, p := range problems.Problems {
			from := data
			if p.File == "o" {
				from, p.File = over, "f"
			}
			checkProblem(t, p, linesOfFile(from))
		}
	})
}

func linesOfFile(data []byte) int {
	return len(regexp.MustCompile(`[\n\r\x{85}\x{2028}\x{2029}]`).FindAll(data, -1)) + 1
}

// quick panics if this process computes for a minute before the function that it returns is called:
// the worst input takes a second. The fuzzer would wait forever, and report nothing. The clock does
// not count: at the lowest priority next to brokers one second of computing took over two minutes.
func quick(data []byte) (stop func()) {
	begin, done := cputime.Process(), make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for cputime.Process()-begin < time.Minute {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		panic(fmt.Sprintf("it takes too long: %q", data))
	}()
	return func() { close(done) }
}

func checkProblem(t *testing.T, p Problem, lines int) {
	t.Helper()
	text := p.String()
	switch {
	case p.File != "f" || p.Line < 1 || p.Line > lines || p.Col < 1:
		t.Errorf("its place is not in the file of %d lines: %s", lines, text)
	case p.Msg == "" || strings.ContainsAny(text, "\n\r\x1b\x00") || !utf8.ValidString(text):
		t.Errorf("it is not a line of text: %q", text)
	case len(p.Msg) > maxText || len(p.Fix) > maxText:
		t.Errorf("it has %d bytes", len(text))
	}
}

// Whatever a file and a name are, an edited file differs from the file in one
// entry: what is read from it is the successor in place of the legacy queue.
func FuzzReplace(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s, "billing", "billing.v2")
	}
	f.Add([]byte("queues: [{name: 'a: b'}]"), "a: b", "#x")
	f.Fuzz(func(t *testing.T, data []byte, legacy, successor string) {
		defer quick(data)()
		edited, changed, ok := Replace(Source{Name: "f", Data: data}, legacy, successor, "standard")
		if ok != (edited != nil) || ok != (changed != "") {
			t.Fatalf("it is %t with %q and %q", ok, edited, changed)
		}
		if !ok {
			return
		}
		var queues struct{ Queues []yaml.Node }
		if err := yaml.Unmarshal(edited, &queues); err != nil {
			t.Fatalf("it is not YAML any more: %v\n%s", err, edited)
		}
		if !slices.ContainsFunc(queues.Queues, func(n yaml.Node) bool {
			name, replaces := valueOf(&n, "name"), valueOf(&n, "replaces")
			return name != nil && replaces != nil && name.Value == successor && replaces.Value == legacy
		}) {
			t.Errorf("no queue %q replaces %q:\n%s", successor, legacy, edited)
		}
	})
}
