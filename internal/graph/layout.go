package graph

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Sizes in pixels. Texts are measured by their number of characters.
const (
	boxHeight  = 36
	rowGap     = 16
	columnGap  = 90
	margin     = 24
	nameWidth  = 7.4
	smallWidth = 6.2
	labelWidth = 28 // in characters, the longest label that is drawn whole
)

// box is where a node is drawn.
type box struct{ x, y, width float64 }

// layout is where everything is drawn.
type layout struct {
	boxes         []box
	columns       []int // of each node
	width, height float64
}

// place lays out a graph in columns: each box is right of those that lead to it, and queues that
// keep messages are in the last column.
func place(g Graph) layout {
	columns := g.columns()
	l := layout{boxes: make([]box, len(g.Nodes)), columns: columns}
	order := g.order(columns)
	x := float64(margin)
	for c, nodes := range order {
		width := 90.0
		for _, i := range nodes {
			width = max(width, g.Nodes[i].width())
		}
		for _, i := range nodes {
			l.boxes[i] = box{x: x, width: width}
		}
		x += width + gap(g, columns, c)
	}
	l.rows(g, order)
	for _, b := range l.boxes {
		l.width, l.height = max(l.width, b.x+b.width+margin), max(l.height, b.y+boxHeight+margin)
	}
	return l
}

// around returns the ways past the boxes that an arrow to the right would cross, from left to
// right: each is a line above or below a box, in the gap between two rows, and as wide as the box.
func (l layout) around(e Edge) []box {
	var ways []box
	to := l.boxes[e.To]
	x, y := l.boxes[e.From].x+l.boxes[e.From].width, l.boxes[e.From].y
	for column := l.columns[e.From] + 1; column < l.columns[e.To]; column++ {
		for i, b := range l.boxes {
			if l.columns[i] != column {
				continue
			}
			// The arrow is nearly straight. It is too near if it meets the box at either side.
			left, right := y+(to.y-y)*(b.x-x)/(to.x-x), y+(to.y-y)*(b.x+b.width-x)/(to.x-x)
			const near = boxHeight/2 + 4
			if min(left, right) > b.y+near || max(left, right) < b.y-near {
				continue
			}
			way := box{x: b.x, y: b.y - rowGap/2, width: b.width}
			if left+right > 2*b.y {
				way.y = b.y + boxHeight + rowGap/2
			}
			ways = append(ways, way)
			x, y = b.x+b.width, way.y-boxHeight/2.0
			break
		}
	}
	return ways
}

// width returns how wide the box of a node has to be.
func (n Node) width() float64 {
	name, detail := utf8.RuneCountInString(n.Name), utf8.RuneCountInString(n.Detail)
	return 24 + max(nameWidth*float64(name), smallWidth*float64(detail))
}

// gap returns the room behind a column, which the labels of the arrows to the next one need.
func gap(g Graph, columns []int, column int) float64 {
	longest := 0
	for _, e := range g.Edges {
		if columns[e.To] == column+1 {
			longest = max(longest, utf8.RuneCountInString(label(e)))
		}
	}
	return columnGap + smallWidth*float64(longest)
}

// columns returns the column of each node: the length of the longest way to it, without the arrows
// that lead back.
func (g Graph) columns() []int {
	next := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		next[e.From] = append(next[e.From], e.To)
	}
	out, state := make([]int, len(g.Nodes)), make([]int, len(g.Nodes))
	var finished []int
	back := map[[2]int]bool{}
	var visit func(int)
	visit = func(i int) {
		state[i] = 1
		for _, to := range next[i] {
			switch state[to] {
			case 0:
				visit(to)
			case 1:
				back[[2]int{i, to}] = true
			}
		}
		state[i] = 2
		finished = append(finished, i)
	}
	for _, kind := range []Kind{Exchange, Queue, Backoff, Waiting, Kept, Loss} {
		for i, n := range g.Nodes {
			if n.Kind == kind && state[i] == 0 {
				visit(i)
			}
		}
	}
	spread := func() {
		for _, i := range slices.Backward(finished) {
			for _, to := range next[i] {
				if !back[[2]int{i, to}] {
					out[to] = max(out[to], out[i]+1)
				}
			}
		}
	}
	spread()
	first := g.firstQueues(out)
	for i, n := range g.Nodes {
		if n.Kind == Queue {
			out[i] = max(out[i], first)
		}
	}
	spread()
	last := slices.Max(append(slices.Clone(out), 0))
	for i, n := range g.Nodes {
		if n.Kind == Kept && len(next[i]) == 0 && out[i] > 0 {
			out[i] = last
		}
	}
	return out
}

