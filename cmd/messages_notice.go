package cmd

import (
	"fmt"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/topology"
)

// maxNoticeBody is the size of the largest body that is decoded for a notice: the processor
// waits for it, and a notice shows 4 KiB.
const maxNoticeBody = 256 << 10

// shown returns what notices show of the messages of a topology. Schemas are read only if
// bodies are sent.
func shown(t topology.Compiled, bodies bool) (func(notify.Message) notify.Shown, error) {
	var none messageFlags
	redactors, err := none.redactors(t)
	if err != nil {
		return nil, err
	}
	var decoder *decode.Decoder
	if bodies {
		if decoder, err = none.decoder(t.Messages); err != nil {
			return nil, err
		}
	}
	return func(m notify.Message) notify.Shown {
		rules := redactors(m.Queue)
		pass := rules.Begin(m.Headers)
		out := notify.Shown{Masked: rules.Masks()}
		if len(m.Body) > maxNoticeBody {
			out.Note = fmt.Sprintf("the body is larger than %d KiB and is not decoded for a notice", maxNoticeBody>>10)
		} else if m.Body != nil {
			doc := pass.Document(decoder.Decode(decode.Input{
				ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Type: m.Type, Key: m.Key, Queue: m.Queue,
				Headers: m.Headers, Body: m.Body,
			}))
			out.Format, out.Type, out.Text, out.Note = string(doc.Format), doc.Type, doc.Text, doc.Note
		}
		out.ID, out.Error = pass.Text(m.ID), pass.Text(m.Error)
		return out
	}, nil
}
