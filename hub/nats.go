package hub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rshub/rshub/changelog"
)

// NATSOptions are the options of a Bus. Zero values are the defaults.
type NATSOptions struct {
	Prefix      string       // begins every subject; default "rshub"
	Credentials string       // a NATS credentials file; default: none
	RootCAs     string       // a file of CA certificates to trust besides the system's; default: none
	Name        string       // of this hub, as NATS shows it; default "rshub"
	Logger      *slog.Logger // default: discard
}

// A Bus announces over NATS, to the other hubs of a memory, what was appended.
// It only announces: core NATS, at most once. What it loses, repeats or
// reorders is repaired from the memory.
type Bus struct {
	nc   *nats.Conn
	opts NATSOptions
}

// ConnectNATS returns a Bus on a NATS server or cluster; url may name several
// servers, by comma. It does not wait for the connection: that is made, and made
// again, in the background and for ever. The caller closes the Bus.
func ConnectNATS(url string, o NATSOptions) (*Bus, error) {
	if o.Prefix == "" {
		o.Prefix = "rshub"
	}
	if o.Name == "" {
		o.Name = "rshub"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name(o.Name),
		nats.NoEcho(), // a hub wakes its own followers directly
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1), // what was not announced in time is found by the ticker
		nats.Timeout(5 * time.Second),
		nats.FlusherTimeout(5 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			o.Logger.Warn("NATS is gone; changes of other hubs come late", "err", err)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { o.Logger.Info("NATS is back", "server", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Logger.Warn("NATS lost announcements; the memory has them", "err", err)
		}),
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.RootCAs != "" {
		options = append(options, nats.RootCAs(o.RootCAs))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return &Bus{nc: nc, opts: o}, nil
}

// Close ends the connection.
func (b *Bus) Close() { b.nc.Close() }

// Check returns nil while there is a connection. Without one the hub goes on,
// only later.
func (b *Bus) Check() error {
	if b.nc.IsConnected() {
		return nil
	}
	return errors.New("no connection to NATS: changes of other hubs come late")
}

// subject is where a set's appends are announced. A dot would divide it.
func (b *Bus) subject(set string) string {
	return b.opts.Prefix + ".changes." + strings.ReplaceAll(set, ".", "~")
}

// announce tells the other hubs of a batch, or by one without entries that they
// have to look at the memory. The change is safe already: a lost announcement
// only delays it.
func (b *Bus) announce(memory string, batch *changelog.Batch) {
	a := announcement{memory: memory, after: batch.After, cursor: batch.Cursor}
	if len(batch.Entries) > 0 {
		a.block = changelog.MergeBlock(batch.Entries)
	}
	payload := a.encode()
	if int64(len(payload)) > b.nc.MaxPayload() && b.nc.MaxPayload() > 0 {
		a.block = nil
		payload = a.encode()
	}
	if err := b.nc.Publish(b.subject(batch.Set), payload); err != nil {
		b.opts.Logger.Debug("announcement lost", "set", batch.Set, "cursor", batch.Cursor, "err", err)
	}
}

// subscribe has tail told of what other hubs append to a set, until the
// function that it returns is called. Errors are not reported: the ticker finds
// what is not announced.
func (b *Bus) subscribe(set, memory string, t *tail) (cancel func()) {
	sub, err := b.nc.Subscribe(b.subject(set), func(m *nats.Msg) {
		batch, err := decodeAnnouncement(set, memory, m.Data)
		if err != nil {
			b.opts.Logger.Debug("announcement not understood", "set", set, "err", err)
		}
		t.hear(batch)
	})
	if err != nil {
		b.opts.Logger.Warn("subscribe to announcements", "set", set, "err", err)
		return func() {}
	}
	return sync.OnceFunc(func() { _ = sub.Unsubscribe() }) // fails only when the connection is closed
}

// An announcement says that a batch was appended to a memory:
//
//	version 1 byte: 1
//	memory  its identity: length uvarint, text
//	after   cursor before the first entry: position and microseconds, uvarints
//	cursor  of the last entry, the same
//	block   the entries; absent when they are larger than NATS takes
type announcement struct {
	memory        string
	after, cursor changelog.Cursor
	block         changelog.Block
}

const announcementVersion = 1

func (a *announcement) encode() []byte {
	p := make([]byte, 0, 64+len(a.memory)+len(a.block))
	p = append(p, announcementVersion)
	p = binary.AppendUvarint(p, uint64(len(a.memory)))
	p = append(p, a.memory...)
	for _, c := range []changelog.Cursor{a.after, a.cursor} {
		p = binary.AppendUvarint(p, c.Position)
		p = binary.AppendUvarint(p, uint64(c.Micros))
	}
	return append(p, a.block...)
}

var errAnnouncement = errors.New("malformed announcement")

// decodeAnnouncement returns the batch that was announced. It is nil where the
// memory has to be asked: for one of another memory, without entries, or one
// that an error says is not understood.
func decodeAnnouncement(set, memory string, p []byte) (*changelog.Batch, error) {
	if len(p) == 0 || p[0] != announcementVersion {
		return nil, errAnnouncement
	}
	n, size := binary.Uvarint(p[1:])
	if size <= 0 || n > uint64(len(p)-1-size) {
		return nil, errAnnouncement
	}
	p = p[1+size:]
	from := string(p[:n])
	p = p[n:]
	var numbers [4]uint64
	for i := range numbers {
		v, size := binary.Uvarint(p)
		if size <= 0 {
			return nil, errAnnouncement
		}
		numbers[i], p = v, p[size:]
	}
	if from != memory || len(p) == 0 {
		return nil, nil
	}
	b := &changelog.Batch{
		Set:    set,
		After:  changelog.Cursor{Position: numbers[0], Micros: int64(numbers[1])},
		Cursor: changelog.Cursor{Position: numbers[2], Micros: int64(numbers[3])},
	}
	var err error
	b.Entries, err = changelog.Block(p).Entries(b.Cursor)
	if err != nil {
		return nil, err
	}
	if uint64(len(b.Entries)) != b.Cursor.Position-b.After.Position || b.Entries[0].Micros <= b.After.Micros {
		return nil, errAnnouncement
	}
	return b, nil
}

// hear takes what another hub announced. What directly follows the window, or
// begins one, is taken as it is: who is not at its beginning reads the memory.
// Anything else makes all followers read it, and so does nil.
func (t *tail) hear(b *changelog.Batch) {
	t.mu.Lock()
	n := len(t.window)
	fits := b != nil && (n == 0 || t.window[n-1].Cursor == b.After)
	t.mu.Unlock()
	if !fits {
		t.forget()
		return
	}
	t.add([]*changelog.Batch{b})
}
