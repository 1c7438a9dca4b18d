package desk_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// refusal is a situation that the desk refuses, and the whole text: what is refused, why, and,
// behind the last semicolon or the last colon, what to do next.
type refusal struct{ name, text string }

// lookRefusals are the refusals of a look that follow from the state of the broker alone.
func lookRefusals() map[refusal]func() error {
	queue := func(arguments topology.Arguments, u topology.Usage, consumers, returned int64) func() error {
		if !arguments.HasAny(topology.ArgQueueType) {
			arguments = arguments.With(topology.ArgQueueType, topology.Classic)
		}
		version := "4.0.5"
		if arguments.HasAny("x-delayed-retry-type") {
			version = "4.3.6"
		}
		return func() error {
			return desk.RefuseLook(topology.State{
				VHost: "shop", Version: version, Usage: map[string]topology.Usage{"q": u},
				Have: topology.Topology{Queues: []topology.Queue{
					{Name: "q", Durable: true, Arguments: arguments}, {Name: "billing.dead"},
				}},
			}, "q", consumers, returned)
		}
	}
	governed := func(policy string) func() error { // by a policy that delays retries
		return func() error {
			return desk.RefuseLook(topology.State{
				VHost: "shop", Version: "4.3.6", Have: topology.Topology{
					Queues: []topology.Queue{
						{Name: "q", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum}},
					},
					Policies: []topology.Policy{{
						Name: policy, Pattern: "^q$", ApplyTo: "queues",
						Definition: topology.Arguments{"delayed-retry-type": "all", "delayed-retry-min": int64(60000)},
					}},
				},
			}, "q", 0, 0)
		}
	}
	minusOne := func() error { // before 4.0, with a policy that does not help
		state := topology.State{VHost: "shop", Version: "3.10.8"}
		state.Have.Queues = []topology.Queue{{Name: "q", Durable: true, Arguments: topology.Arguments{
			topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: int64(-1),
		}}}
		state.Have.Policies = []topology.Policy{{
			Name: "q-only", Pattern: "^q$", ApplyTo: "queues",
			Definition: topology.Arguments{topology.KeyDeliveryLimit: topology.Unlimited},
		}}
		return desk.RefuseLook(state, "q", 0, 0)
	}
	ten := topology.Usage{Ready: 10, Bytes: 900}
	user := &desk.Desk{Topology: topology.Compiled{Name: "shop"}}
	user.Endpoint.AMQP.User = "ann"
	return map[refusal]func() error{
		{"a missing queue", "queue billing does not exist in vhost shop; did you mean billing.dead?"}: func() error {
			return desk.RefuseLook(topology.State{
				VHost: "shop", Have: topology.Topology{Queues: []topology.Queue{{Name: "billing.dead"}}},
			}, "billing", 0, 0)
		},
		{"a topology that has parked nothing", "queue shop.parked does not exist in vhost shop; if the topology shop has parked no message yet, there is nothing to restore"}: func() error {
			return desk.RefuseLook(topology.State{VHost: "shop"}, "shop.parked", 0, 0)
		},
		{"an unknown type", `queue q is of the type "jms", which dlxctl does not know: it looks at classic and quorum queues and streams; read it with the tools of the plugin that brings the type`}: queue(
			topology.Arguments{topology.ArgQueueType: "jms"}, ten, 0, 0),
		{"a single active consumer", "queue q has a single active consumer (x-single-active-consumer), and a look would take its place, or wait for it; stop the consumer and use a queue without that argument"}: queue(
			topology.Arguments{"x-single-active-consumer": true}, ten, 1, 0),
		{"consumers", "queue q has 2 consumers, and a look would withhold up to 10 messages from them; stop them, or pass --beside-consumers"}: queue(
			nil, ten, 2, 0),
		{"a length limit", "queue q drops its oldest messages when it is full, and has room for 5 more of 15: what arrives during the look could push out what comes back; look at no more than 5, or raise max-length, or set overflow to reject-publish, in the policy or the arguments of the queue"}: queue(
			topology.Arguments{topology.ArgMaxLength: int64(15)}, ten, 0, 0),
		{"an unknown size", "queue q drops its oldest messages when it has more than 1000 bytes, and its size is not known yet; try again in 10 seconds, or, if its messages have no bodies or the broker keeps no statistics (management_agent.disable_metrics_collector), remove max-length-bytes, or set overflow to reject-publish, in the policy or the arguments of the queue"}: queue(
			topology.Arguments{topology.ArgMaxLengthBytes: int64(1000)}, topology.Usage{Ready: 10}, 0, 0),
		{"a limit in bytes", "queue q drops its oldest messages when it is full, and has room for 100 bytes more of 1000: what arrives during the look could push out what comes back; raise max-length-bytes, or set overflow to reject-publish, in the policy or the arguments of the queue"}: queue(
			topology.Arguments{topology.ArgMaxLengthBytes: int64(1000)}, ten, 0, 0),
		{"a queue that rejects when it is full", "queue q rejects messages when it is full, and has room for 5 more of 15: what arrives during the look could keep out the copy of a message that has used up its returns; look at no more than 5, or raise max-length in the policy or the arguments of the queue; or consume the message, or raise delivery-limit for it by a policy"}: queue(
			topology.Arguments{
				topology.ArgQueueType: topology.Quorum, topology.ArgMaxLength: int64(15),
				topology.ArgOverflow: topology.RejectPublish,
			}, ten, 0, 0),
		{"a spent delivery limit", "the first message of queue q can be returned 1 time more before the broker drops or dead-letters it (delivery limit 20), and a look returns it; consume the message, or raise delivery-limit for it by a policy"}: queue(
			topology.Arguments{topology.ArgQueueType: topology.Quorum}, ten, 0, 18),
		{"a delivery limit of -1 before 4.0", "the first message of queue q can be returned 0 times more before the broker drops or dead-letters it (delivery limit 0), and a look returns it; consume the messages, as no policy raises the limit of an argument (x-delivery-limit)"}: minusOne,
		{"a delayed retry", "queue q withholds what is returned to it for 1m or longer (delayed-retry-type all), and a look would hide its messages for that time; set delayed-retry-type: disabled for it by a policy"}: queue(
			topology.Arguments{
				topology.ArgQueueType: topology.Quorum, "x-delayed-retry-type": "all", "x-delayed-retry-min": int64(60000),
			}, ten, 0, 0),
		{"a delayed retry by a policy of others", "queue q withholds what is returned to it for 1m or longer (delayed-retry-type all), and a look would hide its messages for that time; set delayed-retry-type: disabled in its policy team, or in a copy of that for this queue"}: governed("team"),
		{"a delayed retry by dlxctl", "queue q withholds what is returned to it for 1m or longer (delayed-retry-type all), and a look would hide its messages for that time; let the consumers read the messages, or write a backoff with engine: processor for it in the topology file, and run dlxctl apply; another policy would end its dead-lettering"}: governed(
			topology.PolicyName("shop", "q")),
		{"rights of the topology", `user "ann" lacks write on the exchange shop.return and read on the queue mail; run 'dlxctl rights' and add what it prints for the user desk to the permissions of ann, and add the right to the permissions of ann with rabbitmqctl set_permissions, as 'dlxctl rights' prints only those for the queues of the topology`}: func() error {
			return user.Lacks([]string{"write on the exchange shop.return"}, []string{"read on the queue mail"})
		},
		{"the right to read", `user "ann" lacks read on the queue shop.parked; run 'dlxctl rights' and add what it prints for the user desk-reader, or desk, to the permissions of ann`}: func() error {
			return user.MayRead("shop.parked", broker.ErrForbidden)
		},
	}
}

