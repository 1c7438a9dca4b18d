// Command demo shows the main job of dlxctl on a real broker: a topology file, plan,
// apply, a processor, a service that fails, the journey of each message, and a replay of the one
// that ends as a dead letter.
//
//	demo DLXCTL TOPOLOGY
//
// It runs in a virtual host of its own on the broker of RABBITMQ_URL and
// RABBITMQ_API_URL, and deletes that virtual host at the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
)

// vhost is the virtual host of the demo.
const vhost = "dlxctl-demo"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: demo DLXCTL TOPOLOGY")
		os.Exit(64)
	}
	dlxctl, err := filepath.Abs(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	d := demo{
		dlxctl: dlxctl, topology: os.Args[2], out: os.Stdout,
		url: os.Getenv("RABBITMQ_URL"), api: os.Getenv("RABBITMQ_API_URL"),
	}
	if u, err := url.Parse(d.url); err == nil { // the commands of the demo are shown without --vhost
		u.Path = "/" + vhost
		d.url = u.String()
	}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if errors.Is(err, broker.ErrUnreachable) {
			fmt.Fprintln(os.Stderr, "on a broker of its own: env -u RABBITMQ_URL -u RABBITMQ_API_URL make demo")
		}
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	dlxctl   string // the program
	topology string // its file
	url      string // AMQP URL of the broker
	api      string // URL of its management API
	out      io.Writer
}

func (d demo) run(ctx context.Context) (err error) {
	endpoint, err := broker.Config{URL: d.url, API: d.api}.Resolve()
	if err != nil {
		return err
	}
	api, err := management.New(endpoint)
	if err != nil {
		return err
	}
	defer api.Close()
	if err := api.CreateVHost(ctx, vhost, ""); err != nil {
		return err
	}
	defer func() {
		// The demo created this virtual host above, so no message of another program is lost.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if e := api.DeleteVHost(clean, vhost); err == nil {
			err = e
		}
	}()

	d.title("1. The topology file: one work queue and a backoff of three tiers.")
	if err := d.show(); err != nil {
		return err
	}
	d.title("2. Plan: what would change on the broker? Nothing is written.")
	if err := d.command(ctx, "plan"); err != nil {
		return err
	}
	d.title("3. Apply: write the changes and verify them.")
	if err := d.command(ctx, "apply", "--yes"); err != nil {
		return err
	}
	d.title("4. Start the processor and a service, and publish ten messages.\n" +
		"   m-04 fails each time, and the service says why. m-07 succeeds at its second retry.\n" +
		"   Of m-09 the service says that no retry would help: it is dead at once.")
	if err := d.withProcessor(ctx, d.journey); err != nil {
		return err
	}
	d.title("5. Two messages are dead. Look at why they died; the look leaves them in their queue.")
	if err := d.command(ctx, "desk", "groups", "@"+workQueue); err != nil {
		return err
	}
	d.title("6. The bank answers again. Send what timed out back to the service, and to no other queue.\n" +
		"   The other dead letter stays, for a person to look at.")
	if err := d.withProcessor(ctx, d.replay); err != nil {
		return err
	}
	d.title("7. Plan again: the broker still matches the file.")
	if err := d.command(ctx, "plan", "--detailed-exitcode"); err != nil {
		return err
	}
	d.title("Done. The demo ran in the virtual host " + vhost + " and deletes it now.\n" +
		"Next: bin/dlxctl init writes a topology file of your own; docs/tutorial.md leads on.")
	return nil
}

// show prints the topology file.
func (d demo) show() error {
	file, err := os.ReadFile(d.topology)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(d.out, "$ cat topology.yaml\n%s", file)
	return err
}

func (d demo) title(s string) { fmt.Fprintf(d.out, "\n%s\n\n", s) }

// dlx returns the command line of dlxctl.
func (d demo) dlx(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, d.dlxctl, args...)
	c.Dir = filepath.Dir(d.topology) // so that the output names the file as a reader has it
	c.Env = append(os.Environ(), "RABBITMQ_URL="+d.url, "RABBITMQ_API_URL="+d.api)
	return c
}

func (d demo) command(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.out, "$ dlxctl %s\n", strings.Join(text.Each(args, text.ShellQuote), " "))
	c := d.dlx(ctx, args...)
	c.Stdout, c.Stderr = d.out, d.out
	if err := c.Run(); err != nil {
		return fmt.Errorf("dlxctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// withProcessor runs f while "dlxctl process" runs, and then stops the processor by SIGTERM.
func (d demo) withProcessor(ctx context.Context, f func(context.Context) error) error {
	fmt.Fprintf(d.out, "$ dlxctl process &\n")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := d.dlx(ctx, "process", "--log-level", "warn")
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	p.WaitDelay = 20 * time.Second
	p.Stderr = d.out
	if err := p.Start(); err != nil {
		return fmt.Errorf("start the processor: %w", err)
	}
	err := f(ctx)
	cancel()
	if e := p.Wait(); err == nil && p.ProcessState.ExitCode() != 0 {
		err = fmt.Errorf("processor: %w", e)
	}
	return err
}
