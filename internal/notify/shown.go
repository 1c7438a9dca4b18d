package notify

// Message is a message that a notice is about.
type Message struct {
	// Queue is the work queue in which it failed, Key the routing key of the publisher.
	Queue, Key                         string
	ID, Error, ErrorType               string
	ContentType, ContentEncoding, Type string
	Headers                            map[string]any
	// Body is nil if no bodies are sent.
	Body []byte
}

// Shown is what a person may see of a message.
type Shown struct {
	ID, Error, ErrorType string
	// Format, Type, Text and Note are those of the decoded body.
	Format, Type, Text, Note string
	// Masked reports that rules mask something in messages of the queue, so that the body as it
	// was published must not be sent.
	Masked bool
}

// show fills in what a person may see.
func (n *Notice) show(s Shown) {
	n.MessageID, n.Error, n.ErrorType = s.ID, s.Error, s.ErrorType
	n.BodyFormat, n.BodyType, n.BodyNote = s.Format, s.Type, s.Note
	n.BodyText, _ = beginning([]byte(s.Text))
	if s.Masked {
		n.Body, n.BodyBase64 = "", ""
	}
}
