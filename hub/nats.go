package hub

import (
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
	Name        string       // of this hub, which NATS shows; default "rshub"
	Logger      *slog.Logger // default: discard

	Metrics prometheus.Registerer // where the bus's metrics are registered; a registry takes one bus; default: nowhere
}

// A Bus announces over NATS, to the other hubs of a memory, what was appended.
// It does nothing else: core NATS delivers at most once, and messages can be
// lost, repeated, reordered or forged, and the hub then reads the memory.
type Bus struct {
	nc      *nats.Conn
	opts    NATSOptions
	metrics *busMetrics

	// The handlers that nats.go calls set these.
	connected atomic.Bool
	late      atomic.Bool           // the first attempt to connect failed; set by ConnectNATS
	said      atomic.Pointer[error] // the last logged reason why it cannot connect

	out  chan outgoing  // appends to be announced, in order; send takes them
	held atomic.Int64   // bytes of their blocks
	done chan struct{}  // closed by Close
	wg   sync.WaitGroup // of the goroutines of send and subscribe
}

// An outgoing is an append to a set that is to be announced to the other hubs
// of a memory.
type outgoing struct {
	from     sender
	set      string
	appended changelog.Appended
}

// These bound how many appends wait to be announced, and the bytes of their blocks. NATS may
// hang; then announcements are dropped, or go without their content, and the other hubs find
// the changes in the memory.
const (
	maxOutgoing      = 1024
	maxOutgoingBytes = 64 << 20
)

// size returns how many bytes its blocks have.
func (o *outgoing) size() (n int64) {
	for _, b := range o.appended.Blocks {
		n += int64(len(b.Block))
	}
	return n
}

// ConnectNATS returns a Bus on a NATS server or cluster. servers are the URLs,
// separated by commas. It waits until the first attempt to connect has ended,
// at most two seconds for each server, but not until it succeeds. After that it
// connects in the background, and connects again whenever the connection
// breaks, until Close. The caller closes the Bus.
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
		nats.ReconnectBufSize(-1), // no buffer: Hub.compare finds what was not announced in time
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
		nats.IgnoreAuthErrorAbort(), // so hubs need no restart after NATS got another password
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
		err = fmt.Errorf("the URL: %w", u.Err) // the text of u would show the URL with its password
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

// Close ends the connection. Call it when nobody publishes or follows any more.
// When it returns, none of the Bus's goroutines is left.
func (b *Bus) Close() {
	close(b.done)
	b.nc.Close()
	b.wg.Wait()
}

// Check returns nil while there is a connection. Without a connection the hub
// still works, but it learns of other hubs' changes later.
func (b *Bus) Check() error {
	if b.connected.Load() {
		return nil
	}
	return errors.New("no connection to NATS: changes of other hubs come late")
}

// subject returns the NATS subject of a set's announcements. A dot in the set's
// name would divide the subject, so it is written as "~".
func (b *Bus) subject(set string) string {
	return b.opts.Prefix + ".changes." + strings.ReplaceAll(set, ".", "~")
}

// announce tells the other hubs of an append. An append without blocks only
// says that they have to look at the memory. announce does not block. The change
// is safe already: a lost announcement only delays it.
func (b *Bus) announce(from sender, set string, a changelog.Appended) {
	if from.secret == "" {
		b.lost(set, errors.New("the secret of the memory is not known"))
		return
	}
	o := outgoing{from, set, a}
	if b.held.Add(o.size()) > maxOutgoingBytes {
		b.sent(o)
		o.appended.Blocks = nil
	}
	select {
	case b.out <- o:
	default:
		b.sent(o)
		b.lost(set, errors.New("too many wait"))
	}
}

// sent notes that an append waits no more.
func (b *Bus) sent(o outgoing) { b.held.Add(-o.size()) }

// lost counts and logs an announcement that was not sent.
func (b *Bus) lost(set string, err error) {
	b.metrics.lost.Inc()
	b.opts.Logger.Debug("announcement lost", "set", set, "err", err)
}

// refuse counts and logs a message that was refused.
func (b *Bus) refuse(set string, err error) {
	b.metrics.refused.Inc()
	b.opts.Logger.Debug("announcement refused", "set", set, "err", err)
}

// send publishes the announcements until Close. Only its goroutine makes these
// calls of nats.go, because they may block while nats.go connects.
func (b *Bus) send() {
	for {
		select {
		case o := <-b.out:
			if err := b.publish(o); err != nil {
				b.lost(o.set, err)
			}
			b.sent(o)
		case <-b.done:
			return
		}
	}
}

// publish announces an append. NATS limits the size of a message, so that may
// take several announcements.
func (b *Bus) publish(o outgoing) error {
	most := int(b.nc.MaxPayload())
	if most <= 0 {
		most = 1 << 20 // the default of NATS, for a server that has not told its limit yet
	}
	for _, a := range announcements(o.from, o.set, o.appended, most) {
		if err := b.nc.Publish(b.subject(o.set), a); err != nil {
			return err
		}
		b.metrics.sent.Inc()
	}
	return nil
}

// subscribe calls hear with each message about a set, one after the other,
// until the caller calls cancel. Anybody who reaches NATS can send such a
// message. Neither function blocks. A failure is only logged: Hub.compare finds
// changes that are not announced.
func (b *Bus) subscribe(set string, hear func(message []byte)) (cancel func()) {
	made := make(chan *nats.Subscription, 1)
	b.wg.Go(func() {
		sub, err := b.nc.Subscribe(b.subject(set), func(m *nats.Msg) {
			b.metrics.received.Inc()
			hear(m.Data)
		})
		if err != nil {
			b.opts.Logger.Warn("cannot subscribe to announcements", "set", set, "err", err)
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
