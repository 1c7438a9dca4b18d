package topology

// Messages says how the bodies of messages are read, and what is masked in them. Nothing of it
// is on the broker: it changes what a person sees, never what a queue holds.
type Messages struct {
	// Protosets are files with descriptor sets of protobuf, Protos files with its source.
	// ImportPaths are the folders in which Protos and their imports are looked up. Paths are
	// relative to the working directory, except Protos, which are relative to an import path.
	Protosets   []string
	Protos      []string
	ImportPaths []string
	// Types choose the protobuf type of a message. The first that fits applies.
	Types []MessageType
	// Redact is masked in all messages.
	Redact Redaction
	// Queues are what work queues add, in the order of the file.
	Queues []QueueMessages
}

// QueueMessages is what applies to the messages of one work queue in addition. Its Types come
// before those of all messages.
type QueueMessages struct {
	Queue  string
	Types  []MessageType
	Redact Redaction
}

// MessageType says which protobuf type a message has. Each condition that is not empty must
// hold.
type MessageType struct {
	// Key is a pattern for the routing key, as in a binding to a topic exchange.
	Key         string
	ContentType string
	// Header and Value are a header and its value.
	Header, Value string
	// Type is the full name of the protobuf type, such as shop.Order.
	Type string
}

// Redaction says what a person must not see. The zero value masks nothing.
type Redaction struct {
	// Paths are like body.customer.email, body.items[*].card and headers.authorization.
	Paths []string
	// Types are kinds of values: email, iban, bearer.
	Types []string
	// HideBodies hides bodies whole.
	HideBodies bool
}

// RedactionTypes returns the kinds of values that can be masked wherever they are.
func RedactionTypes() []string { return []string{"email", "iban", "bearer"} }
