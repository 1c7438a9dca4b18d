package brokertest_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

func TestEachTestHasAVHostOfItsOwn(t *testing.T) {
	t.Parallel()
	var seen string
	t.Run("a vhost is there while its test runs", func(t *testing.T) {
		target := brokertest.VHost(t)
		seen = target.VHost
		target.Channel(t)
		if other := brokertest.VHost(t); other.VHost == seen {
			t.Errorf("two calls gave the same vhost %q", seen)
		}
	})
	target := brokertest.VHost(t)
	if vhosts := string(target.Call(t, "GET", "vhosts?columns=name", nil)); strings.Contains(vhosts, seen) {
		t.Errorf("vhost %q outlives its test: %s", seen, vhosts)
	}
}

func TestAUserMayDoWhatWasPermitted(t *testing.T) {
	t.Parallel()
	user := brokertest.VHost(t).User(t, "management", "^mine$", ".*", ".*")
	if _, err := user.Channel(t).QueueDeclare("mine", true, false, false, false, nil); err != nil {
		t.Errorf("declare a permitted queue: %v", err)
	}
	if _, err := user.Channel(t).QueueDeclare("other", true, false, false, false, nil); err == nil {
		t.Error("declared a queue that was not permitted")
	}
	if u, err := url.Parse(user.URL); err != nil || u.User.Username() != user.Username {
		t.Errorf("URL %q does not hold user %q", user.URL, user.Username)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		have, want string
		atLeast    bool
	}{
		{"3.10.8", "3.10", true},
		{"3.9.13", "3.10", false},
		{"4.0.5", "3.13", true},
		{"4.0.5", "4.3", false},
		{"4.3.0-rc.1", "4.3", true},
	} {
		t.Run(fmt.Sprint(tc.have, " against ", tc.want), func(t *testing.T) {
			t.Parallel()
			if got := (brokertest.Target{Version: tc.have}).AtLeast(tc.want); got != tc.atLeast {
				t.Errorf("AtLeast = %v", got)
			}
		})
	}
}

func TestANodeKeepsItsDataWhenItIsStoppedAndKilled(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	ch := target.Channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("kept", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "kept", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("confirm: %v, %v", ok, err)
	}
	settle := time.NewTimer(3 * time.Second) // see Kill
	<-settle.C

	for _, down := range []func(testing.TB){node.Kill, node.Stop} {
		down(t)
		if conn, err := amqp.Dial(target.URL); err == nil {
			_ = conn.Close()
			t.Fatal("a node that is down takes connections")
		}
		node.Start(t)
		message, ok, err := target.Channel(t).Get("kept", false)
		if err != nil || !ok || string(message.Body) != "x" {
			t.Fatalf("after a new start: %q, %v, %v", message.Body, ok, err)
		}
	}
}

// The nodes of a cluster see the same virtual hosts, and two of them go on
// without the third.
func TestAClusterLosesANode(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	target := nodes[0].VHost(t)
	if nodes[0].Name(t) == nodes[1].Name(t) {
		t.Fatalf("two nodes have the name %s", nodes[0].Name(t))
	}
	if _, err := nodes[1].See(t, target).Channel(t).QueueDeclare("kept", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	nodes[1].Kill(t)
	ch := nodes[2].See(t, target).Channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "kept", true, false, amqp.Publishing{Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("confirm: %v, %v", ok, err)
	}
	nodes[1].Start(t)
	nodes[1].See(t, target).Channel(t)
}
