package e2e_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const tutorialPage = "../docs/tutorial.md"

// newcomer follows docs/tutorial.md: an empty folder, an empty virtual host, and one shell.
type newcomer struct {
	reader
	// jobs are the commands in the background, from %1 on.
	jobs []*process
	// handle is that of the page's dead letter, and real the one of this run.
	handle, real string
}

// A newcomer who follows docs/tutorial.md sees what the page shows. With -update the test writes
// the outputs into the page.
func TestTutorial(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the page needs curl, which this machine does not have")
	}
	n := &newcomer{reader: reader{t, brokertest.VHost(t), t.TempDir()}, handle: "0a1b2c3d4e5f"}
	n.save("topology.yaml", "yaml")
	n.save("service.sh", "bash")
	n.save("order.json", "json")
	page := readFile(t, tutorialPage)
	text, commands := page, 0
	for _, b := range blocks(t, tutorialPage, "console") {
		var written []string
		for _, e := range b.entries() {
			commands++
			written = append(append(written, "$ "+e.command), n.step(e)...)
		}
		text = strings.Replace(text, strings.Join(b.lines, "\n"), strings.Join(written, "\n"), 1)
	}
	if commands < 15 {
		t.Errorf("only %d commands were found", commands)
	}
	if *update && text != page {
		if err := os.WriteFile(tutorialPage, []byte(text), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
	}
}

// save writes the page's one block in a language to a file.
func (n *newcomer) save(name, lang string) {
	n.Helper()
	found := blocks(n.T, tutorialPage, lang)
	if len(found) != 1 {
		n.Fatalf("the page has %d blocks in %s, and the test reads one", len(found), lang)
	}
	writeTo(n.T, filepath.Join(n.dir, name), n.here(strings.Join(found[0].lines, "\n")+"\n"))
}

// here returns a text of the page with the virtual host, the user and the handle of this run.
func (n *newcomer) here(text string) string {
	return strings.NewReplacer("%2F", url.PathEscape(n.target.VHost),
		"guest:guest", n.target.Username+":"+n.target.Password, n.handle, n.real).Replace(text)
}

// step runs a command and returns the lines that the page should show.
func (n *newcomer) step(e entry) []string {
	n.Helper()
	switch words := strings.Fields(e.command); {
	case words[0] == "export":
		checkExport(n.T, words)
		return e.output
	case words[0] == "kill":
		for _, word := range words[1:] {
			job := n.jobs[word[1]-'1']
			job.signal(n.T, syscall.SIGTERM)
			<-job.ended
		}
		return e.output
	case slices.Contains(words, "&"):
		n.jobs = append(n.jobs, n.begin(strings.TrimSuffix(e.command, "&")))
		return e.output
	}
	got := n.printed(e.command)
	if !e.changes() { // the broker's counts are up to 5 seconds old, and a message waits
		patience := time.Now().Add(time.Minute)
		if *update {
			patience = time.Now().Add(6 * time.Second)
		}
		brokertest.Eventually(n.T, e.command+" to print what the page shows", func() bool {
			got = n.printed(e.command)
			return e.shown(got) != nil || time.Now().After(patience)
		}, &got)
	}
	if shown := e.shown(got); shown != nil {
		return shown
	}
	if !*update {
		n.Errorf("docs/tutorial.md: %q does not print what the page shows; make golden writes it\n%s",
			e.command, cmp.Diff(e.output, got))
	}
	return e.shortened(got)
}

// changes reports whether a command changes something, so that it may run only once.
func (e entry) changes() bool {
	return strings.Contains(e.command, "--yes") || strings.Contains(e.command, "publish")
}

// begin starts a command of the page in its folder.
func (n *newcomer) begin(command string) *process {
	n.Helper()
	p := commandOf(n.T, n.target, exec.CommandContext(n.Context(), "bash", "-c", "exec "+n.here(command)))
	p.Stderr = p.Stdout // in the order of a terminal
	p.Dir = n.dir
	p.begin(n.T)
	return p
}

// printed runs a command to its end and returns what it prints, with the examples of the page for
// what differs between two runs.
func (n *newcomer) printed(command string) []string {
	n.Helper()
	p := n.begin(command)
	p.exits(n.T, 0)
	output := p.stdout.String()
	if found := regexp.MustCompile(`(?m)^([0-9a-f]{12}) `).FindStringSubmatch(output); found != nil {
		n.real = found[1]
	}
	for _, r := range []struct{ find, write string }{
		{`\b[0-9a-f]{12}\b`, n.handle},
		{`\d{8}-\d{6}-[0-9a-z]{6}`, "20260102-030405-1a2b3c"},
		{`\d{4}-\d\d-\d\dT[0-9:]+(\.\d+)?Z`, "2026-01-02T03:04:05Z"},
		{`(?m)^\d\d:\d\d:\d\d `, "12:00:00 "},
		{`\b[0-9.]+m?s, order kept`, "12ms, order kept"},
		{`message in [0-9.]+m?s;`, "message in 6s;"}, // with the settle time of a reader
		{` by \S+@\S+`, " by ann@laptop"},
		{`(?m)^(took|replayed|pausing).*\n`, ""}, // the progress
	} {
		output = regexp.MustCompile(r.find).ReplaceAllString(output, r.write)
	}
	return steady(output)
}
