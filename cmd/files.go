package cmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// hasNoFile reports whether no topology file is named, and none is in the working directory.
func (a *app) hasNoFile() bool {
	if a.named || len(a.overlays) > 0 {
		return false
	}
	_, err := os.Stat(a.paths[0])
	return errors.Is(err, fs.ErrNotExist)
}

// loader reads the topology files of -f, and compiles them. Warnings go to stderr.
type loader struct {
	paths  []string // the values of -f: files, folders, or - for stdin
	over   []string // the values of --overlay: files, or - for stdin
	stdin  io.Reader
	stderr io.Writer
	env    func(string) (string, bool)
	conn   connection // for the virtual hosts of the files
}

func (a *app) files() loader {
	return loader{paths: a.paths, over: a.overlays, stdin: a.stdin, stderr: a.stderr, env: a.env, conn: a.conn}
}

// load reads the files of -f as one topology.
func (l loader) load() (topology.Compiled, error) {
	sources, err := l.read()
	if err != nil {
		return topology.Compiled{}, err
	}
	return l.compile(sources)
}

// loadEach reads each value of -f as a topology, if more than one of them sets `name`, and
// otherwise all values as one topology.
func (l loader) loadEach() ([]topology.Compiled, error) {
	in, err := l.readParts()
	if err != nil {
		return nil, err
	}
	return l.compileEach(in)
}

// compile compiles files into one topology.
func (l loader) compile(sources []spec.Source) (topology.Compiled, error) {
	t, warnings, err := spec.Load(sources, l.env)
	l.warn(warnings)
	return t, err
}

// deskFile is the file of the working directory that says how bodies are read and what is masked in
// them where there is no topology file.
const deskFile = "desk.yaml"

// messages reads the key messages of desk.yaml, the only one that it may have. It reports false if
// there is no such file.
func (l loader) messages() (m topology.Messages, found bool, err error) {
	if _, err := os.Stat(deskFile); errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	file, err := readFile(deskFile, nil)
	if err != nil {
		return m, true, err
	}
	for _, key := range spec.RootKeys(file) {
		if key != "messages" {
			return m, true, fmt.Errorf("%s has the key %q, and may have only messages; remove the key, or name a topology file with -f",
				deskFile, key)
		}
	}
	file.Overlay = true // it has no version
	head := spec.Source{Name: "dlxctl", Data: []byte("version: 1\nname: " + topology.DeskName + "\n")}
	t, warnings, err := spec.Load([]spec.Source{head, file}, l.env)
	for _, w := range warnings {
		if w.File == deskFile { // and not that there are no queues
			l.warn([]spec.Problem{w})
		}
	}
	if err == nil && len(spec.RootKeys(file)) == 0 {
		err = fmt.Errorf("%s is empty; write messages, or remove the file", deskFile)
	}
	return t.Messages, true, err
}

func (l loader) warn(warnings []spec.Problem) {
	for _, w := range warnings {
		fmt.Fprintln(l.stderr, w)
	}
}

// compileWithout compiles files into one topology, without the successors of these legacy
// queues.
func (l loader) compileWithout(sources []spec.Source, legacy []string) (topology.Compiled, error) {
	s, _, err := spec.Decode(sources, l.env)
	if err != nil {
		return topology.Compiled{}, err
	}
	return spec.Compile(s.Without(func(q spec.Queue) bool {
		return q.Replaces != "" && slices.Contains(legacy, q.Replaces)
	}))
}

