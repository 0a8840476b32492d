package hub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
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
	nc        *nats.Conn
	opts      NATSOptions
	connected atomic.Bool
	out       chan outgoing  // to be announced, in order
	done      chan struct{}  // closed by Close
	wg        sync.WaitGroup // of the goroutines
}

// outgoing is a batch on its way to the other hubs of a memory.
type outgoing struct {
	memory string
	batch  *changelog.Batch
}

// maxOutgoing bounds the batches that wait to be announced. NATS may hang, and
// then they are dropped: the memory has them.
const maxOutgoing = 1024

// ConnectNATS returns a Bus on a NATS server or cluster; url may name several
// servers, by comma. It waits for the first attempt, at most two seconds for each
// server, but not for its success: the connection is made, and made again, in the
// background and for ever. The caller closes the Bus.
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
	b := &Bus{opts: o, out: make(chan outgoing, maxOutgoing), done: make(chan struct{})}
	options := []nats.Option{
		nats.Name(o.Name),
		nats.NoEcho(), // a hub wakes its own followers directly
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1), // what was not announced in time is found by the ticker
		nats.Timeout(2 * time.Second),
		nats.FlusherTimeout(5 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { b.connected.Store(true) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.connected.Store(false)
			o.Logger.Warn("NATS is gone; changes of other hubs come late", "err", err)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.connected.Store(true)
			o.Logger.Info("NATS is back", "server", nc.ConnectedUrlRedacted())
		}),
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
	b.nc = nc
	b.wg.Go(b.send)
	return b, nil
}

// Close ends the connection, once nobody publishes or follows any more.
func (b *Bus) Close() {
	close(b.done)
	b.nc.Close()
	b.wg.Wait()
}

// Check returns nil while there is a connection. Without one the hub goes on,
// only later.
func (b *Bus) Check() error {
	if b.connected.Load() {
		return nil
	}
	return errors.New("no connection to NATS: changes of other hubs come late")
}

// subject is where a set's appends are announced. A dot would divide it.
func (b *Bus) subject(set string) string {
	return b.opts.Prefix + ".changes." + strings.ReplaceAll(set, ".", "~")
}

// announce tells the other hubs of a batch, or by one without entries that they
// have to look at the memory. It does not block. The change is safe already: a
// lost announcement only delays it.
func (b *Bus) announce(memory string, batch *changelog.Batch) {
	select {
	case b.out <- outgoing{memory, batch}:
	default:
		b.lost(batch, errors.New("too many wait"))
	}
}

func (b *Bus) lost(batch *changelog.Batch, err error) {
	b.opts.Logger.Debug("announcement lost", "set", batch.Set, "cursor", batch.Cursor, "err", err)
}

// send publishes what is to be announced. Calls of nats.go may block while it
// connects, so they are made by nobody whom that would hold up.
func (b *Bus) send() {
	for {
		select {
		case o := <-b.out:
			if err := b.publish(o); err != nil {
				b.lost(o.batch, err)
			}
		case <-b.done:
			return
		}
	}
}

func (b *Bus) publish(o outgoing) error {
	a := announcement{memory: o.memory, after: o.batch.After, cursor: o.batch.Cursor}
	if len(o.batch.Entries) > 0 {
		a.block = changelog.MergeBlock(o.batch.Entries)
	}
	payload := a.encode()
	if most := b.nc.MaxPayload(); most > 0 && int64(len(payload)) > most {
		a.block = nil
		payload = a.encode()
	}
	return b.nc.Publish(b.subject(o.batch.Set), payload)
}

// subscribe has tail told of what other hubs append to a set, until the
// function that it returns is called. Neither blocks. Errors are not reported:
// the ticker finds what is not announced.
func (b *Bus) subscribe(set, memory string, t *tail) (cancel func()) {
	made := make(chan *nats.Subscription, 1)
	b.wg.Go(func() {
		sub, err := b.nc.Subscribe(b.subject(set), func(m *nats.Msg) {
			batch, err := decodeAnnouncement(set, memory, m.Data)
			if err != nil {
				b.opts.Logger.Debug("announcement not understood", "set", set, "err", err)
			}
			t.hear(batch)
		})
		if err != nil {
			b.opts.Logger.Warn("subscribe to announcements", "set", set, "err", err)
		}
		made <- sub
	})
	return sync.OnceFunc(func() {
		b.wg.Go(func() {
			if sub := <-made; sub != nil {
				_ = sub.Unsubscribe() // fails only when the connection is closed
			}
		})
	})
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
