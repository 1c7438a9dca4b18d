// Package wire works around limits of the AMQP library (github.com/rabbitmq/amqp091-go) below it,
// in the bytes of the connection. Each workaround names the upstream issue where there is one.
package wire

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// ExtraFrame is by how many bytes a frame from the broker may exceed the negotiated size. The
// library preallocates the buffer of a body only up to the negotiated size
// (https://github.com/rabbitmq/amqp091-go/pull/346). It grows a larger buffer step by step and
// copies the body each time, and the discarded buffers fill the memory faster than they are
// collected.
const ExtraFrame = 128 << 20

// Conn lets an AMQP client receive frames that are larger than the negotiated frame_max.
//
// The broker adds x-death to the headers of a message when it dead-letters the message, and does
// not check the size: headers that just fitted a frame no longer fit, and are delivered anyway
// (3.10 to 4.3, measured). The library treats such a frame as an error and closes the connection,
// the broker redelivers the message, and this repeats forever: one message would block the failed
// queue. So Conn reports a larger limit to the client, and the broker's own limit to the broker:
// Conn rewrites the numbers in connection.tune and connection.tune-ok. Nothing large is ever sent
// on such a connection.
//
// Upstream: the library rejects larger frames on purpose
// (https://github.com/rabbitmq/amqp091-go/pull/369); an issue about oversized frames after
// dead-lettering was not found there. The same problem in other clients:
// https://github.com/amqp-node/amqplib/issues/135; what the broker says about the limit:
// https://github.com/rabbitmq/rabbitmq-server/issues/921.
//
// Conn also inspects what it receives: it wraps headers that the library cannot read (headers.go),
// and counts the bytes of deliveries (gate.go).
type Conn struct {
	net.Conn

	extra   uint32 // by how much frames from the broker may be larger
	gate    *Gate
	in      *bufio.Reader
	limit   uint32 // the limit of the broker, once tuned
	tuned   bool   // connection.tune has been read
	foreign bool   // this is not AMQP: the client will fail
	unread  []byte // read from the broker and not yet by the client
	whole   int    // how many bytes of the next frame pass unchanged
	deliver delivery
	skip    uint16 // the channel whose delivery is discarded; zero is none
	agreed  bool   // connection.tune-ok has been written
	unsent  []byte // written by the client and not yet a whole frame
	greeted bool   // the protocol header has been written
}

// delivery is a basic.deliver whose content follows.
type delivery struct {
	channel uint16
	tag     uint64 // zero: there is none
}

// NewConn wraps a connection. The gate counts its deliveries.
func NewConn(c net.Conn, extra uint32, g *Gate) *Conn {
	return &Conn{Conn: c, extra: extra, gate: g, in: bufio.NewReaderSize(c, 64<<10)}
}

const (
	frameHead        = 7 // type, channel, size
	methodFrame      = 1
	headerFrame      = 2
	bodyFrame        = 3
	classConnection  = 10
	methodTune       = 30
	methodTuneOk     = 31
	classBasic       = 60
	methodDeliver    = 60
	frameMaxOffset   = frameHead + 2 + 2 + 2 // class, method, channel-max
	protocolHeader   = 8                     // AMQP 0-0-9-1
	defaultFrameSize = 131072                // of RabbitMQ
	contentHead      = frameHead + 2 + 2 + 8 // class, weight, body size
	resumeTime       = time.Minute           // for the next read, once the gate has opened
)

// Read returns what the broker sends.
func (c *Conn) Read(p []byte) (int, error) {
	for len(c.unread) == 0 && c.whole == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.whole)])
	if !c.foreign {
		c.whole -= n
	}
	return n, err
}

// next inspects the next frame.
func (c *Conn) next() error {
	switch {
	case c.foreign:
		c.whole = 1 << 20 // unchanged
		return nil
	case !c.tuned:
		return c.tune()
	}
	head, err := c.in.Peek(frameHead)
	if err != nil {
		return err
	}
	size := frameHead + int(binary.BigEndian.Uint32(head[3:])) + 1
	channel := binary.BigEndian.Uint16(head[1:])
	switch head[0] {
	case methodFrame:
		return c.method(channel, size)
	case headerFrame:
		return c.header(channel, size)
	case bodyFrame:
		if channel == c.skip {
			return c.discard(size)
		}
	}
	c.whole = size
	return nil
}

