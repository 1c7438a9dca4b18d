package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// packages writes the Debian and the rpm package of a target. nfpm makes them from
// packaging/nfpm.yaml, and from a folder with all files that the packages install.
func (r release) packages(ctx context.Context, t target, binary []byte, texts []file) error {
	stage := filepath.Join(r.work, t.os+"_"+t.arch, "stage")
	files, err := r.installed(binary, texts)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := r.write(stage, f); err != nil {
			return err
		}
	}
	for _, kind := range []string{"deb", "rpm"} {
		out, err := filepath.Abs(r.name(t, "."+kind))
		if err != nil {
			return err
		}
		c := exec.CommandContext(ctx, "go", "tool", "-modfile=packaging/tools.mod",
			"nfpm", "package", "--config", "packaging/nfpm.yaml", "--packager", kind, "--target", out)
		c.Env = append(os.Environ(), "STAGE="+stage, "VERSION="+r.version, "ARCH="+t.arch, "SOURCE_DATE_EPOCH="+r.epoch())
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s of %s: %w\n%s", kind, t, err, text)
		}
	}
	return nil
}

// installed returns the files that the packages install, by their names in packaging/nfpm.yaml.
func (r release) installed(binary []byte, texts []file) ([]file, error) {
	files := []file{{"dlxctl", 0o755, binary}}
	for _, f := range texts {
		switch folder := path.Dir(f.name); {
		case folder == "man/man1" || f.name == "CHANGELOG.md" || f.name == "NOTICE":
			data, err := compressed(f.data)
			if err != nil {
				return nil, err
			}
			files = append(files, file{f.name + ".gz", f.mode, data})
		default:
			files = append(files, f)
		}
	}
	for _, name := range []string{"packaging/copyright", "packaging/environment", "packaging/lintian-overrides"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Base(name), 0o644, data})
	}
	unit, err := os.ReadFile("templates/systemd/dlxctl.service")
	if err != nil {
		return nil, err
	}
	text, err := packagedUnit(string(unit))
	if err != nil {
		return nil, err
	}
	files = append(files, file{"dlxctl.service", 0o644, []byte(text)})
	history, err := compressed([]byte(r.debianChangelog()))
	if err != nil {
		return nil, err
	}
	return append(files, file{"changelog.gz", 0o644, history}), nil
}

// packagedUnit returns the unit as a package installs it: without the comment that says how to
// install it by hand, and with the program where the package puts it.
func packagedUnit(unit string) (string, error) {
	_, sections, found := strings.Cut(unit, "[Unit]\n")
	if !found || strings.Count(sections, "/usr/local/bin/dlxctl") != 1 {
		return "", fmt.Errorf("templates/systemd/dlxctl.service has no [Unit], or not one path of dlxctl")
	}
	return "# The dlxctl processor as a systemd service. It needs /etc/dlxctl/topology.yaml, and\n" +
		"# RABBITMQ_URL in /etc/dlxctl/environment. Then: systemctl enable --now dlxctl\n" +
		"[Unit]\n" + strings.Replace(sections, "/usr/local/bin/dlxctl", "/usr/bin/dlxctl", 1), nil
}

// debianChangelog returns the changelog in the format of Debian, which has to be there.
func (r release) debianChangelog() string {
	return fmt.Sprintf("dlxctl (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n",
		strings.Replace(r.version, "-", "~", 1), maintainer, r.date.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// maintainer is who the packages name, as in packaging/nfpm.yaml.
const maintainer = "dlxctl maintainers <dlxctl@users.noreply.github.com>"

// compressed returns data as gzip -9n makes it.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// write writes a file with exactly its mode, and the time of the commit.
func (r release) write(folder string, f file) error {
	name := filepath.Join(folder, filepath.FromSlash(f.name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, f.data, fs.FileMode(0o600)); err != nil {
		return err
	}
	if err := os.Chmod(name, f.mode); err != nil { // whatever the umask
		return err
	}
	return os.Chtimes(name, r.date, r.date)
}
