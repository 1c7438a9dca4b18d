package desk

import "github.com/dlxctl/dlxctl/topology"

// BacklogLeft returns what is left of a backlog of so many messages, for each pair of the messages
// that the queue has and those that it has delivered in all.
func BacklogLeft(messages int, now ...[2]int) (left []int) {
	b := backlog{ready: messages, delivered: -1}
	for _, n := range now {
		left = append(left, b.left(n[0], int64(n[1])))
	}
	return left
}

// RefuseLook returns why a look at all messages of a queue is refused that has that number of
// consumers, and whose first message was returned that number of times. Nil is no refusal.
func RefuseLook(state topology.State, queue string, consumers, returned int64) error {
	t, err := termsOf(state, queue)
	if err != nil {
		return err
	}
	t.consumers = consumers
	ready := int(t.usage.Ready)
	if err := t.refuse(ready, ready, false); err != nil || !t.limited {
		return err
	}
	return t.refuseSpent(returned)
}

// Lacks returns the refusal of a user who lacks rights: own are those that 'dlxctl rights' prints.
func (d *Desk) Lacks(own, foreign []string) error { return d.lacks(own, foreign) }

// MayRead returns the refusal of a user who may not read a queue.
func (d *Desk) MayRead(queue string, err error) error { return d.mayRead(queue, err) }
