package plan_test

import "flag"

var update = flag.Bool("update", false, "write what the golden tests get as what they want")
