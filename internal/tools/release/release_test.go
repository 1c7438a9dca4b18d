package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a time in summer, and not in UTC: neither may show in a file.
func at() time.Time {
	return time.Date(2026, 7, 2, 5, 4, 6, 0, time.FixedZone("CEST", 2*60*60))
}

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for described, want := range map[string]string{
		"v0.1.0":                   "0.1.0",
		"v0.1.0-rc.1":              "0.1.0-rc.1",
		"v0.1.0-5-g1880da73":       "0.1.0+5.g1880da73",
		"v0.1.0-rc.1-5-g1880da73":  "0.1.0-rc.1+5.g1880da73",
		"v0.1.0-5-g1880da73-dirty": "0.1.0+5.g1880da73.dirty",
		"v0.1.0-dirty":             "0.1.0+dirty",
		"01880da7":                 "0.0.0-dev.20260702030406.g01880da7",
		"01880da7-dirty":           "0.0.0-dev.20260702030406.g01880da7+dirty",
	} {
		if got := packageVersion(described, at()); got != want {
			t.Errorf("packageVersion(%q) = %q, want %q", described, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	all, err := choose("")
	if err != nil || len(all) != 6 {
		t.Errorf("choose of nothing = %v, %v", all, err)
	}
	two, err := choose("windows/arm64,linux/amd64")
	if err != nil || fmt.Sprint(two) != "[windows/arm64 linux/amd64]" {
		t.Errorf("choose of two = %v, %v", two, err)
	}
	if _, err := choose("plan9/amd64"); err == nil {
		t.Error("it builds for plan9")
	}
}

// An archive has one folder, and in it the files with their modes. Its bytes depend on nothing else
// than its arguments.
func TestArchive(t *testing.T) {
	t.Parallel()
	r := release{version: "1.2.3", date: at().UTC(), out: t.TempDir()}
	texts := []file{{"man/man1/dlxctl.1", 0o644, []byte("page")}, {"LICENSE", 0o644, []byte("free")}}
	for _, system := range []target{{"linux", "amd64"}, {"windows", "arm64"}} {
		if err := r.archive(system, []byte("program"), texts); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"dlxctl_1.2.3_linux_amd64/LICENSE -rw-r--r-- free",
		"dlxctl_1.2.3_linux_amd64/dlxctl -rwxr-xr-x program",
		"dlxctl_1.2.3_linux_amd64/man/man1/dlxctl.1 -rw-r--r-- page",
	}
	if d := cmp.Diff(want, inTarball(t, filepath.Join(r.out, "dlxctl_1.2.3_linux_amd64.tar.gz"))); d != "" {
		t.Errorf("tar.gz (-want +got):\n%s", d)
	}
	want = []string{
		"dlxctl_1.2.3_windows_arm64/LICENSE -rw-r--r-- free",
		"dlxctl_1.2.3_windows_arm64/dlxctl.exe -rwxr-xr-x program",
	}
	if d := cmp.Diff(want, inZip(t, filepath.Join(r.out, "dlxctl_1.2.3_windows_arm64.zip"))); d != "" {
		t.Errorf("zip (-want +got):\n%s", d)
	}
	if err := sums(r.out); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(got), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[1], "  dlxctl_1.2.3_windows_arm64.zip") {
		t.Errorf("SHA256SUMS is\n%s", got)
	}
}

func inTarball(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(at()) || header.Uname != "root" {
			t.Errorf("%s is of %s at %s", header.Name, header.Uname, header.ModTime)
		}
		all = append(all, fmt.Sprintf("%s %s %s", header.Name, header.FileInfo().Mode(), text))
	}
}

func inZip(t *testing.T, name string) []string {
	t.Helper()
	archive, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var all []string
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", f.Name, f.Mode(), text))
	}
	return all
}

// The unit of the packages starts the program that they install, and differs from the template in
// nothing else.
func TestPackagedUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../../templates/systemd/dlxctl.service")
	if err != nil {
		t.Fatal(err)
	}
	got, err := packagedUnit(string(unit))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got, "\nExecStart=/usr/bin/dlxctl process\n") || strings.Contains(got, "/usr/local") {
		t.Errorf("the unit is\n%s", got)
	}
	_, want, _ := strings.Cut(string(unit), "[Unit]")
	_, rest, _ := strings.Cut(got, "[Unit]")
	if d := cmp.Diff(want, strings.Replace(rest, "/usr/bin", "/usr/local/bin", 1)); d != "" {
		t.Errorf("the settings (-template +package):\n%s", d)
	}
}

// The maintainer is the same in both places, or Debian's tools take the package for one that
// another person uploaded.
func TestMaintainer(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), "\nmaintainer: "+maintainer+"\n") {
		t.Errorf("packaging/nfpm.yaml does not name %s", maintainer)
	}
	got := release{version: "0.1.0-rc.1", date: at().UTC()}.debianChangelog()
	want := "dlxctl (0.1.0~rc.1) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- " + maintainer +
		"  Thu, 02 Jul 2026 03:04:06 +0000\n"
	if got != want {
		t.Errorf("the changelog is\n%s", got)
	}
}

// The notes of the first release are short enough to be read.
func TestTheFirstReleaseIsShort(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := (release{described: "v0.1.0", version: "0.1.0"}).notes(string(changelog))
	if n := len(strings.Fields(text)); err != nil || n > 300 {
		t.Errorf("the notes of 0.1.0 have %d words, more than 300 (%v)", n, err)
	}
}
