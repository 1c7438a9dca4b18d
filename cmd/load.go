package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// load reads the files of -f and compiles them into one topology. Warnings go
// to stderr.
func (a *app) load() (topology.Topology, error) {
	sources, err := a.sources(a.files...)
	if err != nil {
		return topology.Topology{}, err
	}
	return a.compileHere(sources)
}

// compileHere makes one topology of files, and takes the vhost from it unless it is
// given otherwise.
func (a *app) compileHere(sources []spec.Source) (topology.Topology, error) {
	t, err := a.compile(sources)
	if err == nil {
		a.conn.VHost = cmp.Or(a.conn.VHost, t.VHost)
	}
	return t, err
}

// compileUnmoved makes one topology of files without the successors of these legacy queues.
func (a *app) compileUnmoved(sources []spec.Source, legacy []string) (topology.Topology, error) {
	s, _, err := spec.Decode(sources, a.env)
	if err != nil {
		return topology.Topology{}, err
	}
	return spec.Compile(s.Without(func(q spec.Queue) bool {
		return q.Replaces != "" && slices.Contains(legacy, q.Replaces)
	}))
}

// compile makes one topology of files.
func (a *app) compile(sources []spec.Source) (topology.Topology, error) {
	t, warnings, err := spec.Load(sources, a.env)
	for _, w := range warnings {
		fmt.Fprintln(a.stderr, w)
	}
	return t, err
}

// loaded is one of several topologies, and the broker it is for.
type loaded struct {
	topology topology.Topology
	conn     broker.Config
}

// loadEach reads the files of -f as one topology each, if more than one of them
// says a name, and else as the parts of one.
func (a *app) loadEach() ([]loaded, error) {
	var parts [][]spec.Source
	named := 0
	for _, path := range a.files {
		sources, err := a.sources(path)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sources, spec.HasName) {
			named++
		}
		parts = append(parts, sources)
	}
	if named < 2 {
		parts = [][]spec.Source{slices.Concat(parts...)}
	}
	var out []loaded
	for _, sources := range parts {
		t, err := a.compile(sources)
		if err != nil {
			return nil, err
		}
		l := loaded{topology: t, conn: a.conn}
		l.conn.VHost = cmp.Or(a.conn.VHost, t.VHost)
		out = append(out, l)
	}
	return out, a.distinct(out)
}

// distinct refuses two files of one name and virtual host: each would be taken for the
// whole topology, and the queues of the other for unknown ones.
func (a *app) distinct(all []loaded) error {
	type place struct{ name, vhost string }
	first := map[place]string{}
	for i, l := range all {
		if len(all) == 1 {
			return nil
		}
		endpoint, err := l.conn.Resolve()
		if err != nil {
			return err
		}
		at := place{l.topology.Name, endpoint.VHost}
		if other, twice := first[at]; twice {
			return fmt.Errorf("%s and %s both have the name %q, for vhost %q: give one another name, or take name: out of one so that both are one topology", other, a.files[i], at.name, at.vhost)
		}
		first[at] = a.files[i]
	}
	return nil
}

// sources reads files, those of a folder by name.
func (a *app) sources(files ...string) ([]spec.Source, error) {
	var sources []spec.Source
	for _, path := range files {
		paths, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			s, err := a.source(p)
			if err != nil {
				return nil, err
			}
			sources = append(sources, s)
		}
	}
	return sources, nil
}

// expand gives the files that path stands for: itself, or the YAML files of a
// folder.
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
		return nil, fmt.Errorf("folder %s holds no .yaml or .yml file; subfolders are not read", path)
	}
	return files, nil
}

// isFolder reports whether path is a folder. What cannot be looked at is none:
// the error comes again, with advice, when it is read.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (a *app) source(path string) (spec.Source, error) {
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(a.stdin, spec.MaxFileBytes+1))
		if err != nil {
			return spec.Source{}, fmt.Errorf("read stdin: %w", err)
		}
		return spec.Source{Name: "stdin", Data: data}, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return spec.Source{}, fmt.Errorf("there is no file %s; 'dlxctl init' writes one to start from, -f names another", path)
	}
	if err != nil {
		return spec.Source{}, fmt.Errorf("read %s: %w", path, reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, spec.MaxFileBytes+1)) // one more than is taken: the decoder says it is too large
	if err != nil {
		return spec.Source{}, fmt.Errorf("read %s: %w", path, reason(err))
	}
	return spec.Source{Name: strings.TrimPrefix(filepath.ToSlash(path), "./"), Data: data}, nil
}

// reason takes the path out of a file error, whose text repeats it.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
