package main

// consumer draws what a consumer does with a message that it could not process. The names are those
// of the file in docs/consumers.md.
func consumer() string {
	return drawing{
		title: "What a consumer does with a message that failed: it publishes a copy that says why\n" +
			"to the failed exchange, and acknowledges the message after the confirm.",
		width: 1000, height: 330,
		boxes: []box{
			{"billing", "work queue", "queue", 20, 110, 120, 48},
			{"your service", "consumer", "program", 260, 110, 140, 48},
			{"shop.failed", "exchange", "exchange", 500, 40, 120, 48},
			{"shop.standard.failed", "failed queue", "queue", 680, 40, 180, 48},
			{"dlxctl process", "processor", "dlxctl", 695, 140, 150, 60},
			{"…retry.10s", "retry queue", "queue", 710, 262, 120, 44},
			{"billing.dead", "dead-letter queue", "dead", 860, 262, 126, 44},
		},
		arrows: []arrow{
			{points: [][2]int{{140, 134}, {256, 134}}, label: "deliver", x: 198, y: 126, anchor: "middle"},
			{
				points: [][2]int{{330, 110}, {330, 64}, {496, 64}},
				label:  "1. a copy with retry-error", x: 340, y: 56, anchor: "start", class: "bad",
			},
			{
				points: [][2]int{{330, 158}, {330, 206}, {100, 206}, {100, 162}},
				label:  "2. ack, after the confirm", x: 215, y: 198, anchor: "middle", class: "good",
			},
			{
				points: [][2]int{{400, 134}, {560, 134}, {560, 92}},
				label:  "or reject, without a reason", x: 410, y: 152, anchor: "start", class: "bad",
			},
			{points: [][2]int{{620, 64}, {676, 64}}, label: "@billing", x: 648, y: 56, anchor: "middle"},
			{points: [][2]int{{770, 88}, {770, 136}}},
			{points: [][2]int{{770, 200}, {770, 258}}, label: "retry-after: how long", x: 762, y: 232, anchor: "end"},
			{
				points: [][2]int{{845, 170}, {923, 170}, {923, 258}},
				label:  "retry-permanent", x: 915, y: 232, anchor: "end", class: "bad",
			},
			{
				points: [][2]int{{710, 284}, {50, 284}, {50, 162}},
				label:  "after the delay", x: 380, y: 276, anchor: "middle",
			},
		},
	}.String()
}