// runRefusals are the refusals of a run, and of a look at a queue on a broker. returned is a run
// that another process began to return.
func runRefusals(d *desk.Desk, returned string) map[refusal]func() error {
	var looks sync.Mutex // one look withholds the messages from another
	propose := func(r desk.Request) func() error {
		return func() error {
			looks.Lock()
			defer looks.Unlock()
			_, err := d.Propose(context.Background(), r)
			return err
		}
	}
	return map[refusal]func() error{
		{"no topology", "a run needs a topology; pass the topology file with -f"}: func() error {
			_, err := (&desk.Desk{}).Propose(context.Background(), desk.Request{})
			return err
		},
		{"an edit that changes nothing", "nothing was edited; change the message first"}: propose(
			desk.Request{Action: desk.Edit, Queue: "billing.dead"}),
		{"to restore what is not parked", "restore takes messages from shop.parked; name that queue"}: propose(
			desk.Request{Action: desk.Restore, Queue: "billing.dead"}),
		{"to park what is parked", "the messages of shop.parked are parked already; restore, replay, or discard them forever"}: propose(
			desk.Request{Action: desk.Park, Queue: "shop.parked"}),
		{"to send to the same queue", "the target is the queue billing.dead itself; name another"}: propose(
			desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Queue: "billing.dead"}}),
		{"the hold of a run", "shop.desk.20260102-030405-abcdef is the hold of a run; resume or return that run"}: propose(
			desk.Request{Action: desk.Replay, Queue: "shop.desk.20260102-030405-abcdef"}),
		{"an edit that does not fit", "the message cannot be changed so: the content-type has 300 bytes; the limit is 255; change the edit"}: propose(
			desk.Request{
				Action: desk.Edit, Queue: "billing.dead", Limit: 1,
				Edited: &deadletter.Edited{ContentType: new(strings.Repeat("x", 300))},
			}),
		{"a queue from which another run takes", "another desk works on the queue billing.dead: HOLDER; wait until it has taken its messages, or stop its run with 'dlxctl desk run cancel'; 'dlxctl desk run list' lists those that have a hold"}: func() error {
			looks.Lock()
			p, err := d.Propose(context.Background(), desk.Request{Action: desk.Replay, Queue: "billing.dead"})
			looks.Unlock()
			if err == nil {
				_, err = d.Execute(context.Background(), p, nil)
			}
			return err
		},
		{"a queue of another connection", "queue mine belongs to another connection alone (exclusive), and the broker refuses all others; read it in the program that declared it"}: func() error {
			_, err := d.Look(context.Background(), "mine", desk.LookOptions{}, func(deadletter.Message) error { return nil })
			return err
		},
		{"to resume an unknown run", "there is no run never; 'dlxctl desk run list' lists those that have not ended"}: func() error {
			_, err := d.Resume(context.Background(), "never", nil, nil)
			return err
		},
		{"to return an unknown run", "there is no run never-2; 'dlxctl desk run list' lists those that have not ended"}: func() error {
			_, err := d.Return(context.Background(), "never-2", nil)
			return err
		},
		{"to cancel what no process works on", "no process works on the run never-3; 'dlxctl desk run resume never-3' continues it, and 'dlxctl desk run return never-3' gives back what its hold has"}: func() error {
			return d.Cancel(context.Background(), "never-3")
		},
		{"a run whose list is gone", "the list of the run gone is gone; 'dlxctl desk run return gone' gives back what its hold has, and may double messages"}: func() error {
			_, err := d.Resume(context.Background(), "gone", nil, nil)
			return err
		},
		{"to resume what is being returned", fmt.Sprintf("the run %s is being returned; 'dlxctl desk run return %s' continues", returned, returned)}: func() error {
			_, err := d.Resume(context.Background(), returned, nil, nil)
			return err
		},
		{"a run that another process works on", "another process works on the run busy: HOLDER; wait for its end, or stop it with 'dlxctl desk run cancel busy'"}: func() error {
			_, err := d.Resume(context.Background(), "busy", nil, nil)
			return err
		},
	}
}

