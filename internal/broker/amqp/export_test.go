package amqp

// PerConsumer returns options that give each consumer at most n messages.
func (o HolderOptions) PerConsumer(n int) HolderOptions {
	o.perConsumer = n
	return o
}
