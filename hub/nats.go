package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
)

// NATSOptions configures a Bus. The zero value of each field selects its default.
type NATSOptions struct {
	Prefix      string       // first token of every subject; default "rshub"
	Credentials string       // path of a NATS credentials file; empty if none
	RootCAs     string       // path of a file of CA certificates to trust instead of the system's; empty if none
	Name        string       // name of this hub in the monitoring of NATS; default "rshub"
	Logger      *slog.Logger // default: discard

	Metrics prometheus.Registerer // registry for the metrics of the bus, used by only one bus; nil if not registered
}

// A Bus announces appends over NATS to the other hubs of a memory. It does nothing else: core
// NATS delivers at most once, messages can be lost, repeated, reordered or forged, and the
// hubs then read the memory.
type Bus struct {
	nc      *nats.Conn
	opts    NATSOptions
	metrics *busMetrics

	subscriptions *subscriptions

	// Fields set by the callbacks of nats.go.
	connected      atomic.Bool
	connectedLate  atomic.Bool           // whether the first attempt to connect failed; set by ConnectNATS
	lastConnectErr atomic.Pointer[error] // last logged connection error; nil if connected since

	queue       chan queuedAppend // appends to be announced, in order; received by runSender
	queuedBytes atomic.Int64      // bytes of the blocks in queue
	done        chan struct{}     // closed by Close
	wg          sync.WaitGroup    // goroutines of runSender and subscriptions.run
}

// A queuedAppend is an append to a set that is waiting to be announced.
type queuedAppend struct {
	key      memoryKey
	set      string
	appended changelog.Appended
}

// Limits of the appends waiting to be announced, and of the bytes of their blocks. If NATS
// hangs, further announcements are dropped, or sent without their content, and the other
// hubs find the changes in the memory.
const (
	maxQueuedAppends = 1024
	maxQueuedBytes   = 64 << 20
)

// size returns the number of bytes of the blocks.
func (o *queuedAppend) size() (n int64) {
	for _, b := range o.appended.Blocks {
		n += int64(len(b.Block))
	}
	return n
}

// ConnectNATS returns a Bus connected to a NATS server or cluster. servers is a
// comma-separated list of URLs. ConnectNATS waits for the first attempt to connect, at most
// two seconds for each server, but succeeds even if that fails: the Bus connects in the
// background, and reconnects whenever the connection breaks, until Close. The caller must
// close the Bus.
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
	b := &Bus{opts: o, queue: make(chan queuedAppend, maxQueuedAppends), done: make(chan struct{})}
	b.metrics = newBusMetrics(o.Metrics, b.connected.Load)
	b.subscriptions = newSubscriptions(o.Prefix, o.Logger, b.metrics.received.Inc)
	options := []nats.Option{
		nats.Name(o.Name),
		nats.NoEcho(), // a hub wakes its own followers directly
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1), // no buffer: Hub.checkHeads finds unannounced changes
		nats.Timeout(2 * time.Second),
		nats.FlusherTimeout(5 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(nc *nats.Conn) {
			b.connected.Store(true)
			if b.connectedLate.Load() {
				o.Logger.Info("connected to NATS", "server", nc.ConnectedUrlRedacted())
			}
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.connected.Store(false)
			if err == nil {
				return // called by Close
			}
			o.Logger.Warn("disconnected from NATS; changes from other hubs arrive late", "err", err)
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.connected.Store(true)
			b.lastConnectErr.Store(nil)
			o.Logger.Info("reconnected to NATS", "server", nc.ConnectedUrlRedacted())
		}),
		nats.IgnoreAuthErrorAbort(), // so that hubs need no restart after the password of NATS changed
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if last := b.lastConnectErr.Swap(&err); last == nil || (*last).Error() != err.Error() {
				o.Logger.Warn("cannot connect to NATS; retrying", "err", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				b.metrics.lost.Inc()
				o.Logger.Warn("NATS dropped announcements; the hub reads the changes from the memory", "err", err)
			} else {
				o.Logger.Warn("NATS error", "err", err)
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
		err = fmt.Errorf("parse URL: %w", u.Err) // u.Error would reveal the URL with its password
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.nc = nc
	if !nc.IsConnected() {
		b.connectedLate.Store(true)
		o.Logger.Warn("cannot connect to NATS yet; retrying", "err", nc.LastError())
	}
	b.wg.Go(b.runSender)
	b.wg.Go(func() { b.subscriptions.run(nc, b.done) })
	return b, nil
}

// Close closes the connection. It must not be called while the hub publishes or has followers.
// Close returns after all goroutines of the Bus have stopped.
func (b *Bus) Close() {
	close(b.done)
	b.nc.Close()
	b.wg.Wait()
}

// Check returns nil if the Bus is connected. Without a connection the hub still works, but it
// learns of changes from other hubs later.
func (b *Bus) Check() error {
	if b.connected.Load() {
		return nil
	}
	return errors.New("not connected to NATS: changes from other hubs arrive late")
}

// announce tells the other hubs about an append. An append without blocks only tells them to
// check the memory. announce does not block. The change is already durable: a lost
// announcement only delays it.
func (b *Bus) announce(key memoryKey, set string, a changelog.Appended) {
	if key.secret == "" {
		b.countLost(set, errors.New("the secret of the memory is unknown"))
		return
	}
	o := queuedAppend{key, set, a}
	if b.queuedBytes.Add(o.size()) > maxQueuedBytes {
		b.dequeued(o)
		o.appended.Blocks = nil
	}
	select {
	case b.queue <- o:
	default:
		b.dequeued(o)
		b.countLost(set, errors.New("too many announcements are waiting"))
	}
}

// dequeued subtracts an append from the bytes of queued blocks.
func (b *Bus) dequeued(o queuedAppend) { b.queuedBytes.Add(-o.size()) }

// countLost counts and logs an announcement that was not sent.
func (b *Bus) countLost(set string, err error) {
	b.metrics.lost.Inc()
	b.opts.Logger.Debug("announcement lost", "set", set, "err", err)
}

// countRefused counts and logs a received message that was refused.
func (b *Bus) countRefused(set string, err error) {
	b.metrics.refused.Inc()
	b.opts.Logger.Debug("announcement refused", "set", set, "err", err)
}

// runSender sends the queued announcements until Close. Only its goroutine makes these calls
// of nats.go, because they may block while nats.go connects.
func (b *Bus) runSender() {
	for {
		select {
		case o := <-b.queue:
			if err := b.publish(o); err != nil {
				b.countLost(o.set, err)
			}
			b.dequeued(o)
		case <-b.done:
			return
		}
	}
}

// publish sends the announcements of an append. There may be several, because NATS limits the
// size of a message.
func (b *Bus) publish(o queuedAppend) error {
	maxPayload := int(b.nc.MaxPayload())
	if maxPayload <= 0 {
		maxPayload = 1 << 20 // default of NATS, before the server has sent its limit
	}
	for _, a := range encodeAnnouncements(o.key, o.set, o.appended, maxPayload) {
		if err := b.nc.Publish(b.subscriptions.subject(o.set), a); err != nil {
			return err
		}
		b.metrics.sent.Inc()
	}
	return nil
}

// subscribe calls receive with each message about a set until cancel is called. Any client of
// NATS can send such a message. The calls are in the order of arrival, except that messages may
// be repeated, reordered and concurrent while the Bus changes its subscriptions. A set has at
// most one receiver. Neither subscribe nor cancel blocks.
func (b *Bus) subscribe(set string, receive func(message []byte)) (cancel func()) {
	b.subscriptions.add(set, receive)
	return func() { b.subscriptions.remove(set) }
}
