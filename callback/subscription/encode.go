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

// Subscriptions and requests are stored as JSON, because they are rarely written. A progress is written
// often, so it has a binary form of a fifth of the size. An append-only file of Redis has no checksums, so
// the JSON has one: a damaged callback or secret must not be used. A progress has none. Its most important
// part is the cursor, which the log verifies.

// encodeSubscription encodes a subscription, and encrypts its secrets if there are keys and they are in
// clear text.
func encodeSubscription(s *Subscription, keys *Keys) ([]byte, error) {
	if err := checkText(s.Set, s.Form, s.Callback, s.Secret, s.Former, s.Token, s.By, s.Why, s.Filter.Prefix); err != nil {
		return nil, err
	}
	stored := *s
	for _, t := range []*time.Time{&stored.LeaseEnd, &stored.Made, &stored.Renewed, &stored.FormerEnd, &stored.Until, &stored.Ended} {
		*t = micros(*t)
	}
	keys.seal(&stored.Sealed, s.ID(), stored.secrets()...)
	return marshal(&stored)
}

func decodeSubscription(b []byte, keys *Keys) (s Subscription, err error) {
	if err = unmarshal(b, &s); err == nil {
		key := s.Sealed
		err = keys.open(&s.Sealed, s.ID(), s.secrets()...)
		s.Stale = s.Sealed == "" && s.Secret != "" && keys.encrypts() && key != keys.first
	}
	if err != nil {
		return Subscription{}, fmt.Errorf("%w: subscription: %w", changelog.ErrCorrupt, err)
	}
	return s, nil
}

// encodeRequest encodes a request without its number. The secret and the verify token are encrypted like
// the secrets of a subscription.
func encodeRequest(r *Request, keys *Keys) ([]byte, error) {
	if err := checkText(r.Set, r.Form, r.Callback, r.Secret, r.VerifyToken, r.By, r.Token, r.Filter.Prefix); err != nil {
		return nil, err
	}
	stored := *r
	stored.At, stored.Until = micros(r.At), micros(r.Until)
	keys.seal(&stored.Sealed, r.ID(), stored.secrets()...)
	return marshal(&stored)
}

// decodeRequest decodes a request. If that fails, the result has a number and no Mode.
func decodeRequest(number uint64, b []byte, keys *Keys) (r Request) {
	err := unmarshal(b, &r)
	if err == nil {
		err = keys.open(&r.Sealed, r.ID(), r.secrets()...)
	}
	if err != nil {
		r = Request{}
	}
	r.Number = number
	return r
}

func (s *Subscription) secrets() []secret {
	return []secret{{"secret", &s.Secret}, {"former", &s.Former}}
}
func (r *Request) secrets() []secret {
	return []secret{{"secret", &r.Secret}, {"verify", &r.VerifyToken}}
}

// The last member of a stored JSON object is a checksum: CRC-32C in hexadecimal of the object without it.
const (
	sumStart = `,"sum":"`
	sumEnd   = `"}`
	sumSize  = len(sumStart) + 8 + len(sumEnd)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marshal encodes v, which is an object with members, with a checksum.
func marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(b[:len(b)-1], "%s%08x%s", sumStart, crc32.Checksum(b, castagnoli), sumEnd), nil
}

// unmarshal decodes the result of marshal.
func unmarshal(b []byte, v any) error {
	n := len(b) - sumSize
	if n <= 0 || string(b[n:n+len(sumStart)]) != sumStart {
		return errors.New("checksum is missing")
	}
	sum := crc32.Update(crc32.Checksum(b[:n], castagnoli), castagnoli, []byte("}"))
	if fmt.Sprintf("%08x", sum) != string(b[n+len(sumStart):len(b)-len(sumEnd)]) {
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

// micros returns t in UTC and in microseconds.
func micros(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }

// progressVersion is the first byte of an encoded Progress.
const progressVersion = 1

// encodeProgress encodes the fields of a progress in order: numbers as varints, strings after their length.
func encodeProgress(p *Progress) []byte {
	b := append(make([]byte, 0, 64+32*len(p.Last)), progressVersion)
	for _, c := range []feed.Cursor{p.Cursor, p.From, p.Gap} {
		b = binary.AppendVarint(binary.AppendUvarint(b, c.Position), c.Micros)
	}
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
	r := progressReader{packed.NewReader(string(b[1:]))}
	p.Cursor, p.From, p.Gap = r.cursor(), r.cursor(), r.cursor()
	p.Gaps = int(r.Number())
	p.Diverged = r.Number() == 1
	p.Failed = int(r.Number())
	p.Next = r.time()
	for n := r.Number(); n > 0 && !r.Bad(); n-- {
		p.Last = append(p.Last, Attempt{
			At: r.time(), Kind: r.kind(), Status: int(r.Number()),
			Took: time.Duration(r.Signed()), Changes: int(r.Number()), Error: strings.Clone(r.String()),
		})
	}
	if !r.Done() && !r.Bad() { // old versions stored no number
		p.Delivery = r.Number()
	}
	if !r.Done() {
		return p, fmt.Errorf("%w: progress has %d bytes", changelog.ErrCorrupt, len(b))
	}
	return p, nil
}

// A progressReader reads the fields of an encoded progress.
type progressReader struct{ *packed.Reader }

func (r progressReader) cursor() feed.Cursor {
	return feed.Cursor{Position: r.Number(), Micros: r.Signed()}
}

func (r progressReader) time() time.Time {
	if v := r.Signed(); v != 0 {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

// kind reads the kind of an attempt. The result does not retain the memory of what is read.
func (r progressReader) kind() string {
	text := r.String()
	if i := slices.Index(kinds, text); i >= 0 {
		return kinds[i]
	}
	return strings.Clone(text)
}

var kinds = []string{"deliver", string(Subscribe), string(Unsubscribe), "denied"}

// decodeRecord decodes both parts of a record.
func decodeRecord(subscription, progress []byte, keys *Keys) (r Record, err error) {
	if r.Subscription, err = decodeSubscription(subscription, keys); err != nil {
		return r, err
	}
	r.Progress, err = decodeProgress(progress)
	return r, err
}
