// Pictures draws the pictures of the README and the docs as SVG. "make docs" runs it.
//
//	pictures message                  prints a message's way through the queues
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
		return fmt.Errorf("usage: pictures message|record|terminal")
	}
	if args[0] == "message" {
		_, err := io.WriteString(out, message())
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
		err = fmt.Errorf("no picture is called %q; draw message, record or terminal", args[0])
	}
	return err
}
