package brokertest_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m)) }

func TestEachTestHasItsOwnVHost(t *testing.T) {
	t.Parallel()
	var seen string
	t.Run("a virtual host exists while its test runs", func(t *testing.T) {
		target := brokertest.VHost(t)
		seen = target.VHost
		target.Channel(t)
		if other := brokertest.VHost(t); other.VHost == seen {
			t.Errorf("two calls returned the same virtual host %q", seen)
		}
	})
	target := brokertest.VHost(t)
	vhosts := string(target.Call(t, "GET", "vhosts?columns=name", nil))
	if target.AtLeast("4.0") && strings.Contains(vhosts, seen) {
		t.Errorf("virtual host %q still exists after its test: %s", seen, vhosts)
	}
}

func TestAUserHasThePermissionsGiven(t *testing.T) {
	t.Parallel()
	user := brokertest.VHost(t).User(t, "management", "^mine$", ".*", ".*")
	if _, err := user.Channel(t).QueueDeclare("mine", true, false, false, false, nil); err != nil {
		t.Errorf("declare a permitted queue: %v", err)
	}
	if _, err := user.Channel(t).QueueDeclare("other", true, false, false, false, nil); err == nil {
		t.Error("a user without the permission declared a queue")
	}
	if u, err := url.Parse(user.URL); err != nil || u.User.Username() != user.Username {
		t.Errorf("URL %q does not contain user %q", user.URL, user.Username)
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
	brokertest.Declare(t, ch, "kept", amqp091.Table{"x-queue-type": "quorum"})
	brokertest.PublishConfirmed(t, ch, "", "kept", amqp091.Publishing{Body: []byte("x")})
	settle := time.NewTimer(3 * time.Second) // see Kill
	<-settle.C

	for _, down := range []func(testing.TB){node.Kill, node.Stop} {
		down(t)
		if conn, err := amqp091.Dial(target.URL); err == nil {
			_ = conn.Close()
			t.Fatal("a stopped node accepts connections")
		}
		node.Start(t)
		message, ok, err := target.Channel(t).Get("kept", false)
		if err != nil || !ok || string(message.Body) != "x" {
			t.Fatalf("after the node started again: %q, %v, %v", message.Body, ok, err)
		}
	}
}

// The nodes of a cluster have the same virtual hosts, and two of them work without the third.
func TestAClusterWorksWithoutANode(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	target := nodes[0].VHost(t)
	if nodes[0].Name(t) == nodes[1].Name(t) {
		t.Fatalf("two nodes have the name %s", nodes[0].Name(t))
	}
	quorum := amqp091.Table{"x-queue-type": "quorum"}
	brokertest.Declare(t, nodes[1].See(t, target).Channel(t), "kept", quorum)
	nodes[1].Kill(t)
	brokertest.PublishConfirmed(t, nodes[2].See(t, target).Channel(t), "", "kept", amqp091.Publishing{Body: []byte("x")})
	nodes[1].Start(t)
	nodes[1].See(t, target).Channel(t)
}
