package definitions_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/topology"
)

// FuzzRead checks that Read panics on no input, that each object is at a line of the file, and
// that definitions written from what was read are read as the same.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(paths) == 0 {
		f.Fatal("no files in testdata", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(whole))
	f.Add([]byte(`[{"name":"q","durable":true,"arguments":[["a","table",[["b","long",1]]]]}] [] [] []`))
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, err := definitions.Read([]definitions.File{{Name: "f.json", Data: data}})
		if err != nil {
			return
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, h := range hosts {
			for key, at := range h.Positions {
				if at.File != "f.json" || at.Line < 1 || at.Line > lines {
					t.Errorf("%v is at %v, in a file of %d lines", key, at, lines)
				}
			}
			again(t, h.State.Have)
		}
	})
}

// again writes objects as definitions and reads them.
func again(t *testing.T, have topology.Topology) {
	t.Helper()
	data, err := topology.Definitions(topology.Compiled{Topology: have}, "v")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(data) {
		t.Fatalf("written as %s", data)
	}
	hosts, err := definitions.Read([]definitions.File{{Name: "again.json", Data: data}})
	if err != nil {
		t.Fatalf("what was read is refused when it is written: %v\n%s", err, data)
	}
	got := topology.Topology{}
	if len(hosts) == 1 {
		got = hosts[0].State.Have
	}
	if want := text(have); want != text(got) {
		t.Errorf("read again (-want +got):\n%s", cmp.Diff(want, text(got)))
	}
}

// text returns all objects with their properties, one a line. Exclusive queues cannot be written.
func text(t topology.Topology) string {
	var b bytes.Buffer
	var all []topology.Object
	for _, o := range t.Exchanges {
		all = append(all, o)
	}
	for _, o := range t.Queues {
		o.Exclusive = false
		all = append(all, o)
	}
	for _, o := range t.Bindings {
		o.Arguments = wholeNumbers(o.Arguments)
		all = append(all, o)
	}
	for _, o := range t.Policies {
		all = append(all, o)
	}
	for _, o := range all {
		b.WriteString(o.ID().Name)
		for _, p := range o.Properties() {
			b.WriteString(" " + p.Name + "=" + topology.FormatValue(p.Value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// wholeNumbers makes floats without a fraction integers: written as JSON, 1.0 is 1.
func wholeNumbers(args topology.Arguments) topology.Arguments {
	out, err := topology.Canonical(args)
	if err != nil {
		return args
	}
	return out
}
