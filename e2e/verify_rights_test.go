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

// Of several topologies one that has no backoff is left out, and one that cannot be verified does
// not stop the others.
func TestVerifyOfSeveralTopologies(t *testing.T) {
	t.Parallel()
	target, file := brokertest.VHost(t), writeTopology(t, verifyFile)
	succeeds(t, target, "apply", "--yes", "-f", file)
	plain := writeTopology(t, "version: 1\nname: plain\nqueues: [{name: audit, backoff: none}]\n")
	out := succeeds(t, target, "verify", "--tiers-only", "-f", plain, "-f", file)
	for _, want := range []string{"topology plain has no queue with a backoff", "1 tier of 1 verified"} {
		if !strings.Contains(out, want) {
			t.Errorf("verify does not print %q:\n%s", want, out)
		}
	}
	away := writeTopology(t, strings.Replace(verifyFile, "name: shop", "name: away\nvhost: nowhere", 1))
	code, out := dlxctl(target, "verify", "--tiers-only", "-f", away, "-f", file)
	if code != 1 || !strings.Contains(out, "topology away: ") || !strings.Contains(out, "1 tier of 1 verified") {
		t.Errorf("verify exits with %d:\n%s", code, out)
	}
	if code, out = dlxctl(target, "verify", "-f", plain); code != 1 || !strings.Contains(out, "nothing to verify") {
		t.Errorf("verify of a topology without a backoff exits with %d:\n%s", code, out)
	}
}
