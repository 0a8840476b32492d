package hub

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// An announcement is a message about a set that one hub of a memory sends to the
// others. It says what was appended, or that the other hubs have to look at the
// memory. Messages come over NATS, which may lose, repeat and reorder them, and
// any client of NATS can forge one. So each announcement is authenticated with the
// secret of the memory, and the tail still checks what an authentic one says.
//
// The set is the one of the subject. The message is:
//
//	version 1 byte: 2
//	memory  identity of the memory: length as uvarint, text
//	after   cursor before the first entry: position and microseconds, as uvarints
//	cursor  cursor of the last entry, in the same form; position 0 if it is of no
//	        entry, then microseconds is the time of the announcement
//	blocks  the blocks with the entries, as the memory keeps them; for each block
//	        the number of its entries and its length, as uvarints, and its bytes;
//	        no blocks when they are larger than a message of NATS may be, or when
//	        nothing was appended
//	mac     HMAC-SHA256 over the name of the set, a zero byte, and all before the mac,
//	        with the secret as the key; 32 bytes
//
// Version 1 had no mac. It is refused.
type announcement struct {
	cursor feed.Cursor
	batch  *feed.Batch // what was appended; nil when the announcement has no blocks
}

const announcementVersion = 2

// A sender proves that a hub belongs to a memory. It has the memory's identity,
// and the secret that only the memory's hubs know.
type sender struct{ memory, secret string }

// mac returns the mac of a message about a set.
func (s sender) mac(set string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(s.secret))
	h.Write([]byte(set + "\x00")) // no name of a set has a zero byte, so it is clear where the message begins
	h.Write(message)
	return h.Sum(nil)
}

// announcements encodes an append to a set as few announcements as possible, each at
// most most bytes long. A block that does not fit is announced without its content.
func announcements(from sender, set string, a changelog.Appended, most int) [][]byte {
	begin := func(after, cursor feed.Cursor) []byte {
		p := append(make([]byte, 0, 64+len(from.memory)), announcementVersion)
		p = binary.AppendUvarint(p, uint64(len(from.memory)))
		p = append(p, from.memory...)
		for _, c := range []feed.Cursor{after, cursor} {
			p = binary.AppendUvarint(p, c.Position)
			p = binary.AppendUvarint(p, uint64(c.Micros))
		}
		return p
	}
	end := func(p []byte) []byte { return append(p, from.mac(set, p)...) }
	if len(a.Blocks) == 0 {
		return [][]byte{end(begin(a.After, a.Cursor))}
	}
	var all [][]byte
	room := most - sha256.Size - len(begin(a.Cursor, a.Cursor)) // the greatest cursor takes the most room
	left := a.Count
	after := a.After
	for i := 0; i < len(a.Blocks); {
		var blocks []byte
		count := 0
		for ; i < len(a.Blocks); i++ {
			b := a.Blocks[i]
			if n := len(blocks) + len(b.Block) + 2*binary.MaxVarintLen32; n > room || count > 0 && count+b.Count > changelog.MaxBlockEntries {
				break
			}
			blocks = binary.AppendUvarint(blocks, uint64(b.Count))
			blocks = binary.AppendUvarint(blocks, uint64(len(b.Block)))
			blocks = append(blocks, b.Block...)
			count += b.Count
		}
		if blocks == nil { // this block is too large for an announcement
			count = a.Blocks[i].Count
			i++
		}
		left -= count
		// The entries of a publish follow each other by 1 µs.
		cursor := feed.Cursor{Position: a.Cursor.Position - uint64(left), Micros: a.Cursor.Micros - int64(left)}
		all = append(all, end(append(begin(after, cursor), blocks...)))
		after = cursor
	}
	return all
}

// The reasons to refuse a message.
var (
	errVersion   = errors.New("it is of another version of rshub, or no announcement")
	errForeign   = errors.New("it is of another memory")
	errForged    = errors.New("it was not made with the secret of this memory")
	errTime      = errors.New("its datetime is too far from this hub's clock")
	errMalformed = errors.New("it is malformed")
)

// verify checks the mac of a message about a set. It returns the part between the
// memory and the mac. An error says why the message cannot be from a hub of the
// memory.
func (s sender) verify(set string, message []byte) (body []byte, err error) {
	n := len(message) - sha256.Size
	if n < 1 || message[0] != announcementVersion {
		return nil, errVersion
	}
	p, mac := message[:n], message[n:]
	size, prefix := binary.Uvarint(p[1:])
	if prefix <= 0 || size > uint64(n-1-prefix) {
		return nil, errMalformed
	}
	memory, body := p[1+prefix:][:size], p[1+prefix:][size:]
	if string(memory) != s.memory {
		return nil, errForeign
	}
	if s.secret == "" || !hmac.Equal(mac, s.mac(set, p)) {
		return nil, errForged
	}
	return body, nil
}

// decodeAnnouncement reads the body of a message about a set.
func decodeAnnouncement(set string, body []byte) (announcement, error) {
	numbers := make([]uint64, 4)
	p, err := uvarints(body, numbers)
	if err != nil {
		return announcement{}, err
	}
	after := feed.Cursor{Position: numbers[0], Micros: int64(numbers[1])}
	a := announcement{cursor: feed.Cursor{Position: numbers[2], Micros: int64(numbers[3])}}
	if after.Micros < 0 || a.cursor.Position < after.Position || a.cursor.Micros < after.Micros {
		return announcement{}, errMalformed
	}
	if len(p) == 0 {
		return a, nil
	}
	a.batch = &feed.Batch{Set: set, After: after, Cursor: a.cursor}
	left := a.cursor.Position - after.Position
	for len(p) > 0 {
		head := make([]uint64, 2)
		if p, err = uvarints(p, head); err != nil {
			return announcement{}, err
		}
		count, length := head[0], head[1]
		if length > uint64(len(p)) || count > left {
			return announcement{}, errMalformed
		}
		left -= count
		last := feed.Cursor{Position: a.cursor.Position - left, Micros: a.cursor.Micros - int64(left)}
		entries, err := changelog.Block(p[:length]).Entries(last)
		if err != nil {
			return announcement{}, err
		}
		if uint64(len(entries)) != count {
			return announcement{}, errMalformed
		}
		a.batch.Entries = append(a.batch.Entries, entries...)
		p = p[length:]
	}
	if left > 0 || len(a.batch.Entries) == 0 || a.batch.Entries[0].Micros <= after.Micros {
		return announcement{}, errMalformed
	}
	return a, nil
}

// openAnnouncement returns the content of a message about a set, if a hub of the memory
// sent it lately. An error says why it is refused. It refuses a datetime that differs
// from now by more than skew: no entry can be later than that, and an earlier one means
// a replayed message.
func openAnnouncement(from sender, set string, message []byte, now time.Time, skew time.Duration) (announcement, error) {
	body, err := from.verify(set, message)
	if err != nil {
		return announcement{}, err
	}
	a, err := decodeAnnouncement(set, body)
	if err != nil {
		return announcement{}, err
	}
	if age := now.Sub(time.UnixMicro(a.cursor.Micros)); age > skew || age < -skew {
		return announcement{}, errTime
	}
	return a, nil
}

// uvarints fills numbers from the beginning of p, and returns the rest of p.
func uvarints(p []byte, numbers []uint64) ([]byte, error) {
	for i := range numbers {
		v, size := binary.Uvarint(p)
		if size <= 0 {
			return nil, errMalformed
		}
		numbers[i], p = v, p[size:]
	}
	return p, nil
}
