package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// channel is what the files of other ways to install know of a release.
type channel struct{ release }

// Version returns the version without a v.
func (c channel) Version() string { return c.version }

// URL returns where the archive with this end of its name will be.
func (c channel) URL(suffix string) string {
	return fmt.Sprintf("https://github.com/dlxctl/dlxctl/releases/download/v%s/dlxctl_%s_%s", c.version, c.version, suffix)
}

// Sum returns the SHA-256 sum of that archive.
func (c channel) Sum(suffix string) (string, error) {
	data, err := os.ReadFile(filepath.Join(c.out, fmt.Sprintf("dlxctl_%s_%s", c.version, suffix)))
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}

// fill returns the text of a template for the release.
func (c channel) fill(name string) ([]byte, error) {
	t, err := template.ParseFiles(name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, c)
	return b.Bytes(), err
}

// schemaFile is the JSON Schema of topology files, which packaging/schemastore.json names.
const schemaFile = "topology.schema.json"

// channels writes install.sh, the schema of topology files for editors, and, where all archives
// were built that they name, the formula of Homebrew and the manifest of Scoop.
func (r release) channels(ctx context.Context, all bool) error {
	script, err := os.ReadFile("packaging/install.sh")
	if err != nil {
		return err
	}
	if err := r.write(r.out, file{"install.sh", 0o755, r.installer(script)}); err != nil {
		return err
	}
	schema, err := r.ask(ctx, "schema")
	if err != nil {
		return err
	}
	if err := r.write(r.out, file{schemaFile, 0o644, schema}); err != nil || !all {
		return err
	}
	for from, to := range map[string]string{"homebrew.rb.tmpl": "dlxctl.rb", "scoop.json.tmpl": "dlxctl.json"} {
		text, err := channel{r}.fill("packaging/" + from)
		if err != nil {
			return err
		}
		if err := r.write(r.out, file{to, 0o644, text}); err != nil {
			return err
		}
	}
	return nil
}

// installer returns install.sh for this release.
func (r release) installer(script []byte) []byte {
	return []byte(strings.ReplaceAll(string(script), "@VERSION@", r.version))
}
