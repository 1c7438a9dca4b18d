package desk

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// Headers of the messages in a hold that are not dead letters, and values of headerRecord.
const (
	headerManifest = "desk-manifest" // the run, on all of them
	headerRecord   = "desk-record"
	headerPart     = "desk-part"    // the number of a part, from 1
	headerParts    = "desk-parts"   // how many parts there are
	headerEdited   = "desk-headers" // the headers of an edited message
	headerWitness  = "desk-witness" // the witness of the acknowledgements of a pull

	recordList      = "list"      // a part of the list of chosen messages
	recordEdited    = "edited"    // the message as a person wants it
	recordAcking    = "acking"    // all is copied, of a pull; the witness tells whether it was acknowledged
	recordSending   = "sending"   // all is taken; nothing may be taken any more
	recordSent      = "sent"      // the edited message is sent, of an edit; its original must be parked
	recordReturning = "returning" // the run goes back; it cannot be resumed
)

// entriesPerPart is how many fingerprints one message of a manifest has: some 5 MB.
const entriesPerPart = 100_000

// entry says how many equal messages a run takes.
type entry struct {
	wanted uint32
	// present is how many equal messages the queue had when the run chose.
	present uint32
	// dated reports that the headers tell when exactly the message failed: an equal one cannot
	// arrive later.
	dated bool
}

// isDated reports whether an equal message cannot arrive later. RabbitMQ writes only the second of
// a death: messages that are equal, and have no message-id, may have died in the same one.
func isDated(d amqp091.Delivery, f deadletter.Facts) bool {
	return !f.LastFailed.IsZero() && (d.MessageId != "" || f.LastFailed.Nanosecond() != 0)
}

// certain reports whether entry e counts each equal message that the queue had and can get. A run
// that has not looked at the whole queue does not know how many there were.
func (m *manifest) certain(e entry) bool { return e.dated && !m.Partial }

// manifest is what a run chose, and what it does. It is stored in the hold before anything is
// taken, so that any machine can resume the run.
type manifest struct {
	Run string
	summary
	// Consumers is how many consumers the queue had when the run chose.
	Consumers   int  `json:",omitempty"`
	KeepHistory bool `json:",omitempty"`
	KeepTTL     bool `json:",omitempty"`
	// Partial reports that the queue had messages that the run did not look at.
	Partial bool `json:",omitempty"`
	// Watch are the queues that the run sends to, as far as it knows. Listen are those of them whose
	// failures go to the failed exchange of the topology, and Echo those whose failures come back to
	// Queue.
	Watch  []string `json:",omitempty"`
	Listen []string `json:",omitempty"`
	Echo   []string `json:",omitempty"`
	// Goes is how many messages go to each queue, and Bytes how large their bodies are in all. Allow
	// are the queues that may drop them.
	Goes  map[string]int `json:",omitempty"`
	Bytes int64          `json:",omitempty"`
	Allow []string       `json:",omitempty"`
	// TTL is the message-ttl of Queue in milliseconds when the run began. Zero: it had none.
	TTL int64 `json:",omitempty"`
	// ChosenBy is by what the run chose, for its record.
	ChosenBy Criteria `json:",omitzero"`
	// NewKey is the routing key of an edited message, in place of the publisher's. Empty keeps that.
	NewKey string `json:",omitempty"`
	// Through are the exchanges that a person has named, or that publishers had used.
	Through []string `json:",omitempty"`

	// Key is that of the fingerprints.
	Key    runKey
	wanted map[fingerprint]entry
	// back makes the run give back what its hold has, in place of its action.
	back bool
	// edited is the message as a person wants it, of an edit.
	edited *amqp091.Delivery
}

// summary is what is known of a run without its list.
type summary struct {
	Action  Action
	Queue   string
	By      string    `json:",omitempty"`
	Reason  string    `json:",omitempty"`
	Started time.Time `json:",omitzero"`
	Chosen  int
	Target  Target
	Send    SendOptions
	// Forever: it deletes the messages, in place of parking them.
	Forever bool `json:",omitempty"`
	// Keep is the age from which messages were old, if they were chosen by that. Zero: they were not.
	Keep time.Duration `json:",omitempty"`
}

// watched returns the queues that a run asks how many messages wait there.
func (m *manifest) watched() []string {
	if m.Action.Kind().goes == toWork {
		return m.sendsTo()
	}
	return nil
}

// sendsTo returns the queues that the run still sends to. To others it may have sent before it was
// resumed: it hears failures there, and it does not matter to the rest whether they still exist.
func (m *manifest) sendsTo() []string {
	return slices.DeleteFunc(slices.Clone(m.Watch), func(queue string) bool {
		n, counted := m.Goes[queue]
		return counted && n == 0
	})
}

