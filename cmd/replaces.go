package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dlxctl/dlxctl/migrate"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// unnamed gives those of legacy that no queue of the file replaces.
func unnamed(want topology.Topology, legacy []string) []string {
	return slices.DeleteFunc(slices.Clone(legacy), func(name string) bool {
		return slices.ContainsFunc(want.Works, func(w topology.Work) bool { return w.Replaces == name })
	})
}

// propose prints what the file must say for these queues to be moved, or writes
// it there. It moves nothing: only what the file says is moved.
func (r *migrator) propose(ctx context.Context, sources []spec.Source, want topology.Topology, legacy []string) error {
	edited := map[int]bool{}
	for _, name := range legacy {
		i, changed := replaced(sources, name, name+r.suffix)
		if i < 0 {
			return r.proposeNew(ctx, want, name)
		}
		edited[i] = true
		fmt.Fprintf(r.stdout, "%s: %s\n", sources[i].Name, changed)
	}
	if _, _, err := spec.Load(sources, r.env); err != nil {
		fmt.Fprintln(r.stderr, "the edited file would be wrong, so nothing was written; give another --suffix:")
		return err
	}
	if !r.write {
		return fmt.Errorf("%w: the file does not say so yet; write the line above, or let --write do it", migrate.ErrRefused)
	}
	for i := range edited {
		if err := overwrite(sources[i]); err != nil {
			return err
		}
		fmt.Fprintf(r.stdout, "wrote %s; nothing was moved: read the difference, then run migrate without --write\n", sources[i].Name)
	}
	return nil
}

// replaced edits the file that has the queue legacy, and gives its index, -1 if
// none has it, and the lines that changed.
func replaced(sources []spec.Source, legacy, successor string) (int, string) {
	for i, f := range sources {
		if data, changed, ok := spec.Replace(f, legacy, successor); ok {
			sources[i].Data = data
			return i, changed
		}
	}
	return -1, ""
}

// proposeNew prints an entry for a queue that the file does not have, with the
// bindings that it has on the broker.
func (r *migrator) proposeNew(ctx context.Context, want topology.Topology, legacy string) error {
	m, err := r.management(want)
	if err != nil {
		return err
	}
	defer m.Close()
	state, err := m.Inspect(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == legacy }) {
		return fmt.Errorf("%w: there is no queue %q in the virtual host, and no queue of the file replaces it", migrate.ErrRefused, legacy)
	}
	var bindings []topology.Binding
	for _, b := range state.Have.Bindings {
		if b.Destination == legacy && b.DestinationType == topology.ToQueue {
			bindings = append(bindings, b)
		}
	}
	entry, err := spec.Entry(legacy+r.suffix, legacy, bindings)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "- %s\n", entry)
	return fmt.Errorf("%w: no queue of the file replaces %q; add the entry above to queues, and what exchanges it names to exchanges, with external: true if they are somebody else's", migrate.ErrRefused, legacy)
}

// overwrite writes an edited file in one step, so that no half of it is ever
// there. A link stays one.
func overwrite(f spec.Source) error {
	if f.Name == "stdin" {
		return usageError{errors.New("--write has no file to write to: -f is stdin")}
	}
	path, err := filepath.EvalSymlinks(filepath.FromSlash(f.Name))
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".dlxctl-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, reason(err))
	}
	_, err = temporary.Write(f.Data)
	err = errors.Join(err, temporary.Chmod(info.Mode().Perm()), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name()) // the error says more
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	return nil
}
