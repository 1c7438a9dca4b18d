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
	edited, added := map[int]bool{}, ""
	for _, name := range legacy {
		if i, changed := replaced(sources, name, name+r.suffix); i >= 0 {
			edited[i] = true
			fmt.Fprintf(r.stdout, "%s: %s\n", sources[i].Name, changed)
			continue
		}
		entry, bindings, err := r.entry(ctx, want, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.stdout, "- %s\n", entry)
		if !r.write {
			added = name
			continue
		}
		if err := r.appendTo(sources, edited, want, entry, bindings); err != nil {
			return err
		}
	}
	if added != "" {
		return fmt.Errorf("%w: no queue of the file replaces %q; add the entry above to queues, and what exchanges it names to exchanges, with external: true if they are somebody else's, or let --write do it", migrate.ErrRefused, added)
	}
	if _, _, err := spec.Load(sources, r.env); err != nil {
		fmt.Fprintln(r.stderr, "the edited file would be wrong, so nothing was written; give another --suffix, or edit it by hand:")
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

// appendTo adds an entry to the queues of the first file that has some, and the exchanges that it
// names and no file declares to its exchanges: they exist, and belong to somebody else until a
// person says otherwise. It notes which files it has edited.
func (r *migrator) appendTo(sources []spec.Source, edited map[int]bool, want topology.Topology, entry string, bindings []topology.Binding) error {
	at := max(0, slices.IndexFunc(sources, func(f spec.Source) bool { return spec.HasList(f, "queues") }))
	if err := edit(&sources[at], "queues", entry); err != nil {
		return err
	}
	edited[at] = true
	for _, b := range bindings {
		declared := slices.ContainsFunc(want.Exchanges, func(e topology.Exchange) bool { return e.Name == b.Source })
		if declared || slices.Contains(r.declared, b.Source) {
			continue
		}
		r.declared = append(r.declared, b.Source)
		exchange := fmt.Sprintf("{name: %s, external: true}", spec.Quoted(b.Source))
		in := at
		if i := slices.IndexFunc(sources, func(f spec.Source) bool { return spec.HasList(f, "exchanges") }); i >= 0 {
			in = i
		}
		if err := edit(&sources[in], "exchanges", exchange); err != nil {
			return err
		}
		edited[in] = true
		fmt.Fprintf(r.stdout, "- %s\n", exchange)
	}
	return nil
}

// edit adds an entry to a list of a file, in memory.
func edit(f *spec.Source, key, entry string) error {
	data, ok := spec.Append(*f, key, entry)
	if !ok {
		return fmt.Errorf("%w: %s cannot be edited in place: add this to its %s by hand: %s", migrate.ErrRefused, f.Name, key, entry)
	}
	f.Data = data
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

// entry gives the entry of queues for a queue that the file does not have, with the bindings
// that it has on the broker.
func (r *migrator) entry(ctx context.Context, want topology.Topology, legacy string) (string, []topology.Binding, error) {
	m, err := r.management(want)
	if err != nil {
		return "", nil, err
	}
	defer m.Close()
	state, err := m.Inspect(ctx)
	if err != nil {
		return "", nil, err
	}
	if !slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == legacy }) {
		return "", nil, fmt.Errorf("%w: there is no queue %q in the virtual host, and no queue of the file replaces it", migrate.ErrRefused, legacy)
	}
	var bindings []topology.Binding
	for _, b := range state.Have.Bindings {
		if b.Destination == legacy && b.DestinationType == topology.ToQueue {
			bindings = append(bindings, b)
		}
	}
	entry, err := spec.Entry(legacy+r.suffix, legacy, bindings)
	return entry, bindings, err
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
