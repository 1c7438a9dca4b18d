package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk/page"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// deskServeCommand is the command desk serve.
type deskServeCommand struct {
	app       *app
	look      chooseFlags
	listen    string
	allow     []string
	cert, key string
	tokenFile string
}

func newDeskServe(a *app) *cobra.Command {
	k := deskServeCommand{app: a}
	c := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"ui", "web", "page", "server", "gui"},
		Short:      "Serve the desk as a page on this machine",
		Long: `Serve a page with the dead letters of the topology: the queues, groups, messages with their
way and decoded body, and runs with their progress. The page does what the commands of the
desk do, and shows the command line of each action.

The page is read-only. --allow replay,discard,edit,park allows these actions; park allows
to restore parked messages, too. What is masked stays masked: nothing on the page shows it.

serve prints a URL that opens the page once, in one browser. From another machine, use
'ssh -L 9420:localhost:9420 HOST' and open the printed URL there. An address that is not a
loopback address needs --tls-cert, --tls-key and --token-file.

Ctrl-C ends the server. It first stops the runs that the page has started, where nothing is
lost, and prints how to resume them.

Exit codes: 0 ended, 1 failed, 2 runs were stopped with messages left in their holds.`,
		Example: "  dlxctl desk serve\n  dlxctl desk serve --allow replay,park",
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return k.run(c) },
	}
	f := c.Flags()
	f.StringVar(&k.listen, "listen", "127.0.0.1:9420", "`ADDRESS` to listen on; port 0 is any free port")
	f.StringSliceVar(&k.allow, "allow", nil, "`ACTIONS` that the page may do: "+strings.Join(page.Allowable(), ", "))
	f.StringVar(&k.cert, "tls-cert", "", "`FILE` with the certificate of the server, in PEM format")
	f.StringVar(&k.key, "tls-key", "", "`FILE` with the key of the certificate, in PEM format")
	f.StringVar(&k.tokenFile, "token-file", "",
		"`FILE` with a token of 32 characters or more, which the page asks for in place of the printed token")
	k.look.addLook(c)
	return c
}

// run serves the page until the command is interrupted.
func (k *deskServeCommand) run(c *cobra.Command) error {
	config, err := k.config(c)
	if err != nil {
		return err
	}
	bound, err := page.Listen(c.Context(), page.Binding{
		Address: k.listen, CertFile: k.cert, KeyFile: k.key, TokenFile: k.tokenFile,
	})
	switch {
	case errors.Is(err, page.ErrAddress):
		return usageError{err}
	case err != nil:
		return explainListen(k.listen, err)
	}
	defer bound.Close()
	if err := k.app.needsFile("desk serve"); err != nil {
		return err
	}
	d, closeDesk, err := k.app.openAct(c.Context(), k.look)
	if err != nil {
		return err
	}
	defer closeDesk()
	config.For(d)
	d.Unrecorded = func(run string, err error) {
		config.Log.Warn("run not recorded", "run", run, "error", err.Error())
	}
	config.Access = bound.Access
	p, err := page.New(config)
	if err != nil {
		return err
	}
	k.announce(d.Topology.Name, p.URL(bound.Base))
	stopped, err := p.Serve(c.Context(), bound)
	return k.ended(stopped, err)
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
		Line: func(words ...string) string { return shellLine(c, words...) },
	}, nil
}

// announce prints where the page is, and what it may do.
func (k *deskServeCommand) announce(name, url string) {
	once := "It opens the page once, in one browser."
	if k.tokenFile != "" {
		once = "The page asks for the token of --token-file."
	}
	may := "The page is read-only; --allow " + strings.Join(page.Allowable(), ",") + " allows actions."
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
		switch {
		case s.Run == "":
			fmt.Fprintf(k.app.stderr, "dlxctl: a run was stopped before it took a message: nothing was moved\n")
		case s.Error != "":
			fmt.Fprintf(k.app.stderr, "dlxctl: run %s: %s\n", s.Run, topology.Printable(s.Error))
		default:
			fmt.Fprintf(k.app.stderr, "dlxctl: run %s: moved %d, %d left in its hold\n", s.Run, s.Moved, s.Left)
		}
		if s.Resume != "" {
			next = append(next, "to continue: "+s.Resume)
		}
	}
	if len(next) == 0 {
		return nil
	}
	return &deskStopError{err: errors.New("interrupted; runs of the page have messages left in their holds"), next: next}
}
