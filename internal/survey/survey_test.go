package survey_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// virtualHost makes a virtual host of lines: "queue NAME ARGUMENT=VALUE ...", "exchange NAME TYPE",
// and "bind EXCHANGE QUEUE KEY". The arguments are dlx, key and ttl.
func virtualHost(lines string) topology.State {
	state := topology.State{VHost: "/", Version: "4.3.6"}
	for line := range strings.Lines(lines) {
		words := append(strings.Fields(line), "", "", "")
		switch words[0] {
		case "queue":
			args := topology.Arguments{topology.ArgQueueType: topology.Classic}
			for _, word := range words[2:] {
				switch name, value, _ := strings.Cut(word, "="); name {
				case "dlx":
					args[topology.ArgDeadLetterExchange] = value
				case "key":
					args[topology.ArgDeadLetterRoutingKey] = value
				case "ttl":
					args[topology.ArgMessageTTL] = int64(5000)
				}
			}
			state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: words[1], Durable: true, Arguments: args})
		case "exchange":
			state.Have.Exchanges = append(state.Have.Exchanges, topology.Exchange{
				Name: words[1], Type: words[2], Durable: true,
			})
		case "bind":
			state.Have.Bindings = append(state.Have.Bindings, topology.Binding{
				Source: words[1], Destination: words[2], DestinationType: topology.ToQueue, Key: words[3],
			})
		}
	}
	state.Have.Sort()
	return state
}

// twoByKey has two work queues behind one dead-letter exchange, which the keys tell apart.
const twoByKey = `
	exchange orders topic
	exchange dlx topic
	queue work dlx=dlx
	queue bill dlx=dlx
	queue work.wait ttl dlx= key=work
	queue deadbox
	bind orders work w.*
	bind orders bill b.*
	bind dlx work.wait w.*
	bind dlx deadbox b.*`

// What each queue is for, in typical virtual hosts.
func TestRoles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ host, want string }{
		"keys tell the retry queue from the dead-letter queue": {
			twoByKey, "bill:work deadbox:dead work:work work.wait:retry",
		},
		"a delay queue before a queue without bindings": {`
			exchange jobs direct
			queue delay ttl dlx= key=render
			queue render
			bind jobs delay`, "delay:delay render:work"},
		"a delay queue to which publishers send by its name": {`
			queue later.5s ttl dlx= key=render
			queue render`, "later.5s:delay render:work"},
		"a delay behind an exchange for it": {`
			exchange my-exchange.retry direct
			exchange my-exchange.work direct
			queue my-queue.retry ttl dlx=my-exchange.work
			queue my-queue.work
			bind my-exchange.retry my-queue.retry k
			bind my-exchange.work my-queue.work k`, "my-queue.retry:delay my-queue.work:work"},
		"two that dead-letter to each other, both with a TTL": {`
			exchange my-exchange.retry direct
			exchange my-exchange.work direct
			queue my-queue.retry ttl dlx=my-exchange.work
			queue my-queue.work ttl dlx=my-exchange.retry
			bind my-exchange.retry my-queue.retry k
			bind my-exchange.work my-queue.work k`, "my-queue.retry:retry my-queue.work:work"},
		"a work queue with a TTL and a dead-letter queue": {`
			exchange events topic
			queue alerts ttl dlx= key=alerts.dlq
			queue alerts.dlq
			bind events alerts alert.#`, "alerts:work alerts.dlq:dead"},
		"a work queue with a TTL and a dead-letter queue that others use": {`
			queue a ttl dlx= key=rest
			queue b dlx= key=rest
			queue rest`, "a:work b:work rest:dead"},
		"names of dead-letter queues, to which no queue dead-letters": {`
			exchange events topic
			exchange dead topic
			queue orders
			queue q.orders.dlq
			queue my-queue.dead
			queue dead-letter-queue
			queue errors
			queue deadlines
			bind events orders order.*
			bind events q.orders.dlq order.dlq
			bind dead my-queue.dead #`, "dead-letter-queue:dead deadlines:work errors:dead my-queue.dead:dead orders:work q.orders.dlq:dead"},
		"ordinary events with the name of failures": {`
			exchange payments topic
			exchange mail_error fanout
			queue payment.failed
			queue mail_error
			bind payments payment.failed payment.failed
			bind mail_error mail_error`, "mail_error:dead payment.failed:work"},
		"a retry loop of queues without bindings": {`
			queue mail dlx= key=mail.wait
			queue mail.wait ttl dlx= key=mail`, "mail:work mail.wait:retry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := virtualHost(tc.host)
			var got []string
			for _, q := range survey.New(state).Queues {
				got = append(got, fmt.Sprintf("%s:%s", q.Name, q.Role))
			}
			if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			agree(t, state)
		})
	}
}

// Where the dead letters of each queue go follows the keys with which its messages come.
func TestKeysDecide(t *testing.T) {
	t.Parallel()
	s := survey.New(virtualHost(twoByKey))
	for name, want := range map[string]string{"bill": "deadbox", "work": "work.wait", "work.wait": "work"} {
		if got := strings.Join(s.Queue(name).Targets(), " "); got != want {
			t.Errorf("the dead letters of %s go to %s, want %s", name, got, want)
		}
	}
	if got := strings.Join(s.Queue("deadbox").From, " "); got != "bill" {
		t.Errorf("deadbox has the dead letters of %s", got)
	}
}

