package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Homebrew and Scoop get each archive with its sum, and the folder that is in it.
func TestChannels(t *testing.T) {
	t.Parallel()
	r := release{version: "1.2.3", date: at().UTC(), out: t.TempDir()}
	sums := map[string]string{}
	for _, platform := range allTargets() {
		if err := r.archive(platform, []byte(platform.String()), nil); err != nil {
			t.Fatal(err)
		}
	}
	archives, err := filepath.Glob(filepath.Join(r.out, "dlxctl_*"))
	if err != nil || len(archives) != 6 {
		t.Fatalf("the archives are %v, %v", archives, err)
	}
	for _, archive := range archives {
		data, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		sums[filepath.Base(archive)] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	const release = "https://github.com/dlxctl/dlxctl/releases/download/v1.2.3/"

	formula, err := channel{r}.fill("../../../packaging/homebrew.rb.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
		name := "dlxctl_1.2.3_" + platform + ".tar.gz"
		want := fmt.Sprintf("      url %q\n      sha256 %q\n", release+name, sums[name])
		if !strings.Contains(string(formula), want) {
			t.Errorf("the formula does not have\n%s", want)
		}
	}

	manifest, err := channel{r}.fill("../../../packaging/scoop.json.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	type archive struct {
		URL, Hash string
		Folder    string `json:"extract_dir"`
	}
	var scoop struct {
		Version, Bin string
		Architecture map[string]archive
	}
	if err := json.Unmarshal(manifest, &scoop); err != nil {
		t.Fatal(err)
	}
	if scoop.Version != "1.2.3" || scoop.Bin != "dlxctl.exe" {
		t.Errorf("the manifest is\n%s", manifest)
	}
	for processor, platform := range map[string]string{"64bit": "windows_amd64", "arm64": "windows_arm64"} {
		name := "dlxctl_1.2.3_" + platform
		want := archive{release + name + ".zip", sums[name+".zip"], name}
		if got := scoop.Architecture[processor]; got != want {
			t.Errorf("%s is %v, want %v", processor, got, want)
		}
	}
}

// The entry for SchemaStore leads to a file of the release.
func TestSchemaStore(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../packaging/schemastore.json")
	if err != nil {
		t.Fatal(err)
	}
	var entry struct {
		Name, Description, URL string
		FileMatch              []string
	}
	if err := json.Unmarshal(data, &entry); err != nil {
		t.Fatal(err)
	}
	const url = "https://github.com/dlxctl/dlxctl/releases/latest/download/" + schemaFile
	if entry.URL != url || entry.Name == "" || entry.Description == "" || len(entry.FileMatch) == 0 {
		t.Errorf("the entry is %+v", entry)
	}
}
