package site_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// work is a folder for what is built once for all tests.
var work string //nolint:gochecknoglobals // TestMain removes it

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "dlxctl-site-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(work)
	os.Exit(code)
}

// run runs a program in a folder.
func run(dir, name string, args ...string) error {
	c := exec.CommandContext(context.Background(), name, args...)
	var problems bytes.Buffer
	c.Dir, c.Stderr = dir, &problems
	if err := c.Run(); err != nil {
		return &failedError{name + " " + strings.Join(args, " "), problems.String(), err}
	}
	return nil
}

type failedError struct {
	line, problems string
	err            error
}

func (e *failedError) Error() string { return e.line + ": " + e.err.Error() + "\n" + e.problems }

//nolint:gochecknoglobals // built once for all tests
var (
	theProgram = sync.OnceValues(func() (string, error) {
		path := filepath.Join(work, "dlxctl")
		err := run("../..", "go", "build", "-trimpath", "-buildvcs=false", "-o", path, ".")
		return path, err
	})
	theSite = sync.OnceValues(func() (string, error) {
		path := filepath.Join(work, "site")
		err := run("../tools/site", "go", "run", "-trimpath", ".", "-version", "v1", path)
		return path, err
	})
)

// program returns a function that runs dlxctl next to a copy of a file, and returns what it prints.
func program(t *testing.T) func(file string, args ...string) string {
	t.Helper()
	path, err := theProgram()
	if err != nil {
		t.Fatal(err)
	}
	return func(file string, args ...string) string {
		c := exec.CommandContext(t.Context(), path, args...)
		c.Dir = t.TempDir() // next to the file may be a topology file, which dlxctl would read too
		if err := os.WriteFile(filepath.Join(c.Dir, filepath.Base(file)), []byte(read(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := c.Output()
		if err != nil && c.ProcessState.ExitCode() != 2 { // 2 is an answer
			t.Errorf("dlxctl %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
}

// built returns the folder of the site.
func built(t *testing.T) string {
	t.Helper()
	path, err := theSite()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The program is smaller than 6 MB, compressed.
func TestTheProgramIsSmall(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(filepath.Join(built(t), "dlxctl.bin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("dlxctl.bin has %d bytes", info.Size())
	if info.Size() > 6_000_000 {
		t.Errorf("dlxctl.bin has %d bytes; 'go list -deps' of internal/site/wasm says what is in it", info.Size())
	}
}

// The program in the browser has nothing with which it could connect: no client of a broker, and no
// HTTP.
func TestTheProgramCannotConnect(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "./wasm")
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		if regexp.MustCompile(`^(net/http|crypto/tls|.*amqp.*|.*rabbit-hole.*|.*/internal/broker.*)\s*$`).MatchString(name) {
			t.Errorf("the program imports %s", name)
		}
	}
}

// policies finds the policy of a page.
var policies = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]+)">`)

// loads finds what a page loads, and styles and scripts that are attributes.
var loads = regexp.MustCompile(
	`<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)="([^"]*)"|<[a-z][^>]*\s(?:style|on[a-z]+)=`)

// Each page has a policy that allows connections to its own server alone, and nothing on it is from
// elsewhere: no script, style or picture. No script makes HTML of a text.
func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	root, pages := built(t), 0
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch text := ""; filepath.Ext(path) {
		case ".html":
			pages++
			text = read(t, path)
			policy := policies.FindStringSubmatch(text)
			if policy == nil || !strings.HasPrefix(policy[1], "default-src 'none'; ") ||
				!strings.Contains(policy[1], "; connect-src 'self'; ") {
				t.Errorf("%s has the policy %q", path, policy)
			}
			before, _, _ := strings.Cut(text, "http-equiv")
			if strings.Contains(before, "<script") || strings.Contains(before, "<link") {
				t.Errorf("%s loads something before its policy", path)
			}
			for _, found := range loads.FindAllStringSubmatch(text, -1) {
				if found[1] == "" || strings.Contains(found[1], "//") || strings.HasPrefix(found[1], "data:") {
					t.Errorf("%s has %s", path, found[0])
				}
			}
		case ".js":
			text = read(t, path)
			for _, banned := range []string{
				"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "new Function", "https://", "http://",
				"localStorage", "sessionStorage", "cookie", "sendBeacon", "WebSocket", "XMLHttpRequest",
			} {
				if strings.Contains(text, banned) && filepath.Base(path) != "wasm_exec.js" {
					t.Errorf("%s contains %s", path, banned)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages == 0 {
		t.Error("there is no page")
	}
}
