package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const images = "../../../docs/images/"

// The committed picture of the demo is that of the committed record, and the drawings are XML.
func TestCommittedPictures(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		data, err := os.ReadFile(images + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if read("demo.svg") != terminal(read("demo.txt")) {
		t.Error("docs/images/demo.svg is not what make docs draws")
	}
	for _, name := range []string{"message.svg", "consumer.svg", "backoff.svg", "cutover.svg", "demo.svg"} {
		wellFormed(t, name, read(name))
	}
}

func wellFormed(t *testing.T, name, picture string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

// A record does not depend on the time of day, the node, or fractions of a second.
func TestRecord(t *testing.T) {
	t.Parallel()
	got := record(`
topology demo, vhost dlxctl-demo, cluster dlxctl-1@vm, RabbitMQ 4.3.6
  1.5s  m-04  key order.paid     attempt 2: failed, rejected, waited 1.3s in tier 1s
time=2026-11-22T05:21:30.755Z level=WARN msg="dead-lettered message"
billing.dead holds 1 message; looked at 1 in 17ms, order kept
1         100%   2026-11-22T05:21:30Z  159a1de6f24e  rejected
replayed 1 of 1 messages
pausing: listening for failures of a batch of 1 for 1s
run 20261122-180612-rcx7ya: replayed 1 message in 10.7s; none failed again
`)
	want := `topology demo, vhost dlxctl-demo, cluster rabbit@host, RabbitMQ 4.3.6
    1s  m-04  key order.paid     attempt 2: failed, rejected, waited 1s in tier 1s
time=2026-01-02T03:04:05.678Z level=WARN msg="dead-lettered message"
billing.dead holds 1 message; looked at 1 in 12ms, order kept
1         100%   2026-01-02T03:04:05Z  0a1b2c3d4e5f  rejected
run 20260102-030405-1a2b3c: replayed 1 message in 10s; none failed again
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Lines longer than the screen continue on the next one, and characters with a meaning in
// XML are escaped.
func TestTerminal(t *testing.T) {
	t.Parallel()
	picture := terminal("$ dlxctl plan\n" + strings.Repeat("a", columns) + "b<&\n")
	wellFormed(t, "the terminal", picture)
	for _, want := range []string{">$ dlxctl plan<", ">" + strings.Repeat("a", columns) + "<", ">b&lt;&amp;<"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture has no %q:\n%s", want, picture)
		}
	}
}

// Each subcommand is accepted, and others are refused.
func TestRun(t *testing.T) {
	t.Parallel()
	for args, valid := range map[string]bool{
		"record": true, "terminal": true, "dance": false, "": false, "record now": false,
	} {
		if err := run(strings.Fields(args), strings.NewReader("$ ls\n"), io.Discard); (err == nil) != valid {
			t.Errorf("%q: %v", args, err)
		}
	}
}
