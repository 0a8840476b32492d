package hub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
)

// NATSOptions are the options of a Bus. Zero values are the defaults.
type NATSOptions struct {
	Prefix      string       // begins every subject; default "rshub"
	Credentials string       // a NATS credentials file; default: none
	RootCAs     string       // a file of CA certificates to trust in place of the system's; default: none
	Name        string       // of this hub, as NATS shows it; default "rshub"
	Logger      *slog.Logger // default: discard

	Metrics prometheus.Registerer // where the bus's metrics are registered, one bus in each; default: nowhere
}

// A Bus announces over NATS, to the other hubs of a memory, what was appended.
// It only announces: core NATS, at most once. What it loses, repeats or
// reorders is repaired from the memory.
type Bus struct {
	nc        *nats.Conn
	opts      NATSOptions
	metrics   *busMetrics
	connected atomic.Bool
	late      atomic.Bool           // it was not there when it was first tried
	said      atomic.Pointer[error] // why it could not connect, as it was logged last
	out       chan outgoing         // to be announced, in order
	done      chan struct{}         // closed by Close
	wg        sync.WaitGroup        // of the goroutines
}

// outgoing is what was appended to a set, on its way to the other hubs of a
// memory.
type outgoing struct {
	memory, set string
	appended    changelog.Appended
}

// maxOutgoing bounds the appends that wait to be announced. NATS may hang, and
// then they are dropped: the memory has them.
const maxOutgoing = 1024

// ConnectNATS returns a Bus on a NATS server or cluster; servers are their URLs,
// by comma. It waits for the first attempt, at most two seconds for each
// server, but not for its success: the connection is made, and made again, in the
// background and for ever. The caller closes the Bus.
func ConnectNATS(servers string, o NATSOptions) (*Bus, error) {
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
	b.metrics = newBusMetrics(o.Metrics, b.connected.Load)
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
		nats.ConnectHandler(func(nc *nats.Conn) {
			b.connected.Store(true)
			if b.late.Load() {
				o.Logger.Info("NATS is there", "server", nc.ConnectedUrlRedacted())
			}
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.connected.Store(false)
			if err == nil {
				return // Close
			}
			o.Logger.Warn("NATS is gone; changes of other hubs come late", "err", err)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.connected.Store(true)
			b.said.Store(nil)
			o.Logger.Info("NATS is back", "server", nc.ConnectedUrlRedacted())
		}),
		nats.IgnoreAuthErrorAbort(), // who rotates a password should not have to restart the hubs
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if last := b.said.Swap(&err); last == nil || (*last).Error() != err.Error() {
				o.Logger.Warn("NATS cannot be reached; the hub goes on trying", "err", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				b.metrics.lost.Inc()
				o.Logger.Warn("NATS lost announcements; the memory has them", "err", err)
			} else {
				o.Logger.Warn("NATS", "err", err)
			}
		}),
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.RootCAs != "" {
		options = append(options, nats.RootCAs(o.RootCAs))
	}
	nc, err := nats.Connect(servers, options...)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("the URL: %w", u.Err) // u has the whole URL, with its password
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.nc = nc
	if !nc.IsConnected() {
		b.late.Store(true)
		o.Logger.Warn("NATS cannot be reached yet; the hub goes on trying", "err", nc.LastError())
	}
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

// announce tells the other hubs of an append, or by one without blocks that they
// have to look at the memory. It does not block. The change is safe already: a
// lost announcement only delays it.
func (b *Bus) announce(memory, set string, a changelog.Appended) {
	select {
	case b.out <- outgoing{memory, set, a}:
	default:
		b.lost(set, errors.New("too many wait"))
	}
}

func (b *Bus) lost(set string, err error) {
	b.metrics.lost.Inc()
	b.opts.Logger.Debug("announcement lost", "set", set, "err", err)
}

// send publishes what is to be announced. Calls of nats.go may block while it
// connects, so they are made by nobody whom that would hold up.
func (b *Bus) send() {
	for {
		select {
		case o := <-b.out:
			if err := b.publish(o); err != nil {
				b.lost(o.set, err)
			}
		case <-b.done:
			return
		}
	}
}

// publish announces an append, in as many announcements as NATS takes its blocks
// in.
func (b *Bus) publish(o outgoing) error {
	most := int(b.nc.MaxPayload())
	if most <= 0 {
		most = 1 << 20 // as servers have it that say nothing yet
	}
	for _, a := range announcements(o.memory, o.appended, most) {
		if err := b.nc.Publish(b.subject(o.set), a); err != nil {
			return err
		}
		b.metrics.sent.Inc()
	}
	return nil
}

