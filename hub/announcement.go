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
// others. It contains what was appended, or asks the other hubs to check the memory.
// NATS may lose, repeat and reorder messages, and any NATS client can forge one. So
// each announcement is authenticated with the secret of the memory, and the tail
// verifies even authentic ones against its head.
//
// The NATS subject names the set. The message is:
//
//	version 1 byte: 2
//	memory  identity of the memory: length as uvarint, text
//	after   cursor before the first entry: position and microseconds, as uvarints
//	cursor  cursor of the last entry, in the same form; if no entry was appended, the
//	        position is 0 and the microseconds are the time of the announcement
//	blocks  the blocks with the entries, as the memory stores them; for each block
//	        the number of its entries and its length, as uvarints, and its bytes;
//	        absent if they exceed the maximum size of a NATS message, or if nothing
//	        was appended
//	mac     HMAC-SHA256 over the name of the set, a zero byte, and all bytes before
//	        the mac, with the secret as the key; 32 bytes
//
// Version 1 had no mac and is refused.
type announcement struct {
	cursor feed.Cursor
	batch  *feed.Batch // appended entries; nil if the announcement has no blocks
}

const announcementVersion = 2

// A memoryKey authenticates announcements between the hubs of a memory. It has the identity of
// the memory and the secret that only its hubs know.
type memoryKey struct{ memory, secret string }

// mac returns the MAC of a message about a set.
func (k memoryKey) mac(set string, message []byte) []byte {
	h := hmac.New(sha256.New, []byte(k.secret))
	h.Write([]byte(set + "\x00")) // names of sets contain no zero byte, so the start of the message is unambiguous
	h.Write(message)
	return h.Sum(nil)
}

// encodeAnnouncements encodes an append to a set as the fewest possible announcements of at
// most limit bytes each. A block that does not fit is announced without its content.
func encodeAnnouncements(key memoryKey, set string, appended changelog.Appended, limit int) [][]byte {
	header := func(after, cursor feed.Cursor) []byte {
		p := append(make([]byte, 0, 64+len(key.memory)), announcementVersion)
		p = binary.AppendUvarint(p, uint64(len(key.memory)))
		p = append(p, key.memory...)
		for _, c := range []feed.Cursor{after, cursor} {
			p = binary.AppendUvarint(p, c.Position)
			p = binary.AppendUvarint(p, uint64(c.Micros))
		}
		return p
	}
	sign := func(p []byte) []byte { return append(p, key.mac(set, p)...) }
	if len(appended.Blocks) == 0 {
		return [][]byte{sign(header(appended.After, appended.Cursor))}
	}
	var all [][]byte
	room := limit - sha256.Size - len(header(appended.Cursor, appended.Cursor)) // the highest cursor has the longest encoding
	remaining := appended.Count
	after := appended.After
	for i := 0; i < len(appended.Blocks); {
		var blocks []byte
		count := 0
		for ; i < len(appended.Blocks); i++ {
			b := appended.Blocks[i]
			if n := len(blocks) + len(b.Block) + 2*binary.MaxVarintLen32; n > room || count > 0 && count+b.Count > changelog.MaxBlockEntries {
				break
			}
			blocks = binary.AppendUvarint(blocks, uint64(b.Count))
			blocks = binary.AppendUvarint(blocks, uint64(len(b.Block)))
			blocks = append(blocks, b.Block...)
			count += b.Count
		}
		if blocks == nil { // the block does not fit into an announcement
			count = appended.Blocks[i].Count
			i++
		}
		remaining -= count
		// The datetimes of consecutive entries of a publish differ by 1 µs.
		cursor := feed.Cursor{Position: appended.Cursor.Position - uint64(remaining), Micros: appended.Cursor.Micros - int64(remaining)}
		all = append(all, sign(append(header(after, cursor), blocks...)))
		after = cursor
	}
	return all
}

// Reasons for refusing a message.
var (
	errVersion     = errors.New("not an announcement, or from another version of rshub")
	errOtherMemory = errors.New("announcement from another memory")
	errBadMAC      = errors.New("not authenticated with the secret of this memory")
	errClockSkew   = errors.New("datetime differs too much from this hub's clock")
	errMalformed   = errors.New("malformed announcement")
)

// verify checks the MAC of a message about a set and returns the part between memory and mac.
// The error is the reason why the message cannot be from a hub of the memory.
func (k memoryKey) verify(set string, message []byte) (body []byte, err error) {
	macStart := len(message) - sha256.Size
	if macStart < 1 || message[0] != announcementVersion {
		return nil, errVersion
	}
	signed, mac := message[:macStart], message[macStart:]
	size, sizeLen := binary.Uvarint(signed[1:])
	if sizeLen <= 0 || size > uint64(macStart-1-sizeLen) {
		return nil, errMalformed
	}
	memory, body := signed[1+sizeLen:][:size], signed[1+sizeLen:][size:]
	if string(memory) != k.memory {
		return nil, errOtherMemory
	}
	if k.secret == "" || !hmac.Equal(mac, k.mac(set, signed)) {
		return nil, errBadMAC
	}
	return body, nil
}

// decodeAnnouncement decodes the body of a verified message about a set.
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
	remaining := a.cursor.Position - after.Position
	for len(p) > 0 {
		lengths := make([]uint64, 2)
		if p, err = uvarints(p, lengths); err != nil {
			return announcement{}, err
		}
		count, length := lengths[0], lengths[1]
		if length > uint64(len(p)) || count > remaining {
			return announcement{}, errMalformed
		}
		remaining -= count
		last := feed.Cursor{Position: a.cursor.Position - remaining, Micros: a.cursor.Micros - int64(remaining)}
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
	if remaining > 0 || len(a.batch.Entries) == 0 || a.batch.Entries[0].Micros <= after.Micros {
		return announcement{}, errMalformed
	}
	return a, nil
}

// openAnnouncement verifies and decodes a message about a set. It refuses a datetime that
// differs from now by more than skew: no entry can be later than that, and an earlier one
// indicates a replayed message. The error is the reason for refusing the message.
func openAnnouncement(key memoryKey, set string, message []byte, now time.Time, skew time.Duration) (announcement, error) {
	body, err := key.verify(set, message)
	if err != nil {
		return announcement{}, err
	}
	a, err := decodeAnnouncement(set, body)
	if err != nil {
		return announcement{}, err
	}
	if age := now.Sub(time.UnixMicro(a.cursor.Micros)); age > skew || age < -skew {
		return announcement{}, errClockSkew
	}
	return a, nil
}

// uvarints decodes len(numbers) uvarints from the start of p into numbers, and returns the
// rest of p.
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
