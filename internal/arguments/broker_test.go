package arguments_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

// valuesOf returns values of an argument: of each type, and the smallest and largest that a line
// accepts, each next to one that it refuses.
func valuesOf(name string) []any {
	text := func(words ...string) (out []any) {
		for _, word := range words {
			out = append(out, word)
		}
		return out
	}
	own := map[string][]any{
		"x-message-ttl":                   {int64(0), int64(315360000000), int64(315360000001)},
		"x-expires":                       {int64(0), int64(1), int64(315360000000), int64(315360000001)},
		"x-overflow":                      text("drop-head", "reject-publish", "reject-publish-dlx"),
		"x-dead-letter-strategy":          text("at-least-once", "at-most-once"),
		"x-max-priority":                  {int64(0), int64(255), int64(256)},
		"x-queue-mode":                    text("default", "lazy"),
		"x-queue-version":                 {int64(0), int64(1), int64(2), int64(3)},
		"x-queue-leader-locator":          text("client-local", "balanced", "least-leaders", "random", "min-masters"),
		"x-max-age":                       text("7D", "1Y", "1M", "5h", "10m", "3s", "1x", "5", "D", "1.5h", ""),
		"x-initial-cluster-size":          {int64(0), int64(1)},
		"x-quorum-initial-group-size":     {int64(0), int64(1)},
		"x-stream-max-segment-size-bytes": {int64(0), int64(3000000000), int64(3000000001)},
		"x-stream-filter-size-bytes":      {int64(15), int64(16), int64(255), int64(256)},
		"x-single-active-consumer":        {false, "true"},
		"x-delivery-limit":                {topology.Unlimited, int64(1) << 40},
	}[name]
	if name == "x-queue-master-locator" { // an unknown one leaves a queue of 3.10 that never answers
		return text("min-masters", "client-local", "random")
	}
	return append([]any{int64(5), int64(-1), "a text", true, 1.5, []any{int64(1)}}, own...)
}

// declare declares a queue on a connection of its own, since RabbitMQ closes it where a feature is
// deprecated, or a check of its own crashes. It returns the error of the broker if that refuses the
// queue.
func declare(t *testing.T, url, queue string, args topology.Arguments) error {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Error(err)
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Error(err)
		return err
	}
	_, err = ch.QueueDeclare(queue, true, false, false, false, amqp091.Table(args))
	if refused, ok := errors.AsType[*amqp091.Error](err); err != nil && (!ok ||
		!slices.Contains([]int{amqp091.PreconditionFailed, amqp091.InternalError}, refused.Code)) {
		t.Errorf("%s: %v", args, err)
	}
	return err
}

// isInternal reports whether the broker answered with 541.
func isInternal(err error) bool {
	answer, ok := errors.AsType[*amqp091.Error](err)
	return ok && answer.Code == amqp091.InternalError
}

