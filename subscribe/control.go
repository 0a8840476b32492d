package subscribe

import (
	"encoding/binary"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// The bits of a frame's first two bytes (RFC 6455 section 5.2).
const (
	final    = 0x80
	reserved = 0x70
	opcodes  = 0x0f
	masked   = 0x80
	length   = 0x7f

	maskSize = 4
	minFrame = 2 + maskSize // frame of a client, with its mask

	maxControlPayload = 125 // longer payloads need a length field that control frames must not have
)

// A refusal is the error for a frame that a client must not send. It has the code to close the
// connection with.
type refusal struct{ closeFrame }

func (r *refusal) Error() string { return r.reason }

func refuse(code int, reason string) error { return &refusal{closeFrame{code: code, reason: reason}} }

// readControl reads a control frame of a client, which must not send other frames. It reads
// nothing after the frame. If the client must not send the frame, the error is a *refusal, and
// the rest of r is unusable.
func readControl(r io.Reader) (opcode byte, payload []byte, err error) {
	f, err := readFrame(r, 0)
	return f.opcode, f.payload, err
}

// A clientFrame is a frame of a client, without its mask.
type clientFrame struct {
	opcode  byte
	final   bool
	payload []byte
}

// continuation is the opcode of the second and later frames of a message.
const continuation = 0

// readFrame reads a frame of a client. It reads nothing after the frame. maxData is the maximum size
// of the payload of a data frame; zero means that the client must not send data. If the client must
// not send the frame, the error is a *refusal, and the rest of r is unusable.
func readFrame(r io.Reader, maxData int) (f clientFrame, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, err
	}
	f.opcode, f.final = head[0]&opcodes, head[0]&final != 0
	size := uint64(head[1] & length)
	isData := f.opcode == websocket.TextMessage || f.opcode == websocket.BinaryMessage || f.opcode == continuation && maxData > 0
	switch {
	case head[0]&reserved != 0:
		return f, refuse(websocket.CloseProtocolError, "a frame uses an extension that was not negotiated")
	case head[1]&masked == 0:
		return f, refuse(websocket.CloseProtocolError, "a frame is not masked")
	case isData && maxData == 0:
		return f, refuse(websocket.ClosePolicyViolation, "changes must be published with POST")
	case !isData && f.opcode != websocket.PingMessage && f.opcode != websocket.PongMessage && f.opcode != websocket.CloseMessage:
		return f, refuse(websocket.CloseProtocolError, "a frame has an unknown opcode")
	case !isData && (!f.final || size > maxControlPayload):
		return f, refuse(websocket.CloseProtocolError, "a control frame is fragmented or too long")
	}
	if isData && size > maxControlPayload {
		var long [8]byte
		field := long[6:] // of 16 bits
		if size == length {
			field = long[:]
		}
		if _, err := io.ReadFull(r, field); err != nil {
			return f, unexpectedEOF(err)
		}
		size = binary.BigEndian.Uint64(long[:])
	}
	if isData && size > uint64(maxData) {
		return f, refuseLarge(maxData)
	}
	rest := make([]byte, maskSize+int(size))
	if _, err := io.ReadFull(r, rest); err != nil {
		return f, unexpectedEOF(err)
	}
	mask := rest[:maskSize]
	f.payload = rest[maskSize:]
	for i := range f.payload {
		f.payload[i] ^= mask[i%maskSize]
	}
	return f, nil
}

// refuseLarge returns the refusal of a message with more than n bytes.
func refuseLarge(n int) error {
	return refuse(websocket.CloseMessageTooBig, "a message is larger than "+strconv.Itoa(n)+" bytes")
}

// unexpectedEOF returns err, or io.ErrUnexpectedEOF in place of io.EOF.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A messageReader reads the messages of a client (RFC 6455 section 5.4).
type messageReader struct {
	in      io.Reader
	maxSize int // maximum size of a message in bytes

	opcode byte   // opcode of the unfinished message; zero if there is none
	begun  []byte // payload of the unfinished message
}

// next returns the next message, or the next control frame, which may come between the frames of a
// message. Its errors are the errors of readFrame.
func (m *messageReader) next() (opcode byte, payload []byte, err error) {
	for {
		f, err := readFrame(m.in, m.maxSize)
		switch {
		case err != nil:
			return 0, nil, err
		case f.opcode >= websocket.CloseMessage:
			return f.opcode, f.payload, nil
		case (f.opcode == continuation) != (m.opcode != 0):
			return 0, nil, refuse(websocket.CloseProtocolError, "a message starts within another, or continues none")
		case len(m.begun)+len(f.payload) > m.maxSize:
			return 0, nil, refuseLarge(m.maxSize)
		}
		if m.opcode == 0 {
			m.opcode = f.opcode
		}
		m.begun = append(m.begun, f.payload...)
		if f.final {
			opcode, payload = m.opcode, m.begun
			m.opcode, m.begun = 0, nil
			return opcode, payload, nil
		}
	}
}

// readClose returns the code in the payload of a client's close frame (RFC 6455
// sections 5.5.1 and 7.4).
func readClose(payload []byte) (code int, err error) {
	switch len(payload) {
	case 0:
		return websocket.CloseNoStatusReceived, nil
	case 1:
		return 0, refuse(websocket.CloseProtocolError, "a close frame has a truncated code")
	}
	code = int(binary.BigEndian.Uint16(payload))
	known := code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
	switch {
	case !known:
		return 0, refuse(websocket.CloseProtocolError, "a close frame has an invalid code")
	case !utf8.Valid(payload[2:]):
		return 0, refuse(websocket.CloseInvalidFramePayloadData, "the reason of a close frame is not valid UTF-8")
	}
	return code, nil
}
