package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

type deskServeCommand struct {
	app       *app
	look      chooseFlags
	listen    string
	allow     []string
	cert, key string
	tokenFile string
	external  string
	signIn    page.SignIn
	roles     []string
	cluster   string
}

func newDeskServe(a *app) *cobra.Command {
	k := deskServeCommand{app: a}
	c := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"ui", "web", "page", "server", "gui"},
		Short:      "Serve the desk as a page on this machine",
		Long: `Serve a page with the dead letters of the topology: the queues, groups, messages with their
way and decoded body, and runs with their progress. The page does what the commands of the
desk do, and shows the command line of each action. Without a topology file it shows the
dead-letter queues that it finds on the broker, with hidden bodies unless --show-bodies is given.

--cluster FILE shows several virtual hosts on one page, of one cluster or of several: a list
'clusters' in YAML, of which each entry has name, url, and perhaps vhost, file and topology.
'dlxctl schema --for-clusters' has all keys. One that cannot be reached hides no other. Each
action names the cluster and the virtual host, and acts there alone.

The page is read-only. --allow replay,discard,edit,park allows these actions; park allows
to restore parked messages, too. What is masked stays masked: nothing on the page shows it.

serve prints a URL that opens the page once, in one browser. From another machine, use
'ssh -L 9420:localhost:9420 HOST' and open the printed URL there. An address that is not a
loopback address needs --tls-cert and --tls-key, and --token-file or --oidc-issuer. The files
of the certificate are read again when they change.

Behind a reverse proxy, --external-url says where browsers open the page. Links, cookies, the
redirect URL of a sign-in and the check of the origin follow it. The proxy must pass the host on, and
a health check name it, unless they connect to a loopback address or a name of --tls-cert. The proxy
may cut the path off. It may end TLS; the network between it and the page must then be trusted.
Without a proxy, --oidc-issuer needs --external-url if the certificate has not exactly one name.

For a team, --oidc-issuer has a provider of OpenID Connect sign people in, by authorization
code with PKCE. --role gives the members of a group a role:

  reader    looks at messages and runs
  operator  also replays, parks and restores, and stops, resumes and returns such runs
  editor    also discards and edits

The highest role of a person counts; a person without one sees nothing. Runs are recorded under
the verified e-mail address of the person, else the user name, else the subject. A session lasts
8 hours. The broker knows none of this: all act with the rights of the user in RABBITMQ_URL.

Ctrl-C ends the server. It first stops the runs that the page has started, where nothing is
lost, and prints how to go on with what is left.

Exit codes: 0 ended, 1 failed, 2 runs were stopped before all was moved.`,
		Example: `  dlxctl desk serve
  dlxctl desk serve --allow replay,park
  dlxctl desk serve --cluster clusters.yaml
  dlxctl desk serve --oidc-issuer https://login.example.com --oidc-client dlxctl \
      --role reader=support --role operator=on-call`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return k.run(c) },
	}
	f := c.Flags()
	f.StringVar(&k.listen, "listen", "127.0.0.1:9420", "`ADDRESS` to listen on; port 0 is any free port")
	f.StringSliceVar(&k.allow, "allow", nil, "`ACTIONS` that the page may do: "+strings.Join(page.Allowable(), ", "))
	f.StringVar(&k.cert, "tls-cert", "", "`FILE` with the certificate of the server, in PEM format")
	f.StringVar(&k.key, "tls-key", "", "`FILE` with the key of the certificate, in PEM format")
	f.StringVar(&k.tokenFile, "token-file", "",
		"`FILE` with a token of 32 characters or more, which the page asks for in place of the printed token")
	f.StringVar(&k.external, "external-url", "", "`URL` at which browsers open the page, as behind a reverse proxy, such as https://ops.example.com/desk")
	f.StringVar(&k.signIn.Issuer, "oidc-issuer", "", "`URL` of the provider that signs people in; empty: a token opens the page")
	f.StringVar(&k.signIn.ClientID, "oidc-client", "", "`ID` of the page at the provider")
	f.StringVar(&k.signIn.SecretFile, "oidc-secret-file", "", "`FILE` with the secret of the client, if the provider asks for one")
	f.StringVar(&k.signIn.GroupsClaim, "oidc-groups-claim", "groups", "`CLAIM` with the groups of a person")
	f.StringSliceVar(&k.signIn.Scopes, "oidc-scopes", []string{"profile", "email"},
		"`SCOPES` to ask for with openid; groups is added if the provider lists it")
	f.StringArrayVar(&k.roles, "role", nil, "`ROLE=GROUP` gives a group the role reader, operator or editor; may be repeated")
	f.StringVar(&k.cluster, "cluster", "", "`FILE` with the virtual hosts to show on one page")
	k.look.addLook(c)
	k.look.addUnfiled(c)
	return c
}

