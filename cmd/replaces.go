package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// unnamed returns the legacy queues that no queue of the file replaces.
func unnamed(want topology.Compiled, legacy []string) []string {
	return slices.DeleteFunc(slices.Clone(legacy), func(name string) bool {
		return slices.ContainsFunc(want.WorkQueues, func(w topology.WorkQueue) bool { return w.Replaces == name })
	})
}

// matching returns the named queues, and those that --match chooses: of the queues for which import
// proposes a successor with --write, and else of the queues of the file, and of those that they
// replace.
func (k *migrateCommand) matching(sources []spec.Source, want topology.Compiled, legacy []string) ([]string, error) {
	if k.match == "" {
		return legacy, nil
	}
	match, err := regexp.Compile(k.match)
	if err != nil {
		return nil, usageError{fmt.Errorf("--match is not a regular expression: %w", err)}
	}
	if !k.write {
		return k.matchingFile(want, match, legacy)
	}
	found := spec.Proposed(sources, match)
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no queue that matches %q is external and has the successor that import proposes in comments; name the queues",
			migrate.ErrRefused, k.match)
	}
	all := slices.Sorted(slices.Values(slices.Concat(legacy, found)))
	return slices.Compact(all), nil
}

// matchingFile returns the named queues, and those of the file that match. One that is named or
// matches under either of its names is moved to its successor.
func (k *migrateCommand) matchingFile(want topology.Compiled, match *regexp.Regexp, legacy []string) ([]string, error) {
	own, found := ownQueues(want), 0
	all := slices.Clone(legacy)
	add := func(name string) {
		found++
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, w := range want.WorkQueues {
		matches := match.MatchString(w.Name)
		if w.Replaces != "" && (matches || match.MatchString(w.Replaces)) {
			add(w.Replaces)
		}
		if matches && slices.Contains(own, w.Name) {
			add(w.Name)
		}
	}
	if found == 0 {
		return nil, fmt.Errorf("%w: no queue of the file, and none that the file replaces, has a name that matches %q",
			migrate.ErrRefused, k.match)
	}
	return all, nil
}

// propose prints the entries that the file needs for these queues to be moved, or writes
// them to the file. It moves nothing: migrate moves only queues that the file replaces.
func (k *migrateCommand) propose(
	ctx context.Context, sources []spec.Source, want topology.Compiled, legacy []string,
) error {
	edit, missing := spec.NewSuccessors(sources, want.Exchanges), ""
	for _, name := range legacy {
		if line, ok := edit.Rename(name, name+k.suffix); ok {
			fmt.Fprintln(k.app.stdout, line)
			continue
		}
		entry, bindings, err := k.entry(ctx, sources, want, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(k.app.stdout, "- %s\n", entry)
		if !k.write {
			missing = name
			continue
		}
		exchanges, err := edit.Add(entry, bindings)
		if err != nil {
			return fmt.Errorf("%w: %w", migrate.ErrRefused, err)
		}
		for _, exchange := range exchanges {
			fmt.Fprintf(k.app.stdout, "- %s\n", exchange)
		}
	}
	if missing != "" {
		return fmt.Errorf("%w: no queue of the file replaces %q; add the entry above to `queues` and its exchanges to `exchanges` (external: true if another team owns them), or pass --write", migrate.ErrRefused, missing)
	}
	if _, _, err := spec.Load(edit.Sources(), k.app.env); err != nil {
		fmt.Fprintln(k.app.stderr,
			"the edited file would be invalid, so nothing was written; pass another --suffix, or edit the file by hand:")
		return err
	}
	if !k.write {
		same := ""
		if own := ownQueues(want); slices.Contains(own, legacy[0]) {
			same = fmt.Sprintf("; or replace the queue under its own name, where RabbitMQ cannot change it: dlxctl migrate %s %s",
				text.ShellQuote(legacy[0]), plan.Consent{Hazard: topology.ReplacesQueue, Object: legacy[0]}.Flag())
		}
		return fmt.Errorf("%w: the file does not replace the queue yet; change it as shown above, or pass --write%s",
			migrate.ErrRefused, same)
	}
	for _, f := range edit.Edited() {
		if err := overwrite(f); err != nil {
			return err
		}
		fmt.Fprintf(k.app.stdout, "wrote %s; no message was moved; review the change, run 'dlxctl migrate --until prepare', "+
			"let a service consume the successor, then run 'dlxctl migrate'\n", f.Name)
	}
	return nil
}

// entry returns the entry of queues for a queue that the file does not have, with the bindings
// that it has on the broker.
func (k *migrateCommand) entry(
	ctx context.Context, sources []spec.Source, want topology.Compiled, legacy string,
) (string, []topology.Binding, error) {
	s, err := k.app.conn.open(want)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	state, err := s.Inspect(ctx)
	if err != nil {
		return "", nil, err
	}
	if !slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == legacy }) {
		return "", nil, fmt.Errorf("%w: queue %q does not exist in the virtual host, and no queue of the file replaces it",
			migrate.ErrRefused, legacy)
	}
	var bindings []topology.Binding
	for _, b := range state.Have.Bindings {
		if b.Destination == legacy && b.DestinationType == topology.ToQueue {
			bindings = append(bindings, b)
		}
	}
	entry, err := spec.Entry(sources, legacy+k.suffix, legacy, bindings)
	return entry, bindings, err
}

// overwrite replaces a file in one step, so that no partial file ever exists. A symbolic
// link stays a link.
func overwrite(f spec.Source) error {
	if f.Name == "stdin" {
		return usageError{errors.New("--write needs a file, but -f is stdin; name a file with -f")}
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

// ownQueues returns the queues that dlxctl declares for the file and that its users consume.
func ownQueues(want topology.Compiled) []string {
	var out []string
	for _, q := range want.Queues {
		if q.Label.Role == topology.RoleWork && !q.External {
			out = append(out, q.Name)
		}
	}
	return out
}

// replaces reports whether the user or the file consents to replace a queue under its name.
func (k *migrateCommand) replaces(want topology.Compiled, queue string) bool {
	return slices.Contains(want.Replace, queue) || slices.ContainsFunc(k.runner.Allow, func(c plan.Consent) bool {
		return c.Hazard == topology.ReplacesQueue && (c.Object == "" || c.Object == queue)
	})
}

// unknown returns the names that are neither legacy queues, nor queues that are to be replaced
// under their names or whose replacement is not finished.
func (k *migrateCommand) unknown(ctx context.Context, want topology.Compiled, names []string) ([]string, error) {
	own := ownQueues(want)
	begun := slices.DeleteFunc(unnamed(want, names), func(name string) bool {
		return slices.Contains(own, name) && k.replaces(want, name)
	})
	if !slices.ContainsFunc(begun, func(name string) bool { return slices.Contains(own, name) }) {
		return begun, nil
	}
	s, err := k.app.conn.open(want)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	state, err := s.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	unfinished := migrate.Unfinished(want, state)
	return slices.DeleteFunc(begun, func(name string) bool { return slices.Contains(unfinished, name) }), nil
}
