package jsondoc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/jsondoc/jsondoctest"
)

type report struct {
	Version int        `json:"version"`
	Format  jsondoc.V1 `json:"format"`
	Part
	Rows    []row             `json:"rows"`
	Names   []string          `json:"names"`
	Labels  map[string]string `json:"labels"`
	Found   map[string]any    `json:"found"`
	Wait    *time.Duration    `json:"wait"`
	Took    jsondoc.Seconds   `json:"seconds"`
	Oldest  time.Time         `json:"oldest,omitzero"`
	Note    string            `json:"note,omitempty"`
	Tries   int               `json:"tries" jsondoc:"known"`
	Left    int               `json:"left,omitempty" jsondoc:"known"`
	Data    []byte            `json:"data"`
	Secret  string            `json:"-"`
	private int
}

// Part is embedded.
type Part struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

type row struct {
	Delay time.Duration `json:"delay"`
	Count count         `json:"count"`
}

// count is negative if it is not known.
type count int

func (c count) JSON() any {
	if c < 0 {
		return counted{}
	}
	return counted{Known: true, N: int(c)}
}

type counted struct {
	Known bool `json:"known"`
	N     int  `json:"n,omitempty"`
}

// Lists and objects are never null, durations are milliseconds, times are in UTC and null if they
// cannot be written, numbers that are not known are null, and what others wrote stays as it is.
func TestWrite(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 10, 0, 0, 0, time.FixedZone("", 3600))
	for want, v := range map[string]any{
		`{"version":1,"format":1,"name":"","at":null,"rows":[],"names":[],"labels":{},"found":{},"wait":null,"seconds":0,"tries":null,"data":null}`: report{
			Version: 1, Part: Part{At: time.Date(12026, 1, 2, 0, 0, 0, 0, time.UTC)}, Tries: -1, Left: -1, private: 1,
		},
		`{"version":2,"format":1,"name":"a<b","at":"2026-01-02T09:00:00Z","rows":[{"delay":1500,"count":{"known":true,"n":2}},{"delay":0,"count":{"known":false}}],` +
			`"names":["x"],"labels":{"a":"b","c":"d"},"found":{"list":null},"wait":2,"seconds":0.25,"oldest":"2026-01-02T09:00:00Z","note":"n","tries":0,"left":0,"data":"aGk="}`: &report{
			Version: 2, Part: Part{Name: "a<b", At: at}, Rows: []row{{1500 * time.Millisecond, 2}, {0, -1}},
			Names: []string{"x"}, Labels: map[string]string{"c": "d", "a": "b"}, Found: map[string]any{"list": []string(nil)},
			Wait: new(2 * time.Millisecond), Took: jsondoc.Seconds(250 * time.Millisecond), Oldest: at, Note: "n",
			Data: []byte("hi"), Secret: "s",
		},
		`[]`: []row(nil),
	} {
		var b strings.Builder
		if err := jsondoc.WriteLine(&b, v); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want+"\n", b.String()); d != "" {
			t.Errorf("WriteLine (-want +got):\n%s", d)
		}
	}
}

// A field without a tag, and a key that is not in camelCase, are found wherever they are.
func TestProblems(t *testing.T) {
	t.Parallel()
	type inner struct {
		Bare  int
		Snake int `json:"snake_case"`
	}
	type outer struct {
		Good  int                 `json:"goodOne"`
		Inner map[string][]*inner `json:"inner"`
	}
	want := []string{
		"jsondoc_test.inner.Bare has no json tag",
		`jsondoc_test.inner.Snake is "snake_case", which is not in camelCase`,
	}
	if d := cmp.Diff(want, jsondoctest.Problems(outer{})); d != "" {
		t.Errorf("Problems (-want +got):\n%s", d)
	}
	if got := jsondoctest.Problems(report{}); got != nil {
		t.Errorf("a report that is as it should be has problems: %q", got)
	}
}
