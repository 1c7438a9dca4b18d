package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// objectFlags choose whose objects a command looks at: those of the files of -f, of a file of
// definitions, or of the broker.
type objectFlags struct {
	app      *app
	broker   bool
	rabbitMQ string
}

func (o *objectFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&o.broker, "broker", false, "use the objects of the broker, foreign ones and policies included, in place of those of the file")
	f.StringVar(&o.rabbitMQ, "rabbitmq", "", "`VERSION` of RabbitMQ whose rules apply where no broker tells it (default: the newest)")
}

// objects are the objects of one virtual host.
type objects struct {
	state topology.State
	// live: state was read from a broker.
	live bool
	// files are the topologies of -f. They are empty if the objects come from elsewhere and -f
	// names no file.
	files []topology.Compiled
	// place tells where a file declares an object.
	place func(topology.Key) string
}

// newestRabbitMQ is the version whose rules apply if nothing tells the version.
const newestRabbitMQ = "4.3.0"

// read returns the objects. definitionFiles are the arguments of the command. Offline, queues are
// named that services may have declared: those which a match covers are taken as declared.
func (o *objectFlags) read(c *cobra.Command, definitionFiles []string, named ...string) (objects, error) {
	if o.broker && len(definitionFiles) > 0 {
		return objects{}, usageError{fmt.Errorf("--broker and the file %s both say where the objects are; leave one of them out", definitionFiles[0])}
	}
	files, err := o.files(c, o.broker || len(definitionFiles) > 0)
	if err != nil {
		return objects{}, err
	}
	out := objects{files: files, place: placesOf(files)}
	switch {
	case o.broker:
		out.live = true
		out.state, err = o.inspect(c.Context(), files)
	case len(definitionFiles) > 0:
		err = o.readDefinitions(&out, definitionFiles)
	default:
		for _, f := range files {
			out.state.Have.Exchanges = append(out.state.Have.Exchanges, f.Exchanges...)
			out.state.Have.Queues = append(out.state.Have.Queues, f.Queues...)
			out.state.Have.Bindings = append(out.state.Have.Bindings, f.Bindings...)
			out.state.Have.Policies = append(out.state.Have.Policies, f.Policies...)
			for _, q := range o.app.declared(f, named) {
				out.state.Have.Queues = append(out.state.Have.Queues, q)
				out.state.Have.Bindings = append(out.state.Have.Bindings, topology.ReturnBinding(f.Name, q.Name))
			}
		}
	}
	out.files = text.Each(files, func(f topology.Compiled) topology.Compiled {
		return policy.WithMatched(f, out.state.Have.Queues)
	})
	if !o.broker && o.rabbitMQ != "" {
		out.state.Version = o.rabbitMQ
	}
	if out.state.Version == "" {
		out.state.Version = newestRabbitMQ
	}
	return out, err
}

// declared returns the queues among the named ones that a match of f covers, and says that it takes
// them as declared.
func (a *app) declared(f topology.Compiled, named []string) []topology.Queue {
	var out []topology.Queue
	for _, name := range named {
		if q, covered := policy.Declared(f, name); covered {
			fmt.Fprintf(a.stderr, "a match covers %s: it is taken as a %s queue that a service has declared\n", text.Name(name), q.Type())
			out = append(out, q)
		}
	}
	return out
}

// files reads the topology files. They may be missing if the objects come from elsewhere and no
// file is named.
func (o *objectFlags) files(c *cobra.Command, optional bool) ([]topology.Compiled, error) {
	if optional && !c.Flags().Changed("file") && len(o.app.overlays) == 0 {
		if _, err := os.Stat(o.app.paths[0]); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return o.app.files().loadEach()
}

// inspect reads the broker. All topologies are for one virtual host.
func (o *objectFlags) inspect(ctx context.Context, files []topology.Compiled) (topology.State, error) {
	var first topology.Compiled
	if len(files) > 0 {
		first = files[0]
	}
	s, err := o.app.conn.open(first)
	if err != nil {
		return topology.State{}, err
	}
	defer s.Close()
	return s.Management.Inspect(ctx)
}

// readDefinitions reads files of definitions: the virtual host of --vhost, or the only one.
func (o *objectFlags) readDefinitions(out *objects, paths []string) error {
	hosts, err := o.app.readDefinitions(paths)
	if err != nil {
		return err
	}
	if len(hosts) > 1 {
		return usageError{fmt.Errorf("%s has several virtual hosts; name one with --vhost: %s", paths[0], vhostNames(hosts))}
	}
	for _, h := range hosts {
		out.state = h.State
		out.place = func(key topology.Key) string {
			at, ok := h.Positions[key]
			if !ok || at.Line == 0 {
				return ""
			}
			return fmt.Sprintf("%s:%d", at.File, at.Line)
		}
	}
	return nil
}

// placesOf returns where files declare their objects.
func placesOf(files []topology.Compiled) func(topology.Key) string {
	return func(key topology.Key) string {
		for _, f := range files {
			if at, ok := f.Places[key]; ok {
				return at.String()
			}
		}
		return ""
	}
}
