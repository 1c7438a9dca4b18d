package deadletter

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/text"
)

// archiveVersion is the version of the format of an export.
const archiveVersion = 1

// ErrRedacted is wrapped by the error of an import of messages that were exported with values
// masked. They are not what was in the queue, and are never sent.
var ErrRedacted = errors.New("the export is redacted, so its messages are not whole; export with --raw to import them")

// Archived is a message as an export has it.
type Archived struct {
	Message
	// Changed reports that the message differs from what was exported, as it does when a person
	// has changed the file. The handle is that of the message that was exported.
	Changed bool
}

// archivedJSON is a message in an export. docs/looking.md describes it.
type archivedJSON struct {
	Version     int             `json:"version"`
	Redacted    bool            `json:"redacted,omitempty"`
	View        any             `json:"message,omitempty"` // only of a redacted export
	Handle      Handle          `json:"handle,omitempty"`
	SHA256      string          `json:"sha256,omitempty"` // the digest
	Copy        int             `json:"copy,omitempty"`
	Queue       exact           `json:"queue,omitempty"`
	Exchange    exact           `json:"exchange,omitempty"`
	RoutingKey  exact           `json:"routingKey,omitempty"`
	Redelivered bool            `json:"redelivered,omitempty"`
	Properties  *propertiesJSON `json:"properties,omitempty"`
	Headers     *tableJSON      `json:"headers,omitempty"`
	BodyUTF8    bool            `json:"bodyIsUtf8,omitempty"`
	BodyFile    string          `json:"bodyFile,omitempty"`
	Body        []byte          `json:"bodyBase64,omitempty"`
}

type propertiesJSON struct {
	MessageID       exact  `json:"messageId,omitempty"`
	Type            exact  `json:"type,omitempty"`
	ContentType     exact  `json:"contentType,omitempty"`
	ContentEncoding exact  `json:"contentEncoding,omitempty"`
	CorrelationID   exact  `json:"correlationId,omitempty"`
	ReplyTo         exact  `json:"replyTo,omitempty"`
	AppID           exact  `json:"appId,omitempty"`
	UserID          exact  `json:"userId,omitempty"`
	Expiration      exact  `json:"expiration,omitempty"`
	Timestamp       *int64 `json:"timestamp,omitempty"` // seconds since 1970
	DeliveryMode    uint8  `json:"deliveryMode,omitempty"`
	Priority        uint8  `json:"priority,omitempty"`
}

// WriteArchived writes a message as one line of JSON: its body byte for byte, all properties,
// and headers with their types.
func WriteArchived(w io.Writer, m Message) error {
	a := archived(m)
	a.Body = m.Delivery.Body
	return writeLine(w, a)
}

// WriteRedacted writes a view as one line of JSON, for people who must not see the whole
// message. An import refuses it.
func WriteRedacted(w io.Writer, v View) error {
	return writeLine(w, archivedJSON{Version: archiveVersion, Redacted: true, View: v})
}

func writeLine(w io.Writer, a archivedJSON) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(a)
}

// ArchiveFiles returns the two files of a message in an export to a folder: what describes it,
// and its body. n is the place of the message in the export.
func ArchiveFiles(m Message, n int) (describeName string, describe []byte, bodyName string, err error) {
	stem := fmt.Sprintf("%06d-%s", n, m.Handle)
	a := archived(m)
	a.BodyFile = stem + ".body"
	describe, err = indented(a)
	return stem + ".json", describe, a.BodyFile, err
}

// RedactedFile returns the file of a view in a redacted export to a folder.
func RedactedFile(v View, n int) (name string, content []byte, err error) {
	content, err = indented(archivedJSON{Version: archiveVersion, Redacted: true, View: v})
	return fmt.Sprintf("%06d-%s.json", n, v.Handle), content, err
}

func indented(a archivedJSON) ([]byte, error) {
	var out bytes.Buffer
	err := text.WriteJSON(&out, a)
	return out.Bytes(), err
}

// archived returns a message without its body.
func archived(m Message) archivedJSON {
	d := m.Delivery
	a := archivedJSON{
		Version: archiveVersion, Handle: m.Handle, Copy: m.Copy, Queue: exact(m.Queue), Exchange: exact(d.Exchange),
		SHA256:     hexOf(DigestOf(d)),
		RoutingKey: exact(d.RoutingKey), Redelivered: d.Redelivered, BodyUTF8: utf8.Valid(d.Body),
		Properties: &propertiesJSON{
			MessageID: exact(d.MessageId), Type: exact(d.Type), ContentType: exact(d.ContentType),
			ContentEncoding: exact(d.ContentEncoding), CorrelationID: exact(d.CorrelationId), ReplyTo: exact(d.ReplyTo),
			AppID: exact(d.AppId), UserID: exact(d.UserId), Expiration: exact(d.Expiration), DeliveryMode: d.DeliveryMode,
			Priority: d.Priority,
		},
	}
	if !d.Timestamp.IsZero() {
		seconds := d.Timestamp.Unix()
		a.Properties.Timestamp = &seconds
	}
	if d.Headers != nil {
		a.Headers = &tableJSON{d.Headers}
	}
	return a
}

