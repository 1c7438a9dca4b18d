package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// traveler follows the page about existing brokers, while services publish and consume.
type traveler struct {
	reader
	// wanted is, by queue, each message that was published and confirmed for it.
	wanted map[string]map[string]bool
	// rejecting are the queues whose consumers reject every tenth message.
	rejecting sync.Map
	// kept is, by queue, how many rejected messages were kept.
	kept map[string]int

	mu sync.Mutex
	// seen is, by queue as it was called at first, how often each message was consumed or found.
	seen map[string]map[string]int
}

// source is an exchange and a key, and the queues to which they lead.
type source struct {
	exchange, key string
	queues        []string
}

// toPolicy are the queues that get their dead-lettering by policy, and toSuccessor those that get
// a successor.
func toPolicy() []string { return []string{"accession", "archived", "inbox", "ingest", "verified"} }

func toSuccessor() []string { return []string{"Action.Printer", "case.refusals", "case.fulfilments"} }

func sources() []source {
	list := []source{
		{"sda", "backup", []string{"backup"}},
		{"action-outbound-exchange", "Action.Printer.binding", []string{"Action.Printer"}},
		{"events", "event.respondent.refusal", []string{"case.refusals"}},
		{"events", "event.fulfilment.request", []string{"action.fulfilment", "case.fulfilments", "notify.fulfilments"}},
	}
	for _, queue := range toPolicy() {
		list = append(list, source{"sda", queue, []string{queue}})
	}
	return list
}

// A broker with the topologies of two projects comes under dlxctl, as the page says: five queues
// get dead-lettering by policy, and three get a successor. Publishers and consumers run all the
// time. Each message is consumed, or is in a queue, exactly once.
func TestFromAnExistingBroker(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	for _, name := range []string{"neic-sda", "ons-census-rm"} {
		addDefinitions(t, target, "../testdata/real/"+name+".json")
	}
	v := &traveler{
		reader: reader{t, target.Tool(t, "policymaker"), t.TempDir()},
		wanted: map[string]map[string]bool{}, seen: map[string]map[string]int{}, kept: map[string]int{},
	}
	page := blocks(t, "../docs/existing-broker.md", "sh")
	if len(page) != 8 {
		t.Fatalf("the page has %d blocks of commands, not 8", len(page))
	}
	publishing := v.publish(target, sources())
	legacy := map[string]func(){}
	for _, queue := range slices.Concat(toPolicy(), toSuccessor(), []string{"notify.fulfilments"}) {
		legacy[queue] = v.consume(target, queue, queue)
	}

	v.runs(page[0])
	v.expectFates(toPolicy(), "lost")
	v.runs(page[1])
	v.edit("topology.yaml", toPolicy(), uncommented)
	v.runs(page[2])
	v.expectFates(toPolicy(), "kept")
	for _, queue := range toPolicy() {
		v.rejecting.Store(queue, true)
	}
	v.expectFinding(toSuccessor(), "retries-forever", true)
	v.runs(page[3])
	v.runs(page[4])
	var stops []func()
	for _, queue := range toSuccessor() {
		v.rejecting.Store(queue+".v2", true)
		stops = append(stops, v.consume(target, queue+".v2", queue))
	}
	v.runs(page[5])
	for _, queue := range toSuccessor() {
		legacy[queue]()
		delete(legacy, queue)
	}
	v.runs(page[6])
	v.expectFates([]string{"Action.Printer.v2", "case.refusals.v2", "case.fulfilments.v2"}, "kept")
	v.expectFinding(toSuccessor(), "retries-forever", false)
	v.exits(page[7], 0, 2) // the queues that stayed as they were lose messages

	n := publishing()
	for _, stop := range slices.Concat(stops, slices.Collect(maps.Values(legacy))) {
		stop()
	}
	v.collect(target)
	v.account(n)
}

// addDefinitions adds the objects of a definitions file to a virtual host.
func addDefinitions(t *testing.T, target brokertest.Target, path string) {
	t.Helper()
	var d definitions
	if err := json.Unmarshal([]byte(readFile(t, path)), &d); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, o := range slices.Concat(d.Exchanges, d.Queues) {
		known[fmt.Sprint(o["name"])] = true
	}
	// Later lines than 3.10 refuse bindings to a destination that the file lacks.
	d.Bindings = slices.DeleteFunc(d.Bindings, func(b object) bool { return !known[fmt.Sprint(b["destination"])] })
	for _, o := range slices.Concat(d.Exchanges, d.Queues, d.Bindings, d.Policies) {
		delete(o, "vhost")
	}
	target.Call(t, "POST", "definitions/"+target.VHost, d)
}

// runs runs the commands of a block of the page.
func (v *traveler) runs(b block) {
	v.Helper()
	v.exits(b, make([]int, len(b.commands()))...)
}

// exits runs the commands of a block, which exit with these codes.
func (v *traveler) exits(b block, codes ...int) {
	v.Helper()
	for i, command := range b.commands() {
		p := v.shell(command)
		<-p.ended
		if code := p.ProcessState.ExitCode(); code != codes[i] {
			v.Fatalf("%q exits with %d\n%s%s", command, code, &p.stdout, &p.stderr)
		}
	}
}

// audit is what dlxctl audit -o json prints, with the parts that the test uses.
type audit struct {
	VirtualHosts []struct {
		Fates map[string]string `json:"fates"`
	} `json:"vhosts"`
	Findings []struct {
		Rule string `json:"rule"`
		Name string `json:"name"`
	} `json:"findings"`
}