// others is what amqp.Conn.Settled is told of the other consumers of the queue. If it had none when
// the run chose, no count is believed while it has one: that of a look, or of a dead process whose
// connection the broker has not ended yet, holds messages that come back.
func (m *manifest) others() int {
	if m.Consumers == 0 && !m.live() {
		return amqp.Alone
	}
	return m.Consumers
}

// part is the body of a message of a manifest. Only the first has the manifest itself.
type part struct {
	Manifest *manifest `json:",omitempty"`
	// Entries are, by fingerprint, the fields of an entry.
	Entries map[string][3]uint32
}

func (m *manifest) messages() ([]amqp091.Publishing, error) {
	first := part{Manifest: m, Entries: map[string][3]uint32{}}
	parts := []part{first}
	for key, e := range m.wanted {
		last := parts[len(parts)-1]
		if len(last.Entries) == entriesPerPart {
			last = part{Entries: map[string][3]uint32{}}
			parts = append(parts, last)
		}
		dated := uint32(0)
		if e.dated {
			dated = 1
		}
		last.Entries[key.String()] = [3]uint32{e.wanted, e.present, dated}
	}
	total := len(parts)
	if m.edited != nil {
		total++
	}
	var out []amqp091.Publishing
	for i, p := range parts {
		body, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		out = append(out, record(m.Run, recordList, i+1, total, body))
	}
	if m.edited != nil {
		p := record(m.Run, recordEdited, total, total, m.edited.Body)
		p.MessageId, p.ContentType, p.ContentEncoding = m.edited.MessageId, m.edited.ContentType, m.edited.ContentEncoding
		p.Headers[headerEdited] = m.edited.Headers
		out = append(out, p)
	}
	return out, nil
}

// record returns a message for a hold that is not a dead letter.
func record(run, kind string, number, total int, body []byte) amqp091.Publishing {
	return amqp091.Publishing{
		DeliveryMode: amqp091.Persistent, AppId: "dlxctl", ContentType: "application/json", Body: body,
		Headers: amqp091.Table{
			headerManifest: run, headerRecord: kind, headerPart: int64(number), headerParts: int64(total),
		},
	}
}

// isRecord reports whether a message of a hold is one that the run wrote for itself. The name of
// a run is drawn, so that no other message has it in this header.
func isRecord(run string, d amqp091.Delivery) bool { return d.Headers[headerManifest] == run }

// reading is a manifest while its parts are read, in any order.
type reading struct {
	manifest manifest
	have     map[int64]bool
	total    int64
	records  map[string]int
	count    int // messages that are records
	// witnesses are those of the processes that may have acknowledged what they took, of a pull.
	witnesses []string
}

func (r *reading) add(d amqp091.Delivery) error {
	kind, _ := d.Headers[headerRecord].(string)
	if r.records == nil {
		r.records, r.have = map[string]int{}, map[int64]bool{}
	}
	r.records[kind]++
	r.count++
	number, _ := d.Headers[headerPart].(int64)
	total, _ := d.Headers[headerParts].(int64)
	switch kind {
	case recordEdited:
		headers, _ := d.Headers[headerEdited].(amqp091.Table)
		r.manifest.edited = &amqp091.Delivery{
			Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, MessageId: d.MessageId,
			Body: d.Body,
		}
	case recordAcking:
		name, _ := d.Headers[headerWitness].(string)
		r.witnesses = append(r.witnesses, name)
		return nil
	case recordList:
		if err := r.list(d.Body); err != nil {
			return fmt.Errorf("the list of the run cannot be read: %w", err)
		}
	default:
		return nil
	}
	r.have[number], r.total = true, total
	return nil
}

func (r *reading) list(body []byte) error {
	var p part
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	wanted, edited := r.manifest.wanted, r.manifest.edited
	if p.Manifest != nil {
		r.manifest = *p.Manifest
	}
	if wanted == nil {
		wanted = make(map[fingerprint]entry, len(p.Entries))
	}
	for name, e := range p.Entries {
		key, ok := parseFingerprint(name)
		if !ok {
			return fmt.Errorf("%q is not a fingerprint of a message", name)
		}
		wanted[key] = entry{wanted: e[0], present: e[1], dated: e[2] == 1}
	}
	r.manifest.wanted, r.manifest.edited = wanted, edited
	return nil
}

// complete reports whether all parts were read. Nothing is taken before the broker has confirmed
// all of them: an incomplete manifest means that the run has moved nothing.
func (r *reading) complete() bool { return r.total > 0 && int64(len(r.have)) == r.total }