func (a archivedJSON) message(body []byte) (Archived, error) {
	if a.Version != archiveVersion {
		return Archived{}, fmt.Errorf("version %d is not known, only %d; import with the release that exported it",
			a.Version, archiveVersion)
	}
	if a.Redacted {
		return Archived{}, ErrRedacted
	}
	p := a.Properties
	if p == nil {
		return Archived{}, errors.New(`"properties" is missing; this is not a message of an export`)
	}
	d := amqp091.Delivery{
		Exchange: string(a.Exchange), RoutingKey: string(a.RoutingKey), Redelivered: a.Redelivered, Body: body,
		MessageId: string(p.MessageID), Type: string(p.Type), ContentType: string(p.ContentType),
		ContentEncoding: string(p.ContentEncoding), CorrelationId: string(p.CorrelationID), ReplyTo: string(p.ReplyTo),
		AppId: string(p.AppID), UserId: string(p.UserID), Expiration: string(p.Expiration), DeliveryMode: p.DeliveryMode,
		Priority: p.Priority,
	}
	if p.Timestamp != nil {
		d.Timestamp = time.Unix(*p.Timestamp, 0)
	}
	if a.Headers != nil {
		d.Headers = a.Headers.table
	}
	m := Message{Delivery: d, Queue: string(a.Queue), Handle: a.Handle, Copy: a.Copy}
	return Archived{Message: m, Changed: hexOf(DigestOf(d)) != a.SHA256}, fits(d)
}

func hexOf(d Digest) string { return hex.EncodeToString(d[:]) }

// fits refuses what AMQP cannot carry. The library would end the connection over it.
func fits(d amqp091.Delivery) error {
	for name, v := range map[string]string{
		"exchange": d.Exchange, "routingKey": d.RoutingKey, "messageId": d.MessageId, "type": d.Type,
		"contentType": d.ContentType, "contentEncoding": d.ContentEncoding, "correlationId": d.CorrelationId,
		"replyTo": d.ReplyTo, "appId": d.AppId, "userId": d.UserId, "expiration": d.Expiration,
	} {
		if len(v) > longestProperty {
			return fmt.Errorf("%q has %d bytes; the limit is %d", name, len(v), longestProperty)
		}
	}
	return namesFit(d.Headers)
}

func namesFit(v any) error {
	switch v := v.(type) {
	case amqp091.Table:
		for name, e := range v {
			if len(name) > longestProperty {
				return fmt.Errorf("header %.20q has a name of %d bytes; the limit is %d", name, len(name), longestProperty)
			}
			if err := namesFit(e); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := namesFit(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadArchived reads messages that [WriteArchived] wrote, and passes each to visit. The error of
// a message that cannot be read names its place. An error of visit ends the reading and is
// returned as it is.
func ReadArchived(r io.Reader, visit func(Archived) error) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for n := 1; ; n++ {
		var a archivedJSON
		err := dec.Decode(&a)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && a.BodyFile != "" {
			err = errors.New(`"bodyFile" is known only in an export to a folder`)
		}
		var m Archived
		if err == nil {
			m, err = a.message(a.Body)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, unmarshalError(err))
		}
		if err := visit(m); err != nil {
			return err
		}
	}
}

// ReadArchivedFolder reads messages whose files [ArchiveFiles] made, in the order of the numbers
// that their names begin with, and then of the names. Bodies may have been changed.
func ReadArchivedFolder(folder fs.FS, visit func(Archived) error) error {
	names, err := fs.Glob(folder, "*.json")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("the folder has no files that end in .json; this is not an export")
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(numberOf(a), numberOf(b)), strings.Compare(a, b))
	})
	for _, name := range names {
		m, err := readFiles(folder, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, unmarshalError(err))
		}
		if err := visit(m); err != nil {
			return err
		}
	}
	return nil
}

// numberOf returns the number that the name of a file begins with. Zero: it has none.
func numberOf(file string) int {
	digits, _, _ := strings.Cut(file, "-")
	n, _ := strconv.Atoi(digits)
	return n
}

func readFiles(folder fs.FS, name string) (Archived, error) {
	content, err := fs.ReadFile(folder, name)
	if err != nil {
		return Archived{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	var a archivedJSON
	if err := dec.Decode(&a); err != nil {
		return Archived{}, err
	}
	if a.Redacted {
		return Archived{}, ErrRedacted
	}
	body := a.Body
	if a.BodyFile != "" {
		if a.BodyFile != path.Base(a.BodyFile) || strings.ContainsAny(a.BodyFile, `/\`) {
			return Archived{}, fmt.Errorf("bodyFile %q is not in the folder", a.BodyFile)
		}
		if body, err = fs.ReadFile(folder, a.BodyFile); err != nil {
			return Archived{}, err
		}
	}
	return a.message(body)
}

// unmarshalError says what is wrong without the names of Go types.
func unmarshalError(err error) error {
	var typeError *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typeError):
		return fmt.Errorf("%q is a %s", typeError.Field, typeError.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file ends in the middle of a message")
	}
	return err
}
