package desk

// BacklogLeft returns what is left of a backlog of so many messages, for each pair of the messages
// that the queue has and those that it has delivered in all.
func BacklogLeft(messages int, now ...[2]int) (left []int) {
	b := backlog{ready: messages, delivered: -1}
	for _, n := range now {
		left = append(left, b.left(n[0], int64(n[1])))
	}
	return left
}
