package e2e_test

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// desk find says what its looks cost: before 4.3 each uses up a return of each message in a queue
// with a delivery limit.
func TestDeskFindPrintsItsCost(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, "version: 1\nname: shop\nqueues: [{name: mail, backoff: none, deliveryLimit: 5}]\n")
	succeeds(t, target, "apply", "--yes", "-f", file)
	m := amqp091.Publishing{MessageId: "m-1", Body: []byte("m-1")}
	brokertest.PublishConfirmed(t, target.Confirming(t), "", "mail", m)
	const line = "cost of the look at mail: marked the messages as redelivered; raised x-delivery-count by 1: "
	out := succeeds(t, target, "desk", "find", "m-1", "-f", file)
	if counts := !target.AtLeast("4.3"); strings.Contains(out, line) != counts {
		t.Errorf("a look counts: %t; desk find prints\n%s", counts, out)
	}
	out = succeeds(t, target, "desk", "find", "m-1", "-f", file, "-o", "json")
	if !strings.Contains(out, `"cost": "marked the messages as redelivered`) {
		t.Errorf("no cost in\n%s", out)
	}
}
