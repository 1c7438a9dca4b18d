// Pictures draws the pictures of the README and the docs as SVG. "make docs" runs it.
//
//	pictures message                  prints a message's way through the queues
//	pictures consumer                 prints what a consumer does with a message that failed
//	pictures backoff                  prints the deliveries of a message and its tiers
//	pictures cutover                  prints the steps of a migration
//	pictures record < OUTPUT          prints the output of the demo without what differs between runs
//	pictures terminal < RECORD        prints a record as a terminal that plays it
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: pictures message|consumer|backoff|cutover|record|terminal")
	}
	drawings := map[string]func() string{"message": message, "consumer": consumer, "backoff": backoff, "cutover": cutover}
	if draw, ok := drawings[args[0]]; ok {
		_, err := io.WriteString(out, draw())
		return err
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	switch args[0] {
	case "record":
		_, err = io.WriteString(out, record(string(data)))
	case "terminal":
		_, err = io.WriteString(out, terminal(string(data)))
	default:
		err = fmt.Errorf("no picture is called %q; draw message, consumer, backoff, cutover, record or terminal", args[0])
	}
	return err
}
