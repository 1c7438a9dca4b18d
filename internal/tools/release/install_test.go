package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// installs is a run of install.sh on a machine and against a server of the test.
type installs struct {
	*testing.T

	// bin is the only folder of programs. uname is in it, and says system and machine.
	bin string
	// served are the files of the server, by name.
	served map[string][]byte
	// short makes the server close the connection in the middle of an archive.
	short bool
}

// newInstalls has a release 1.2.3 for Linux on amd64, in which dlxctl is a script.
func newInstalls(t *testing.T) *installs {
	t.Helper()
	i := &installs{T: t, bin: openDir(t), served: map[string][]byte{}}
	tools := []string{
		"awk", "cat", "chmod", "cp", "curl", "gzip", "mkdir", "mktemp", "mv", "rm", "sh", "sha256sum", "tar",
	}
	for _, tool := range tools {
		i.needs(tool)
	}
	i.machine("Linux", "x86_64")
	i.publish("linux_amd64", "#!/bin/sh\necho dlxctl v1.2.3\n")
	return i
}

// needs puts a program of this machine into bin.
func (i *installs) needs(tool string) {
	i.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		i.Skipf("no %s here", tool)
	}
	if err := os.Symlink(path, filepath.Join(i.bin, tool)); err != nil {
		i.Fatal(err)
	}
}

// lacks takes a program away.
func (i *installs) lacks(tool string) {
	i.Helper()
	if err := os.Remove(filepath.Join(i.bin, tool)); err != nil {
		i.Fatal(err)
	}
}

func (i *installs) machine(system, processor string) {
	i.Helper()
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in -s) echo %q ;; -m) echo %q ;; esac\n", system, processor)
	if err := os.WriteFile(filepath.Join(i.bin, "uname"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		i.Fatal(err)
	}
}

func (i *installs) publish(platform, program string) {
	i.Helper()
	folder := "dlxctl_1.2.3_" + platform
	var b bytes.Buffer
	if err := tarball(&b, []file{{folder + "/dlxctl", 0o755, []byte(program)}}, time.Unix(0, 0)); err != nil {
		i.Fatal(err)
	}
	name := folder + ".tar.gz"
	i.served[name] = b.Bytes()
	i.served["SHA256SUMS"] = fmt.Appendf(i.served["SHA256SUMS"], "%x  %s\n", sha256.Sum256(b.Bytes()), name)
}

func (i *installs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, found := i.served[strings.TrimPrefix(r.URL.Path, "/")]
	if !found {
		http.NotFound(w, r)
		return
	}
	if i.short && strings.HasSuffix(r.URL.Path, ".tar.gz") {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		data = data[:len(data)/2]
	}
	_, _ = w.Write(data) // the reader may be gone
}

// run pipes install.sh into sh, as its first lines say. It returns what the script wrote, and
// whether it succeeded.
func (i *installs) run(args ...string) (string, bool) {
	i.Helper()
	script, err := os.ReadFile("../../../packaging/install.sh")
	if err != nil {
		i.Fatal(err)
	}
	server := httptest.NewServer(i)
	defer server.Close()
	c := exec.CommandContext(i.Context(), "sh", slices.Concat([]string{"-s", "--", "--from", server.URL + "/"}, args)...)
	c.Env = []string{"PATH=" + i.bin, "HOME=/nonexistent", "TMPDIR=" + openDir(i.T)}
	c.Stdin = bytes.NewReader(release{version: "1.2.3"}.installer(script))
	unprivileged(c)
	out, err := c.CombinedOutput()
	return string(out), err == nil
}

func TestInstall(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(*installs){
		"with curl":   func(*installs) {},
		"with wget":   func(i *installs) { i.lacks("curl"); i.needs("wget") },
		"with shasum": func(i *installs) { i.lacks("sha256sum"); i.needs("shasum"); i.needs("perl") },
		"on arm": func(i *installs) {
			i.machine("Linux", "aarch64")
			i.publish("linux_arm64", "#!/bin/sh\necho dlxctl v1.2.3\n")
		},
		"on macOS": func(i *installs) {
			i.machine("Darwin", "arm64")
			i.publish("darwin_arm64", "#!/bin/sh\necho dlxctl v1.2.3\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstalls(t)
			arrange(i)
			dir := filepath.Join(openDir(t), "a folder", "bin")
			for range 2 { // the second time over the first
				out, ok := i.run("--dir", dir)
				want := "installed dlxctl v1.2.3 as " + dir + "/dlxctl\n"
				if !ok || !strings.HasPrefix(out, want) || !strings.Contains(out, "not in your PATH") {
					t.Fatalf("it wrote:\n%s", out)
				}
			}
			only(t, dir, "dlxctl")
		})
	}
}

