package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// openClusters makes a page that of the virtual hosts in the file of --cluster. The topology files
// are read now, and each broker when a person asks for it. The returned function closes what was
// opened.
func (k *deskServeCommand) openClusters(c *cobra.Command, config *page.Config) (closeAll func(), err error) {
	for _, name := range []string{"url", "api", "vhost", "password-file", "file", "overlay", "name"} {
		if f := c.Flag(name); f != nil && f.Changed {
			return nil, usageError{fmt.Errorf("--%s and --cluster exclude each other; the file of --cluster says it for each virtual host", name)}
		}
	}
	data, err := os.ReadFile(k.cluster)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k.cluster, reason(err))
	}
	list, err := spec.DecodeClusters(spec.Source{Name: k.cluster, Data: data}, k.app.env)
	if err != nil {
		return nil, err
	}
	var opened desks
	for _, entry := range list {
		one, err := k.openCluster(c, entry, &opened, config.Log)
		if err != nil {
			return nil, err
		}
		config.Clusters = append(config.Clusters, one)
	}
	config.By = apply.Person()
	return opened.close, nil
}

// openCluster makes the page of an entry, which opens the desk when a person asks for it.
func (k *deskServeCommand) openCluster(
	c *cobra.Command, entry spec.Cluster, opened *desks, log *slog.Logger,
) (page.Config, error) {
	app, look := *k.app, k.look
	app.conn.URL, app.conn.API, app.conn.VHost, app.conn.PasswordFile = entry.URL, entry.API, entry.VHost, ""
	app.conn.Words.Keys = true
	app.overlays, app.named, look.name = nil, entry.File != "", entry.Topology
	var t topology.Compiled
	if entry.File != "" {
		app.paths, look.showBodies = []string{nextTo(k.cluster, entry.File)}, false
		var err error
		if t, err = app.files().load(); err != nil {
			return page.Config{}, err
		}
		if _, err = look.messages.reader(t); err != nil {
			return page.Config{}, err
		}
	}
	e, err := app.conn.endpoint(t)
	if err != nil {
		at := "url"
		if strings.Contains(err.Error(), "management API") {
			at = "api"
		}
		why := strings.NewReplacer(" (RABBITMQ_URL or --url)", "", " (RABBITMQ_API_URL or --api)", "").Replace(err.Error())
		return page.Config{}, &spec.Error{Problems: []spec.Problem{{Pos: entry.At(at), Msg: why}}}
	}
	one := page.Config{
		Cluster: entry.Name, Topology: t.Name, VHost: e.VHost, Broker: e.AMQP.Host,
		Line: func(words ...string) string { return k.clusterLine(c, entry, e.VHost, words) },
	}
	one.Later(func(ctx context.Context) (*desk.Desk, error) {
		d, closeDesk, err := app.findOrOpen(ctx, t, look)
		if err != nil {
			return nil, err
		}
		opened.add(closeDesk)
		logUnrecorded(d, log.With("cluster", entry.Name))
		return d, nil
	})
	return one, nil
}

// findOrOpen opens the desk of a topology, or without one that of what the broker tells.
func (a *app) findOrOpen(ctx context.Context, t topology.Compiled, look chooseFlags) (*desk.Desk, func(), error) {
	if !a.named {
		messages := topology.Messages{} // desk.yaml is for the one virtual host of a command
		messages.Redact.HideBodies = !look.showBodies
		return a.findDesk(ctx, look, messages)
	}
	return a.deskOf(ctx, t, look.messages)
}

// nextTo returns a path as a file names it: relative to the folder of that file.
func nextTo(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// clusterLine returns the command line of a command of the desk that works on the virtual host of
// an entry, and on no other. Its URL is as the file has it, with the variables of the environment:
// a shell in which one is not set stops, in place of reaching another broker. A URL that cannot be
// shown is such a variable, too.
func (k *deskServeCommand) clusterLine(c *cobra.Command, entry spec.Cluster, vhost string, words []string) string {
	words = slices.Clip(words[1:])
	set := func(flag, shown string) string {
		if shown == "" {
			shown = "${CLUSTER_" + strings.ToUpper(flag) + "}"
		}
		return fmt.Sprintf(`%s="%s" `, ownVariable(flag), strings.ReplaceAll(shown, "}", ":?}"))
	}
	before := set("url", entry.ShownURL)
	switch {
	case entry.API != "":
		before += set("api", entry.ShownAPI)
	case k.app.conn.API != "": // of the environment, which the shell may have too
		words = append(words, "--api", "")
	}
	if k.look.showBodies && entry.File == "" && words[0] != "run" {
		words = append(words, "--show-bodies")
	}
	for _, option := range [][2]string{{"--vhost", vhost}, {"--name", entry.Topology}} {
		if option[1] != "" {
			words = append(words, option[0], option[1])
		}
	}
	if entry.File != "" {
		words = append(words, "-f", nextTo(k.cluster, entry.File))
	}
	return before + deskLine(c, words...)
}

// logUnrecorded logs the runs of a desk that have no record.
func logUnrecorded(d *desk.Desk, log *slog.Logger) {
	d.Unrecorded = func(run string, err error) {
		log.Warn("run not recorded", "run", run, "error", err.Error())
	}
}

// desks are the desks that were opened, to close.
type desks struct {
	mu     sync.Mutex
	closes []func()
}

func (d *desks) add(closeDesk func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closes = append(d.closes, closeDesk)
}

func (d *desks) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, closeDesk := range d.closes {
		closeDesk()
	}
}
