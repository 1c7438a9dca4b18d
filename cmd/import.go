package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type importCommand struct {
	app     *app
	match   string
	split   string
	out     string // a file or a folder; empty and - are stdout
	force   bool
	as      string // the type that classic queues get
	options importer.Options
}

func newImport(a *app) *cobra.Command {
	k := importCommand{app: a}
	c := &cobra.Command{
		Use:   "import [live | DEFINITIONS.json...]",
		Short: "Write a topology file for a virtual host that exists",
		Long: `Write a topology file for the queues and exchanges that a virtual host has: on the broker
(live, the default; the user needs only the tag management), or in definitions that RabbitMQ
exported. import writes nothing to the broker, and never reads users, permissions and
parameters.

The file changes nothing: 'dlxctl plan' shows no changes. Each queue is external, with its
bindings as they are, and keeps the dead-lettering that it has. Comments propose retries and
dead-letter queues, as lines to uncomment. Retry queues and dead-letter queues that were made
by hand are recognized. What a topology file cannot declare is a comment at its end.

With --adopt, dlxctl declares the queues and exchanges itself, and sets the dead-lettering of
work queues. plan then shows what is blocked, because arguments of a queue cannot change.

With --adopt --as quorum, the file turns each classic queue that can be one into a quorum queue,
which 'dlxctl apply' replaces under its own name (replace: true), and changes nothing else. A
comment says of each other classic queue why it stays.

Definitions with several virtual hosts give a file for each that has queues or exchanges: pass
-o FOLDER, or --vhost.`,
		Example: `  dlxctl import > topology.yaml
  dlxctl import --match '^shop\.' -o shop.yaml
  dlxctl import definitions.json --split-by prefix -o topology/`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := noTopologyFiles(args); err != nil {
				return err
			}
			for name, flag := range map[string]string{"file": "-f", "overlay": "--overlay"} {
				if c.Flags().Changed(name) { // not by its variable, which is for all commands
					return usageError{fmt.Errorf("import reads no topology file; remove %s, or write a file with -o FILE", flag)}
				}
			}
			return k.run(c.Context(), args)
		},
	}
	f := c.Flags()
	f.StringVarP(&k.out, "output", "o", "", "write to the `FILE`, or to files in the folder (default: stdout)")
	f.StringVar(&k.match, "match", "", "import only queues whose names match `REGEX`, and the exchanges that they need")
	f.StringVar(&k.split, "split-by", "", "write several files, by `WORD`: prefix (of queue names) or owner (argument x-owner, owner, x-team or team)")
	f.StringVar(&k.options.Name, "name", "", "`NAME` of the topology (default: made of the names of the virtual host and the queues)")
	f.BoolVar(&k.options.Adopt, "adopt", false, "let dlxctl declare the queues and exchanges, and set their dead-lettering")
	f.StringVar(&k.as, "as", "", "with --adopt: turn classic queues into queues of `TYPE`, which is quorum, and change nothing else")
	f.BoolVar(&k.force, "force", false, "overwrite files that exist")
	return c
}

// noTopologyFiles refuses files that are named like topology files: import writes such a file, and
// reads none.
func noTopologyFiles(args []string) error {
	for _, path := range args {
		if isYAML(path) {
			return usageError{fmt.Errorf("%s is not a definitions file; import reads no topology file, and -o %s writes one",
				path, text.ShellQuote(path))}
		}
	}
	return nil
}

func (k *importCommand) check() error {
	k.options.Split = importer.Split(k.split)
	if !slices.Contains([]importer.Split{importer.SplitNone, importer.SplitPrefix, importer.SplitOwner}, k.options.Split) {
		return usageError{fmt.Errorf("--split-by is %q; write prefix or owner", k.split)}
	}
	switch {
	case k.as != "" && k.as != topology.Quorum:
		return usageError{fmt.Errorf("--as is %q; write quorum", k.as)}
	case k.as != "" && !k.options.Adopt:
		return usageError{errors.New("--as quorum needs --adopt, because dlxctl declares the new queues")}
	}
	k.options.Quorum = k.as != ""
	if slices.Contains([]string{"json", "markdown", "definitions"}, k.out) {
		return usageError{fmt.Errorf("-o is %q, and import has no output formats; pass -o FILE, such as -o topology.yaml", k.out)}
	}
	if k.out == "text" || k.out == "-" { // DLXCTL_OUTPUT may say text for all commands
		k.out = ""
	}
	if k.match == "" {
		return nil
	}
	var err error
	if k.options.Match, err = regexp.Compile(k.match); err != nil {
		return usageError{fmt.Errorf("--match is not a regular expression: %w", err)}
	}
	return nil
}

func (k *importCommand) run(ctx context.Context, args []string) error {
	if err := k.check(); err != nil {
		return err
	}
	states, err := k.read(ctx, args)
	if err != nil {
		return err
	}
	var results []importer.Result
	for _, state := range states {
		r, err := importer.Import(state, k.options)
		if err == nil && k.options.Quorum {
			r, err = k.suitable(state, r)
		}
		if err != nil {
			return fmt.Errorf("import vhost %q: %w", state.VHost, err)
		}
		if err := importer.Prove(state, r, k.options, k.app.env); err != nil {
			return err
		}
		results = append(results, r)
	}
	return k.write(withObjects(states, results))
}

