package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// reference is what a document of an image says of another.
type reference struct{ Digest string }

// untar returns the files of a tar by their names.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// unpackImage unpacks the layers of an image into a folder, as a runtime does, and returns how its
// container runs.
func unpackImage(t *testing.T, data []byte, root string) (user string, args []string) {
	t.Helper()
	files := untar(t, bytes.NewReader(data))
	read := func(r reference, v any) {
		t.Helper()
		data := files["blobs/sha256/"+strings.TrimPrefix(r.Digest, "sha256:")]
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatalf("%s: %v: %s", r.Digest, err, data)
		}
	}
	var index struct{ Manifests []reference }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	read(index.Manifests[0], &index)
	var manifest struct {
		Config reference
		Layers []reference
	}
	read(index.Manifests[0], &manifest)
	for _, layer := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(files["blobs/sha256/"+strings.TrimPrefix(layer.Digest, "sha256:")]))
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range untar(t, z) {
			if strings.HasSuffix(name, "/") {
				continue
			}
			at := filepath.Join(root, filepath.FromSlash(path.Clean("/"+name)))
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // another user reads it
				t.Fatal(err)
			}
			if err := os.WriteFile(at, data, 0o755); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
		}
	}
	var config struct {
		Config struct {
			User            string
			Entrypoint, Cmd []string
		}
	}
	read(manifest.Config, &config)
	return config.Config.User, append(config.Config.Entrypoint, config.Config.Cmd...)
}

// The image that is made without Docker runs: its layers in a root that nothing can be written to,
// as its user, with the settings of the template for Kubernetes. The processor becomes ready, and
// ends after SIGTERM.
func TestTheImageRuns(t *testing.T) {
	brokertest.OnNewestLine(t)
	needsLine(t, "4.3") // for engine: native
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root on Linux can change the root")
	}
	work := t.TempDir()
	for dir := work; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the user of the image reads it
			t.Fatal(err)
		}
	}
	archive, root := filepath.Join(work, "image.tar"), filepath.Join(work, "root")
	build := exec.CommandContext(t.Context(), "go", "run", "./internal/tools/release",
		"-version", "v1.2.3", "-commit", "0123456789abcdef", "-date", "2026-01-02T03:04:05Z",
		"-only", "linux/"+runtime.GOARCH, "-image", archive)
	build.Dir = ".."
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	user, args := unpackImage(t, data, root)

	s := fromKubernetes(t)
	target := brokertest.VHost(t)
	topology := writeTopology(t, alerted)
	start(t, target, "apply", "--yes", "-f", topology).exits(t, 0)
	mount := filepath.Join(root, s.env["DLXCTL_FILE"])
	if err := os.MkdirAll(mount, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	writeTo(t, filepath.Join(mount, "topology.yaml"), alerted)
	if err := os.Chmod(filepath.Join(mount, "topology.yaml"), 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	// The mounts end with the process: they are in a namespace of its own.
	const enter = `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && user=$2 root=$1 && shift 2 &&
		! touch "$root/x" 2>/dev/null && exec chroot --userspec="$user" "$root" "$@"`
	p := commandOf(t, target, exec.CommandContext(t.Context(), "unshare",
		append([]string{"--mount", "sh", "-c", enter, "sh", root, user}, args...)...))
	for name, value := range s.env {
		if name == "DLXCTL_LISTEN" {
			value = "127.0.0.1:0"
		}
		p.Env = append(p.Env, name+"="+value)
	}
	p.begin(t)
	p.answers(t, s.health)
	p.answers(t, s.live)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "status"))
	if err != nil || !strings.Contains(string(status), "Uid:\t65532\t65532\t65532\t65532\n") ||
		!strings.Contains(string(status), "CapEff:\t0000000000000000\n") {
		t.Errorf("it runs with %v, %s", err, status)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}
