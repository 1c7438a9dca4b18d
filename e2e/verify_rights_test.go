package e2e_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const verifyFile = `
version: 1
name: shop
defaults: {backoff: standard, type: classic}
backoff: {standard: {tiers: [100ms]}}
queues: [{name: billing}]
`

// With the rights that 'dlxctl rights' prints for verify it works. Without one of them it names the
// right, and writes nothing.
func TestEachVerifyRightIsNeeded(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, verifyFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	before := target.Definitions(t)
	full := grant(t, verifyFile, "verify")
	succeeds(t, as(t, target, full), "verify", "--tiers-only", "-f", file)
	unchanged(t, target, before, "verify")
	for _, missing := range append(rightsOf(full), right{"tag", "management"}) {
		says := missing.permission + " on the "
		object := missing.object()
		if missing.permission == "tag" {
			says, object = "rabbitmqctl set_user_tags", "management"
		}
		code, out := dlxctl(as(t, target, without(full, missing)), "verify", "--tiers-only", "-f", file)
		if code != 1 || !strings.Contains(out, says) || !strings.Contains(out, object) {
			t.Errorf("verify without %s exits with %d, or does not say %q and %q:\n%s", missing, code, says, object, out)
		}
		unchanged(t, target, before, "verify without "+missing.String())
	}
}