// run serves the page until the command is interrupted.
func (k *deskServeCommand) run(c *cobra.Command) error {
	config, err := k.config(c)
	if err != nil {
		return err
	}
	bound, err := page.Listen(c.Context(), page.Binding{
		Address: k.listen, CertFile: k.cert, KeyFile: k.key, TokenFile: k.tokenFile, SignIn: k.signIn.Issuer != "",
		External: k.external, Log: k.app.log(),
	})
	switch {
	case errors.Is(err, page.ErrAddress):
		return usageError{err}
	case err != nil:
		return explainListen(k.listen, err)
	}
	defer bound.Close()
	if bound.Access.Provider, err = k.provider(c.Context()); err != nil {
		return err
	}
	if k.cluster != "" {
		closeAll, err := k.openClusters(c, &config)
		if err != nil {
			return err
		}
		defer closeAll()
	} else {
		d, closeDesk, err := k.app.openAct(c.Context(), k.look)
		if err != nil {
			return err
		}
		defer closeDesk()
		config.For(d)
		logUnrecorded(d, config.Log)
	}
	config.Access = bound.Access
	p, err := page.New(config)
	if err != nil {
		return err
	}
	name := cmp.Or(config.Topology, "vhost "+config.VHost)
	if n := len(config.Clusters); n > 0 {
		name = text.Count(n, "cluster")
	}
	k.announce(name, p.URL(bound.Base), page.RedirectURL(bound.Base))
	stopped, err := p.Serve(c.Context(), bound)
	return k.ended(stopped, err)
}

// provider returns the provider that signs people in, nil without one.
func (k *deskServeCommand) provider(ctx context.Context) (*page.Provider, error) {
	switch {
	case k.signIn.Issuer == "" && (k.signIn.ClientID != "" || k.signIn.SecretFile != "" || len(k.roles) > 0):
		return nil, usageError{errors.New("--oidc-client, --oidc-secret-file and --role need --oidc-issuer, the URL of the provider")}
	case k.signIn.Issuer == "":
		return nil, nil
	case len(k.allow) > 0:
		return nil, usageError{errors.New("--allow and --oidc-issuer exclude each other; write what people may do with --role")}
	}
	var err error
	if k.signIn.Grants, err = page.ParseGrants(k.roles); err != nil {
		return nil, usageError{err}
	}
	p, err := page.Discover(ctx, k.signIn)
	if errors.Is(err, page.ErrSignIn) {
		return nil, usageError{err}
	}
	return p, err
}

// config returns what the flags say about the page.
func (k *deskServeCommand) config(c *cobra.Command) (page.Config, error) {
	allowed, err := page.ParseAllowed(k.allow)
	if err != nil {
		return page.Config{}, usageError{err}
	}
	look, err := k.look.look()
	if err != nil {
		return page.Config{}, err
	}
	return page.Config{
		Allow: allowed, Look: look, Log: k.app.log(),
		Line: func(words ...string) string { return k.line(c, words...) },
	}, nil
}

// line returns the command line of a command of the desk, the words behind dlxctl, that works on
// what the page shows.
func (k *deskServeCommand) line(c *cobra.Command, words ...string) string {
	if k.look.showBodies && (len(words) < 2 || words[1] != "run") {
		words = append(slices.Clip(words), "--show-bodies")
	}
	return deskLine(c, words[1:]...)
}

// announce prints where the page is, and what it may do.
func (k *deskServeCommand) announce(name, url, redirect string) {
	once := "It opens the page once, in one browser."
	may := "The page is read-only; --allow " + strings.Join(page.Allowable(), ",") + " allows actions."
	switch {
	case k.signIn.Issuer != "":
		once = fmt.Sprintf("People sign in with %s, which must know the redirect URL %s.", k.signIn.Issuer, redirect)
		may = "They may do what --role says."
	case k.tokenFile != "":
		once = "The page asks for the token of --token-file."
	}
	if len(k.allow) > 0 {
		may = "The page may " + strings.Join(k.allow, ", ") + "."
	}
	fmt.Fprintf(k.app.stdout, "The desk of %s: %s\n%s %s Ctrl-C ends it.\n", text.Name(name), url, once, may)
}

// ended prints the runs that the end of the server has stopped, and returns the error for those
// with messages left.
func (k *deskServeCommand) ended(stopped []page.Stopped, err error) error {
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	var next []string
	for _, s := range stopped {
		of := ""
		if s.Cluster != "" {
			of = " in " + text.Name(s.Cluster)
		}
		switch {
		case s.Run == "":
			fmt.Fprintf(k.app.stderr, "dlxctl: a run%s was stopped before it took a message: nothing was moved\n", of)
		case s.Error != "":
			fmt.Fprintf(k.app.stderr, "dlxctl: run %s%s: %s\n", s.Run, of, topology.Printable(s.Error))
		case s.LeftInQueue > 0:
			fmt.Fprintf(k.app.stderr, "dlxctl: run %s%s: moved %d, %d still in %s\n", s.Run, of, s.Moved, s.LeftInQueue,
				text.Name(s.Queue))
		default:
			fmt.Fprintf(k.app.stderr, "dlxctl: run %s%s: moved %d, %d left in its hold\n", s.Run, of, s.Moved, s.Left)
		}
		if s.Next != "" {
			next = append(next, s.Next)
		}
	}
	if len(next) == 0 {
		return nil
	}
	return &deskStopError{stepsError{errors.New("interrupted; runs of the page have not moved all messages"), next}}
}
