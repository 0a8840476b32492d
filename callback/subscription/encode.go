package subscription

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// Registries keep subscriptions and requests as JSON, because they are seldom
// written. Progress is written often, so it has a form of its own, which takes a
// fifth of the space. An append-only file of Redis has no checksum, so the JSON has
// one: a callback or a secret that is damaged must not be used. A progress has none.
// What matters most in it is its cursor, and a cursor verifies itself.

// encodeSubscription returns the bytes that a registry keeps of s. Its secrets are encrypted,
// if there are keys, unless they are so already.
func encodeSubscription(s *Subscription, keys *Keys) ([]byte, error) {
	if err := checkText(s.Set, s.Form, s.Callback, s.Secret, s.Former, s.Token, s.By, s.Why, s.Filter.Prefix); err != nil {
		return nil, err
	}
	kept := *s
	kept.LeaseEnd, kept.Made, kept.Renewed = micros(s.LeaseEnd), micros(s.Made), micros(s.Renewed)
	kept.FormerEnd, kept.Until, kept.Ended = micros(s.FormerEnd), micros(s.Until), micros(s.Ended)
	if s.Sealed == "" && s.Secret != "" && keys.encrypts() {
		id := s.ID()
		kept.Secret, kept.Former, kept.Sealed = keys.seal(id, useSecret, s.Secret), keys.seal(id, useFormer, s.Former), keys.first
	}
	return marshal(&kept)
}

func decodeSubscription(b []byte, keys *Keys) (s Subscription, err error) {
	if err = unmarshal(b, &s); err == nil && keys.has(s.Sealed) {
		id, key := s.ID(), s.Sealed
		s.Sealed = ""
		if s.Secret, err = keys.open(key, id, useSecret, s.Secret); err == nil {
			s.Former, err = keys.open(key, id, useFormer, s.Former)
		}
		s.Stale = key != keys.first
	} else if s.Sealed == "" {
		s.Stale = s.Secret != "" && keys.encrypts()
	}
	if err != nil {
		return Subscription{}, fmt.Errorf("%w: subscription: %w", changelog.ErrCorrupt, err)
	}
	return s, nil
}

// encodeRequest returns the bytes that a registry keeps of r. The number is not
// in them. The secret and the verify token are encrypted like the secret of a subscription.
func encodeRequest(r *Request, keys *Keys) ([]byte, error) {
	if err := checkText(r.Set, r.Form, r.Callback, r.Secret, r.VerifyToken, r.By, r.Token, r.Filter.Prefix); err != nil {
		return nil, err
	}
	kept := *r
	kept.At, kept.Until = micros(r.At), micros(r.Until)
	if r.Sealed == "" && r.Secret+r.VerifyToken != "" && keys.encrypts() {
		id := r.ID()
		kept.Secret, kept.VerifyToken, kept.Sealed = keys.seal(id, useSecret, r.Secret), keys.seal(id, useVerify, r.VerifyToken), keys.first
	}
	return marshal(&kept)
}

// decodeRequest reads what encodeRequest wrote. If it cannot read that, the
// result has only the number, and no Mode.
func decodeRequest(number uint64, b []byte, keys *Keys) (r Request) {
	err := unmarshal(b, &r)
	if err == nil && keys.has(r.Sealed) {
		id, key := r.ID(), r.Sealed
		r.Sealed = ""
		if r.Secret, err = keys.open(key, id, useSecret, r.Secret); err == nil {
			r.VerifyToken, err = keys.open(key, id, useVerify, r.VerifyToken)
		}
	}
	if err != nil {
		r = Request{}
	}
	r.Number = number
	return r
}

// The checksum of a JSON object is its last member, CRC-32C in hexadecimal of the
// object without it.
const (
	sumBegin = `,"sum":"`
	sumEnd   = `"}`
	sumSize  = len(sumBegin) + 8 + len(sumEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marshal encodes v, which is an object with members, with its checksum.
func marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(b[:len(b)-1], "%s%08x%s", sumBegin, crc32.Checksum(b, castagnoli), sumEnd), nil
}

// unmarshal reads what marshal wrote.
func unmarshal(b []byte, v any) error {
	n := len(b) - sumSize
	if n <= 0 || string(b[n:n+len(sumBegin)]) != sumBegin {
		return errors.New("checksum is missing")
	}
	sum := crc32.Update(crc32.Checksum(b[:n], castagnoli), castagnoli, []byte("}"))
	if fmt.Sprintf("%08x", sum) != string(b[n+len(sumBegin):len(b)-len(sumEnd)]) {
		return errors.New("checksum does not match")
	}
	return json.Unmarshal(b, v)
}

// checkText refuses texts that are not UTF-8, because JSON would change them.
func checkText(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return resourcesync.Invalidf("%.80q: want valid UTF-8", s)
		}
	}
	return nil
}

