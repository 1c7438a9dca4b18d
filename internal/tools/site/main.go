// Command site builds the site: the page that audits a definitions file in the browser, and the
// documentation. It is a module of its own, so that the program does not depend on its Markdown
// library.
//
//	go -C internal/tools/site run . -version v1 ../../../bin/site
package main

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", "../../..", "`FOLDER` of the repository")
	version := flag.String("version", "devel", "`VERSION` that the page says")
	flag.Parse()
	err := errors.New("name one folder to write to")
	if flag.NArg() == 1 {
		err = build(*root, *version, flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "site: %v\n", err)
		os.Exit(1)
	}
}

// build writes the site into a folder. What a previous build left there is removed.
func build(root, version, out string) error {
	if err := clear(out); err != nil {
		return err
	}
	if err := program(root, version, filepath.Join(out, marker)); err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	files := map[string]string{
		filepath.Join(strings.TrimSpace(string(goroot)), "lib/wasm/wasm_exec.js"): "wasm_exec.js",
		filepath.Join(root, "NOTICE"): "NOTICE.txt",
	}
	for _, name := range []string{"style.css", "dom.js", "icon.svg"} { // one look, and one way to make elements
		files[filepath.Join(root, "internal/desk/page/assets", name)] = name
	}
	for pattern, folder := range map[string]string{
		"internal/site/assets/*": "", "testdata/real/*.json": "examples", "docs/images/*.*g": "docs/images",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no file matches %s: %w", pattern, err)
		}
		for _, path := range found {
			files[path] = filepath.Join(folder, filepath.Base(path))
		}
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(out, to), data); err != nil {
			return err
		}
	}
	return documentation(root, out)
}

// marker is a file that each site has.
const marker = "dlxctl.bin"

// clear removes a previous site. A folder with other files is not touched.
func clear(out string) error {
	entries, err := os.ReadDir(out)
	if os.IsNotExist(err) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, marker)); err != nil {
		return fmt.Errorf("%s has files and is not a site; name another folder", out)
	}
	return os.RemoveAll(out)
}

// program compiles dlxctl for the browser, and compresses it. The name of the file has no ending
// that a server takes for compressed content: some would unpack it, and some would not.
func program(root, version, to string) error {
	work, err := os.MkdirTemp("", "dlxctl-site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	plain := filepath.Join(work, "dlxctl.wasm")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version,
		"-o", plain, "./internal/site/wasm")
	c.Dir, c.Env, c.Stderr = root, append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0"), os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("compile for the browser: %w", err)
	}
	data, err := os.ReadFile(plain)
	if err != nil {
		return err
	}
	var packed strings.Builder
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return write(to, []byte(packed.String()))
}

// write writes a file, and the folders on its way.
func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
