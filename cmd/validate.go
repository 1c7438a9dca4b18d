package cmd

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
)

type validateCommand struct {
	app      *app
	strict   bool
	rabbitMQ string
}

func newValidate(a *app) *cobra.Command {
	k := validateCommand{app: a}
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check topology files without a broker",
		Long: "Check the topology files without a broker. All problems are shown at once, each with its\nposition and a fix.\n\n" +
			"Probable mistakes are warnings: odd-exchange-type, ignored-key, unused-backoff,\nno-queues, unknown-argument. With --strict, validate fails if there are warnings.\n\n" +
			"Files that 'messages' names under protoset and proto must exist.\n\n" +
			"Arguments of queues that every supported line of RabbitMQ refuses are problems. With\n--rabbitmq, so are those that this line refuses.\n\n" + spec.Limits(),
		Example:     "  dlxctl validate -f orders.yaml\n  dlxctl validate -f topology/ -o json\n  dlxctl validate --strict --rabbitmq 4.3",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE:        func(*cobra.Command, []string) error { return k.run() },
	}
	c.Flags().BoolVar(&k.strict, "strict", false, "exit with 1 if there are warnings, for use in CI")
	c.Flags().StringVar(&k.rabbitMQ, "rabbitmq", "", "`VERSION` of RabbitMQ, such as 4.3, that must accept the arguments of the queues")
	return c
}

func (k *validateCommand) run() error {
	if k.rabbitMQ != "" && !regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`).MatchString(k.rabbitMQ) {
		return usageError{fmt.Errorf("--rabbitmq is %q; write a version such as 4.3 or 4.3.6", k.rabbitMQ)}
	}
	files := k.app.files()
	sources, err := files.read()
	if err != nil {
		return err
	}
	t, warnings, err := spec.LoadFor(k.rabbitMQ, sources, k.app.env)
	if err == nil {
		err = checkSchemas(sources, k.app.env)
	}
	if k.app.output == "json" {
		return k.writeJSON(warnings, err)
	}
	files.warn(warnings)
	if err == nil && k.strict {
		err = strictly(warnings)
	}
	if err != nil {
		return err
	}
	delays := ""
	if n := len(t.Delays); n > 0 {
		delays = ", " + text.Count(n, "delay")
	}
	fmt.Fprintf(k.app.stdout, "topology %s is valid: %s, %s%s; compiles to %s, %s, %s\n", t.Name,
		text.Count(len(t.WorkQueues), "work queue"), text.Count(len(t.Backoffs)+len(t.Native), "backoff"), delays,
		text.Count(len(t.Exchanges), "exchange"), text.Count(len(t.Queues), "queue"), text.Count(len(t.Bindings), "binding"))
	return nil
}

// checkSchemas refuses files with schemas that do not exist: the commands that show messages need
// them.
func checkSchemas(sources []spec.Source, env func(string) (string, bool)) error {
	s, _, err := spec.Decode(sources, env)
	if err != nil {
		return err
	}
	relative := map[string]string{"protoset": "the folder of this file", "proto": "importPaths"}
	var problems []spec.Problem
	for _, schema := range s.Schemas {
		exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
		if !slices.ContainsFunc(schema.Paths, exists) {
			problems = append(problems, spec.Problem{
				Pos: schema.Pos,
				Msg: fmt.Sprintf("the %s %q does not exist: dlxctl looked for %s", schema.Key, schema.Name, text.Or(schema.Paths)),
				Fix: "create it, or correct the name, which is relative to " + relative[schema.Key],
			})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &spec.Error{Problems: problems}
}

// strictly returns an error for warnings, which are printed already.
func strictly(warnings []spec.Problem) error {
	if len(warnings) == 0 {
		return nil
	}
	return fmt.Errorf("%s; --strict accepts none", text.Count(len(warnings), "warning"))
}

// validationJSON says what is wrong with topology files, as scripts read it.
type validationJSON struct {
	Version int `json:"version"`
	// Valid reports that the files are valid, and with --strict that there are no warnings.
	Valid    bool           `json:"valid"`
	Problems []spec.Problem `json:"problems"`
	// Warnings are probable mistakes.
	Warnings []spec.Problem `json:"warnings"`
}

// writeJSON writes warnings and the problems of err, and returns err.
func (k *validateCommand) writeJSON(warnings []spec.Problem, err error) error {
	broken, ok := errors.AsType[*spec.Error](err)
	if err != nil && !ok {
		return err
	}
	if err == nil && k.strict {
		err = strictly(warnings)
	}
	// The problems are printed here, and once more on stderr by Main.
	out := validationJSON{Version: 1, Valid: err == nil, Warnings: warnings}
	if broken != nil {
		out.Problems = broken.Problems
	}
	return errors.Join(jsondoc.Write(k.app.stdout, out), err)
}
