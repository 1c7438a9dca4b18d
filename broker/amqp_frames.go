package broker

import (
	"encoding/binary"
	"io"
	"net"
)

// extraFrame is by how much a frame from the broker may be larger than what was
// negotiated.
const extraFrame = 1 << 20

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
type wideConn struct {
	net.Conn

	limit   uint32 // what the broker said, once tuned
	tuned   bool   // connection.tune has been read
	unread  []byte // read from the broker and not yet by the client
	agreed  bool   // connection.tune-ok has been written
	unsent  []byte // written by the client and not yet a whole frame
	greeted bool   // the protocol header has been written
}

const (
	frameHead        = 7 // type, channel, size
	methodFrame      = 1
	classConnection  = 10
	methodTune       = 30
	methodTuneOk     = 31
	frameMaxOffset   = frameHead + 2 + 2 + 2 // class, method, channel-max
	protocolHeader   = 8                     // AMQP 0-0-9-1
	defaultFrameSize = 131072                // of RabbitMQ
)

// Read gives what the broker sends, one frame at a time until connection.tune.
func (c *wideConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 && !c.tuned {
		frame, err := readFrame(c.Conn)
		c.unread = frame
		if err != nil && len(frame) == 0 {
			return 0, err
		}
		switch {
		case err != nil || frame[0] != methodFrame:
			c.tuned = true // this is not AMQP: the client will see
		case isMethod(frame, methodTune):
			at := frame[frameMaxOffset : frameMaxOffset+4]
			c.limit = binary.BigEndian.Uint32(at)
			if c.limit == 0 {
				c.limit = defaultFrameSize
			}
			binary.BigEndian.PutUint32(at, c.limit+extraFrame)
			c.tuned = true
		}
	}
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(p)
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
