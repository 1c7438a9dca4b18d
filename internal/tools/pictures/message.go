package main

// message draws the way of a message: from the publisher to the consumer, and what
// happens when the consumer rejects it. The names are those of the README's file.
func message() string {
	return drawing{
		title: "The path of a message: a rejected message waits in the failed queue.\n" +
			"The processor counts it and moves it to a retry queue or to the dead-letter queue.",
		width: 970, height: 380, boxes: messageBoxes(), arrows: messageArrows(),
	}.String()
}

func messageBoxes() []box {
	return []box{
		{"publisher", "", "program", 20, 40, 100, 48},
		{"events", "exchange", "exchange", 160, 40, 110, 48},
		{"billing", "work queue", "queue", 320, 40, 130, 48},
		{"your service", "consumer", "program", 580, 40, 140, 48},
		{"shop.standard.failed", "failed queue", "queue", 555, 150, 190, 48},
		{"dlxctl process", "processor", "dlxctl", 575, 260, 150, 60},
		{"…retry.10s", "retry queue", "queue", 350, 150, 120, 44},
		{"…retry.1m", "retry queue", "queue", 350, 212, 120, 44},
		{"…retry.10m", "retry queue", "queue", 350, 274, 120, 44},
		{"billing.dead", "dead-letter queue", "dead", 810, 236, 140, 48},
		{"shop.unroutable", "unroutable queue", "dead", 810, 306, 140, 48},
	}
}

func messageArrows() []arrow {
	return []arrow{
		{points: [][2]int{{120, 64}, {156, 64}}},
		{points: [][2]int{{270, 64}, {316, 64}}},
		{
			points: [][2]int{{450, 64}, {576, 64}},
			label:  "deliver", x: 513, y: 56, anchor: "middle",
		},
		{
			points: [][2]int{{720, 64}, {806, 64}},
			label:  "ack: done", x: 812, y: 69, anchor: "start", class: "good",
		},
		{
			points: [][2]int{{650, 88}, {650, 146}},
			label:  "reject", x: 660, y: 122, anchor: "start", class: "bad",
		},
		{points: [][2]int{{650, 198}, {650, 256}}},
		{
			points: [][2]int{{575, 276}, {538, 276}, {538, 172}, {474, 172}},
			label:  "count=1", x: 476, y: 164, anchor: "start",
		},
		{
			points: [][2]int{{575, 288}, {552, 288}, {552, 234}, {474, 234}},
			label:  "count=2", x: 476, y: 226, anchor: "start",
		},
		{
			points: [][2]int{{575, 300}, {474, 300}},
			label:  "count=3", x: 476, y: 292, anchor: "start",
		},
		{points: [][2]int{{350, 172}, {300, 172}}},
		{points: [][2]int{{350, 234}, {300, 234}}},
		{
			points: [][2]int{{350, 296}, {300, 296}, {300, 120}, {370, 120}, {370, 92}},
			label:  "after the delay", x: 192, y: 226, anchor: "start",
		},
		{
			points: [][2]int{{725, 276}, {770, 276}, {770, 260}, {806, 260}},
			label:  "count=-1", x: 736, y: 250, anchor: "start", class: "bad",
		},
		{
			points: [][2]int{{725, 300}, {770, 300}, {770, 330}, {806, 330}},
			label:  "unroutable", x: 716, y: 348, anchor: "start", class: "bad",
		},
	}
}
