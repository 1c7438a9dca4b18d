package cmd

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/spec"
)

func (a *app) validateCommand() *cobra.Command {
	strict := false
	c := &cobra.Command{
		Use:   "validate",
		Short: "Check files, offline",
		Long: "Check the topology files without a broker. Every problem is shown at once, each with its place and the remedy.\n\n" +
			"What is odd is a warning: odd-exchange-type, ignored-key, unused-backoff, no-queues. --strict takes none.\n\n" + spec.Limits(),
		Example:     "  dlxctl validate -f orders.yaml\n  dlxctl validate -f topology/ -o json\n  dlxctl validate --strict",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json"},
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return a.validateJSON(strict)
			}
			sources, err := a.sources(a.files...)
			if err != nil {
				return err
			}
			t, warnings, err := spec.Load(sources, a.env)
			for _, w := range warnings {
				fmt.Fprintln(a.stderr, w)
			}
			if err == nil && strict {
				err = strictly(warnings)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "topology %s is valid: %s, %s; it becomes %s, %s, %s\n", t.Name,
				count(len(t.Works), "work queue"), count(len(t.Loops), "backoff"),
				count(len(t.Exchanges), "exchange"), count(len(t.Queues), "queue"), count(len(t.Bindings), "binding"))
			return nil
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 if there are warnings, as for pipelines")
	return c
}

// strictly makes an error of warnings, which are printed already.
func strictly(warnings []spec.Problem) error {
	if len(warnings) == 0 {
		return nil
	}
	return fmt.Errorf("%s, and --strict takes none", count(len(warnings), "warning"))
}

// problemJSON is a problem as scripts read it.
type problemJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Warning string `json:"warning,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func (a *app) validateJSON(strict bool) error {
	sources, err := a.sources(a.files...)
	if err != nil {
		return err
	}
	_, warnings, err := spec.Load(sources, a.env)
	var broken *spec.Error
	if err != nil && !errors.As(err, &broken) {
		return err
	}
	if err == nil && strict {
		err = strictly(warnings)
	}
	// The problems are printed here, and once more on stderr by Main.
	out := struct {
		Version  int           `json:"version"`
		Valid    bool          `json:"valid"`
		Problems []problemJSON `json:"problems"`
		Warnings []problemJSON `json:"warnings"`
	}{Version: 1, Valid: err == nil, Problems: []problemJSON{}, Warnings: []problemJSON{}}
	if broken != nil {
		out.Problems = append(out.Problems, problemsJSON(broken.Problems)...)
	}
	out.Warnings = append(out.Warnings, problemsJSON(warnings)...)
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return errors.Join(enc.Encode(out), err)
}

func problemsJSON(problems []spec.Problem) []problemJSON {
	out := make([]problemJSON, 0, len(problems))
	for _, p := range problems {
		out = append(out, problemJSON{File: p.File, Line: p.Line, Column: p.Col, Warning: p.Name, Message: p.Msg, Remedy: p.Fix})
	}
	return out
}

// count gives "1 queue" or "2 queues".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