// A retry queue that dead-letters to the exchange of the business hides none of its keys: messages
// come to the work queue with them first, and its dead-letter exchange has no binding for them.
func TestTheExchangeOfTheBusinessTakesRetriesBack(t *testing.T) {
	t.Parallel()
	s := survey.New(virtualHost(`
		exchange events topic
		exchange dlx topic
		queue work dlx=dlx
		queue work.retry ttl dlx=events key=work
		queue log dlx=dlx
		bind events work order.*
		bind events work work
		bind events log #
		bind dlx work.retry work`))
	for _, name := range []string{"work", "log"} {
		if fate := s.Queue(name).Fate(); fate == survey.Kept || fate == survey.Endless {
			t.Errorf("failed messages of %s are %s, and those with the key order.placed are lost", name, fate)
		}
	}
}

// What becomes of failed messages of a queue that a match covers is what becomes of them in the
// dead-letter queue of the match. Of several matches the broker does not say which one covers it.
func TestTheFateInAMatch(t *testing.T) {
	t.Parallel()
	const expiring, keeping = "svc.dlq", "shop.dead"
	const second = ", {match: '^other', external: true, backoff: once, dead: {queue: OTHER}}"
	for name, tc := range map[string]struct {
		dead, second, expires string
		next                  bool // the addresses are those of an apply that was interrupted
		want                  survey.Fate
	}{
		"its queue expires":            {dead: expiring, expires: expiring, want: survey.Lost},
		"its queue, in change":         {dead: expiring, expires: expiring, next: true, want: survey.Lost},
		"the unroutable queue expires": {dead: keeping, expires: "shop.unroutable", want: survey.Kept},
		"both keep":                    {dead: keeping, second: "graves", want: survey.Kept},
		"one of two expires":           {dead: keeping, second: expiring, expires: expiring, want: survey.Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "version: 1\nname: shop\nbackoff: {once: {tiers: []}}\nqueues: [{match: '^svc[.]mine', external: true, " +
				"backoff: once, dead: {queue: " + tc.dead + "}}"
			if tc.second != "" {
				file += strings.ReplaceAll(second, "OTHER", tc.second)
			}
			have := unlabeled(spectest.Compile(t, file+"]\n").Topology, false)
			for i, b := range have.Bindings {
				if tc.next && b.Source == topology.DeadLetterName("shop") {
					have.Bindings[i].Source = topology.NextExchangeName(b.Source)
				}
			}
			have.Queues = append(have.Queues, topology.Queue{
				Name: "svc.mine", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum},
			})
			if tc.expires != "" {
				have.Policies = append(slices.Clone(have.Policies), topology.Policy{
					Name: "team", Pattern: "^" + tc.expires + "$", ApplyTo: "queues",
					Definition: topology.Arguments{topology.KeyMessageTTL: int64(60_000)},
				})
			}
			got := survey.New(topology.State{VHost: "/", Version: "4.3.6", Have: have}).Fates()
			if len(got) != 1 || got["svc.mine"] != tc.want {
				t.Errorf("the fates are %v, want %s", got, tc.want)
			}
		})
	}
}

// read returns the virtual hosts of a definitions file.
func read(t *testing.T, name string, data []byte) []definitions.VHost {
	t.Helper()
	hosts, err := definitions.Read([]definitions.File{{Name: name, Data: data}})
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return hosts
}

// files returns what files contain, by their paths.
func files(t *testing.T, patterns ...string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			if out[file], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// Audit, import, drawing, trace and router agree about the definitions of real projects.
func TestAllAgreeOnRealDefinitions(t *testing.T) {
	t.Parallel()
	for file, data := range files(t, "../../testdata/real/*.json", "../../testdata/genomics/*.json") {
		for _, h := range read(t, file, data) {
			if said := contradictions(h.State); len(said) > 0 {
				t.Errorf("%s, %s:\n%s", file, h.State.VHost, strings.Join(said, "\n"))
			}
		}
	}
}

// They agree too about what topology files compile to, as a broker shows it: without labels, and
// without owner marks if another program has made it.
func TestAllAgreeOnCompiledTopologies(t *testing.T) {
	t.Parallel()
	var company []spec.Source
	for file, data := range files(t, "../../testdata/company/*.yaml") {
		company = append(company, spec.Source{Name: file, Data: data})
	}
	topologies := [][]spec.Source{company}
	single := files(t, "../../testdata/*.yaml", "../../testdata/genomics/*.yaml", "../../templates/starters/*.yaml")
	for file, data := range single {
		topologies = append(topologies, []spec.Source{{Name: file, Data: data}})
	}
	for _, sources := range topologies {
		compiled, _, err := spec.Load(sources, spectest.NoVariables)
		if err != nil {
			t.Fatal(err)
		}
		for _, foreign := range []bool{false, true} {
			have := unlabeled(compiled.Topology, foreign)
			for _, version := range []string{"3.10.8", "4.3.6"} {
				if said := contradictions(topology.State{VHost: "/", Version: version, Have: have}); len(said) > 0 {
					t.Errorf("%s, foreign %t, %s:\n%s", sources[0].Name, foreign, version, strings.Join(said, "\n"))
				}
			}
		}
	}
}

// unlabeled returns a topology as a broker shows it, or as another program would have made it.
func unlabeled(have topology.Topology, foreign bool) topology.Topology {
	show := func(label *topology.Label, args *topology.Arguments) {
		*label = topology.Label{}
		if foreign {
			*args = args.Without(topology.ArgManagedBy)
		}
	}
	have.Exchanges, have.Queues = slices.Clone(have.Exchanges), slices.Clone(have.Queues)
	have.Bindings = slices.Clone(have.Bindings)
	for i := range have.Exchanges {
		show(&have.Exchanges[i].Label, &have.Exchanges[i].Arguments)
	}
	for i := range have.Queues {
		show(&have.Queues[i].Label, &have.Queues[i].Arguments)
	}
	for i := range have.Bindings {
		show(&have.Bindings[i].Label, &have.Bindings[i].Arguments)
	}
	return have
}
