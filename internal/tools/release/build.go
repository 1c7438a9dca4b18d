package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// target is a platform that a release has files for, in the words of Go.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// executable returns the name of the program.
func (t target) executable() string {
	if t.os == "windows" {
		return "dlxctl.exe"
	}
	return "dlxctl"
}

// allTargets returns all platforms of a release.
func allTargets() []target {
	var all []target
	for _, system := range []string{"linux", "darwin", "windows"} {
		all = append(all, target{system, "amd64"}, target{system, "arm64"})
	}
	return all
}

// choose returns the targets of a list such as "linux/amd64,darwin/arm64". An empty list is all.
func choose(list string) ([]target, error) {
	if list == "" {
		return allTargets(), nil
	}
	var chosen []target
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(allTargets(), func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no %q; the platforms are %v", name, allTargets())
		}
		chosen = append(chosen, allTargets()[i])
	}
	return chosen, nil
}

// build returns the program for a target, as make build makes it.
func (r release) build(ctx context.Context, t target) ([]byte, error) {
	path := filepath.Join(r.work, t.os+"_"+t.arch, t.executable())
	c := exec.CommandContext(ctx, "make", "--silent", "build", "OUT="+path,
		"VERSION="+r.described, "COMMIT="+r.commit, "DATE="+r.date.Format("2006-01-02T15:04:05Z"))
	c.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch)
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", t, err, out)
	}
	return os.ReadFile(path)
}

// ask returns what dlxctl prints. It is the one for this machine, which is built if it has to be.
func (r release) ask(ctx context.Context, args ...string) ([]byte, error) {
	here := target{runtime.GOOS, runtime.GOARCH}
	program := filepath.Join(r.work, here.os+"_"+here.arch, here.executable())
	if _, err := os.Stat(program); err != nil {
		if _, err := r.build(ctx, here); err != nil {
			return nil, err
		}
	}
	var problem bytes.Buffer
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+r.epoch())
	c.Stderr = &problem
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("dlxctl %s: %w\n%s", strings.Join(args, " "), err, problem.String())
	}
	return out, nil
}

// texts returns what is next to the program on every platform: the license, examples, and what the
// program prints about itself.
func (r release) texts(ctx context.Context) ([]file, error) {
	var all []file
	for _, name := range []string{"LICENSE", "NOTICE", "CHANGELOG.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, file{name, 0o644, data})
	}
	for shell, name := range map[string]string{
		"bash": "dlxctl.bash", "zsh": "_dlxctl", "fish": "dlxctl.fish", "powershell": "dlxctl.ps1",
	} {
		data, err := r.ask(ctx, "completion", shell)
		if err != nil {
			return nil, err
		}
		all = append(all, file{"completions/" + name, 0o644, data})
	}
	for _, starter := range []string{"minimal", "full"} {
		data, err := os.ReadFile("templates/starters/" + starter + ".yaml")
		if err != nil {
			return nil, err
		}
		all = append(all, file{"examples/" + starter + ".yaml", 0o644, data})
	}
	manual := filepath.Join(r.work, "man")
	if _, err := r.ask(ctx, "man", manual); err != nil {
		return nil, err
	}
	pages, err := filepath.Glob(filepath.Join(manual, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		all = append(all, file{"man/man1/" + filepath.Base(page), 0o644, data})
	}
	slices.SortFunc(all, byName)
	return all, nil
}

// epoch returns the time of the commit as SOURCE_DATE_EPOCH has it.
func (r release) epoch() string { return strconv.FormatInt(r.date.Unix(), 10) }
