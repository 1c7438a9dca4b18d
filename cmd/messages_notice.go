package cmd

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/redact"
	"github.com/dlxctl/dlxctl/topology"
)

// maxNoticeBody is the size of the largest body that is decoded for a notice: the processor
// waits for it, and a notice shows 4 KiB.
const maxNoticeBody = 256 << 10

// schemaTime is how often the schemas of notices are checked for changes.
const schemaTime = time.Second

// shown returns what notices and logs show of the messages of a topology. Schemas are read if
// bodies are sent or rules name values of bodies, and with watch again when their files have
// changed. Where no body is sent, a schema that cannot be read stops no processor: more is masked.
func shown(t topology.Compiled, bodies, watch bool, log *slog.Logger) (func(notify.Message) notify.Shown, error) {
	var none messageFlags
	redactors, err := none.redactors(t)
	if err != nil {
		return nil, err
	}
	schemas := &watchedSchemas{messages: t.Messages, log: log, pause: schemaTime}
	if bodies || needBodies(t, redactors) {
		switch err := schemas.load(); {
		case err != nil && bodies:
			return nil, err
		case err != nil:
			log.Warn("cannot read the schemas of message bodies: where rules mask values of a body, notices and "+
				"logs mask errors, message-ids and routing keys whole", "error", err)
		}
	}
	decoder := schemas.current
	if !watch {
		decoder = func(time.Time) *decode.Decoder { return schemas.decoder } // nothing changes it
	}
	return func(m notify.Message) notify.Shown {
		rules := redactors(m.Queue)
		pass := rules.Begin(m.Headers)
		var body decode.Document
		known := true
		if m.SendsBody && m.Body != nil || rules.NeedsBody() && len(m.Body) > 0 {
			body, known = shownBody(pass, decoder(time.Now()), m)
		}
		out := shownTexts(pass, m)
		if !known && rules.NeedsBody() {
			out = hiddenTexts(m)
		}
		out.Masked = rules.Masks()
		if m.SendsBody {
			out.Format, out.Type, out.Text, out.Note = string(body.Format), body.Type, body.Text, body.Note
		}
		return out
	}, nil
}

// needBodies reports whether the rules of a queue name values of bodies.
func needBodies(t topology.Compiled, redactors func(workQueue string) *redact.Redactor) bool {
	queues := []string{""} // a queue that is unknown
	for _, w := range t.WorkQueues {
		queues = append(queues, w.Name)
	}
	for _, q := range t.Messages.Queues {
		queues = append(queues, q.Queue)
	}
	return slices.ContainsFunc(queues, func(queue string) bool { return redactors(queue).NeedsBody() })
}

// shownBody decodes and masks a body, so that the pass knows what the texts of the message may
// repeat. It reports whether it could: it needs the schemas, and the processor waits for it.
func shownBody(pass *redact.Pass, decoder *decode.Decoder, m notify.Message) (body decode.Document, known bool) {
	if len(m.Body) > maxNoticeBody {
		body.Note = fmt.Sprintf("the body is larger than %d KiB and is not decoded for a notice", maxNoticeBody>>10)
		return body, false
	}
	return pass.Document(decoder.Decode(decode.Input{
		ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Type: m.Type, Key: m.Key, Queue: m.Queue,
		Headers: m.Headers, Body: m.Body,
	})), decoder != nil
}

// shownTexts masks the texts of a message, once the pass has seen the body.
func shownTexts(pass *redact.Pass, m notify.Message) notify.Shown {
	masked := pass.Headers(deadletter.CutHeaders(pass, m.Headers))
	text := func(s, header string) string { // a header that a rule names is masked, however short it is
		if s != "" && m.Headers[header] == s {
			s, _ = masked[header].(string)
		} else { // it is not on the message, or is shortened there
			s, _ = deadletter.CutHeaders(pass, map[string]any{header: s})[header].(string)
		}
		return pass.Text(s)
	}
	return notify.Shown{
		ID: pass.Text(m.ID), Queue: pass.Text(m.Queue), Key: pass.Text(m.Key),
		Error: text(m.Error, topology.HeaderError), ErrorType: text(m.ErrorType, topology.HeaderErrorType),
	}
}

// hiddenTexts masks the texts of a message whole, as each may repeat a value of a body that could
// not be looked at.
func hiddenTexts(m notify.Message) notify.Shown {
	hide := func(s string) string {
		if s == "" {
			return ""
		}
		return redact.Mask
	}
	return notify.Shown{
		ID: hide(m.ID), Queue: hide(m.Queue), Key: hide(m.Key), Error: hide(m.Error), ErrorType: hide(m.ErrorType),
	}
}

// watchedSchemas is a decoder for notices that follows the files of its schemas.
type watchedSchemas struct {
	messages topology.Messages
	log      *slog.Logger
	pause    time.Duration

	mu      sync.Mutex
	decoder *decode.Decoder
	files   map[string]fileVersion // that were read
	checked time.Time
	failed  string // the fault that was logged last
}

// fileVersion tells one version of a file from another. The zero version is a file that is gone.
type fileVersion struct {
	modified time.Time
	size     int64
}

func versionOf(name string) fileVersion {
	info, err := os.Stat(name)
	if err != nil {
		return fileVersion{}
	}
	return fileVersion{info.ModTime(), info.Size()}
}

// load reads the schemas. After an error the decoder is as it was.
func (w *watchedSchemas) load() error {
	files := map[string]fileVersion{}
	flags := messageFlags{read: func(name string) ([]byte, error) {
		files[name] = versionOf(name) // before it is read: a later change is noticed
		return readSchema(name)
	}}
	decoder, err := flags.decoder(w.messages)
	w.files = files
	if err == nil {
		w.decoder = decoder
	}
	return err
}

// current returns the decoder for a notice. It looks at the files once in a while; if they have
// changed and cannot be read, the previous decoder stays.
func (w *watchedSchemas) current(now time.Time) *decode.Decoder {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.checked) < w.pause {
		return w.decoder
	}
	w.checked = now
	changed := false
	for name, version := range w.files {
		changed = changed || versionOf(name) != version
	}
	if !changed {
		return w.decoder
	}
	err := w.load()
	switch {
	case err == nil:
		w.failed = ""
		w.log.Info("schemas of message bodies changed and are in effect")
	case err.Error() != w.failed:
		w.failed = err.Error()
		w.log.Error("schemas of message bodies changed but cannot be used; keeping the previous ones", "error", err)
	}
	return w.decoder
}