// Whatever is wrong, one sentence says what, and nothing is installed.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	const archive = "dlxctl_1.2.3_linux_amd64.tar.gz"
	for name, tc := range map[string]struct {
		arrange func(*installs)
		args    []string
		want    string
	}{
		"a wrong sum": {
			func(i *installs) { i.served[archive] = append(i.served[archive], 0) }, nil,
			"the SHA-256 sum of " + archive + " is ",
		},
		"no sum": {
			func(i *installs) { i.served["SHA256SUMS"] = []byte("00  another.tar.gz\n") }, nil,
			"does not name " + archive + "; nothing was installed",
		},
		"no sums": {
			func(i *installs) { delete(i.served, "SHA256SUMS") }, nil,
			"cannot download http",
		},
		"no archive": {
			func(i *installs) { delete(i.served, archive) }, nil,
			"/" + archive,
		},
		"half an archive": {func(i *installs) { i.short = true }, nil, "cannot download http"},
		"another system": {
			func(i *installs) { i.machine("SunOS", "x86_64") }, nil,
			"there is no dlxctl for the system SunOS; build it with Go",
		},
		"Windows": {
			func(i *installs) { i.machine("MINGW64_NT-10.0", "x86_64") }, nil,
			"on Windows, take the zip file from http",
		},
		"another processor": {
			func(i *installs) { i.machine("Linux", "riscv64") }, nil,
			"there is no dlxctl for the processor riscv64; build it with Go",
		},
		"a program that does not run": {
			func(i *installs) {
				i.served = map[string][]byte{}
				i.publish("linux_amd64", "#!/bin/sh\nexit 1\n")
			}, nil,
			archive + " does not run on this machine; nothing was installed",
		},
		"no way to download": {func(i *installs) { i.lacks("curl") }, nil, "needs curl or wget"},
		"no way to check":    {func(i *installs) { i.lacks("sha256sum") }, nil, "needs sha256sum or shasum"},
		"an unknown option":  {func(*installs) {}, []string{"--prefix", "/usr"}, "there is no option --prefix"},
		"a missing value":    {func(*installs) {}, []string{"--dir"}, "--dir needs a value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstalls(t)
			tc.arrange(i)
			dir := openDir(t)
			out, ok := i.run(append([]string{"--dir", dir}, tc.args...)...)
			if ok || !strings.Contains(out, "install.sh: ") || !strings.Contains(out, tc.want) {
				t.Errorf("it succeeded: %v; it wrote:\n%s", ok, out)
			}
			only(t, dir)
		})
	}
}

func TestInstallWithoutRights(t *testing.T) {
	t.Parallel()
	closed := openDir(t)
	if err := os.Chmod(closed, 0o555); err != nil { //nolint:gosec // the folder is what is tested
		t.Fatal(err)
	}
	for _, dir := range []string{closed, filepath.Join(closed, "bin"), "/dev/null/bin"} {
		out, ok := newInstalls(t).run("--dir", dir)
		if ok || !strings.Contains(out, "cannot write to "+dir+"; choose a folder with --dir") {
			t.Errorf("it succeeded in %s: %v; it wrote:\n%s", dir, ok, out)
		}
	}
	only(t, closed)
}

// A download of the script that ends early does nothing, wherever it ends.
func TestHalfAScript(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../../packaging/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	called := bytes.LastIndex(script, []byte("\nmain \"$@\"\n"))
	if called < 0 || !bytes.Equal(script[called:], []byte("\nmain \"$@\"\n")) {
		t.Fatal("main is not called by the last line")
	}
	for end := range bytes.SplitAfterSeq(script[:called], []byte("\n}\n")) {
		c := exec.CommandContext(t.Context(), "sh")
		c.Stdin = bytes.NewReader(script[:bytes.Index(script, end)+len(end)])
		c.Env = []string{"PATH=" + t.TempDir()} // each program that it ran would be an error
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("up to %q: %v\n%s", end[max(0, len(end)-40):], err, out)
		}
	}
}

// openDir returns an empty folder in which every user may write.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// only checks what a folder holds.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}
