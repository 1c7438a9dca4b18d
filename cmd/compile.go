package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// compile is the command that prints the objects of topology files.
type compile struct {
	*app
	cluster string // the RabbitmqCluster of -o operator
	partial bool   // leave out what the output cannot express
}

func newCompile(a *app) *cobra.Command {
	k := &compile{app: a}
	c := &cobra.Command{
		Use:   "compile",
		Short: "Print the objects that topology files compile to",
		Long: `Print the exchanges, queues and bindings that the topology files compile to, without a
broker. -o definitions prints the format that RabbitMQ imports. An import skips objects
that exist already, whatever their arguments, so prefer apply.

-o terraform prints resources of the Terraform provider cyrilgdn/rabbitmq, and -o operator
manifests of RabbitMQ's messaging topology operator. Neither can express every object:
dlxctl then prints nothing and names the objects, unless --partial is given.

These outputs are for a new topology. After a change of the file, run apply before you use
them: alone, they may leave a previous route in place, and messages are doubled.`,
		Example: `  dlxctl compile
  dlxctl compile -o definitions > definitions.json
  dlxctl compile -o terraform > main.tf
  dlxctl compile -o operator --cluster-reference rabbitmq > manifests.yaml`,
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json definitions terraform operator"},
		RunE:        func(*cobra.Command, []string) error { return k.run() },
	}
	c.Flags().StringVar(&k.cluster, "cluster-reference", "",
		"the RabbitmqCluster of the manifests, as `NAME` or NAMESPACE/NAME (for -o operator)")
	c.Flags().BoolVar(&k.partial, "partial", false,
		"leave out objects that the output cannot express, and name them in a comment")
	return c
}

func (k *compile) run() error {
	t, err := k.files().load()
	if err != nil {
		return err
	}
	if k.output == "text" {
		return topology.WriteText(k.stdout, t)
	}
	endpoint, err := k.conn.endpoint(t) // the vhost may be that of the URL
	if err != nil {
		return err
	}
	if k.output == "json" {
		t.VHost = endpoint.VHost
		return jsondoc.Write(k.stdout, t)
	}
	data, err := k.render(t, endpoint.VHost)
	if err != nil {
		return err
	}
	_, err = k.stdout.Write(data)
	return err
}

// render returns t in the chosen format of another program.
func (k *compile) render(t topology.Compiled, vhost string) ([]byte, error) {
	switch k.output {
	case "definitions":
		return topology.Definitions(t, vhost)
	case "terraform":
		data, missing := generate.Terraform(t, cmp.Or(vhost, "/"))
		return data, k.check(missing)
	}
	if k.cluster == "" {
		return nil, usageError{errors.New(
			"-o operator needs the name of the RabbitmqCluster; pass --cluster-reference NAME")}
	}
	cluster, err := generate.ParseClusterReference(k.cluster)
	if err != nil {
		return nil, usageError{fmt.Errorf("--cluster-reference: %w", err)}
	}
	data, missing, err := generate.Operator(t, cmp.Or(vhost, "/"), cluster)
	if err != nil {
		return nil, err
	}
	return data, k.check(missing)
}

// check refuses an output that lacks objects, or warns of them with --partial.
func (k *compile) check(missing []generate.Inexpressible) error {
	if len(missing) == 0 {
		return nil
	}
	lines := text.Each(missing, func(m generate.Inexpressible) string { return "  " + m.String() })
	list := strings.Join(lines, "\n")
	if k.partial {
		fmt.Fprintf(k.stderr, "warning: -o %s cannot express these objects, and leaves them out:\n%s\n", k.output, list)
		return nil
	}
	return fmt.Errorf("-o %s cannot express these objects:\n%s\ncreate the topology with 'dlxctl apply', "+
		"or leave the objects out with --partial and create them in another way", k.output, list)
}