// compileEach compiles the files of each value of -f; see loadEach. The overlays are for each
// topology, and may name what one of them has.
func (l loader) compileEach(in input) ([]topology.Compiled, error) {
	named := 0
	for _, sources := range in.parts {
		if slices.ContainsFunc(sources, spec.HasName) {
			named++
		}
	}
	if named < 2 {
		t, err := l.compile(in.sources())
		return []topology.Compiled{t}, err
	}
	var all []topology.Compiled
	for i := range in.parts {
		t, err := l.compile(in.part(i))
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, l.checkDistinct(all)
}

// checkDistinct refuses two values of -f with the same name and virtual host: each would
// be the whole topology, and the queues of the other would be unknown in it.
func (l loader) checkDistinct(all []topology.Compiled) error {
	type place struct{ name, vhost string }
	first := map[place]string{}
	for i, t := range all {
		endpoint, err := l.conn.endpoint(t)
		if err != nil {
			return err
		}
		at := place{t.Name, endpoint.VHost}
		if other, twice := first[at]; twice {
			return fmt.Errorf("%s and %s both have the name %q for vhost %q; rename one of them, or remove `name` from one so that both form one topology", other, l.paths[i], at.name, at.vhost)
		}
		first[at] = l.paths[i]
	}
	return nil
}

// input is what the flags name: the files of each value of -f, and the overlays.
type input struct {
	parts    [][]spec.Source
	overlays []spec.Source
}

// sources returns all files as those of one topology.
func (in input) sources() []spec.Source {
	return slices.Concat(slices.Concat(in.parts...), in.overlays)
}

// content returns the names and the content of all files, to compare.
func (in input) content() string {
	var b strings.Builder
	for _, s := range in.sources() {
		fmt.Fprintf(&b, "%q %q\n", s.Name, s.Data)
	}
	return b.String()
}

// part returns the files of one value of -f as a topology next to the others.
func (in input) part(i int) []spec.Source {
	others := slices.Concat(slices.Concat(in.parts[:i]...), slices.Concat(in.parts[i+1:]...))
	sources := slices.Clone(in.parts[i])
	for _, o := range in.overlays {
		o.Others = others
		sources = append(sources, o)
	}
	return sources
}

// read reads the files of -f and the overlays.
func (l loader) read() ([]spec.Source, error) {
	in, err := l.readParts()
	return in.sources(), err
}

// readParts reads the files of each value of -f, those of a folder by name, and the overlays.
func (l loader) readParts() (input, error) {
	var in input
	if slices.Contains(l.paths, "-") && slices.Contains(l.over, "-") {
		return in, usageError{errors.New("-f and --overlay are both stdin; name a file with one of them")}
	}
	for name, paths := range map[string][]string{"file": l.paths, "overlay": l.over} {
		if slices.Contains(paths, "") {
			return in, usageError{fmt.Errorf("--%s is empty; name a file, or remove the flag", name)}
		}
	}
	from := map[string]string{} // the value of -f, by file
	for _, path := range l.paths {
		paths, err := expand(path)
		if err != nil {
			return in, err
		}
		var sources []spec.Source
		for _, p := range paths {
			if other, twice := from[filepath.Clean(p)]; twice {
				return in, usageError{fmt.Errorf("%s is read twice, by -f %s and by -f %s; remove one of them", p, other, path)}
			}
			from[filepath.Clean(p)] = path
			s, err := readFile(p, l.stdin)
			if err != nil {
				return in, err
			}
			sources = append(sources, s)
		}
		in.parts = append(in.parts, sources)
	}
	for _, path := range l.over {
		s, err := l.readOverlay(path)
		if err != nil {
			return in, err
		}
		in.overlays = append(in.overlays, s)
	}
	return in, nil
}

func (l loader) readOverlay(path string) (spec.Source, error) {
	if path != "-" && isFolder(path) {
		return spec.Source{}, fmt.Errorf("--overlay %s is a folder; name its files, each with --overlay", path)
	}
	if _, err := os.Stat(path); path != "-" && errors.Is(err, fs.ErrNotExist) {
		return spec.Source{}, fmt.Errorf("overlay %s does not exist; check --overlay and DLXCTL_OVERLAY", path)
	}
	s, err := readFile(path, l.stdin)
	s.Overlay = true
	return s, err
}

// expand returns the files of a path: the path itself, or the YAML files of a folder.
func expand(path string) ([]string, error) {
	if path == "-" || !isFolder(path) {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, reason(err))
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && isYAML(e.Name()) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("folder %s has no .yaml or .yml files; subfolders are not read", path)
	}
	return files, nil
}

// isFolder reports whether path is a folder. An error is not reported: reading the path
// fails again, with a fix.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isYAML reports whether path has the extension of a YAML file.
func isYAML(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".yaml" || ext == ".yml"
}

// readFile reads one file, or stdin for "-".
func readFile(path string, stdin io.Reader) (spec.Source, error) {
	const limit = spec.MaxFileBytes + 1 // one more than is allowed: the decoder reports that the file is too large
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, limit))
		if err != nil {
			return spec.Source{}, fmt.Errorf("read stdin: %w", err)
		}
		return spec.Source{Name: "stdin", Data: data}, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && path == "topology.yaml" && isFolder("topology") {
		return spec.Source{}, errors.New("file topology.yaml does not exist; -f topology reads the folder topology")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return spec.Source{}, fmt.Errorf("file %s does not exist; 'dlxctl init' creates one, -f names another", path)
	}
	if err != nil {
		return spec.Source{}, fmt.Errorf("read %s: %w", path, reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return spec.Source{}, fmt.Errorf("read %s: %w", path, reason(err))
	}
	return spec.Source{Name: strings.TrimPrefix(filepath.ToSlash(path), "./"), Data: data}, nil
}

// reason removes the path from a file error, whose text repeats it.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
