package cmd

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

type rightsCommand struct {
	app  *app
	desk bool
	name string
}

func newRights(a *app) *cobra.Command {
	k := rightsCommand{app: a}
	c := &cobra.Command{
		Use:   "rights",
		Short: "Print the permissions that each user needs",
		Long: `Print the set_permissions commands for a topology: for the user that plans and applies,
for the one that migrates (if the file replaces queues), for the processor, for the
services of each owner, for publishers, for verify, and for people at the desk. The user names are
examples. The commands and an import of -o definitions replace the permissions of a user, and
set_user_tags its tags: give each role and each topology a user of its own, or join the
expressions of both with |, and list all tags. The expressions stay below the 1,024 bytes that RabbitMQ 4.3 accepts: where the
names are too many, they cover all names with a prefix, and a comment says so.
-o definitions prints the permissions for an import into RabbitMQ, without users and tags:
an import would replace the passwords of users. rights needs no broker,
so it cannot see policies of other teams: where plan overrides one, apply needs the tag
policymaker too.

--desk prints only what people at the desk need. Without a topology file, it asks the broker for
the queues that it has at this moment.`,
		Example:     "  dlxctl rights\n  dlxctl rights -o json\n  dlxctl rights --desk",
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text json definitions"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	c.Flags().BoolVar(&k.desk, "desk", false, "print what people at the desk need, also without a topology file")
	addName(c.Flags(), &k.name)
	return c
}

func (k *rightsCommand) run(ctx context.Context) error {
	vhost, grants, err := k.grants(ctx)
	if err != nil {
		return err
	}
	switch k.app.output {
	case "json":
		return jsondoc.Write(k.app.stdout, generate.RightsDocument{Version: 1, VHost: vhost, Grants: grants})
	case "definitions":
		return generate.WriteRightsDefinitions(k.app.stdout, vhost, grants)
	default:
		return generate.WriteRights(k.app.stdout, vhost, grants)
	}
}

// grants returns the rights that the flags ask for, and their virtual host.
func (k *rightsCommand) grants(ctx context.Context) (vhost string, grants []generate.Grant, err error) {
	if k.desk && k.app.hasNoFile() {
		return k.found(ctx, k.name)
	}
	if k.name != "" {
		return "", nil, usageError{errors.New("--name is for --desk without a topology file; remove it, as the file has the name")}
	}
	t, vhost, err := k.app.loadPlaced()
	if err != nil {
		return "", nil, err
	}
	if k.desk && keepsAll(t) {
		return k.found(ctx, topology.DeskName)
	}
	grants = generate.Rights(t)
	if k.desk {
		grants = slices.DeleteFunc(grants, func(g generate.Grant) bool { return !generate.IsForDesk(g) })
	}
	return vhost, grants, nil
}

// found returns the rights at the desk of a virtual host of which no file tells. name is as in
// [desk.Desk.Discover].
func (k *rightsCommand) found(ctx context.Context, name string) (vhost string, grants []generate.Grant, err error) {
	d, closeDesk, err := k.app.findDesk(ctx, chooseFlags{name: name}, noBodies())
	if err != nil {
		return "", nil, err
	}
	defer closeDesk()
	return d.Endpoint.VHost, generate.DeskRights(generate.DeskObjects{
		Name: d.Topology.Name, Applied: d.Found.Topology != "", DeadLetters: d.DeadLetterQueues(),
		Limited: d.Found.Limited, Work: d.Found.Work, Sought: d.Found.Sought(),
	}), nil
}
