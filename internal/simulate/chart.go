package simulate

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// chartColumns is how many columns the curves have, and nameColumns their names: with the
	// number behind it a line fits 80 columns.
	chartColumns = 52
	nameColumns  = 14
)

// chart draws the results over the same time.
func (t *textWriter) chart(columns []column) {
	end := t.r.Outage
	for _, c := range columns {
		end = max(end, c.result.Done)
	}
	for _, c := range columns {
		fmt.Fprintln(t.w)
		t.line(text.Paint(t.o.Style.Strong, text.Pad(c.title, nameColumns)) +
			text.Paint(t.o.Style.Faint, axis(t.r.Outage, end)))
		f := c.result.flow
		f.extend(end)
		curveLine := func(style func(string) string, name string, levels []float64, peak int64) {
			if peak > 0 {
				t.line(text.Paint(style, text.Pad(name, nameColumns)+bars(levels)+" "+text.Grouped(peak)))
			}
		}
		draw := func(style func(string) string, name string, peak int64, level func(i int) float64) {
			curveLine(style, name, f.sample(end, level), peak)
		}
		draw(t.o.Style.Danger, "dead letters", c.result.Dead, func(i int) float64 { return f.dead[i] })
		for _, tier := range c.result.Tiers {
			name := "in " + text.Duration(tier.Delay)
			if tier.outage {
				name = "for the end"
			}
			draw(nil, name, tier.Peak, tier.level)
		}
		draw(nil, "work queue", c.result.Backlog, f.backlog)
		curveLine(nil, "deliveries/s", f.speeds(end), c.result.DeliveriesPeak)
	}
}

// axis is the line above the curves: the times of the begin, of the end of the outage and of the
// last message.
func axis(outage, end time.Duration) string {
	line := []rune(strings.Repeat(" ", chartColumns))
	put := func(at int, s string) {
		at = max(0, min(at, chartColumns-len(s)))
		if strings.TrimSpace(string(line[max(0, at-1):min(chartColumns, at+len(s)+1)])) == "" {
			copy(line[at:], []rune(s))
		}
	}
	put(0, "0s")
	put(int(float64(chartColumns)*float64(outage)/float64(end)), text.Took(outage))
	put(chartColumns, text.Took(end))
	return strings.TrimRight(string(line), " ")
}

// bars draws levels from nothing to the highest one.
func bars(levels []float64) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	highest := 0.0
	for _, level := range levels {
		highest = max(highest, level)
	}
	var b strings.Builder
	for _, level := range levels {
		n := 0
		if level > trace && highest > 0 {
			n = int(math.Ceil(level / highest * float64(len(blocks)-1) * (1 - 1e-9)))
		}
		b.WriteRune(blocks[n])
	}
	return b.String()
}

// extend computes the curves up to a time, if they end before.
func (f *flow) extend(end time.Duration) {
	if last := duration(f.points[len(f.points)-1]); last < end {
		f.until(last.Round(time.Millisecond), end)
	}
}

// sample returns the highest level in each column of a chart that ends at a time.
func (f *flow) sample(end time.Duration, level func(i int) float64) []float64 {
	out := make([]float64, chartColumns)
	width := end.Seconds() / chartColumns
	for i := 1; i < len(f.points); i++ {
		from, to := f.points[i-1], f.points[i]
		a, b := level(i-1), level(i)
		for k := int(from / width); k < chartColumns && float64(k)*width < to; k++ {
			// the part of this step in the column
			x, y := max(from, float64(k)*width), min(to, float64(k+1)*width)
			at := func(t float64) float64 { return a + (b-a)*(t-from)/(to-from) }
			out[k] = max(out[k], at(x), at(y))
		}
	}
	return out
}

// speeds returns the deliveries per second in each column of a chart that ends at a time.
func (f *flow) speeds(end time.Duration) []float64 {
	out := make([]float64, chartColumns)
	width := end.Seconds() / chartColumns
	for i := 1; i < len(f.points); i++ {
		from, to := f.points[i-1], f.points[i]
		for k := int(from / width); k < chartColumns && float64(k)*width < to; k++ {
			x, y := max(from, float64(k)*width), min(to, float64(k+1)*width)
			out[k] += f.speed(i) * (y - x) / width
		}
	}
	return out
}
