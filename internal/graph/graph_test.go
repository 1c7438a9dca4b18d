package graph_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/graph"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

const shop = `version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [10s, 1m]}}
exchanges: [{name: events}, {name: docs, type: headers}, {name: orders, type: direct, bindings: [{exchange: events, key: "order.#"}]}]
queues:
  - {name: billing, bindings: [{exchange: events, keys: [order.placed, order.paid]}, {exchange: docs, headers: {kind: "<a&b>"}}]}
  - {name: audit, backoff: none, type: classic, bindings: [{exchange: orders, key: order.placed}]}
`

// input is the topology with queues of another team: one loses, one has a retry loop.
func input(t *testing.T) graph.Input {
	t.Helper()
	c := spectest.Compile(t, shop)
	state := topology.State{Version: "4.3.6", Have: c.Topology}
	foreign := func(name string, arguments topology.Arguments) {
		arguments[topology.ArgQueueType] = topology.Classic
		state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: name, Durable: true, Arguments: arguments})
	}
	foreign(`crm "in"`, topology.Arguments{})
	foreign("mail", topology.Arguments{
		topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: "mail.wait",
	})
	foreign("mail.wait", topology.Arguments{
		topology.ArgMessageTTL: int64(5000), topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: "mail",
	})
	foreign("lame", topology.Arguments{topology.ArgDeadLetterExchange: "missing"})
	return graph.Input{State: state, Files: []topology.Compiled{c}}
}

// TestOutputs compares all formats with files. The whole, one queue, and each generated object.
func TestOutputs(t *testing.T) {
	t.Parallel()
	whole, one, all := input(t), input(t), input(t)
	one.Queues = []string{"billing"}
	all.Queues, all.All = []string{"billing"}, true
	for name, in := range map[string]graph.Input{"whole": whole, "one": one, "all": all} {
		g := graph.Make(in)
		for ext, write := range map[string]func(io.Writer, graph.Graph) error{
			"txt": graph.WriteText, "svg": graph.WriteSVG, "mmd": graph.WriteMermaid, "dot": graph.WriteDot,
		} {
			var got bytes.Buffer
			if err := write(&got, g); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/"+name+"."+ext, got.Bytes())
			if ext == "svg" {
				wellFormed(t, got.Bytes())
			}
		}
	}
}

// wellFormed checks that a picture is XML.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
}

// TestOneQueueHasNoOtherQueue limits a shared backoff to the messages of the queue.
func TestOneQueueHasNoOtherQueue(t *testing.T) {
	t.Parallel()
	in := input(t)
	in.Queues = []string{"audit"}
	var got []string
	for _, n := range graph.Make(in).Nodes {
		got = append(got, n.Name)
	}
	if d := cmp.Diff([]string{"events", "orders", "audit", "audit.dead"}, got); d != "" {
		t.Errorf("boxes (-want +got):\n%s", d)
	}
}

// TestAHundredQueues has a picture in which no two boxes overlap, and no Mermaid.
func TestAHundredQueues(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	file.WriteString("version: 1\nname: shop\ndefaults: {backoff: standard}\nbackoff: {standard: {tiers: [10s]}}\n" +
		"exchanges: [{name: events}, {name: docs}]\nqueues:\n")
	for i := range 100 {
		fmt.Fprintf(&file, "  - {name: q%d, bindings: [{exchange: events, key: k%d}, {exchange: docs, key: k%d}]}\n", i, i, i%7)
	}
	c := spectest.Compile(t, file.String())
	g := graph.Make(graph.Input{State: topology.State{Have: c.Topology}, Files: []topology.Compiled{c}})
	var b bytes.Buffer
	if err := graph.WriteSVG(&b, g); err != nil {
		t.Fatal(err)
	}
	type rect struct{ x, y, width, height float64 }
	var boxes []rect
	for line := range strings.Lines(b.String()) {
		var r rect
		if _, at, ok := strings.Cut(line, "<rect x="); ok {
			if fields := strings.Split(at, `"`); len(fields) > 7 {
				_, err := fmt.Sscan(fields[1]+" "+fields[3]+" "+fields[5]+" "+fields[7], &r.x, &r.y, &r.width, &r.height)
				if err != nil {
					t.Fatal(err)
				}
				boxes = append(boxes, r)
			}
		}
	}
	if len(boxes) != 203 {
		t.Errorf("%d boxes, want 203", len(boxes))
	}
	for i, a := range boxes {
		for _, b := range boxes[:i] {
			if a.x < b.x+b.width && b.x < a.x+a.width && a.y < b.y+b.height && b.y < a.y+a.height {
				t.Fatalf("two boxes overlap: %v, %v", a, b)
			}
		}
	}
	var large *graph.TooLargeError
	if err := graph.WriteMermaid(io.Discard, g); !errors.As(err, &large) || large.Edges != 400 {
		t.Errorf("Mermaid: %v", err)
	}
}

