// Command licenses writes NOTICE: the modules that are linked into dlxctl on the platforms of a
// release, the license of each, and its text, as most of the licenses demand. It refuses a license
// that is not in the list of those that are allowed.
//
//	licenses NOTICE          writes the file ("make notice")
//	licenses -check NOTICE   compares it, and changes nothing ("make lint")
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	check := len(args) > 0 && args[0] == "-check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 {
		return errors.New("usage: licenses [-check] FILE")
	}
	modules, err := linked(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for _, m := range modules {
		faults = append(faults, m.allowed())
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	want := notice(modules)
	if !check {
		return os.WriteFile(args[0], want, 0o644) //nolint:gosec // all may read it
	}
	got, err := os.ReadFile(args[0])
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s is out of date; run: make notice", args[0])
	}
	return nil
}

// module is a module that is linked into dlxctl.
type module struct {
	path, version string
	// texts are its licenses, by their path in the module: of the module, and of the packages that
	// are linked, where these have their own.
	texts map[string]string
}

// linked returns the modules of all platforms, by path, and Go itself.
func linked(ctx context.Context) ([]module, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	standard := module{path: "Go and its standard library", texts: map[string]string{}}
	if err := standard.read(strings.TrimSpace(string(goroot)), "."); err != nil {
		return nil, err
	}
	found := map[string]module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		packages, err := listed(ctx, system)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if p.Module == nil || p.Module.Main {
				continue
			}
			m, ok := found[p.Module.Path]
			if !ok {
				m = module{p.Module.Path, p.Module.Version, map[string]string{}}
			}
			within, err := filepath.Rel(p.Module.Dir, p.Dir)
			if err != nil {
				return nil, err
			}
			for ; ; within = filepath.Dir(within) { // a license counts for the folders below it
				if err := m.read(p.Module.Dir, within); err != nil {
					return nil, err
				}
				if within == "." {
					break
				}
			}
			found[m.path] = m
		}
	}
	all := []module{standard}
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all[1:], func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// list is a package as go list prints it.
type list struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// listed returns the packages of dlxctl on a system, without those of Go.
func listed(ctx context.Context, system string) ([]list, error) {
	c := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module", ".")
	c.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []list
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p list
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// read adds the license files of a folder of the module.
func (m module) read(root, folder string) error {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		base, _, _ := strings.Cut(name, ".")
		if e.IsDir() || !slices.Contains([]string{"LICENSE", "COPYING", "NOTICE", "PATENTS"}, base) ||
			strings.HasSuffix(name, ".GO") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, folder, e.Name()))
		if err != nil {
			return err
		}
		m.texts[filepath.ToSlash(filepath.Join(folder, e.Name()))] = strings.ReplaceAll(string(data), "\r\n", "\n")
	}
	return nil
}
