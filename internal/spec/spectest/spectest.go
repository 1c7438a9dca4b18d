// Package spectest compiles topology files for tests.
package spectest

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// Compile returns what a topology file compiles to. It fails the test if the file is wrong. No
// environment variable is set in it.
func Compile(tb testing.TB, text string) topology.Compiled {
	tb.Helper()
	top, _ := CompileFile(tb, "topology.yaml", []byte(text))
	return top
}

// CompileFile compiles as [Compile] does and returns the warnings as well, which cite the name.
func CompileFile(tb testing.TB, name string, text []byte) (topology.Compiled, []spec.Problem) {
	tb.Helper()
	top, warnings, err := spec.Load([]spec.Source{{Name: name, Data: text}}, NoVariables)
	if err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	return top, warnings
}

// NoVariables is an environment without variables.
func NoVariables(string) (string, bool) { return "", false }