// TestArrowsGoAroundBoxes follows each arrow of the page's picture: none crosses a box that it
// neither leaves nor reaches, so that it seems to come from there. With -update it writes the
// picture.
func TestArrowsGoAroundBoxes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/images/graph.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := spectest.Compile(t, string(data))
	var b bytes.Buffer
	in := graph.Input{State: topology.State{Have: c.Topology}, Files: []topology.Compiled{c}}
	if err := graph.WriteSVG(&b, graph.Make(in)); err != nil {
		t.Fatal(err)
	}
	goldentest.Check(t, "../../docs/images/graph.svg", b.Bytes())
	arrows := regexp.MustCompile(`class="arrow \w+" d="([^"]+)"`).FindAllStringSubmatch(b.String(), -1)
	boxes := regexp.MustCompile(`<rect x="(\d+)" y="(\d+)" width="(\d+)"`).FindAllStringSubmatch(b.String(), -1)
	if len(arrows) < 15 || len(boxes) < 15 {
		t.Fatalf("the picture has %d arrows and %d boxes", len(arrows), len(boxes))
	}
	for _, arrow := range arrows {
		for _, box := range boxes {
			x, y, width := number(t, box[1]), number(t, box[2]), number(t, box[3])
			for _, p := range along(t, arrow[1]) {
				if p[0] > x+1 && p[0] < x+width-1 && p[1] > y+1 && p[1] < y+35 {
					t.Errorf("the arrow %s crosses the box at %v, %v", arrow[1], x, y)
					break
				}
			}
		}
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// along returns points of a path of curves and lines.
func along(t *testing.T, path string) [][2]float64 {
	t.Helper()
	var all [][2]float64
	var here [2]float64
	for _, part := range regexp.MustCompile(`[MCL][^MCL]+`).FindAllString(path, -1) {
		var c [][2]float64
		numbers := strings.Fields(part[1:])
		for i := 0; i+1 < len(numbers); i += 2 {
			c = append(c, [2]float64{number(t, numbers[i]), number(t, numbers[i+1])})
		}
		for step := range 101 {
			u := float64(step) / 100
			var p [2]float64
			for axis := range p {
				switch v := 1 - u; part[0] {
				case 'C':
					p[axis] = v*v*v*here[axis] + 3*v*v*u*c[0][axis] + 3*v*u*u*c[1][axis] + u*u*u*c[2][axis]
				case 'L':
					p[axis] = v*here[axis] + u*c[0][axis]
				default:
					p = c[0]
				}
			}
			all = append(all, p)
		}
		here = c[len(c)-1]
	}
	return all
}

// The time of a graph grows with the number of queues, not with its square.
func TestTheGraphIsLinear(t *testing.T) { //nolint:paralleltest // it compares times
	spectest.Linear(t, func(c topology.Compiled) {
		g := graph.Make(graph.Input{State: topology.State{Have: c.Topology}, Files: []topology.Compiled{c}})
		if err := graph.WriteText(io.Discard, g); err != nil {
			t.Fatal(err)
		}
	})
}

// A delay leads to the exchange to which the processor publishes what is due: from the exchange
// that publishers use, or, with all generated objects, from the queues that the processor reads.
func TestDelays(t *testing.T) {
	t.Parallel()
	c := spectest.Compile(t, "version: 1\nname: shop\nexchanges: [{name: events}]\n"+
		"delays: [{name: later, to: events, max: 1s}]\n"+
		"queues: [{name: work, backoff: none, bindings: [{exchange: events, key: k}]}]\n")
	for all, want := range map[bool][]string{
		false: {"later -> events: when it is due"},
		true: {
			"later -> shop.delay.in.later: ", "shop.delay.due.later -> events: when it is due",
			"shop.delay.due.later -> shop.delay.levels.later: processor", "shop.delay.in.later -> events: when it is due",
			"shop.delay.in.later -> shop.delay.levels.later: processor", "shop.delay.level.1s.later -> shop.delay.due.later: ",
			"shop.delay.levels.later -> shop.delay.level.1s.later: dlxctl-delay-level=0",
		},
	} {
		g := graph.Make(graph.Input{
			State: topology.State{Version: "4.3.6", Have: c.Topology}, Files: []topology.Compiled{c}, All: all,
		})
		got := map[string]bool{}
		for _, e := range g.Edges {
			got[fmt.Sprintf("%s -> %s: %s", g.Nodes[e.From].Name, g.Nodes[e.To].Name, strings.Join(e.Labels, ", "))] = true
		}
		for _, edge := range want {
			if !got[edge] {
				t.Errorf("all %t: there is no %q in %v", all, edge, got)
			}
		}
		for _, n := range g.Nodes {
			if n.Kind == graph.Loss {
				t.Errorf("all %t: %s is drawn as lost", all, n.Detail)
			}
		}
		if err := graph.WriteSVG(io.Discard, g); err != nil {
			t.Error(err)
		}
	}
}
