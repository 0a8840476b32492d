package subscribe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of the messages of a client. A client that exceeds the last three is not refused; the hub
// reads its messages more slowly.
const (
	maxCommand      = 16 << 10 // bytes of a message
	commandRate     = 1_000    // messages per second
	maxCommands     = 10_000   // messages that are not executed yet
	maxCommandBytes = 1 << 18  // bytes of these messages
)

// A session is a WebSocket on which a client follows any number of sets. Its messages are the
// same as on a WebSocket that follows one set, and the client tells it which sets to follow.
//
// A session has two goroutines. The reader parses messages of the client. The output goroutine
// (output.go) executes them, reads the logs of the sets and writes all messages. So what the client
// receives is in the order of execution, and the log of each set is its queue: for a set, a session
// has only a cursor and a mark that there may be changes.
type session struct {
	// Set before the goroutines start.
	server  *Server
	nc      net.Conn
	raw     syscall.RawConn // nil if the socket cannot be written to without waiting
	wire    wire
	user    *limit.User // owner of the limit of follows; nil if there is no limit
	slot    int         // in Server.wheel
	release func()      // ends the watch of the client's rights
	ctx     context.Context
	cancel  context.CancelFunc // stops the output goroutine
	ended   func(sets int)     // reports the end with the highest number of followed sets; nil if not wanted

	lastActive atomic.Int64 // time of the last sign of life of the client, in nanoseconds since New

	wakeup backoff.Wakeup // wakes the output goroutine
	room   backoff.Wakeup // wakes the reader when commands were executed

	mu sync.Mutex

	// Guarded by mu. Other goroutines set these for the output goroutine, and wake it.
	ready        []*setFollow          // follows whose sets may have changes
	commands     []command             // messages that are not executed yet
	commandBytes int                   // size of these messages
	control      []byte                // pending control frames
	due          bool                  // a heartbeat is due
	news         [][]setState          // changes of sets
	mayFollow    func(feed.State) bool // reports whether the client may follow a set
	recheck      bool                  // the rights of the client may have changed
	parts        []baselinePart        // parts of baselines to write
	bye          *closeFrame           // close frame to leave with; nil before a goodbye
	why          reason                // reason of the end, as far as it is known

	// held by the output goroutine except while it waits, and by another goroutine that delivers
	// directly; acquired before mu
	turn sync.Mutex

	// Written only by the output goroutine while it holds mu, so it may read it without mu.
	follows map[string]*setFollow // by set

	output // guarded by turn
}

// ServeSession lets the client of r follow any number of sets over a WebSocket. It hijacks the
// connection and returns immediately; the client or Shutdown ends the connection. If ServeSession
// returns an error, it has written nothing, and the caller must respond. ended is called at the end of
// the connection with the highest number of sets that the client followed at a time; it may be nil.
func (s *Server) ServeSession(w http.ResponseWriter, r *http.Request, ended func(sets int)) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	if err := s.startRequest(); err != nil {
		return err
	}
	defer s.requests.Done()
	if err := checkHandshake(r); err != nil {
		return err
	}
	joinLines(r.Header, "Sec-Websocket-Protocol") // gorilla reads only the first line
	format, header, err := sessionFormat(r)
	if err != nil {
		return err
	}
	ws, err := s.upgrader.Upgrade(w, r, header)
	if err != nil {
		return nil // Upgrade has answered
	}
	c := &session{
		server: s, nc: ws.NetConn(), wire: wire{format, webSocketFrames}, user: limit.FromContext(r.Context()), ended: ended,
		wakeup: backoff.NewWakeup(), room: backoff.NewWakeup(), follows: map[string]*setFollow{}, output: output{stopped: map[string]stop{}}, mayFollow: func(feed.State) bool { return true },
	}
	c.ctx, c.cancel = context.WithCancel(limit.NewContext(s.ctx, c.user))
	c.raw = rawSocket(c.nc)
	c.noteActivity()
	c.release = func() {}
	if s.opts.Rights != nil {
		c.release = s.opts.Rights.WhileConnected(r.Context(), c.setRights, func(why error) { c.goodbye(closeNoRight, why.Error()) })
	}
	if !s.registerSession(c) {
		c.release()
		c.goodbye(websocket.CloseGoingAway, stopping)
		c.writeClose()
		_ = c.nc.Close()
	}
	return nil
}

// sessionFormat returns the format of the messages of a session, and the header of the handshake.
func sessionFormat(r *http.Request) (*feed.Format, http.Header, error) {
	asked := websocket.Subprotocols(r)
	for _, name := range asked {
		for _, f := range []*feed.Format{feed.JSON, JSONZstd} {
			if f.Name == name {
				return f, http.Header{"Sec-Websocket-Protocol": {name}}, nil
			}
		}
	}
	if len(asked) > 0 {
		return nil, nil, resourcesync.Invalidf("subprotocol: got %.40q, want %s, %s, or none", asked[0], feed.JSON.Name, JSONZstd.Name)
	}
	return feed.JSON, nil, nil
}

// registerSession adds c to the server and starts its goroutines. If the server is closing, it does
// nothing and returns false.
func (s *Server) registerSession(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.next++
	c.slot = s.next % wheelSlots
	s.wheel[c.slot][c] = struct{}{}
	s.wg.Go(c.run)
	s.wg.Go(c.read)
	s.setWatch.add(c)
	return true
}

