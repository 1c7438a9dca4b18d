package audit_test

import "flag"

// update is the flag of make golden.
var update = flag.Bool("update", false, "write the pages of the rules and the expected outputs") //nolint:gochecknoglobals // a flag of tests
