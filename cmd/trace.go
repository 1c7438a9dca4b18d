package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// errLost is the error of a message that is lost. It is an answer and prints nothing.
var errLost = errors.New("the message is lost")

type traceCommand struct {
	app        *app
	objects    objectFlags
	exchange   string
	key        string
	headers    []string
	fail       []string
	expiration string
	reason     string
	verbose    bool
}

func newTrace(a *app) *cobra.Command {
	k := traceCommand{app: a, objects: objectFlags{app: a}}
	c := &cobra.Command{
		Use:        "trace [DEFINITIONS.json...] --exchange NAME --key KEY",
		SuggestFor: []string{"route", "follow", "explain"},
		Short:      "Predict the path of a message",
		Long: `Tell which queues a message reaches and through which bindings, and for each queue what
follows when its consumers fail: when the message is delivered again, with which headers,
where it ends, and whether it is lost. Nothing is published.

trace works offline, on the topology files of -f or on definitions that RabbitMQ exported.
With --broker it works on what the virtual host has: exchanges, queues, policies and alternate
exchanges of all teams. The topology file then says what the processor decides.

The exit code is 2 if the message is lost anywhere.`,
		Example: `  dlxctl trace --exchange events --key order.placed
  dlxctl trace --exchange events --key order.placed --fail 2 --fail audit=0
  dlxctl trace --exchange docs --header format=pdf --header pages=2 --reason crash
  dlxctl trace --broker --exchange events --key order.placed -o json
  dlxctl trace definitions.json --exchange events --key order.placed`,
		Annotations: map[string]string{outputsAnnotation: "text json markdown"},
		RunE:        k.run,
	}
	f := c.Flags()
	k.objects.add(f)
	f.StringVar(&k.exchange, "exchange", "", "`EXCHANGE` to which the message is published; empty is the default exchange")
	f.StringVar(&k.key, "key", "", "routing key of the message")
	f.StringArrayVar(&k.headers, "header", nil,
		"header `NAME=VALUE` of the message; repeat the flag for several; 7 and true are an integer and a boolean, \"7\" is a text")
	f.StringArrayVar(&k.fail, "fail", []string{"always"},
		"how many times in a row the message fails in each queue: always, `N`, or QUEUE=N for one queue; repeat the flag for several")
	f.StringVar(&k.expiration, "expiration", "", "TTL that the publisher sets, such as 30s")
	f.StringVar(&k.reason, "reason", string(trace.Rejected),
		"how consumers fail: rejected, expired (no consumer takes the message in time) or crash (up to the delivery limit)")
	f.BoolVarP(&k.verbose, "verbose", "v", false, "show all headers at each step")
	return c
}

// run follows one message.
func (k *traceCommand) run(c *cobra.Command, args []string) error {
	in, err := k.input(c)
	if err != nil {
		return err
	}
	var named []string
	if in.Exchange == "" {
		named = []string{in.Key}
	}
	have, err := k.objects.read(c, args, named...)
	if err != nil {
		return err
	}
	in.State, in.Live, in.Files, in.Place = have.state, have.live, have.files, have.place
	if err := checkQueues(in); err != nil {
		return err
	}
	r := trace.Run(in)
	switch k.app.output {
	case "json":
		err = jsondoc.Write(k.app.stdout, r)
	case "markdown":
		err = trace.WriteMarkdown(k.app.stdout, r)
	default:
		err = trace.WriteText(k.app.stdout, r, k.verbose)
	}
	if err == nil && r.Lost() {
		return errLost
	}
	return err
}

// input reads the flags that describe the message and its consumers.
func (k *traceCommand) input(c *cobra.Command) (trace.Input, error) {
	in := trace.Input{
		Exchange: k.exchange, Key: k.key, Headers: map[string]any{}, Cause: trace.Cause(k.reason),
		Failures: trace.Always, QueueFailures: map[string]int{},
	}
	if !c.Flags().Changed("exchange") {
		return in, usageError{errors.New(`no exchange is named; write --exchange NAME, or --exchange "" for the default exchange`)}
	}
	if !slices.Contains(trace.Causes(), in.Cause) {
		return in, usageError{fmt.Errorf("--reason is %q; write rejected, expired or crash", k.reason)}
	}
	for _, h := range k.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return in, usageError{fmt.Errorf("--header is %q; write NAME=VALUE", h)}
		}
		in.Headers[name] = headerValue(value)
	}
	if k.expiration != "" {
		d, err := topology.ParseDelay(k.expiration)
		if err != nil {
			return in, usageError{fmt.Errorf("--expiration is %q; %w", k.expiration, err)}
		}
		in.Expiration = &d
	}
	for _, f := range k.fail {
		if err := addFailures(&in, f); err != nil {
			return in, err
		}
	}
	return in, nil
}

// headerValue returns the value of a header: an integer, a boolean, or a text.
func headerValue(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if s == "true" || s == "false" {
		return s == "true"
	}
	if unquoted, err := strconv.Unquote(s); err == nil {
		return unquoted
	}
	return s
}

// addFailures reads a value of --fail.
func addFailures(in *trace.Input, value string) error {
	queue, number := "", value
	if i := strings.LastIndex(value, "="); i >= 0 {
		queue, number = value[:i], value[i+1:]
	}
	times := trace.Always
	if number != "always" {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return usageError{fmt.Errorf("--fail is %q; write always, a number, or QUEUE=N", value)}
		}
		times = n
	}
	if queue == "" {
		in.Failures = times
	} else {
		in.QueueFailures[queue] = times
	}
	return nil
}

// checkQueues refuses a queue of --fail that does not exist.
func checkQueues(in trace.Input) error {
	names := in.State.Have.QueueNames()
	for queue := range in.QueueFailures {
		if !slices.Contains(names, queue) {
			return usageError{fmt.Errorf("--fail names the queue %q, which does not exist%s", queue,
				topology.Suggestion(queue, names))}
		}
	}
	return nil
}