// read is the reader of c. It reads messages until the client leaves, and then ends the session.
func (c *session) read() {
	in := messageReader{in: bufio.NewReaderSize(c.nc, 512), maxSize: maxCommand}
	pace := rate.NewLimiter(commandRate, maxCommands)
	var err error
	for err == nil {
		var opcode byte
		var payload []byte
		if opcode, payload, err = in.next(); err != nil {
			break
		}
		c.noteActivity()
		switch opcode {
		case websocket.PingMessage:
			c.pong(payload)
		case websocket.CloseMessage:
			var code int
			if code, err = readClose(payload); err == nil {
				c.sendGoodbye(byClient, &closeFrame{code: code})
				err = io.EOF
			}
		case websocket.TextMessage:
			m := parseCommand(payload)
			m.size = len(payload)
			err = c.addCommand(pace, m)
		case websocket.BinaryMessage:
			err = c.addCommand(pace, command{err: resourcesync.Invalidf("got a binary message, want text"), size: len(payload)})
		}
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		c.goodbye(r.code, r.reason)
	}
	c.goodbye(websocket.CloseProtocolError, "") // unless there was another goodbye
	// A socket that is closed with unread data is reset, and the client then misses the close
	// frame.
	_, _ = io.Copy(io.Discard, in.in)
	c.end()
}

// addCommand queues a message for the output goroutine. It blocks while the client exceeds a limit,
// until the session ends.
func (c *session) addCommand(pace *rate.Limiter, m command) error {
	if err := pace.Wait(c.ctx); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		if len(c.commands) == 0 || len(c.commands) < maxCommands && c.commandBytes+m.size <= maxCommandBytes {
			c.commands = append(c.commands, m)
			c.commandBytes += m.size
			c.mu.Unlock()
			c.wakeup.Wake()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// pong answers a ping. A client that pings without reading gets no further pongs.
func (c *session) pong(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.control)+len(payload) <= maxControl {
		c.control = appendFrame(c.control, websocket.PongMessage, payload)
		c.wakeup.Wake()
	}
}

// markReady notes that the set of a follow may have changes.
func (c *session) markReady(f *setFollow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !f.ready {
		f.ready = true
		c.ready = append(c.ready, f)
		c.wakeup.Wake()
	}
}

// setRights replaces the function that reports whether the client may follow a set. It does not
// block.
func (c *session) setRights(mayFollow func(feed.State) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayFollow, c.recheck = mayFollow, true
	c.wakeup.Wake()
}

// addNews notes changes of sets. It does not block.
func (c *session) addNews(changed []setState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news = append(c.news, changed)
	c.wakeup.Wake()
}

// heartbeat makes the output goroutine send a ping. It closes a session whose client has been silent
// for longer than patience.
func (c *session) heartbeat(_ *directWriter, patience time.Duration) {
	silence := c.server.uptime() - time.Duration(c.lastActive.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	if silence > patience {
		if c.bye == nil {
			c.why = silent
		}
		c.closeSocket() // the reader notices, and ends c
		return
	}
	c.due = true
	c.wakeup.Wake()
}

// goodbye closes c with a code and a text. Only the first goodbye has an effect. It does not block.
func (c *session) goodbye(code int, text string) {
	c.sendGoodbye(closeReason(code), &closeFrame{code: code, reason: text})
}

// sendGoodbye is like goodbye, with the reason that the metrics count.
func (c *session) sendGoodbye(why reason, bye *closeFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye != nil {
		return
	}
	if c.bye = bye; c.why == byClient { // byClient is also the value of an unknown reason
		c.why = why
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingering)) // a write in progress gets no more time than the close frame
	c.cancel()
}

// leaving reports whether there was a goodbye.
func (c *session) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bye != nil
}

// closeSocket closes the socket. It does not block; see conn.closeSocket.
func (c *session) closeSocket() { closeSocket(c.nc) }

func (c *session) noteActivity() { c.lastActive.Store(int64(c.server.uptime())) }

// end closes c and removes it from the server. Only the reader calls it, once.
func (c *session) end() {
	c.cancel()
	c.closeSocket()
	c.release()
	s := c.server
	s.mu.Lock()
	delete(s.wheel[c.slot], c)
	s.mu.Unlock()
	s.setWatch.remove(c)
	c.mu.Lock()
	why := c.why
	c.mu.Unlock()
	s.metrics.closed[byWebSocket][why].Inc()
}

// census calls look for each followed set.
func (c *session) census(look func(k kind, set string, cursor feed.Cursor)) {
	type position struct {
		set    string
		cursor feed.Cursor
	}
	c.mu.Lock()
	all := make([]position, 0, len(c.follows))
	for set, f := range c.follows {
		all = append(all, position{set, f.cursor})
	}
	c.mu.Unlock()
	for _, p := range all {
		look(byWebSocket, p.set, p.cursor)
	}
}

// An answer is a message of a session that is not a batch or a part of a baseline.
type answer struct {
	ID         json.RawMessage   `json:"id,omitempty"`
	Set        string            `json:"set,omitempty"`
	Followed   string            `json:"followed,omitempty"`
	Sets       *int              `json:"sets,omitempty"` // number of sets followed by everySet
	Unfollowed string            `json:"unfollowed,omitempty"`
	Cursors    map[string]string `json:"cursors,omitempty"` // cursors that moved past changes that the filter omitted
	Error      *answerError      `json:"error,omitempty"`
}

// An answerError is a problem document with the cursor to resume from.
type answerError struct {
	*feed.Problem
	Cursor string `json:"cursor,omitempty"` // floor of the log; empty if there is none
}