// tune rewrites the limit in connection.tune. Frames before it pass unchanged.
func (c *Conn) tune() error {
	frame, err := readFrame(c.in)
	c.unread = frame
	if err != nil && len(frame) == 0 {
		return err
	}
	switch {
	case err != nil || frame[0] != methodFrame:
		c.tuned, c.foreign = true, true
	case isMethod(frame, methodTune):
		at := frame[frameMaxOffset : frameMaxOffset+4]
		c.limit = binary.BigEndian.Uint32(at)
		if c.limit == 0 {
			c.limit = defaultFrameSize
		}
		binary.BigEndian.PutUint32(at, c.limit+c.extra)
		c.tuned = true
	}
	return nil
}

// method notes a delivery.
func (c *Conn) method(channel uint16, size int) error {
	c.whole = size
	const least = frameHead + 2 + 2 + 1 + 8 // class, method, a consumer tag, a delivery tag
	if size < least {
		return nil
	}
	head, err := c.in.Peek(least)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint16(head[frameHead:]) != classBasic {
		return nil
	}
	if channel == c.skip { // its content has ended
		c.skip = 0
	}
	if binary.BigEndian.Uint16(head[frameHead+2:]) != methodDeliver {
		return nil
	}
	if c.gate.dropping() {
		c.skip = channel
		return c.discard(size)
	}
	at := frameHead + 2 + 2 + 1 + int(head[frameHead+4])
	if head, err = c.in.Peek(at + 8); err != nil {
		return err
	}
	c.deliver = delivery{channel, binary.BigEndian.Uint64(head[at:])}
	return nil
}

// header waits until the gate has room for a message, and makes its headers readable for the
// library.
func (c *Conn) header(channel uint16, size int) error {
	head, err := c.in.Peek(contentHead)
	if err != nil {
		return err
	}
	if channel == c.skip {
		return c.discard(size)
	}
	deliver := c.deliver
	c.deliver = delivery{}
	if deliver.tag != 0 && deliver.channel == channel {
		bytes := int(binary.BigEndian.Uint64(head[contentHead-8:])) + size //nolint:gosec // no message is that large
		waited, open := c.gate.enter(deliver.tag, bytes)
		if waited { // the library had set the read deadline before
			_ = c.SetReadDeadline(time.Now().Add(resumeTime)) // a closed connection reports it at once
		}
		if !open {
			c.skip = channel
			return c.discard(size)
		}
	}
	if size <= c.in.Size() {
		frame, err := c.in.Peek(size)
		if err != nil {
			return err
		}
		if legible(frame) {
			c.whole = size
			return nil
		}
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(c.in, frame); err != nil {
		return err
	}
	if !legible(frame) {
		frame = wrapped(frame, c.extra > 0)
	}
	c.unread = frame
	return nil
}

// discard drops a frame of a delivery that is no longer wanted.
func (c *Conn) discard(size int) error {
	c.whole = 0
	_, err := c.in.Discard(size)
	return err
}

// readFrame reads one frame, or as much of it as arrived.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, frameHead)
	if n, err := io.ReadFull(r, frame); err != nil {
		return frame[:n], err
	}
	size := binary.BigEndian.Uint32(frame[3:])
	if frame[0] != methodFrame || size > defaultFrameSize {
		return append(frame[:0:0], frame...), io.ErrUnexpectedEOF
	}
	frame = append(frame, make([]byte, size+1)...)
	n, err := io.ReadFull(r, frame[frameHead:])
	return frame[:frameHead+n], err
}

func isMethod(frame []byte, method uint16) bool {
	return len(frame) >= frameMaxOffset+4 && frame[0] == methodFrame &&
		binary.BigEndian.Uint16(frame[frameHead:]) == classConnection &&
		binary.BigEndian.Uint16(frame[frameHead+2:]) == method
}

// Write sends what the client writes, in whole frames until connection.tune-ok.
func (c *Conn) Write(p []byte) (int, error) {
	if c.agreed {
		return c.Conn.Write(p)
	}
	c.unsent = append(c.unsent, p...)
	ready := 0
	if !c.greeted && len(c.unsent) >= protocolHeader {
		c.greeted, ready = true, protocolHeader
	}
	for c.greeted && !c.agreed && len(c.unsent) >= ready+frameHead {
		end := ready + frameHead + int(binary.BigEndian.Uint32(c.unsent[ready+3:])) + 1
		if end > len(c.unsent) {
			break
		}
		if frame := c.unsent[ready:end]; isMethod(frame, methodTuneOk) {
			binary.BigEndian.PutUint32(frame[frameMaxOffset:], c.limit)
			c.agreed = true
		}
		ready = end
	}
	if c.agreed {
		ready = len(c.unsent)
	}
	if _, err := c.Conn.Write(c.unsent[:ready]); err != nil {
		return 0, err
	}
	c.unsent = append([]byte(nil), c.unsent[ready:]...)
	return len(p), nil
}
