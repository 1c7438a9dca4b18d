package spec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// nested returns lists of aliases that hold nine of the one before, times deep.
func nested(times int, item func(i int, aliases string) string) string {
	var b strings.Builder
	for i := 1; i < times; i++ {
		fmt.Fprintf(&b, "x-a%d: &a%d %s\n", i, i,
			item(i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", ")))
	}
	return b.String()
}

// repeated returns a text for each number from 0 to n-1, where %d stands for it.
func repeated(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// What is too much is refused with a limit and a remedy, within some hundred
// megabytes.
func TestLimits(t *testing.T) { //nolint:paralleltest // it measures what the whole process allocates
	const head = "version: 1\nname: big\ndefaults: {backoff: none}\n"
	for name, tc := range map[string]struct{ file, first, summary string }{ //nolint:paralleltest // see above
		"a file of 50 MB": {
			strings.Repeat("# no end\n", 50<<20/9), "f:1:1: the file is larger than 4 MiB; split it, and pass each part with -f",
			"1 problem in f",
		},
		"aliases of aliases": {
			head + "x-a0: &a0 [a, a]\n" + nested(12, func(_ int, a string) string { return "[" + a + "]" }),
			"f:4:7: the file holds more than 1000000 values, counting what aliases repeat; split the topology", "1 problem in f",
		},
		"merges of merges": {
			head + "x-a0: &a0 {a: 1}\n" + nested(12,
				func(i int, a string) string { return fmt.Sprintf("{<<: [%s], k%d: 1}", a, i) }),
			"f:4:7: the file holds more than 1000000 values, counting what aliases repeat; split the topology", "1 problem in f",
		},
		"an endless list": {
			head + "x-a:\n" + strings.Repeat("- a\n", 1_000_000),
			"f:999994:3: the file holds more than 1000000 values, counting what aliases repeat; split the topology",
			"1 problem in f",
		},
		"nesting in brackets": {
			strings.Repeat("[", 4_000_000),
			"f:1:1: this is not YAML: exceeded max depth of 10000; check the indentation, and quote values that hold : # { } [ ] or begin with * & ! @", "1 problem in f",
		},
		"nesting": {
			head + "x-a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60),
			"f:4:56: values are nested more than 50 levels deep; remove levels", "1 problem in f",
		},
		"100,000 queues": {
			head + "queues:\n" + repeated(100_000, "- {name: q%d}\n"),
			"f:20005:3: the topology has more than 20000 queues; split it into several topologies, each with its own name",
			"1 problem in f",
		},
		"100,000 exchanges": {
			head + "exchanges:\n" + repeated(100_000, "- {name: e%d}\n"),
			"f:20005:3: the topology has more than 20000 exchanges; split it into several topologies, each with its own name",
			"1 problem in f",
		},
		"nothing but problems": {
			head + "exchanges:\n" + repeated(15_000, "- {name: exchange-number-%d}\n") +
				"queues:\n" + repeated(15_000, "- {name: q%d, bindings: [{exchange: exchange-mumber-%d, key: k}]}\n"),
			`f:15006:25: binding comes from exchange "exchange-mumber-0", which is not declared; did you mean "exchange-number-0"?`, "1000 problems in f; reading stopped there",
		},
		"nothing but wrong keys": {
			head + repeated(400_000, "k%d:\n"),
			`f:4:1: the file has no key "k0"; its keys are version, name, vhost, cluster, countHeader, defaults, backoff, exchanges, queues, delays, messages, notify, removed, accept`, "1000 problems in f; reading stopped there",
		},
		"not YAML after many lines": {
			strings.Repeat("a: 1\n", 800_000) + "b: [",
			"f:800001:1: this is not YAML: did not find expected node content; check the indentation, and quote values that hold : # { } [ ] or begin with * & ! @", "1 problem in f",
		},
		"a word without end": {
			head + "queues: [{name: q, severity: " + strings.Repeat("é", 1_900_000) + "}]\n",
			`f:4:30: severity is "` + strings.Repeat("é", 743) + " … " + strings.Repeat("é", 247) +
				`"; write page, ticket or info`, "1 problem in f",
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer quick([]byte(tc.first))()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Load([]Source{{Name: "f", Data: []byte(tc.file)}}, fuzzEnvironment)
			runtime.ReadMemStats(&after)
			problems, ok := err.(*Error) //nolint:errorlint // it gives nothing else
			if !ok {
				t.Fatalf("it is taken: %v", err)
			}
			if got := problems.Problems[0].String(); got != tc.first {
				t.Errorf("first\n got %s\nwant %s", got, tc.first)
			}
			if got := problems.Summary(); got != tc.summary {
				t.Errorf("summary is %q, not %q", got, tc.summary)
			}
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 700 {
				t.Errorf("it allocates %d MiB", mb)
			}
		})
	}
}

// What is within the limits is taken.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	file := "version: 1\nname: big\ndefaults: {backoff: none}\nexchanges: [{name: e}]\nqueues:\n" + repeated(MaxObjects,
		"- {name: q%d, bindings: [{exchange: e, key: k.%d}]}\n")
	top, _, err := Load([]Source{{Name: "f", Data: []byte(file)}}, fuzzEnvironment)
	if err != nil || len(top.WorkQueues) != MaxObjects {
		t.Errorf("%d work queues: %v", len(top.WorkQueues), err)
	}
}