// order returns the nodes of each column from top to bottom: each near to those that it is
// connected with.
func (g Graph) order(columns []int) [][]int {
	out := make([][]int, slices.Max(append(slices.Clone(columns), 0))+1)
	for i := range g.Nodes {
		out[columns[i]] = append(out[columns[i]], i)
	}
	at := make([]float64, len(g.Nodes))
	for _, nodes := range out {
		slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(g.Nodes[a].Name, g.Nodes[b].Name) })
		rank(nodes, at)
	}
	neighbors := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		neighbors[e.From], neighbors[e.To] = append(neighbors[e.From], e.To), append(neighbors[e.To], e.From)
	}
	const sweeps = 12
	for range sweeps {
		for _, nodes := range out {
			want := map[int]float64{}
			for _, i := range nodes {
				want[i] = at[i]
				for _, n := range neighbors[i] {
					want[i] += at[n]
				}
				want[i] /= float64(len(neighbors[i]) + 1)
			}
			slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
			rank(nodes, at)
		}
	}
	return out
}

// rank numbers nodes from 0 to 1.
func rank(nodes []int, at []float64) {
	for r, i := range nodes {
		at[i] = (float64(r) + 0.5) / float64(len(nodes))
	}
}

// firstQueues returns the column of the first queues: behind all exchanges that publishers use,
// which no queue leads to.
func (g Graph) firstQueues(columns []int) int {
	dead := map[int]bool{}
	for range g.Nodes {
		before := len(dead)
		for _, e := range g.Edges {
			if g.Nodes[e.From].Kind != Exchange || dead[e.From] {
				dead[e.To] = true
			}
		}
		if len(dead) == before {
			break
		}
	}
	column := 0
	for i, n := range g.Nodes {
		if n.Kind == Exchange && !dead[i] {
			column = max(column, columns[i]+1)
		}
	}
	return column
}

// rows places the nodes of all columns. The longest column comes first, one node below the other;
// those on both sides follow, each node near the middle of its neighbors in the columns before.
func (l *layout) rows(g Graph, order [][]int) {
	longest := 0
	for c, nodes := range order {
		if len(nodes) > len(order[longest]) {
			longest = c
		}
	}
	neighbors := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		neighbors[e.From], neighbors[e.To] = append(neighbors[e.From], e.To), append(neighbors[e.To], e.From)
	}
	done := make([]bool, len(g.Nodes))
	column := func(nodes []int) {
		want := make([]float64, len(g.Nodes))
		for r, i := range nodes {
			sum, n := 0.0, 0.0
			for _, other := range neighbors[i] {
				if done[other] {
					sum, n = sum+l.boxes[other].y, n+1
				}
			}
			want[i] = margin + float64(r)*(boxHeight+rowGap)
			if n > 0 {
				want[i] = sum / n
			}
		}
		slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
		l.stack(nodes, want)
		for _, i := range nodes {
			done[i] = true
		}
	}
	column(order[longest])
	for c := longest - 1; c >= 0; c-- {
		column(order[c])
	}
	for c := longest + 1; c < len(order); c++ {
		column(order[c])
	}
}

// stack places nodes below each other, near to where they want to be: those that would overlap
// share the room around their middle.
func (l *layout) stack(nodes []int, want []float64) {
	const step = boxHeight + rowGap
	type block struct {
		first, count int
		sum          float64 // of what its nodes want, each as if it were the first of the block
	}
	var blocks []block
	top := func(b block) float64 { return max(margin, b.sum/float64(b.count)) }
	for i, node := range nodes {
		blocks = append(blocks, block{i, 1, want[node]})
		for len(blocks) > 1 {
			a, b := blocks[len(blocks)-2], blocks[len(blocks)-1]
			if top(a)+float64(a.count)*step <= top(b) {
				break
			}
			joined := block{a.first, a.count + b.count, a.sum + b.sum - float64(a.count*b.count)*step}
			blocks = append(blocks[:len(blocks)-2], joined)
		}
	}
	for _, b := range blocks {
		for i := range b.count {
			l.boxes[nodes[b.first+i]].y = top(b) + float64(i)*step
		}
	}
}
