package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// bill is a software bill of materials: an SPDX 2.3 document. The order of the fields is that of
// the standard.
type bill struct {
	SPDXVersion  string         `json:"spdxVersion"`
	DataLicense  string         `json:"dataLicense"`
	ID           string         `json:"SPDXID"`
	Name         string         `json:"name"`
	Namespace    string         `json:"documentNamespace"`
	Creation     creation       `json:"creationInfo"`
	Packages     []part         `json:"packages"`
	Relationship []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// part is the program, Go, or a module that is linked into the program.
type part struct {
	Name      string      `json:"name"`
	ID        string      `json:"SPDXID"`
	Version   string      `json:"versionInfo"`
	Purpose   string      `json:"primaryPackagePurpose"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Checksums []checksum  `json:"checksums,omitempty"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// sbom writes which modules are in a program, from what the compiler has noted there. The licenses
// are those of NOTICE.
func (r release) sbom(t target, binary []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	notice, err := os.ReadFile("NOTICE")
	if err != nil {
		return err
	}
	text, err := r.bill(t, binary, info, licensesOf(string(notice)))
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	return os.WriteFile(r.name(t, ".spdx.json"), text, 0o644)
}

func (r release) bill(t target, binary []byte, info *buildinfo.BuildInfo, licenses map[string]string) ([]byte, error) {
	const program = "SPDXRef-Package-dlxctl"
	sum := fmt.Sprintf("%x", sha256.Sum256(binary))
	name := fmt.Sprintf("dlxctl_%s_%s_%s", r.version, t.os, t.arch)
	b := bill{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		// One for each program, as the standard demands. Nothing has to be there.
		Namespace: "https://github.com/dlxctl/dlxctl/spdx/" + name + "-" + sum,
		Creation:  creation{r.date.Format("2006-01-02T15:04:05Z"), []string{"Tool: dlxctl-internal-tools-release"}},
		Packages: []part{{
			Name: "dlxctl", ID: program, Version: r.version, Purpose: "APPLICATION",
			Location: "git+https://github.com/dlxctl/dlxctl@" + r.commit, Checksums: []checksum{{"SHA256", sum}},
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "2026 the dlxctl authors",
			Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/github.com/dlxctl/dlxctl@" + r.described}},
		}},
		Relationship: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", program}},
	}
	add := func(path, version, license string) {
		p := part{
			Name: path, ID: "SPDXRef-Package-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(path, "-"),
			Version: version, Purpose: "LIBRARY", Location: "NOASSERTION", Concluded: license, Declared: license,
			Copyright: "NOASSERTION", Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
		}
		b.Packages = append(b.Packages, p)
		b.Relationship = append(b.Relationship, relationship{program, "CONTAINS", p.ID})
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")
	for _, m := range info.Deps {
		license, ok := licenses[m.Path+" "+m.Version]
		if !ok {
			return nil, fmt.Errorf("NOTICE does not have %s %s; run: make notice", m.Path, m.Version)
		}
		add(m.Path, m.Version, license)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(b)
	return out.Bytes(), err
}

// licensesOf returns the licenses of the modules in the table of NOTICE, in the words of SPDX, by
// path and version.
func licensesOf(notice string) map[string]string {
	found := map[string]string{}
	table, _, _ := strings.Cut(notice, "\n====")
	for _, row := range regexp.MustCompile(`(?m)^(\S+ v\S+)  +(.+)$`).FindAllStringSubmatch(table, -1) {
		found[row[1]] = strings.ReplaceAll(row[2], ", ", " AND ")
	}
	return found
}
