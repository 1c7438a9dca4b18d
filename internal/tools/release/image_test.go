package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unpacked returns the files of a tar by their names. Each has the time of the commit.
func unpacked(t *testing.T, r io.Reader) map[string][]byte {
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
		if !h.ModTime.Equal(at()) || h.Uid != 0 {
			t.Errorf("%s is of %s and of the user %d", h.Name, h.ModTime, h.Uid)
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// refer reads what a descriptor refers to, and checks its sum and size.
func refer(t *testing.T, files map[string][]byte, d descriptor) []byte {
	t.Helper()
	data := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if len(data) != d.Size || d.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
		t.Fatalf("%d bytes for %+v", len(data), d)
	}
	return data
}

func decoded[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// saved returns the bytes of an image for two platforms.
func saved(t *testing.T) []byte {
	t.Helper()
	dockerfile, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	r := release{described: "v1.2.3-5-gabc", version: "1.2.3+5.gabc", commit: "abc", date: at().UTC()}
	i, err := r.newImage(dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if err := i.add(target{"linux", arch}, []byte("program of "+arch)); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := i.save(name); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An image has each platform, with the certificates and the program alone, and runs as the
// Dockerfile says. Each reference is right, and the bytes are the same each time.
func TestImage(t *testing.T) {
	t.Parallel()
	data := saved(t)
	if !bytes.Equal(data, saved(t)) {
		t.Error("a second image has other bytes")
	}
	files := unpacked(t, bytes.NewReader(data))
	if got := string(files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", got)
	}
	top := decoded[imageIndex](t, files["index.json"]).Manifests
	if len(top) != 1 || top[0].Annotations["io.containerd.image.name"] != "ghcr.io/dlxctl/dlxctl:1.2.3-5.gabc" {
		t.Fatalf("the index is %+v", top)
	}
	var platforms []string
	for _, d := range decoded[imageIndex](t, refer(t, files, top[0])).Manifests {
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
		manifest := decoded[imageManifest](t, refer(t, files, d))
		config := decoded[imageConfig](t, refer(t, files, manifest.Config))
		if config.platform != *d.Platform || !config.Created.Equal(at()) {
			t.Errorf("the configuration of %+v is for %+v, of %s", d.Platform, config.platform, config.Created)
		}
		run := config.Config
		if run.Labels["org.opencontainers.image.revision"] != "abc" {
			t.Errorf("the labels are %v", run.Labels)
		}
		run.Labels = nil
		want := runConfig{"65532:65532", map[string]struct{}{"9419/tcp": {}}, []string{"/dlxctl"}, []string{"process"}, nil}
		if d := cmp.Diff(want, run); d != "" {
			t.Errorf("how it runs (-want +got):\n%s", d)
		}
		var names []string
		for n, l := range manifest.Layers {
			z, err := gzip.NewReader(bytes.NewReader(refer(t, files, l)))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("sha256:%x", sha256.Sum256(plain)); config.RootFS.DiffIDs[n] != got {
				t.Errorf("layer %d is %s, and the configuration has %s", n, got, config.RootFS.DiffIDs[n])
			}
			for name, data := range unpacked(t, bytes.NewReader(plain)) {
				if !strings.HasSuffix(name, "/") {
					names = append(names, name)
				}
				if name == "dlxctl" && string(data) != "program of "+d.Platform.Architecture {
					t.Errorf("%s has the %s", d.Platform.Architecture, data)
				}
			}
		}
		if d := cmp.Diff([]string{certificates, "dlxctl"}, names); d != "" {
			t.Errorf("the files (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); d != "" {
		t.Errorf("the platforms (-want +got):\n%s", d)
	}
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	n := 0
	for block, rest := pem.Decode(authorities()); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	if n < 100 {
		t.Errorf("%d certificates", n)
	}
}

// What the Dockerfile says and the image cannot have is an error, and not left out.
func TestImageOfAnotherDockerfile(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"debian\n", "scratch\nVOLUME /data\n", "scratch\nCMD process\n"} {
		dockerfile := "FROM golang\nFROM " + last
		if i, err := (release{}).newImage([]byte(dockerfile)); err == nil {
			t.Errorf("%q is the image %+v", dockerfile, i.run)
		}
	}
}
