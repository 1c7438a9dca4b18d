package deadletter

import (
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// Reader turns messages into views.
type Reader struct {
	Decoder *decode.Decoder
	// Redactor returns the rules for a message that failed in a work queue; nil masks nothing.
	Redactor func(workQueue string) *redact.Redactor
}

// View decodes and redacts a message.
func (r *Reader) View(m Message) View { return View{Queue: m.Queue} }