func (v *traveler) audit() audit {
	v.Helper()
	var a audit
	out := succeeds(v.T, v.target, "audit", "-o", "json")
	if err := json.Unmarshal([]byte(out), &a); err != nil || len(a.VirtualHosts) != 1 {
		v.Fatalf("%v\n%s", err, out)
	}
	return a
}

// expectFates checks what audit says of failed messages.
func (v *traveler) expectFates(queues []string, want string) {
	v.Helper()
	a := v.audit()
	for _, queue := range queues {
		if got := a.VirtualHosts[0].Fates[queue]; got != want {
			v.Errorf("audit says that failed messages of %s are %q, not %s", queue, got, want)
		}
	}
}

// expectFinding checks whether audit finds this about the queues.
func (v *traveler) expectFinding(queues []string, rule string, want bool) {
	v.Helper()
	a := v.audit()
	for _, queue := range queues {
		got := false
		for _, f := range a.Findings {
			got = got || f.Rule == rule && (f.Name == queue || f.Name == queue+".v2")
		}
		if got != want {
			v.Errorf("audit finds %s for %s: %t, want %t", rule, queue, got, want)
		}
	}
}

// edit edits the entries of queues in a topology file.
func (v *traveler) edit(file string, queues []string, change func(entry string) string) {
	v.Helper()
	path := filepath.Join(v.dir, file)
	text := readFile(v.T, path)
	for _, queue := range queues {
		entry := regexp.MustCompile(`(?m)^  - name: ` + regexp.QuoteMeta(queue) + `\n(    .*\n)*`).FindString(text)
		if entry == "" || change(entry) == entry {
			v.Fatalf("the file has nothing to edit for %s:\n%s", queue, text)
		}
		text = strings.Replace(text, entry, change(entry), 1)
	}
	writeTo(v.T, path, text)
}

// uncommented is an entry with its commented keys.
func uncommented(entry string) string {
	return regexp.MustCompile(`(?m)^    # ((replaces|type|arguments|deadLetterBy|backoff): )`).ReplaceAllString(entry, "    $1")
}

// publish publishes to the sources, one message after the other, until stop, which returns how many
// there were.
func (v *traveler) publish(target brokertest.Target, list []source) (stop func() int) {
	v.Helper()
	ch := target.Confirming(v.T)
	done, n := make(chan struct{}), 0
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(brokertest.Pause(2 * time.Millisecond))
		defer tick.Stop()
		for ; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			s := list[n%len(list)]
			id := fmt.Sprint(n)
			confirm, err := ch.PublishWithDeferredConfirm(s.exchange, s.key, true, false, amqp091.Publishing{
				MessageId: id, DeliveryMode: amqp091.Persistent,
			})
			if err != nil || !confirm.Wait() {
				v.Errorf("message %d was not confirmed: %v", n, err)
				return
			}
			for _, queue := range s.queues {
				if v.wanted[queue] == nil {
					v.wanted[queue] = map[string]bool{}
				}
				v.wanted[queue][id] = true
			}
		}
	})
	return sync.OnceValue(func() int { close(done); wg.Wait(); return n })
}

// consume consumes from a queue until stop. It counts the messages for origin.
func (v *traveler) consume(target brokertest.Target, queue, origin string) (stop func()) {
	v.Helper()
	ch := target.Channel(v.T)
	if err := ch.Qos(10, 0, false); err != nil {
		v.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, queue, false, false, false, false, nil)
	if err != nil {
		v.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			d, ok := <-deliveries
			if !ok {
				return
			}
			if _, rejects := v.rejecting.Load(queue); rejects && n%10 == 0 {
				_ = d.Reject(false) // collect finds it in the failed queue
				continue
			}
			v.found(origin, d.MessageId)
			_ = d.Ack(false) // a message whose acknowledgment is lost comes twice, and account says so
		}
	})
	return func() {
		if err := ch.Cancel(queue, false); err != nil {
			v.Error(err)
		}
		wg.Wait()
	}
}

func (v *traveler) found(queue, id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen[queue] == nil {
		v.seen[queue] = map[string]int{}
	}
	v.seen[queue][id]++
}

// collect takes the messages from all queues.
func (v *traveler) collect(target brokertest.Target) {
	v.Helper()
	var queues []struct{ Name, Type string }
	list := target.Call(v.T, "GET", "queues/"+target.VHost+"?columns=name,type", nil)
	if err := json.Unmarshal(list, &queues); err != nil {
		v.Fatal(err)
	}
	ch := target.Channel(v.T)
	for _, q := range queues {
		for q.Type != "stream" {
			d, ok, err := ch.Get(q.Name, true)
			if err != nil {
				v.Fatal(err)
			}
			if !ok {
				break
			}
			origin, failed := strings.CutPrefix(d.RoutingKey, "@")
			if failed {
				v.kept[origin]++
			} else {
				origin = q.Name
			}
			v.found(strings.TrimSuffix(origin, ".v2"), d.MessageId)
		}
	}
}

// account compares what was published with what was consumed and found.
func (v *traveler) account(published int) {
	v.Helper()
	copies, lost, doubled := 0, 0, 0
	for queue, ids := range v.wanted {
		for id := range ids {
			copies++
			switch n := v.seen[queue][id]; {
			case n == 0:
				lost++
			case n > 1:
				doubled++
			}
		}
	}
	v.Logf("%d messages were published, %d copies in queues; rejected and kept: %v", published, copies, v.kept)
	v.rejecting.Range(func(queue, _ any) bool {
		if v.kept[queue.(string)] == 0 {
			v.Errorf("no message that was rejected from %s was found", queue)
		}
		return true
	})
	if lost+doubled > 0 || copies < 200 {
		v.Errorf("of %d copies, %d were lost and %d doubled", copies, lost, doubled)
	}
}
