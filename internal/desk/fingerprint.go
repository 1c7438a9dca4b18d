package desk

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// fingerprint tells messages apart within a run. Two messages have the same one only if they are
// equal, but for what [deadletter.Digest.Whole] leaves out: it is 128 bits of a hash whose key is
// drawn for the run, so that no publisher can make a message that has the fingerprint of another.
type fingerprint [16]byte

func (f fingerprint) String() string { return hex.EncodeToString(f[:]) }

// parseFingerprint reads what String wrote.
func parseFingerprint(s string) (f fingerprint, ok bool) {
	raw, err := hex.DecodeString(s)
	return f, err == nil && copy(f[:], raw) == len(f)
}

// runKey is the key of the fingerprints of a run. It is in the manifest, so that any machine can
// resume the run.
type runKey []byte

func newRunKey() runKey {
	key := make(runKey, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return key
}

// of returns the fingerprint of a message with that digest.
func (k runKey) of(d deadletter.Digest) (f fingerprint) {
	mac := hmac.New(sha256.New, k)
	mac.Write(d[:])
	copy(f[:], mac.Sum(nil))
	return f
}

// of returns the fingerprint of a message as it is in its queue.
func (m *manifest) of(d amqp091.Delivery) fingerprint {
	return m.Key.of(deadletter.DigestOf(d).Whole(d))
}

// reader returns what makes views of messages.
func (d *Desk) reader() *deadletter.Reader {
	if d.Reader == nil {
		return &deadletter.Reader{Known: d.known()}
	}
	return d.Reader
}

// called returns how an error names a message of a queue: by its handle, as lists show it. A desk
// without a reader does not know what is masked.
func (d *Desk) called(m amqp091.Delivery, queue string) string {
	if d.Reader == nil {
		return "a message"
	}
	return "message " + d.Reader.Handle(m, queue).String()
}
