package cmd

import "flag"

// update is the flag of make golden.
var update = flag.Bool("update", false, "write docs/reference.md")
