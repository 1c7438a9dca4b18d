package brokertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// program is dlxctl, built when the first test asks for it.
//
//nolint:gochecknoglobals // a test binary has one, as it has one shared node
var program struct {
	sync.Mutex
	dir, path string
	err       error
}

// Program builds dlxctl once for all tests of a package, and returns the path of the
// executable. [Main] deletes it.
func Program(tb testing.TB) string {
	tb.Helper()
	program.Lock()
	defer program.Unlock()
	if program.path == "" && program.err == nil {
		// The program outlives the test that happens to ask first.
		program.path, program.err = build(context.WithoutCancel(tb.Context()))
	}
	if program.err != nil {
		tb.Fatalf("brokertest: no dlxctl: %v", program.err)
	}
	return program.path
}

// build builds dlxctl into a new directory. Its caller holds program.
func build(ctx context.Context) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	if program.dir, err = os.MkdirTemp("", "dlxctl-program-"); err != nil {
		return "", err
	}
	path := filepath.Join(program.dir, "dlxctl")
	arguments := []string{"build", "-o", path}
	if tick != standardTick {
		arguments = append(arguments, "-tags", "shortticks")
	}
	command := exec.CommandContext(ctx, "go", append(arguments, ".")...)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// removeProgram deletes what Program built.
func removeProgram() error {
	program.Lock()
	defer program.Unlock()
	if program.dir == "" {
		return nil
	}
	return os.RemoveAll(program.dir)
}