// subscribe has tail told of what other hubs append to a set of the memory with
// the identity, until the function that it returns is called. Neither blocks. Errors are not reported:
// the ticker finds what is not announced.
func (b *Bus) subscribe(set string, memory func() string, t *tail) (cancel func()) {
	made := make(chan *nats.Subscription, 1)
	b.wg.Go(func() {
		sub, err := b.nc.Subscribe(b.subject(set), func(m *nats.Msg) {
			b.metrics.received.Inc()
			batch, err := decodeAnnouncement(set, memory(), m.Data)
			if err != nil {
				b.metrics.lost.Inc()
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

// An announcement says that something was appended to a memory:
//
//	version 1 byte: 1
//	memory  its identity: length uvarint, text
//	after   cursor before the first entry: position and microseconds, uvarints
//	cursor  of the last entry, the same
//	blocks  with the entries, as the memory keeps them, of each: the number of its
//	        entries and its length, uvarints, and its bytes; none where they are
//	        larger than NATS takes
const announcementVersion = 1

// announcements encodes an append in as few announcements as take most bytes
// each. What is not in a block that fits is announced without content.
func announcements(memory string, a changelog.Appended, most int) [][]byte {
	begin := func(after, cursor changelog.Cursor) []byte {
		p := append(make([]byte, 0, 64+len(memory)), announcementVersion)
		p = binary.AppendUvarint(p, uint64(len(memory)))
		p = append(p, memory...)
		for _, c := range []changelog.Cursor{after, cursor} {
			p = binary.AppendUvarint(p, c.Position)
			p = binary.AppendUvarint(p, uint64(c.Micros))
		}
		return p
	}
	if len(a.Blocks) == 0 {
		return [][]byte{begin(a.After, a.Cursor)}
	}
	var all [][]byte
	room := most - len(begin(a.Cursor, a.Cursor)) // the largest numbers
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
		if blocks == nil { // one that is too large
			count = a.Blocks[i].Count
			i++
		}
		left -= count
		// The entries of a publish follow each other by 1 µs.
		cursor := changelog.Cursor{Position: a.Cursor.Position - uint64(left), Micros: a.Cursor.Micros - int64(left)}
		all = append(all, append(begin(after, cursor), blocks...))
		after = cursor
	}
	return all
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
	numbers := make([]uint64, 4)
	var err error
	if p, err = uvarints(p, numbers); err != nil {
		return nil, err
	}
	if from != memory || len(p) == 0 {
		return nil, nil
	}
	b := &changelog.Batch{
		Set:    set,
		After:  changelog.Cursor{Position: numbers[0], Micros: int64(numbers[1])},
		Cursor: changelog.Cursor{Position: numbers[2], Micros: int64(numbers[3])},
	}
	if b.Cursor.Position < b.After.Position || b.Cursor.Micros < b.After.Micros {
		return nil, errAnnouncement
	}
	left := b.Cursor.Position - b.After.Position
	for len(p) > 0 {
		head := make([]uint64, 2)
		if p, err = uvarints(p, head); err != nil {
			return nil, err
		}
		count, length := head[0], head[1]
		if length > uint64(len(p)) || count > left {
			return nil, errAnnouncement
		}
		left -= count
		last := changelog.Cursor{Position: b.Cursor.Position - left, Micros: b.Cursor.Micros - int64(left)}
		entries, err := changelog.Block(p[:length]).Entries(last)
		if err != nil {
			return nil, err
		}
		if uint64(len(entries)) != count {
			return nil, errAnnouncement
		}
		b.Entries = append(b.Entries, entries...)
		p = p[length:]
	}
	if left > 0 || len(b.Entries) == 0 || b.Entries[0].Micros <= b.After.Micros {
		return nil, errAnnouncement
	}
	return b, nil
}

// uvarints reads as many numbers as fit into numbers and returns the rest.
func uvarints(p []byte, numbers []uint64) ([]byte, error) {
	for i := range numbers {
		v, size := binary.Uvarint(p)
		if size <= 0 {
			return nil, errAnnouncement
		}
		numbers[i], p = v, p[size:]
	}
	return p, nil
}

// hear takes what another hub announced. What directly follows the window, or
// begins one, is taken as it is: who is not at its beginning reads the memory.
// What is not newer than what was heard before is left: it came late or again,
// and who needs it finds it in the window or the memory. Anything else makes all
// followers read the memory, and so does nil.
func (t *tail) hear(b *changelog.Batch) {
	if b == nil {
		t.mu.Lock()
		t.told = true
		t.mu.Unlock()
		t.forget()
		return
	}
	t.mu.Lock()
	n := len(t.window)
	late := b.Cursor.Position <= t.newest.Position && b.Cursor.Micros <= t.newest.Micros
	fits := n == 0 || t.window[n-1].Cursor == b.After
	if !late {
		t.newest, t.head = b.Cursor, b.Cursor
	}
	t.mu.Unlock()
	switch {
	case late:
	case fits:
		t.add([]*changelog.Batch{b})
	default:
		t.forget()
	}
}