// The table says of each argument, type of queue and value what the broker says.
func TestTableOnABroker(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	var cases []topology.Arguments
	for _, queueType := range []string{topology.Classic, topology.Quorum, topology.Stream} {
		for _, name := range append(arguments.Known(), "x-foo") {
			if name == topology.ArgQueueType {
				continue
			}
			for _, value := range valuesOf(name) {
				args := topology.Arguments{topology.ArgQueueType: queueType, name: value}
				cases = append(cases, args)
				if name == topology.ArgDeadLetterRoutingKey {
					cases = append(cases, args.With(topology.ArgDeadLetterExchange, ""))
				}
			}
		}
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range next {
				args := cases[i]
				queueType, _ := args[topology.ArgQueueType].(string)
				says := arguments.Refused(target.Version, queueType, args)
				err := declare(t, target.URL, fmt.Sprintf("q%d", i), args)
				if _, expires := args[topology.ArgExpires]; expires && isInternal(err) {
					err = nil // it was accepted, and had expired before the broker could answer
				}
				if (err != nil) != (len(says) > 0) {
					t.Errorf("%s: the table says %v, the broker %v", args, says, err)
				}
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	workers.Wait()
}

// put puts a policy of these keys. It returns what the broker says if it refuses the policy.
func put(t *testing.T, target brokertest.Target, pattern string, definition topology.Arguments) error {
	t.Helper()
	body, err := json.Marshal(map[string]any{"pattern": pattern, "definition": definition})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		target.API+"/api/policies/"+url.PathEscape(target.VHost)+"/p", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(target.Username, target.Password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s: %v", definition, err)
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusBadRequest:
		says, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s", says)
	}
	t.Errorf("%s: %s", definition, resp.Status)
	return nil
}

// The table says of each key of a policy and each value what the broker says.
func TestKeysOnABroker(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	own := map[string][]any{
		"expires":                       {int64(0), int64(1), int64(315360000001)},
		"max-age":                       {"7D", "1x"}, // 3.10 and 4.0 crash at an age without a digit
		"stream-max-segment-size-bytes": {int64(3000000000), int64(3000000001)},
		"stream-filter-size-bytes":      {int64(15), int64(16), int64(255), int64(256)},
		"target-group-size":             {int64(0), int64(1)},
		"delayed-retry-min":             {int64(0)},
		"queue-version":                 {int64(1), int64(2), int64(3)},
		"queue-master-locator":          {"min-masters", "random"}, // 3.10 does not answer to an unknown one
	}
	var cases []topology.Arguments
	for _, key := range append(arguments.KnownKeys(), "max-priority", "single-active-consumer", "x-message-ttl", "foo") {
		values := own[key]
		if key != "max-age" && key != "queue-master-locator" {
			values = append(values, int64(5), int64(-1), "a text", true, 1.5, []any{int64(1)}, "drop-head", "reject-publish-dlx",
				"at-most-once", "lazy", "balanced", "min-masters", "disabled", "all")
		}
		for _, value := range values {
			cases = append(cases, topology.Arguments{key: value})
		}
	}
	retry := topology.Arguments{"delayed-retry-type": "all", "delayed-retry-min": int64(10)}
	cases = append(cases, retry, retry.With("delayed-retry-max", int64(9)), retry.With("delayed-retry-max", int64(10)))
	for _, definition := range cases {
		says := arguments.RefusedKeys(target.Version, definition)
		if err := put(t, target, "^$", definition); (err != nil) != (len(says) > 0) {
			t.Errorf("%s: the table says %v, the broker %v", definition, says, err)
		}
	}
}

// policies returns the names of the policies in effect, by queue.
func policies(t *testing.T, target brokertest.Target) map[string]string {
	t.Helper()
	var list []struct{ Name, Policy string }
	// With statistics the answer is that of some seconds ago. With totals a classic queue answers,
	// which may not have read yet that its policy changed.
	answer := target.Call(t, http.MethodGet, "queues/"+url.PathEscape(target.VHost)+
		"?disable_stats=true&columns=name,policy", nil)
	if err := json.Unmarshal(answer, &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, q := range list {
		out[q.Name] = q.Policy
	}
	return out
}

// A policy with one key is in effect on a queue of each type, unless package policy says that the
// type does not know the key.
func TestUnknownKeysOnABroker(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	types := []string{topology.Classic, topology.Quorum, topology.Stream}
	ch := target.Channel(t)
	for _, kind := range types {
		args := amqp091.Table{topology.ArgQueueType: kind}
		brokertest.Declare(t, ch, kind, args)
	}
	set := policy.All(topology.State{Version: target.Version})
	values := []any{
		int64(3_600_000), int64(20), int64(1), "a text", "at-least-once", "drop-head", "lazy", "balanced", "7D",
		"min-masters", "disabled",
	}
	tried := 0
	try := func(definition topology.Arguments) {
		if err := put(t, target, ".*", definition); err != nil {
			t.Errorf("%s: %v", definition, err)
			return
		}
		tried++
		inEffect := policies(t, target)
		for _, kind := range types {
			q := topology.Queue{Name: kind, Arguments: topology.Arguments{topology.ArgQueueType: kind}}
			applies := set.Applies(topology.Policy{Name: "p", Pattern: ".*", Definition: definition}, q)
			if applied := inEffect[kind] == "p"; applied != applies {
				t.Errorf("%s is in effect on a %s queue: %t", definition, kind, applied)
			}
		}
	}
	for _, key := range arguments.KnownKeys() {
		taken := func(value any) bool {
			return len(arguments.RefusedKeys(target.Version, topology.Arguments{key: value})) == 0
		}
		if i := slices.IndexFunc(values, taken); i >= 0 {
			try(topology.Arguments{key: values[i]})
		}
	}
	if !target.AtLeast("4.0") {
		mirrored := topology.Arguments{"ha-mode": "all"}
		for _, definition := range []topology.Arguments{
			mirrored, mirrored.With("ha-sync-mode", "automatic"), mirrored.With("ha-promote-on-shutdown", "always"),
			mirrored.With("ha-promote-on-failure", "always"),
		} {
			try(definition)
		}
	}
	if tried < 20 {
		t.Errorf("only %d keys were tried", tried)
	}
}

// A quorum queue delays a message that is returned to it, unless the table says that RabbitMQ
// disregards its arguments. The line is 4.3, which brought them.
func TestDelayedRetryOnABroker(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	if !target.AtLeast("4.3") {
		t.Skip("RabbitMQ has delayed retries since 4.3")
	}
	const kind, least, most = "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"
	const wait = int64(1000)
	ch := target.Channel(t)
	for i, args := range []topology.Arguments{
		{kind: "all", least: wait},
		{kind: "all", least: wait, most: 2 * wait},
		{kind: "all"},
		{kind: "all", most: wait},
		{kind: "all", least: "1000"},
		{kind: "all", least: int64(0)},
		{kind: "al", least: wait},
		{kind: int64(5), least: wait},
		{least: wait},
		{kind: "all", least: wait, most: int64(10)},
	} {
		queue := fmt.Sprintf("q%d", i)
		if _, err := ch.QueueDeclare(queue, true, false, false, false,
			amqp091.Table(args.With(topology.ArgQueueType, topology.Quorum))); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		if err := brokertest.Publish(t.Context(), ch, "", queue, amqp091.Publishing{Body: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		get := func() (d amqp091.Delivery) {
			brokertest.Eventually(t, "a message in "+queue, func() (ok bool) {
				var err error
				if d, ok, err = ch.Get(queue, false); err != nil {
					t.Fatal(err)
				}
				return ok
			})
			return d
		}
		first := get()
		returned := time.Now()
		if err := first.Reject(true); err != nil {
			t.Fatal(err)
		}
		get()
		delayed := time.Since(returned) >= time.Duration(wait)*time.Millisecond
		if says := arguments.Disregarded(topology.Quorum, args); delayed != (len(says) == 0) {
			t.Errorf("%s: redelivered after %s, the table says %v", args, time.Since(returned), says)
		}
	}
}

// What the table says of keys, without a version what all lines refuse.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version    string
		definition topology.Arguments
		want       string
	}{
		{
			"",
			topology.Arguments{"max-priority": int64(5)},
			"max-priority is not a key of a policy; remove it: only the argument x-max-priority of a queue exists",
		},
		{"", topology.Arguments{"x-message-ttl": int64(5)}, "x-message-ttl is not a key of a policy; write message-ttl"},
		{"", topology.Arguments{"mesage-ttl": int64(5)}, "mesage-ttl is not a key of a policy; did you mean message-ttl?"},
		{"", topology.Arguments{"foo": int64(5)}, "foo is not a key of a policy; remove it"},
		{"", topology.Arguments{"message-ttl": "5s"}, `message-ttl is the text "5s", not a whole number; write it in milliseconds: 5000`},
		{"4.3", topology.Arguments{"delayed-retry-type": "all"}, `delayed-retry-type is "all" without delayed-retry-min; add delayed-retry-min`},
		{"3.10", topology.Arguments{"consumer-timeout": int64(5)}, "consumer-timeout is not a key of a policy on this line; remove it"},
		{"", topology.Arguments{"consumer-timeout": int64(5), "member-placement-tag": "a", "ha-mode": "all"}, ""},
		{"", topology.Arguments{"federation-upstream-set": "all"}, ""},
	} {
		got := ""
		for _, p := range arguments.RefusedKeys(tc.version, tc.definition) {
			got += p.String()
		}
		if got != tc.want {
			t.Errorf("%q %s: %q, want %q", tc.version, tc.definition, got, tc.want)
		}
	}
}

// What the table knows about lines is right for each of them: without a version it has what all
// refuse, and between two lines what both do.
func TestLines(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version, queueType string
		args               topology.Arguments
		want               []string
	}{
		{"", "quorum", topology.Arguments{"x-queue-mode": "lazy"}, []string{"x-queue-mode is for classic queues; remove it, or write type: classic"}},
		{"", "classic", topology.Arguments{"x-queue-mode": "lazy", "x-queue-version": int64(1)}, nil},
		{"4.3", "classic", topology.Arguments{"x-queue-version": int64(1)}, []string{"x-queue-version is 1; write 2"}},
		{"4.2.1", "classic", topology.Arguments{"x-queue-version": int64(1)}, nil},
		{"4.2.1", "classic", topology.Arguments{"x-queue-version": int64(3)}, []string{"x-queue-version is 3; write 2"}},
		{"4.3.6", "classic", topology.Arguments{"x-queue-master-locator": "random"}, []string{"x-queue-master-locator is for no queue of this line; remove it, or write x-queue-leader-locator"}},
		{"3.13", "classic", topology.Arguments{"x-queue-leader-locator": "balanced"}, nil},
		{"3.10", "classic", topology.Arguments{"x-queue-leader-locator": "balanced"}, []string{"x-queue-leader-locator is for quorum queues and streams; remove it, or write type: quorum"}},
		{"", "quorum", topology.Arguments{"x-expires": "5m"}, []string{`x-expires is the text "5m", not a whole number; write it in milliseconds: 300000`}},
		{"", "quorum", topology.Arguments{"x-overflow": "drop"}, []string{
			`x-overflow is "drop"; write drop-head or reject-publish`,
		}},
		{"", "quorum", topology.Arguments{"x-dead-letter-routing-key": "a"}, []string{"x-dead-letter-routing-key needs x-dead-letter-exchange; add that argument, or remove this one"}},
		{"", "stream", topology.Arguments{"x-max-age": "7 days"}, []string{`x-max-age is the text "7 days"; write a whole number and one of Y, M, D, h, m, s, such as 7D`}},
		{"", "x-modulus-hash", topology.Arguments{"x-max-age": "7 days"}, nil},
	} {
		var got []string
		for _, p := range arguments.Refused(tc.version, tc.queueType, tc.args) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q %s %s: %q, want %q", tc.version, tc.queueType, tc.args, got, tc.want)
		}
	}
}

func TestMeant(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"message-ttl": "x-message-ttl", "x-mesage-ttl": "x-message-ttl", "x-foo": "", "x-delivery-limits": "x-delivery-limit",
		"x-max-retries": "", "x-retry-count": "", "max-lengths": "x-max-length", "x_message_ttl": "x-message-ttl",
	} {
		if got := arguments.Meant(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