// withObjects leaves out virtual hosts of which a file would declare nothing, unless all are so.
func withObjects(states []topology.State, results []importer.Result) ([]topology.State, []importer.Result) {
	var keptStates []topology.State
	var kept []importer.Result
	for i, r := range results {
		if r.Queues+r.Exchanges+r.LeftOut > 0 {
			keptStates, kept = append(keptStates, states[i]), append(kept, r)
		}
	}
	if len(kept) == 0 {
		return states, results
	}
	return keptStates, kept
}

// read returns the virtual hosts to import.
func (k *importCommand) read(ctx context.Context, args []string) ([]topology.State, error) {
	if len(args) == 0 || len(args) == 1 && args[0] == "live" {
		endpoint, err := k.app.conn.Resolve()
		if err != nil {
			return nil, err
		}
		s, err := apply.Open(endpoint, topology.Compiled{})
		if err != nil {
			return nil, err
		}
		defer s.Close()
		state, err := s.Management.Inspect(ctx)
		return []topology.State{state}, err
	}
	if len(args) == 1 {
		k.options.ReadFrom(args[0])
	}
	hosts, err := k.app.readDefinitions(args)
	if err != nil {
		return nil, err
	}
	var states []topology.State
	for _, h := range hosts {
		if h.Unnamed { // the file of one virtual host: its URL, or a flag, says which
			h.State.VHost = k.app.conn.VHost
		}
		states = append(states, h.State)
	}
	return states, nil
}

// suitable leaves out of an import with --as the queues that migrate would refuse to replace. Each
// has a comment that says why.
func (k *importCommand) suitable(state topology.State, r importer.Result) (importer.Result, error) {
	want, err := importer.Compile(state, r, k.app.env)
	if err != nil {
		return r, err
	}
	o := k.options
	o.Keep = map[string]string{}
	for name, why := range migrate.Unsuitable(want, state, r.Turned) {
		o.Keep[name] = "dlxctl refuses to replace it: " + why + "."
	}
	return importer.Import(state, o)
}

// target is a file to write.
type target struct {
	path string
	data []byte
}

// write writes all files, or the only one to stdout.
func (k *importCommand) write(states []topology.State, results []importer.Result) error {
	if k.out == "" {
		if len(results) > 1 || len(results[0].Files) > 1 {
			return usageError{errors.New("the import has several files; pass -o FOLDER, or choose with " + choice(results))}
		}
		_, err := k.app.stdout.Write(results[0].Files[0].Data)
		return err
	}
	targets, err := k.targets(states, results)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", t.path, reason(err))
		}
		if err := writeNew(t.path, t.data, k.force); err != nil {
			return err
		}
		fmt.Fprintf(k.app.stdout, "wrote %s\n", topology.Printable(t.path))
	}
	for i, r := range results {
		path := targets[0].path
		if len(r.Files) > 1 {
			path = filepath.Dir(path)
		}
		targets = targets[len(r.Files):]
		turned := ""
		if k.options.Quorum {
			turned = fmt.Sprintf("%d of %s become quorum queues; ", len(r.Turned),
				text.Count(len(r.Turned)+r.Classic, "classic queue"))
		}
		fmt.Fprintf(k.app.stdout, "vhost %s: %s, %s; %snext: dlxctl plan%s\n", text.Name(states[i].VHost),
			text.Count(r.Queues, "queue"), text.Count(r.Exchanges, "exchange"), turned, topology.Printable(fileFlag(path)))
	}
	return nil
}

// choice names the flags that make one file of an import with several.
func choice(results []importer.Result) string {
	if len(results) > 1 {
		return "--vhost"
	}
	return "--match, and leave out --split-by"
}

// targets says where each file goes: to the path of -o, or into the folder of that name. It fails
// if one of them exists and may not be overwritten, before anything is written.
func (k *importCommand) targets(states []topology.State, results []importer.Result) ([]target, error) {
	info, err := os.Stat(k.out)
	folder := err == nil && info.IsDir() || strings.HasSuffix(k.out, "/") || !isYAML(k.out)
	var out []target
	for i, r := range results {
		for _, f := range r.Files {
			path := k.out
			switch {
			case folder && len(results) == 1:
				path = filepath.Join(k.out, f.Name)
			case folder:
				path = filepath.Join(k.out, vhostFolder(states, i), f.Name)
			case len(results) > 1 || len(r.Files) > 1:
				return nil, usageError{fmt.Errorf("-o is the file %q, but the import has several files; pass -o FOLDER, or choose with %s",
					k.out, choice(results))}
			}
			out = append(out, target{path, f.Data})
		}
	}
	for _, t := range out {
		if _, err := os.Lstat(t.path); !k.force && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s exists already, and nothing was written; pass --force to overwrite it", t.path)
		}
	}
	return out, nil
}

// vhostFolder names the folder for a virtual host, a different one for each.
func vhostFolder(states []topology.State, i int) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(states[i].VHost, "-")
	if name = strings.Trim(name, "-"); name == "" {
		name = "default"
	}
	for j := range i {
		if vhostFolder(states, j) == name {
			return fmt.Sprintf("%s-%d", name, i+1)
		}
	}
	return name
}
