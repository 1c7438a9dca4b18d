package broker

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// extraFrame is by how much a frame from the broker may be larger than what was
// negotiated. The library makes room for a body in one piece only up to that size
// (v1.16.0, recvContent); beyond it a body is copied again and again as it grows, and
// what is left over fills the memory sooner than it is collected.
const extraFrame = 128 << 20

// wideConn lets an AMQP client take frames from the broker that are larger than
// what the two have agreed on.
//
// The broker adds x-death to the headers of a message that it dead-letters, and
// does not look at the size: headers that just fitted a frame do not fit any
// more, and are delivered all the same (3.10 to 4.3, measured). The library
// takes such a frame for an error and closes the connection, the broker delivers
// the message again, and so on for ever: one message would block the failed
// queue. So the client is told a larger limit than the broker, and the broker is
// told its own: the two numbers of connection.tune and connection.tune-ok are
// changed on the way. Nothing large is ever sent on such a connection.
//
// It also looks at what comes: headers that the library cannot read are wrapped
// (amqp_headers.go), and the bytes of deliveries are counted (amqp_gate.go).
type wideConn struct {
	net.Conn

	extra   uint32 // by how much frames from the broker may be larger
	gate    *gate
	in      *bufio.Reader
	limit   uint32 // what the broker said, once tuned
	tuned   bool   // connection.tune has been read
	foreign bool   // this is not AMQP: the client will see
	unread  []byte // read from the broker and not yet by the client
	whole   int    // how many bytes of the frame that comes next are given as they are
	deliver delivery
	skip    uint16 // the channel whose delivery is thrown away; zero is none
	agreed  bool   // connection.tune-ok has been written
	unsent  []byte // written by the client and not yet a whole frame
	greeted bool   // the protocol header has been written
}

// delivery is a basic.deliver whose content comes next.
type delivery struct {
	channel uint16
	tag     uint64 // zero: there is none
}

// newWideConn wraps a connection. Its gate counts deliveries.
func newWideConn(c net.Conn, extra uint32, g *gate) *wideConn {
	return &wideConn{Conn: c, extra: extra, gate: g, in: bufio.NewReaderSize(c, 64<<10)}
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
	resumeTime       = time.Minute           // to read on, once what came is taken
)

// Read gives what the broker sends.
func (c *wideConn) Read(p []byte) (int, error) {
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

// next looks at the frame that comes next.
func (c *wideConn) next() error {
	switch {
	case c.foreign:
		c.whole = 1 << 20 // as it comes
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

// tune changes the limit that the broker names. What else comes before, is given
// as it is.
func (c *wideConn) tune() error {
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
func (c *wideConn) method(channel uint16, size int) error {
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
	if channel == c.skip { // its content is over
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

// header waits until there is room for a message, and sees to it that the library
// can read its headers.
func (c *wideConn) header(channel uint16, size int) error {
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
		if waited { // the library has set the time to read by before
			_ = c.SetReadDeadline(time.Now().Add(resumeTime)) // a connection that is over says so at once
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

// discard leaves out a frame that nobody waits for any more.
func (c *wideConn) discard(size int) error {
	c.whole = 0
	_, err := c.in.Discard(size)
	return err
}

// readFrame reads one frame, or as much as came of it.
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
		binary.BigEndian.Uint16(frame[frameHead:]) == classConnection && binary.BigEndian.Uint16(frame[frameHead+2:]) == method
}

// Write sends what the client says, whole frames only until connection.tune-ok.
func (c *wideConn) Write(p []byte) (int, error) {
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
