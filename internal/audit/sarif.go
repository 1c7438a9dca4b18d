package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// rulePage is the address of a rule's page, without its name.
const rulePage = "https://github.com/dlxctl/dlxctl/blob/main/docs/rules/"

// RulePage returns the address of the page of a rule.
func RulePage(id string) string { return rulePage + id + ".md" }

// WriteSARIF writes a result in the format SARIF 2.1.0, for code scanning. A finding of a file has
// the file and line of its object, and every finding has its virtual host and object as a logical
// location. Findings that the baseline accepts are there as suppressed.
func WriteSARIF(w io.Writer, r Result, program string) error {
	run := sarifRun{
		Tool: sarifTool{sarifDriver{
			Name: "dlxctl", Version: program, URI: "https://github.com/dlxctl/dlxctl",
			Rules: []sarifRule{},
		}},
		Results: []sarifResult{}, ColumnKind: "unicodeCodePoints",
	}
	index := map[string]int{}
	for i, rule := range Rules() {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: rule.ID, Short: sarifText{rule.Title}, Full: sarifText{rule.Why}, Help: sarifText{rule.Fix},
			HelpURI: RulePage(rule.ID), Default: sarifDefault{Enabled: !rule.Off, Level: string(rule.Severity)},
		})
	}
	for _, f := range r.Findings {
		run.Results = append(run.Results, toSARIF(f, index))
	}
	for _, a := range r.Accepted {
		result := toSARIF(a.Finding, index)
		result.Suppressions = []sarifSuppression{{Kind: "external", Status: "accepted", Justification: a.Entry.Reason}}
		run.Results = append(run.Results, result)
	}
	return text.WriteJSON(w, sarifLog{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0", Runs: []sarifRun{run},
	})
}

// The parts of SARIF that a result needs. Names are those of the standard.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		Results    []sarifResult `json:"results"`
		ColumnKind string        `json:"columnKind"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		URI     string      `json:"informationUri"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifText    `json:"shortDescription"`
		Full    sarifText    `json:"fullDescription"`
		Help    sarifText    `json:"help"`
		HelpURI string       `json:"helpUri"`
		Default sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Enabled bool   `json:"enabled"`
		Level   string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    *int               `json:"ruleIndex,omitempty"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Full string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Status        string `json:"status"`
		Justification string `json:"justification"`
	}
)

// toSARIF returns a finding as a result of SARIF. The levels of both have the same names.
func toSARIF(f Finding, index map[string]int) sarifResult {
	name := f.DisplayName()
	out := sarifResult{
		RuleID: f.Rule, Level: string(f.Severity), Message: sarifText{sarifMessage(f)},
		Locations: []sarifLocation{{Logical: []sarifLogical{{
			Name: name, Full: f.VHost + "/" + name,
			Kind: string(f.Object.Kind),
		}}}},
		Fingerprints: map[string]string{"dlxctl/v1": f.fingerprint()},
	}
	if i, known := index[f.Rule]; known {
		out.RuleIndex = &i
	}
	if f.Position.File != "" {
		physical := &sarifPhysical{Artifact: sarifArtifact{fileURI(f.Position.File)}}
		if f.Position.Line > 0 {
			physical.Region = &sarifRegion{f.Position.Line}
		}
		out.Locations[0].Physical = physical
	}
	return out
}

// sarifMessage returns object, consequence, evidence and remedy as one text: viewers show no other.
func sarifMessage(f Finding) string {
	out := string(f.Object.Kind) + " " + f.DisplayName() + ": " + topology.Printable(f.Evidence) + "."
	if f.Consequence != "" {
		out += " " + upperFirst(topology.Printable(f.Consequence)) + "."
	}
	if f.Remedy != "" {
		out += "\nFix:\n" + strings.TrimRight(f.Remedy, "\n")
	}
	return out
}

// fingerprint identifies a finding from one run to the next: by rule and object, and not by the
// line, which moves.
func (f Finding) fingerprint() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, f.VHost, string(f.Object.Kind), f.Object.Name}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// fileURI returns the URI of a file: relative, as it was named on the command line.
func fileURI(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	if uri := strings.Join(parts, "/"); !slices.Contains([]string{"", "-", "stdin"}, path) {
		if strings.HasPrefix(uri, "/") {
			return "file://" + uri
		}
		return uri
	}
	return "stdin"
}
