package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

const unmanagedHead = "version: 1\nname: shop\ndefaults: {deadLetterBy: unmanaged, backoff: none}\nexchanges: [{name: e, type: headers}]\nqueues:\n"

// A queue whose dead-lettering is unmanaged compiles to itself and its bindings, and to nothing
// else. It may have a dead-letter exchange of its own.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, unmanagedHead+`
  - {name: own, arguments: {x-dead-letter-exchange: dlx, x-dead-letter-routing-key: k}, deliveryLimit: 3}
  - {name: others, external: true, bindings: [{exchange: e, key: k, arguments: {a: 1}}, {exchange: e, arguments: {}}]}
`)
	var got []string
	for _, q := range top.Queues {
		got = append(got, fmt.Sprint("queue ", q.Name, " ", q.External, " ", q.Arguments.Without(topology.ArgManagedBy)))
	}
	for _, b := range top.Bindings {
		got = append(got, fmt.Sprint("binding ", b.Key, " ", b.Arguments.Without(topology.ArgManagedBy)))
	}
	want := []string{
		"queue others true {}",
		`queue own false {"x-dead-letter-exchange":"dlx","x-dead-letter-routing-key":"k","x-delivery-limit":3,"x-queue-type":"quorum"}`,
		"binding  {}", `binding k {"a":1}`,
	}
	if d := cmp.Diff(want, got); d != "" || len(top.WorkQueues) > 0 || len(top.Policies) > 0 || len(top.Exchanges) > 1 {
		t.Errorf("it compiles to (-want +got):\n%s\n%+v", d, top)
	}
}

// What contradicts itself is refused with what to write.
func TestUnmanagedIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ entry, want string }{
		{"{name: q, backoff: none}", `6:15: queue "q" has backoff, and its deadLetterBy is unmanaged; write deadLetterBy: policy or`},
		{"{name: q, dead: shared}", `6:15: queue "q" has dead, and its deadLetterBy is unmanaged;`},
		{"{name: q, replaces: r}", `6:15: queue "q" has replaces, and its deadLetterBy is unmanaged;`},
		{"{name: q, external: true, deliveryLimit: 2}", `6:31: queue "q" has deliveryLimit, and its deadLetterBy is unmanaged;`},
		{"{name: q, deadLetterBy: none}", `6:29: deadLetterBy is "none"; write arguments, policy or unmanaged`},
		{"{name: q, deadLetterBy: policy, arguments: {x-dead-letter-exchange: e}}", `6:49: arguments must not contain x-dead-letter-exchange; the queue's backoff sets where it dead-letters to`},
		{"{name: q, bindings: [{exchange: e, headers: {a: 1}, arguments: {a: 1}}]}", `6:57: binding has headers and arguments; keep one of them`},
		{"{name: q, bindings: [{exchange: e, arguments: {x-managed-by: me}}]}", `6:52: arguments must not contain x-managed-by; dlxctl sets it`},
		{"{name: q, deadLetterBy: policy, dead: {queue: d, external: true, arguments: {a: 1}}}", `6:70: the dead-letter queue "d" is external and has arguments;`},
		{"{name: q, deadLetterBy: policy, dead: {queue: d, external: true}}\n  - {name: r, deadLetterBy: policy, dead: {queue: d}}", `7:51: dead-letter queue "d" is external for queue "q", and not for queue "r"; write external: true for both, or for neither`},
	} {
		entry, want := test.entry, test.want
		source := spec.Source{Name: "f", Data: []byte(unmanagedHead + "  - " + entry + "\n")}
		_, _, err := spec.Load([]spec.Source{source}, spectest.NoVariables)
		if err == nil || !strings.HasPrefix(err.Error(), "f:"+want) {
			t.Errorf("%s: %v, not\n%s", entry, err, want)
		}
	}
}

// An unused backoff is not a warning while the file leaves a queue alone: it is for later.
func TestUnmanagedKeepsABackoffForLater(t *testing.T) {
	t.Parallel()
	file := "version: 1\nname: shop\nbackoff: {later: {tiers: [1s]}}\nqueues: [{name: q, backoff: none}%s]\n"
	for more, want := range map[string]int{"": 1, ", {name: r, external: true, deadLetterBy: unmanaged}": 0} {
		_, warnings := spectest.CompileFile(t, "f", fmt.Appendf(nil, file, more))
		if len(warnings) != want {
			t.Errorf("with %q there are the warnings %v", more, warnings)
		}
	}
}

// An external dead-letter queue is bound, and not declared.
func TestExternalDeadLetterQueue(t *testing.T) {
	t.Parallel()
	top := spectest.Compile(t, "version: 1\nname: shop\nqueues: [{name: q, backoff: none, dead: {queue: graves, external: true}}]\n")
	for _, q := range top.Queues {
		if q.Name == "graves" && q.External && len(q.Arguments) == 0 {
			return
		}
	}
	t.Errorf("no external queue graves in %+v", top.Queues)
}