// Each refusal says what is refused, why, and what to do next.
func TestRefusalsSayWhatToDo(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 4)
	returned := s.takenOnly(t, 1)
	brokertest.PublishConfirmed(t, s.ch, "", topology.HoldName("shop", returned), amqp091.Publishing{
		Headers: amqp091.Table{"desk-manifest": returned, "desk-record": "returning"},
	})
	hold, err := s.ch.QueueDeclare("shop.desk.gone", true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
	if err != nil {
		t.Fatal(err)
	}
	brokertest.PublishConfirmed(t, s.ch, "", hold.Name, amqp091.Publishing{MessageId: "held"})
	s.awaitReady(t, hold.Name, 1)
	other := s.target.Channel(t) // another connection holds locks, and a queue of its own
	for _, name := range []string{
		topology.DeskWorkerName("shop", "busy"), topology.DeskLockName("shop", "billing.dead"), "mine",
	} {
		if _, err := other.QueueDeclare(name, false, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	holder := regexp.MustCompile(`(works on the (?:run|queue) \S+)(: .* from [^;]+| \(the broker [^)]*\));`)
	var all sync.WaitGroup
	for _, table := range []map[refusal]func() error{lookRefusals(), runRefusals(s.desk, returned)} {
		for r, provoke := range table {
			all.Go(func() { // some wait for a lock
				err := provoke()
				if !errors.Is(err, desk.ErrRefused) {
					t.Errorf("%s is not refused: %v", r.name, err)
					return
				}
				if d := cmp.Diff(r.text, holder.ReplaceAllString(err.Error(), "$1: HOLDER;")); d != "" {
					t.Errorf("%s (-want +got):\n%s", r.name, d)
				}
			})
		}
	}
	all.Wait()
	// What was refused has left nothing behind.
	if run := s.onlyRun(t); run != returned {
		t.Errorf("the run is %s", run)
	}
	for name, n := range map[string]int{"billing.dead": 3, hold.Name: 1} {
		s.awaitReady(t, name, n)
	}
}

// heldElsewhere are refusals whose texts other tests provoke, by how they begin.
func heldElsewhere() map[string]string {
	return map[string]string{
		"vhost %s has no topology":                   "TestTheTopologyThatIsMeant",
		"vhost %s has the topologies":                "TestTheTopologyThatIsMeant",
		"the broker drops or dead-letters a message": "TestALookCanSaveAMessage",
		"the message that was edited is no longer":   "TestAnEditIsOfTheMessageThatWasRead",
		"the first message of queue %s was returned": "TestLooksKeepMessagesThatBringTheirCount",
		"the run %s has begun to give messages back": "TestAnotherRunWaitsForOneThatWasKilled",
		"%s; then 'dlxctl desk run resume %s'":       "TestResumesDoNotBringMessagesOverTheirLimit",
		"the run %s has not taken all":               "TestAnotherRunWaitsForOneThatWasKilled",
		"queue %s has an exclusive consumer":         "TestPullWithAnExclusiveConsumer",
		"%s is not a work queue of the topology":     "TestPullIsRefusedByWhatTheQueueHas",
		"queue %s is a stream, out of which":         "TestPullRefusals and TestNothingIsTakenOutOfAStream",
		"queue %s rejects messages, as it has":       "TestAReturnToAFullQueueIsRefusedInTime",
		"a policy gives %s a dead-letter exchange":   "TestARunWhoseRecordCannotBeWritten",
		"%s has the records of runs":                 "TestTheRecordsAreNotMessages",
		"without a topology file nothing keeps":      "TestWithoutAFileNoRunIsRecorded",
		"the message does not tell in which queue":   "TestDiffWithALiveMessage",
		"the routing key of the message is masked":   "TestDiffWithALiveMessage",
		"the run %s has sent the edited message":     "TestAnEditThatIsSentIsOnlyParked",
		"no dead-letter queue of %s was found":       "TestPullRefusalsWithoutAFile",
		"%s is a dead-letter queue, and %s takes":    "TestPullRefusalsWithoutAFile",
		"the dead letters of %s go to %s, and":       "TestPullRefusalsWithoutAFile",
		"comments need a topology file":              "TestThePageWithoutAFile",
		"it is being replaced under its name, and":   "TestAReturnWaitsForAReplacement",
		"the broker accepts no messages at":          "TestLooksDuringAnAlarm",
		"queue %s has priorities":                    "TestPullRefusals",
		"queue %s exists, but its node is down":      "TestTheDeskOnThreeNodes",
		"queue %s is a stream, which is read on":     "TestTheDeskOnThreeNodes",
		"the leader of queue %s does not answer":     "TestASearchNeedsTheLeader",
		"queue %s has %s ready and %s, and no more":  "TestPullRefusals",
	}
}

// Each place that refuses is in a table above: a refusal that is added is tested too.
func TestEachRefusalIsTested(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, table := range []map[refusal]func() error{lookRefusals(), runRefusals(nil, "r1")} {
		for r := range table {
			texts = append(texts, r.text)
		}
	}
	verb := regexp.MustCompile(`%[a-z]`)
	for _, format := range refusalFormats(t) {
		parts := verb.Split(format, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		like := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		tested := false
		for _, text := range texts {
			tested = tested || like.MatchString(text)
		}
		for begins := range heldElsewhere() {
			tested = tested || strings.HasPrefix(format, begins)
		}
		if !tested {
			t.Errorf("no test has the refusal %q", format)
		}
		if !strings.Contains(format, "; ") {
			t.Errorf("the refusal %q does not say what to do next behind a semicolon", format)
		}
	}
}

// refusalFormats returns the formats of all refusals in the source of the desk, but for those that
// pass on a text.
func refusalFormats(t *testing.T) (formats []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			name, _ := call.Fun.(*ast.Ident)
			format, _ := call.Args[0].(*ast.BasicLit)
			if name == nil || name.Name != "refusef" || format == nil || format.Value == `"%s"` {
				return true
			}
			text, err := strconv.Unquote(format.Value)
			if err != nil {
				t.Fatal(err)
			}
			formats = append(formats, text)
			return true
		})
	}
	if len(formats) < 15 {
		t.Fatalf("only %d refusals were found", len(formats))
	}
	return formats
}

// Before 4.3 a look uses up a return of each message. It needs a right to save the last one.
func TestALookCanSaveAMessage(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if target.AtLeast("4.3") {
		t.Skip("a look of RabbitMQ 4.3 uses up no return")
	}
	filledQueue(t, target, "orders", 3, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)})
	d := deskOf(t, target.User(t, "management", "^$", "^$", "^orders$"))
	_, err := d.Look(t.Context(), "orders", desk.LookOptions{}, func(deadletter.Message) error { return nil })
	user := regexp.MustCompile(`; user \S+ may not publish`)
	const want = "the broker drops or dead-letters a message of queue orders that was returned 20 times, and a look returns messages; user ANN may not publish to the default exchange, so dlxctl could not save such a message; grant write on amq.default, or consume the messages, as no policy raises the limit of an argument (x-delivery-limit)"
	if !errors.Is(err, desk.ErrRefused) {
		t.Fatalf("the look is not refused: %v", err)
	}
	if diff := cmp.Diff(want, user.ReplaceAllString(err.Error(), "; user ANN may not publish")); diff != "" {
		t.Errorf("the refusal (-want +got):\n%s", diff)
	}
}
