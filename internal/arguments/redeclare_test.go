package arguments_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// What a service gets that declares a queue as it was is what Redeclared says: on a node as it
// comes, in a virtual host with a default type, and with the relaxed checks.
func TestRedeclaredOnABroker(t *testing.T) {
	t.Parallel()
	with := func(queueType string, args topology.Arguments) topology.Queue {
		out := maps.Clone(args)
		if out == nil {
			out = topology.Arguments{}
		}
		out[topology.ArgQueueType] = queueType
		return topology.Queue{Name: "q", Durable: true, Arguments: out}
	}
	classic := func(args topology.Arguments) topology.Queue { return with(topology.Classic, args) }
	quorum := func(args topology.Arguments) topology.Queue { return with(topology.Quorum, args) }
	transient := classic(nil)
	transient.Durable = false
	dead, strategy := topology.Arguments{"x-dead-letter-exchange": "dead"}, topology.Arguments{
		"x-dead-letter-exchange": "dead", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}
	keyed := topology.Arguments{"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "other"}
	short, long := topology.Arguments{"x-max-length": int64(10)}, topology.Arguments{"x-max-length": int64(20)}
	cases := map[string][2]topology.Queue{
		"type":                       {classic(nil), quorum(nil)},
		"type and mark":              {classic(nil), quorum(topology.Arguments{"x-managed-by": "dlxctl/shop"})},
		"type and durable":           {transient, quorum(nil)},
		"type and an overflow less":  {classic(topology.Arguments{"x-overflow": "reject-publish"}), quorum(nil)},
		"type and an overflow more":  {classic(nil), quorum(topology.Arguments{"x-overflow": "reject-publish"})},
		"type and a limit":           {classic(nil), quorum(topology.Arguments{"x-delivery-limit": int64(20)})},
		"type, same dead letters":    {classic(dead), quorum(dead)},
		"type and a strategy":        {classic(dead), quorum(strategy)},
		"type and other DLX":         {classic(dead), quorum(topology.Arguments{"x-dead-letter-exchange": "other"})},
		"type and DLX":               {classic(nil), quorum(dead)},
		"type and other length":      {classic(short), quorum(long)},
		"type and no length":         {classic(short), quorum(nil)},
		"type and no TTL":            {classic(topology.Arguments{"x-message-ttl": int64(100000)}), quorum(nil)},
		"type and no expiry":         {classic(topology.Arguments{"x-expires": int64(100000)}), quorum(nil)},
		"type and no length, bytes":  {classic(topology.Arguments{"x-max-length-bytes": int64(10)}), quorum(nil)},
		"type and another key":       {classic(keyed), quorum(dead)},
		"type and no priority":       {classic(topology.Arguments{"x-max-priority": int64(5)}), quorum(nil)},
		"type and not lazy":          {classic(topology.Arguments{"x-queue-mode": "lazy"}), quorum(nil)},
		"type, no single consumer":   {classic(topology.Arguments{"x-single-active-consumer": true}), quorum(nil)},
		"quorum, other length":       {quorum(nil), quorum(long)},
		"quorum, other DLX":          {quorum(dead), quorum(topology.Arguments{"x-dead-letter-exchange": "other"})},
		"quorum, other limit":        {quorum(nil), quorum(topology.Arguments{"x-delivery-limit": int64(20)})},
		"quorum, a mark":             {quorum(nil), quorum(topology.Arguments{"x-managed-by": "dlxctl/shop"})},
		"quorum to classic":          {quorum(nil), classic(nil)},
		"classic, other length":      {classic(nil), classic(long)},
		"classic, other overflow":    {classic(nil), classic(topology.Arguments{"x-overflow": "reject-publish"})},
		"classic, not lazy any more": {classic(topology.Arguments{"x-queue-mode": "lazy"}), classic(nil)},
		"classic, no priority":       {classic(topology.Arguments{"x-max-priority": int64(5)}), classic(nil)},
	}
	byDefault := func(target brokertest.Target) brokertest.Target {
		target.Call(t, "PUT", "vhosts/"+target.VHost, map[string]any{"default_queue_type": "quorum"})
		return target
	}
	plain, settled := brokertest.VHost(t), byDefault(brokertest.VHost(t))
	for name, c := range cases {
		says := arguments.Redeclared(plain.Version, c[0], c[1])
		same := len(says.Differing) == 0
		redeclares(t, name, plain, c, same, same)
		redeclares(t, name+", with a default type", settled, c, same, same || says.ByDefaultType)
	}
	if !plain.AtLeast("4.0") {
		return // the setting is newer than 3.10.8
	}
	relaxed := brokertest.NodeWith(t, "--set", arguments.RelaxedChecks).VHost(t)
	for name, c := range cases {
		says := arguments.Redeclared(plain.Version, c[0], c[1])
		same := len(says.Differing) == 0 || says.Relaxed
		redeclares(t, name+", relaxed", relaxed, c, same, same)
	}
}

// redeclares declares the second of two queues, and then the first of them under its name: with its
// type, and, if it is a classic queue, without. Both must be accepted or refused as wanted.
func redeclares(t *testing.T, name string, target brokertest.Target, c [2]topology.Queue, typed, untyped bool) {
	t.Helper()
	conn := target.Dial(t)
	declare := func(q topology.Queue) error {
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		_, err = ch.QueueDeclare(q.Name, q.Durable, false, false, false, amqp091.Table(q.Arguments))
		return err
	}
	if err := declare(c[1]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := declare(c[0]); (err == nil) != typed {
		t.Errorf("%s: accepted must be %t: %v", name, typed, err)
	}
	if bare := c[0]; bare.Type() == topology.Classic && c[1].Type() == topology.Quorum {
		bare.Arguments = bare.Arguments.Without(topology.ArgQueueType)
		if err := declare(bare); (err == nil) != untyped {
			t.Errorf("%s: without x-queue-type, accepted must be %t: %v", name, untyped, err)
		}
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive("q", false, false, false, false, nil); err != nil {
		t.Errorf("%s: passively: %v", name, err)
	}
	brokertest.Delete(t, ch, "q")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

// The table of the page is what Redeclared says of RabbitMQ 4.
func TestRedeclaredOnThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/consumers.md")
	if err != nil {
		t.Fatal(err)
	}
	queue := func(queueType string, args topology.Arguments) topology.Queue {
		all := topology.Arguments{"x-queue-type": queueType}
		maps.Copy(all, args)
		return topology.Queue{Durable: true, Arguments: all}
	}
	transient := queue(topology.Classic, nil)
	transient.Durable = false
	for _, row := range []struct {
		cell  string
		typed bool // the declaration has x-queue-type
		was   []topology.Queue
	}{
		{"without `x-queue-type`", false, []topology.Queue{queue(topology.Classic, nil)}},
		{"with `x-queue-type: classic`", true, []topology.Queue{queue(topology.Classic, nil)}},
		{"so, and not durable, or with another `x-overflow`, `x-delivery-limit` or `x-dead-letter-strategy`", true, []topology.Queue{
			transient, queue(topology.Classic, topology.Arguments{"x-overflow": "reject-publish"}),
			queue(topology.Classic, topology.Arguments{"x-delivery-limit": int64(1)}),
			queue(topology.Classic, topology.Arguments{"x-dead-letter-strategy": "at-least-once"}),
		}},
		{"with another dead-letter exchange or key, TTL, length, expiry or single active consumer", true, []topology.Queue{
			queue(topology.Classic, topology.Arguments{"x-dead-letter-exchange": "other"}),
			queue(topology.Classic, topology.Arguments{"x-dead-letter-routing-key": "other"}),
			queue(topology.Classic, topology.Arguments{"x-message-ttl": int64(1)}),
			queue(topology.Classic, topology.Arguments{"x-max-length": int64(1)}),
			queue(topology.Classic, topology.Arguments{"x-max-length-bytes": int64(1)}),
			queue(topology.Classic, topology.Arguments{"x-expires": int64(1)}),
			queue(topology.Classic, topology.Arguments{"x-single-active-consumer": true}),
		}},
	} {
		for _, was := range row.was {
			says := arguments.Redeclared("4.3.6", was, queue(topology.Quorum, nil))
			answer := func(accepted bool) string {
				if accepted {
					return "accepted"
				}
				return "406"
			}
			want := fmt.Sprintf("| %s | %s | %s | %s |\n", row.cell, answer(len(says.Differing) == 0),
				answer(says.ByDefaultType && !row.typed), answer(says.Relaxed))
			if !strings.Contains(string(page), want) {
				t.Errorf("for %s the page lacks\n%s", was.Arguments, want)
			}
		}
	}
	if relaxed, _, _ := strings.Cut(arguments.RelaxedChecks, " "); !strings.Contains(string(page), relaxed) {
		t.Errorf("the page does not name %s", relaxed)
	}
}
