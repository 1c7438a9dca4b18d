package cmd

import (
	"strings"
	"testing"
)

// A file that -f names twice, or in a folder too, is not a second topology. import reads no
// topology file, and the variables of the flags, which are for all commands, do not matter to it.
func TestFilesThatAreNamedInVain(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"validate -f ../testdata/shop.yaml -f ./../testdata/shop.yaml":                "./../testdata/shop.yaml is read twice, by -f ../testdata/shop.yaml and by -f ./../testdata/shop.yaml; remove one of them",
		"audit -f ../testdata/shop.yaml -f ../testdata/shop.yaml":                     "../testdata/shop.yaml is read twice",
		"validate -f ../testdata/genomics -f ../testdata/genomics/topology.yaml":      "../testdata/genomics/topology.yaml is read twice, by -f ../testdata/genomics and by -f ../testdata/genomics/topology.yaml",
		"import ../internal/audit/testdata/none.json -f ../testdata/shop.yaml":        "import reads no topology file; remove -f, or write a file with -o FILE",
		"import ../internal/audit/testdata/none.json --overlay ../testdata/shop.yaml": "import reads no topology file; remove --overlay, or write a file with -o FILE",
	} {
		if code, said := runWith(t, strings.Fields(args), ""); code != exitUsage || !strings.Contains(said, want) {
			t.Errorf("dlxctl %s exits with %d and prints\n%s\nwithout\n%s", args, code, said, want)
		}
	}
	_, said := runWith(t, []string{"import", "none.json"}, "DLXCTL_FILE=shop.yaml")
	if !strings.Contains(said, "none.json") {
		t.Errorf("import with DLXCTL_FILE prints\n%s", said)
	}
}
