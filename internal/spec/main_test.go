package spec

import "flag"

// update is the flag of make golden.
var update = flag.Bool("update", false, "write what the golden tests get as what they want")
