package main

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bill names the program with its sum, Go, and each module with its version and licenses.
func TestBill(t *testing.T) {
	t.Parallel()
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "github.com/klauspost/compress", Version: "v1.20.3"}, {Path: "go.yaml.in/yaml/v3", Version: "v3.0.5"},
	}}
	licenses := licensesOf("dlxctl\n\n" +
		"github.com/klauspost/compress v1.20.3  Apache-2.0, BSD-3-Clause\ngo.yaml.in/yaml/v3 v3.0.5             MIT\n" +
		"\n====\nother/module v1.0.0  a text\n")
	r := release{version: "1.2.3", described: "v1.2.3", commit: "1880da73", date: at().UTC()}
	text, err := r.bill(target{"linux", "arm64"}, []byte("program"), info, licenses)
	if err != nil {
		t.Fatal(err)
	}
	var got bill
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, p := range got.Packages {
		parts = append(parts, strings.Join([]string{p.ID, p.Version, p.Concluded, p.Refs[0].Locator}, " "))
	}
	want := []string{
		"SPDXRef-Package-dlxctl 1.2.3 Apache-2.0 pkg:golang/github.com/dlxctl/dlxctl@v1.2.3",
		"SPDXRef-Package-stdlib 1.26.8 BSD-3-Clause pkg:golang/stdlib@1.26.8",
		"SPDXRef-Package-github.com-klauspost-compress v1.20.3 Apache-2.0 AND BSD-3-Clause pkg:golang/github.com/klauspost/compress@v1.20.3",
		"SPDXRef-Package-go.yaml.in-yaml-v3 v3.0.5 MIT pkg:golang/go.yaml.in/yaml/v3@v3.0.5",
	}
	if d := cmp.Diff(want, parts); d != "" {
		t.Errorf("packages (-want +got):\n%s", d)
	}
	if len(got.Relationship) != len(got.Packages) || got.Creation.Created != "2026-07-02T03:04:06Z" {
		t.Errorf("the bill is\n%s", text)
	}
	info.Deps[0].Version = "v9.0.0"
	if _, err := r.bill(target{"linux", "arm64"}, nil, info, licenses); err == nil {
		t.Error("it says nothing about a module that NOTICE does not have")
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0 (2026-12-01)\n\n### Why\n\n- It is [the\n" +
		"  first](docs/try.md#one), see [a page](https://example.com/x).\n- Second.\n\n## 0.0.1\n\n- Old.\n"
	for described, want := range map[string]string{
		"v0.1.0": "### Why\n\n- It is [the first](https://github.com/dlxctl/dlxctl/blob/1880da73/docs/try.md#one), see " +
			"[a page](https://example.com/x).\n- Second.\n",
		"v0.0.1":             "- Old.\n",
		"v0.1.0-3-g1880da73": "- New.\n",
		"1880da73":           "- New.\n",
	} {
		r := release{version: packageVersion(described, at()), described: described, commit: "1880da73"}
		if got, err := r.notes(changelog); err != nil || got != want {
			t.Errorf("notes of %s are %q, %v, want %q", described, got, err, want)
		}
	}
	for described, changelog := range map[string]string{"v0.2.0": changelog, "v0.1.0": "## 0.1.0\n\n## 0.0.1\n"} {
		r := release{version: packageVersion(described, at()), described: described}
		if got, err := r.notes(changelog); err == nil {
			t.Errorf("notes of %s are %q", described, got)
		}
	}
}
