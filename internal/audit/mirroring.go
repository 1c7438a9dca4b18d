package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

func mirroring() check {
	const ha = `{"queues": [{"name": "billing", "durable": true, "arguments": {}}],
 "policies": [{"name": "ha", "pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {%s}}]}`
	return check{Rule{
		ID: "mirroring-policy", Severity: Error, Group: groupRefused, Upgrade: Refused,
		Source: "4.0.5 and 4.3.6 measured; the start of a node 4.0.5, and the sources of 4.0 to 4.2",
		Title:  "RabbitMQ 4 refuses mirroring policies",
		Why: "Classic queue mirroring was removed in 4.0: a policy with ha-mode or another ha- key is refused, and with it the " +
			"import of the whole file. In a cluster of 3.x with ha-mode in a policy or an operator policy, a node of 4.x does " +
			"not start (failed_to_deny_deprecated_features). On 3.x it works, and the rule is a warning, as where the version " +
			"is not known.",
		Fix: "Before the upgrade, use quorum queues for messages that must survive the loss of a node, and delete the policy. " +
			"Then run dlxctl apply: it removes the copies of these keys from its own policies.",
		Hit:  Example{Definitions: fmt.Sprintf(ha, `"ha-mode": "all"`), Version: "4.0.5"},
		Miss: Example{Definitions: fmt.Sprintf(ha, `"max-length": 5`), Version: "4.0.5"},
	}, func(x *index) []Finding {
		var out []Finding
		for _, p := range x.State.Have.Policies {
			f, mirrors := x.mirrors(p)
			if !mirrors {
				continue
			}
			if _, generated := topology.PolicyOwner(p.Name); generated { // a copy of the keys of the policy that it overrides
				f.Remedy, f.Tries = "remove these keys from the policy that this one overrides, then run dlxctl apply", nil
			}
			out = append(out, f)
		}
		for _, p := range x.State.OperatorPolicies {
			if f, mirrors := x.mirrors(p); mirrors {
				f.Evidence = "operator " + f.Evidence
				f.Remedy, f.Tries = "ask who runs the broker to remove these keys from the operator policy", nil
				out = append(out, f)
			}
		}
		return out
	}}
}

// mirrors returns the finding about the keys of a policy that mirror queues, if it has any.
func (x *index) mirrors(p topology.Policy) (Finding, bool) {
	keys := slices.DeleteFunc(p.Definition.Names(), func(key string) bool { return !strings.HasPrefix(key, "ha-") })
	if len(keys) == 0 {
		return Finding{}, false
	}
	f := Finding{
		Object: p.ID(), Evidence: "policy sets " + strings.Join(keys, ", "),
		Consequence: "RabbitMQ 4 refuses the policy and the import of the whole file",
		Remedy:      "decide which queues should be quorum queues, and remove these keys from the policy",
	}
	mirrored := x.State.Major() < 4 || x.passes(0)
	if mirrored && slices.Contains(keys, "ha-mode") { // no other key keeps a node from starting
		f.Consequence += ", and in a cluster its nodes do not start"
	}
	if x.State.Major() < 4 { // where it does mirror queues
		f.Severity = Warning
	} else if f.Tries = without(p, keys); !mirrored {
		f.Tries[0].Chooses = "" // it mirrors nothing
	}
	return f, true
}
