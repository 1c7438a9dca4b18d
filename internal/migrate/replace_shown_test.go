package migrate_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A plan names, of a queue that is replaced, the publishers that use its name, the clients that
// stay idle, those that were not measured, and the consumers that the user does not see.
func TestShown(t *testing.T) {
	t.Parallel()
	s := replaceStage(t, brokertest.VHost(t), "classic", "quorum", nil)
	for _, product := range []string{"amqplib", "amqplib", "bunny", ""} {
		config := amqp091.Config{Vhost: s.target.VHost, Properties: amqp091.Table{"version": "0.10.9"}}
		if product != "" {
			config.Properties["product"] = product
			config.Properties["platform"] = "Node.JS v20"
		}
		conn, err := amqp091.DialConfig(s.target.URL, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // the test is over
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Consume("new", "", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	// It has bindings: that messages came by its name is possible and not certain.
	many := make([]amqp091.Publishing, 20)
	if err := brokertest.Publish(t.Context(), s.target.Confirming(t), "", "new", many...); err != nil {
		t.Fatal(err)
	}
	shown := func(user brokertest.Target) plan.Replacement {
		m := managementtest.Client(t, user)
		defer m.Close() // it is one of many
		state, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		queues := []string{"new"}
		out, err := migrate.Shown(t.Context(), m, s.want, m.AskConsumers(t.Context(), state, queues), queues)
		if err != nil {
			t.Fatal(err)
		}
		return out["new"]
	}
	var all plan.Replacement
	monitor := s.target.Tool(t, "monitoring")
	brokertest.Eventually(t, "the statistics to show all consumers and messages", func() bool {
		all = shown(monitor)
		return all.UnseenConsumers == 0 && all.ByNameMessages == 20
	})
	if len(all.Restart) != 1 || all.Restart[0].Name != "amqplib 0.10.9" || all.Restart[0].Consumers != 2 ||
		len(all.Restart[0].Connections) != 2 {
		t.Errorf("these need a restart: %+v", all.Restart)
	}
	if len(all.Unmeasured) != 2 || all.Unmeasured[0].Consumers != 1 {
		t.Errorf("these were not measured: %+v", all.Unmeasured)
	}
	if all.ByName != "" || !all.ByNameAtMost || all.ByNameRate == nil {
		t.Errorf("of publishers by name it shows %+v", all)
	}
	if !slices.Equal(all.Better, []string{"2 consumers may not subscribe again"}) {
		t.Errorf("a new queue is better, because %q", all.Better)
	}
	lines := strings.Join(all.Lines(), "\n")
	for _, want := range []string{
		"publishers may send to it by its name: at most 20 messages came so, and ",
		"2 consumers need a restart afterwards, unless the code subscribes again: amqplib 0.10.9 may stay",
		"it is not known whether 1 consumer of bunny 0.10.9 subscribes again",
		"gets 406, because of ",
		"a new queue (replaces:) is the better way here: 2 consumers may not subscribe again",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("it does not say %q:\n%s", want, lines)
		}
	}

	own := shown(s.target.Tool(t))
	if own.UnseenConsumers != 4 || len(own.Restart)+len(own.Unmeasured)+len(own.Better) > 0 {
		t.Errorf("without the tag monitoring: %+v", own)
	}
	if lines := strings.Join(own.Lines(), "\n"); !strings.Contains(lines, "whether 4 consumers subscribe again") {
		t.Errorf("without the tag monitoring it says:\n%s", lines)
	}

	// Without a binding, all that it has had was sent to its name.
	state := s.inspect(t)
	for _, b := range state.Have.Bindings {
		if b.Destination == "new" && b.Source != "" {
			brokertest.Unbind(t, s.target.Channel(t), "new", b.Key, b.Source, amqp091.Table(b.Arguments))
		}
	}
	seen := shown(monitor)
	if seen.ByName == "" || !slices.Contains(seen.Better, "publishers use its name") {
		t.Errorf("without a binding it shows %+v", seen)
	}
}

// What a service gets that declares the queue as it was depends on what differs and on the line.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	queue := func(queueType string, args topology.Arguments) topology.Queue {
		all := topology.Arguments{"x-queue-type": queueType}
		maps.Copy(all, args)
		return topology.Queue{Durable: true, Arguments: all}
	}
	was, overflow := queue("classic", nil), topology.Arguments{"x-overflow": "reject-publish"}
	for _, c := range []struct {
		version  string
		was, is  topology.Queue
		contains string
	}{
		{"4.3.6", was, queue("classic", topology.Arguments{"x-managed-by": "dlxctl/shop"}), "gets no error"},
		{"4.3.6", was, queue("quorum", nil), "because of x-queue-type; RabbitMQ 4.3.6 accepts it with quorum_queue."},
		{"4.3.6", was, queue("quorum", nil), ", and, if it has no x-queue-type, where default_queue_type"},
		{"4.0.5", was, queue("quorum", overflow), "because of x-overflow and x-queue-type; RabbitMQ 4.0.5 accepts it only with quorum_queue."},
		{"4.3.6", queue("quorum", nil), was, "because of x-queue-type, and no setting of RabbitMQ 4.3.6"},
		{"4.3.6", queue("quorum", nil), queue("quorum", overflow), "because of x-overflow, and no setting of RabbitMQ 4.3.6"},
		{"3.13.7", was, queue("quorum", nil), "; whether a setting of RabbitMQ 3.13.7 changes that was not measured"},
		{"3.10.8", was, queue("quorum", nil), ", and no setting of RabbitMQ 3.10.8 changes that"},
	} {
		if got := migrate.Declarations(c.version, c.was, c.is); !strings.Contains(got, c.contains) {
			t.Errorf("on %s it says %q, and not %q", c.version, got, c.contains)
		}
	}
}

// The page says of each client what the code knows.
func TestClientsOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/same-name.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| client | after `basic.cancel` |\n| --- | --- |\n")
	if !found {
		t.Fatal("the page has no table of clients")
	}
	rows := regexp.MustCompile(`(?m)\A(\|.*\n)+`).FindString(table)
	if want := migrate.ClientRows(); rows != want {
		t.Errorf("the page has\n%s\nand the code\n%s", rows, want)
	}
}

// A queue that is as the file has it, because the file was changed back or the new queue is there,
// is not said to be deleted when its replacement cannot be rolled back.
func TestRollbacksOfAQueueThatExists(t *testing.T) {
	t.Parallel()
	file := strings.Replace(fmt.Sprintf(topologyFile, "classic"), "    replaces: old\n", "", 1)
	want := spectest.Compile(t, file)
	hold := topology.Queue{Name: topology.ReplacementHoldName("shop", "new"), Durable: true}
	hold.Arguments = topology.Arguments{"x-queue-type": "quorum", "x-managed-by": topology.DeskMark("shop")}
	state := topology.State{Version: "4.3.6"}
	state.Have.Queues = append(slices.Clone(want.Queues), hold)
	moves, stays := migrate.Rollbacks(want, state, nil)
	if len(moves) != 0 || len(stays) != 1 || strings.Contains(stays[0], "deleted") ||
		!strings.Contains(stays[0], "is as the file has it") {
		t.Errorf("it rolls back %v, and says %q", moves, stays)
	}
}
