package cmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/graph"
	"github.com/dlxctl/dlxctl/topology"
)

type graphCommand struct {
	app         *app
	objects     objectFlags
	definitions []string
	verbose     bool
}

func newGraph(a *app) *cobra.Command {
	k := graphCommand{app: a, objects: objectFlags{app: a}}
	c := &cobra.Command{
		Use:        "graph [QUEUE...]",
		SuggestFor: []string{"draw", "diagram", "map", "dot"},
		Short:      "Draw where messages go",
		Long: `Draw exchanges, queues, backoffs and dead-letter queues, and the ways between them. With
queues, draw only what leads to them and all that their messages can reach. Ways on which
messages are lost are red and dashed, and hops on which RabbitMQ may lose a message say
at-most-once.

What dlxctl generates for a backoff is one box; -v draws each object. -o svg is a picture
that needs no other program, -o mermaid is for pages of GitHub and GitLab, and -o dot is
for Graphviz.

graph works offline, on the topology files of -f or on definitions that RabbitMQ exported.
With --broker it draws what the virtual host has.`,
		Example: `  dlxctl graph -o svg > topology.svg
  dlxctl graph billing -v
  dlxctl graph --broker crm.inbox -o mermaid
  dlxctl graph --definitions definitions.json -o svg > before.svg`,
		Annotations: map[string]string{outputsAnnotation: "text svg mermaid dot"},
		RunE:        k.run,
	}
	k.objects.add(c.Flags())
	c.Flags().StringArrayVar(&k.definitions, "definitions", nil, "draw the objects of a definitions `FILE`; repeat the flag for several")
	c.Flags().BoolVarP(&k.verbose, "verbose", "v", false, "draw each generated object")
	return c
}

func (k *graphCommand) run(c *cobra.Command, queues []string) error {
	have, err := k.objects.read(c, k.definitions, queues...)
	if err != nil {
		return err
	}
	names := have.state.Have.QueueNames()
	for _, q := range queues {
		if err := known(q, names); err != nil {
			return err
		}
	}
	g := graph.Make(graph.Input{State: have.state, Files: have.files, Queues: queues, All: k.verbose})
	switch k.app.output {
	case "svg":
		return graph.WriteSVG(k.app.stdout, g)
	case "mermaid":
		return graph.WriteMermaid(k.app.stdout, g)
	case "dot":
		return graph.WriteDot(k.app.stdout, g)
	default:
		return graph.WriteText(k.app.stdout, g)
	}
}

// known refuses the name of a queue that does not exist.
func known(queue string, names []string) error {
	if slices.Contains(names, queue) {
		return nil
	}
	return usageError{fmt.Errorf("queue %q does not exist%s", queue, topology.Suggestion(queue, names))}
}
