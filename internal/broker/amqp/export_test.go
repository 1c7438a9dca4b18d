package amqp

import "time"

// PerConsumer returns options that give each consumer at most n messages.
func (o HolderOptions) PerConsumer(n int) HolderOptions {
	o.perConsumer = n
	return o
}

// AnswerTime returns options that give the broker that time to answer.
func (o HolderOptions) AnswerTime(t time.Duration) HolderOptions {
	o.answerTime = t
	return o
}
