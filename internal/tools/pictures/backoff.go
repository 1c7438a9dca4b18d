package main

import "fmt"

// backoff draws the four deliveries of a message whose consumer always fails, with the tiers of
// the README's file between them. The axis of time is not to scale.
func backoff() string {
	p := drawing{
		title: "A backoff: a rejected message waits 10 seconds, then 1 minute, then 10 minutes,\n" +
			"and comes back to its work queue after each. After the fourth failure it is a dead letter.",
		width: 970, height: 300,
		notes: []note{{"time after the publish, not to scale", "label", 640, 286}},
	}
	const step, work, retry, axis = 230, 60, 162, 252
	p.arrows = append(p.arrows, arrow{points: [][2]int{{30, axis}, {940, axis}}})
	for i, at := range []string{"0s", "+10s", "+1m10s", "+11m10s"} {
		center := 90 + i*step
		p.boxes = append(p.boxes, box{"billing", fmt.Sprintf("delivery %d", i+1), "queue", center - 55, work, 110, 48})
		count := fmt.Sprintf("count=%d", i+1)
		if i == 3 {
			count = "count=-1"
		}
		p.arrows = append(p.arrows,
			arrow{
				points: [][2]int{{center, work}, {center, work - 28}},
				label:  "ack: done", x: center + 8, y: work - 16, anchor: "start", class: "good",
			},
			arrow{
				points: [][2]int{{center + 25, work + 48}, {center + 25, retry + 24}, {center + 56, retry + 24}},
				label:  "reject", x: center + 33, y: work + 66, anchor: "start", class: "bad",
			},
			arrow{
				points: [][2]int{{center, axis - 5}, {center, axis}},
				label:  at, x: center, y: axis + 18, anchor: "middle", class: "tick",
			})
		p.notes = append(p.notes, note{count, "label", center + 33, work + 82})
		if i == 3 {
			p.boxes = append(p.boxes, box{"billing.dead", "dead-letter queue", "dead", center + 60, retry, 118, 48})
			continue
		}
		tier := []string{"10s", "1m", "10m"}[i]
		p.boxes = append(p.boxes, box{"…retry." + tier, "waits " + tier, "queue", center + 60, retry, 110, 48})
		p.arrows = append(p.arrows, arrow{points: [][2]int{
			{center + 170, retry + 24}, {center + step - 25, retry + 24}, {center + step - 25, work + 52},
		}})
	}
	return p.String()
}