// micros returns t as registries keep it: in UTC, to the microsecond.
func micros(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }

// progressVersion is the first byte of an encoded Progress.
const progressVersion = 1

// encodeProgress returns the bytes that a registry keeps of p: its fields in
// order, numbers as varints, strings with their length before them.
func encodeProgress(p *Progress) []byte {
	b := append(make([]byte, 0, 64+32*len(p.Last)), progressVersion)
	b = appendCursor(appendCursor(appendCursor(b, p.Cursor), p.From), p.Gap)
	b = binary.AppendUvarint(b, uint64(p.Gaps))
	diverged := uint64(0)
	if p.Diverged {
		diverged = 1
	}
	b = binary.AppendUvarint(b, diverged)
	b = binary.AppendUvarint(b, uint64(p.Failed))
	b = appendTime(b, p.Next)
	b = binary.AppendUvarint(b, uint64(len(p.Last)))
	for i := range p.Last {
		a := &p.Last[i]
		b = appendTime(b, a.At)
		b = packed.AppendString(b, a.Kind)
		b = binary.AppendUvarint(b, uint64(a.Status))
		b = binary.AppendVarint(b, int64(a.Took))
		b = binary.AppendUvarint(b, uint64(a.Changes))
		b = packed.AppendString(b, a.Error)
	}
	if p.Delivery > 0 {
		b = binary.AppendUvarint(b, p.Delivery)
	}
	return b
}

func appendCursor(b []byte, c feed.Cursor) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, c.Position), c.Micros)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendVarint(b, 0)
	}
	return binary.AppendVarint(b, t.UnixMicro())
}

func decodeProgress(b []byte) (p Progress, err error) {
	if len(b) == 0 || b[0] != progressVersion {
		return p, fmt.Errorf("%w: progress has an unknown version", changelog.ErrCorrupt)
	}
	r := fields{packed.NewReader(string(b[1:]))}
	p.Cursor, p.From, p.Gap = r.cursor(), r.cursor(), r.cursor()
	p.Gaps = int(r.Number())
	p.Diverged = r.Number() == 1
	p.Failed = int(r.Number())
	p.Next = r.time()
	for n := r.Number(); n > 0 && !r.Bad(); n-- {
		p.Last = append(p.Last, Attempt{
			At: r.time(), Kind: kindOf(r.String()), Status: int(r.Number()),
			Took: time.Duration(r.Signed()), Changes: int(r.Number()), Error: strings.Clone(r.String()),
		})
	}
	if !r.Done() && !r.Bad() { // an older version stored no number
		p.Delivery = r.Number()
	}
	if !r.Done() {
		return p, fmt.Errorf("%w: progress has %d bytes", changelog.ErrCorrupt, len(b))
	}
	return p, nil
}

// A fields reads, one after another, what encodeProgress wrote.
type fields struct{ *packed.Reader }

func (f fields) cursor() feed.Cursor {
	return feed.Cursor{Position: f.Number(), Micros: f.Signed()}
}

// kinds are the kinds of attempts.
var kinds = []string{"deliver", string(Subscribe), string(Unsubscribe), "denied"}

// kindOf returns a kind that was read, without the memory of what it was read from.
func kindOf(text string) string {
	if i := slices.Index(kinds, text); i >= 0 {
		return kinds[i]
	}
	return strings.Clone(text)
}

func (f fields) time() time.Time {
	if v := f.Signed(); v != 0 {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

// decodeRecord reads both parts of a record.
func decodeRecord(subscription, progress []byte, keys *Keys) (r Record, err error) {
	if r.Subscription, err = decodeSubscription(subscription, keys); err != nil {
		return r, err
	}
	r.Progress, err = decodeProgress(progress)
	return r, err
}
