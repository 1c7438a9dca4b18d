// Pictures makes a picture of the demo in a terminal, as SVG. scripts/pictures runs it.
//
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
	pictures := map[string]func(string) string{"record": record, "terminal": terminal}
	if len(args) != 1 || pictures[args[0]] == nil {
		return fmt.Errorf("usage: pictures record|terminal")
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, pictures[args[0]](string(data)))
	return err
}
