package main

import "slices"

// panel is one moment of a cutover: the hops that a message can take.
type panel struct {
	title string
	hops  []string
}

// panels returns the moments of a cutover, in their order.
func panels() []panel {
	return []panel{
		{"before", []string{"events-legacy"}},
		{"1. bind the switch exchange", []string{"events-legacy", "events-switch", "switch-legacy"}},
		{"2. unbind the legacy queue", []string{"events-switch", "switch-legacy"}},
		{"3. update one policy: the cutover", []string{"events-switch", "switch-successor"}},
		{"4. bind the successor", []string{"events-switch", "switch-successor", "events-successor"}},
		{"5. delete the switch exchange", []string{"events-successor"}},
	}
}

// hop returns the points of an arrow, relative to the corner of its panel.
func hop(name string) [][2]int {
	return map[string][][2]int{
		"events-legacy":    {{47, 85}, {47, 54}, {201, 54}},
		"events-successor": {{47, 129}, {47, 160}, {201, 160}},
		"events-switch":    {{82, 107}, {101, 107}},
		"switch-legacy":    {{142, 85}, {142, 72}, {201, 72}},
		"switch-successor": {{142, 129}, {142, 142}, {201, 142}},
	}[name]
}

// cutover draws the hops of a message at each step of a migration.
func cutover() string {
	p := drawing{
		title: "The cutover of a migration in five steps: at each moment a message has one route, or two\n" +
			"routes to the same queue. The third step moves the route from the legacy queue to the successor.",
		width: 970, height: 410,
	}
	for i, moment := range panels() {
		x, y := 14+i%3*320, 8+i/3*200
		p.notes = append(p.notes, note{moment.title, "name", x + 12, y + 24})
		for _, name := range moment.hops {
			a := arrow{class: "good"}
			for _, point := range hop(name) {
				a.points = append(a.points, [2]int{x + point[0], y + point[1]})
			}
			p.arrows = append(p.arrows, a)
		}
		switchClass := "absent"
		if slices.Contains(moment.hops, "events-switch") {
			switchClass = "exchange"
		}
		p.boxes = append(p.boxes,
			box{"events", "exchange", "exchange", x + 12, y + 85, 70, 44},
			box{"switch", "exchange", switchClass, x + 105, y + 85, 75, 44},
			box{"invoices", "legacy queue", "queue", x + 205, y + 40, 100, 44},
			box{"….v2", "successor", "queue", x + 205, y + 130, 100, 44})
	}
	return p.String()
}
