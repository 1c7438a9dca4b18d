package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/notice"
)

type deskDigestCommand struct {
	app   *app
	look  chooseFlags
	since string
	to    string
}

func newDeskDigest(a *app) *cobra.Command {
	k := deskDigestCommand{app: a}
	c := &cobra.Command{
		Use:        "digest",
		SuggestFor: []string{"report", "daily", "mail"},
		Short:      "Print or send what died, by queue, owner and error",
		Long: `Print what died in a time, by work queue, owner and error, for a cron job. It looks at all
messages of each dead-letter queue of the topology, keeps their order, and keeps no state.
Where no message of a queue has an error, it groups by cause. What rules of the topology
file mask is masked. Messages that do not tell when they failed are counted apart.

--to sends the digest to an address as 'notify' in the topology file has it: a webhook
(JSON, with a "text"), a chat (slack+https://) or mailboxes (smtp://, smtps://). It is a
secret: write --to '${VAR}' in single quotes, and dlxctl reads the variable. The digest is
sent also if nothing died.

Exit codes: 0 done, 1 failed, 5 done, and not all messages were looked at.`,
		Example: `  dlxctl desk digest --since 24h
  dlxctl desk digest --since 24h -o markdown > digest.md
  dlxctl desk digest --since 24h --to '${DIGEST_TARGET}'`,
		Args:        noArguments,
		Annotations: map[string]string{outputsAnnotation: "text markdown json"},
		RunE:        func(c *cobra.Command, _ []string) error { return k.run(c.Context()) },
	}
	c.Flags().StringVar(&k.since, "since", "24h", "count what failed since `TIME`: a duration such as 24h, or 2026-01-02T15:04:05Z")
	c.Flags().StringVar(&k.to, "to", "", "send the digest to `ADDRESS`, in which ${VAR} stands for a variable, and print nothing")
	k.look.addLook(c)
	k.look.addUnfiled(c)
	return c
}

func (k *deskDigestCommand) run(ctx context.Context) error {
	chosen, err := k.look.withLook(desk.Selection{Since: k.since}.Request(time.Now()))
	if err != nil {
		return err
	}
	d, closeDesk, err := k.app.openDesk(ctx, k.look)
	if err != nil {
		return err
	}
	defer closeDesk()
	digest, err := d.Digest(ctx, chosen.Since, chosen.Look)
	if err != nil {
		return err
	}
	if k.to == "" {
		return errors.Join(k.write(digest), digest.Err())
	}
	return errors.Join(k.send(ctx, digest), digest.Err())
}

// write prints a digest.
func (k *deskDigestCommand) write(d desk.Digest) error {
	switch k.app.output {
	case "json":
		return jsondoc.Write(k.app.stdout, d)
	case "markdown":
		return d.WriteMarkdown(k.app.stdout)
	default:
		return d.Write(k.app.stdout, k.app.width())
	}
}

// digestPost is what a webhook gets.
type digestPost struct {
	// Text is the digest for people.
	Text   string      `json:"text"`
	Digest desk.Digest `json:"digest"`
}

// send sends a digest. No error quotes the address.
func (k *deskDigestCommand) send(ctx context.Context, d desk.Digest) error {
	target, err := noticeTarget(k.to, k.app.env)
	if err != nil {
		return usageError{fmt.Errorf("--to: %w", err)}
	}
	var said strings.Builder
	if k.app.output == "markdown" {
		err = d.WriteMarkdown(&said)
	} else {
		err = d.Write(&said, 0)
	}
	if err != nil {
		return err
	}
	body := said.String()
	if target.Kind != notice.Mail && k.app.output != "markdown" { // a chat shows a table as it is in a block
		body = "```\n" + strings.ReplaceAll(body, "```", "'''") + "```"
	}
	post, err := jsondoc.Marshal(digestPost{notice.Escape(body), d})
	if err != nil {
		return err
	}
	if err := target.Send(ctx, d.Summary(), body, json.RawMessage(post)); err != nil {
		return fmt.Errorf("send the digest to %s: %w", target.Name, err)
	}
	fmt.Fprintf(k.app.stderr, "sent to %s\n", target.Name)
	return nil
}
