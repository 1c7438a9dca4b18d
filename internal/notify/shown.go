package notify

import "github.com/dlxctl/dlxctl/internal/notice"

// Message is a message that a notice is about.
type Message struct {
	// Queue is the work queue in which it failed, Key the routing key of the publisher.
	Queue, Key                         string
	ID, Error, ErrorType               string
	ContentType, ContentEncoding, Type string
	Headers                            map[string]any
	// Alike is what the message has in common with others that one notice is about.
	Alike string
	// Body is the body as it was published. What rules mask in it, the texts above may repeat.
	Body []byte
	// SendsBody reports that the decoded body is shown too.
	SendsBody bool
}

// Shown is what a person may see of a message.
type Shown struct {
	ID, Queue, Key, Error, ErrorType string
	// Format, Type, Text and Note are those of the decoded body. Empty without SendsBody.
	Format, Type, Text, Note string
	// Masked reports that rules mask something in messages of the queue, so that the body as it
	// was published must not be sent.
	Masked bool
}

// shown returns a notice with what a person may see.
func shown(n Notice, s Shown) Notice {
	n.MessageID, n.Error, n.ErrorType = s.ID, s.Error, s.ErrorType
	if n.Severity == "" { // the topology has no such queue: the message may have made the name up
		n.Queue = s.Queue
	}
	n.BodyFormat, n.BodyType, n.BodyNote = s.Format, s.Type, s.Note
	n.BodyText, _ = beginning([]byte(s.Text))
	if s.Masked {
		n.Body, n.BodyBase64 = "", ""
	}
	return n
}

// first returns the beginning of an error.
func first(s string) string { return notice.First(s, errorCap) }

// beginning returns the first bytes of a body: as text, or in base64.
func beginning(body []byte) (text, encoded string) { return notice.Beginning(body, BodyCap) }
