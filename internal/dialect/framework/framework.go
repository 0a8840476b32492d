// Package framework announces changes of the documents of sets, such as a new Resource List
// (Framework Notification 1.0.1).
//
// The announcements to the followers of a set are changes in a separate set, the channel, whose
// name is given by feed.FrameworkSet. So they are pushed, listed and stored like the changes of any
// set, and this package does not deliver anything itself.
package framework

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/resourcesync"
)

// A Memory is the part of changelog.Log that an Announcer reads.
type Memory interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// A Publisher publishes to a set. It is implemented by *hub.Hub.
type Publisher interface {
	Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error)
}

// Documents provides the documents of sets. It is implemented by *documents.Server.
type Documents interface {
	// Framework returns the current documents of a set. The fields of a document differ from
	// earlier ones if its bytes do.
	Framework(ctx context.Context, s feed.State) ([]resourcesync.Change, error)
	// FrameworkDescription returns the Source Description as visible to the caller in ctx.
	FrameworkDescription(ctx context.Context, states []feed.State) (resourcesync.Change, error)
}

// An Announcer announces changes of documents in the sets whose description requests it.
// Announcements are stored in the log of their channel, so none is lost if a hub stops. Two hubs
// that check at the same time may announce a change twice, which is harmless.
type Announcer struct {
	memory    Memory
	hub       Publisher
	documents Documents
	opts      Options
	wake      backoff.Wakeup // wakes Run

	channels map[string]channelState // by name of the channel; used only by the goroutine of Run
}

// A channelState is what the followers of a channel know.
type channelState struct {
	begin     int64  // start of the channel's log
	head      uint64 // position of the channel's newest entry; a log with a lower head has lost it
	documents []resourcesync.Change
}

// Options configures an Announcer. The zero value uses the defaults.
type Options struct {
	Owns        func(set string) bool                     // reports whether this hub announces in a set; default: always true
	AsAnonymous func(ctx context.Context) context.Context // returns ctx with a caller without a token; default: ctx
	Logger      *slog.Logger                              // default: discard
}

const (
	minInterval = 5 * time.Second // minimum time between two checks
	timeShare   = 200             // checks take at most 1/timeShare of the time

	// maxAnnouncements is the number of the newest announcements of a channel that are read to
	// determine what was announced. A document that none of them is about is announced again.
	maxAnnouncements = 1_000
)

// New returns an Announcer. Call Run to start it.
func New(memory Memory, h Publisher, d Documents, o Options) *Announcer {
	if o.Owns == nil {
		o.Owns = func(string) bool { return true }
	}
	if o.AsAnonymous == nil {
		o.AsAnonymous = func(ctx context.Context) context.Context { return ctx }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Announcer{memory: memory, hub: h, documents: d, opts: o, wake: backoff.NewWakeup(), channels: map[string]channelState{}}
}

// Rescan makes Run check soon, because a description that may request announcements was written. It
// does not block.
func (a *Announcer) Rescan() {
	a.wake.Wake()
}

// Run checks for changes periodically until ctx is done.
func (a *Announcer) Run(ctx context.Context) {
	logged := ""
	for pause := minInterval; backoff.SleepOrWake(ctx, pause, a.wake) == nil; {
		begin, now := time.Now(), ""
		if err := a.announceAll(ctx); err != nil {
			now = err.Error()
		}
		if now != "" && now != logged && ctx.Err() == nil {
			a.opts.Logger.Warn("announcing changes of documents failed; the hub retries", "err", now)
		}
		logged = now
		pause = max(minInterval, timeShare*time.Since(begin))
	}
}

// announceAll announces the changes in all channels. An error about one set does not affect the
// others.
func (a *Announcer) announceAll(ctx context.Context) error {
	states, err := a.memory.Sets(ctx)
	if err != nil {
		return err
	}
	by := map[string]feed.State{}
	for _, st := range states {
		by[st.Set] = st
	}
	maps.DeleteFunc(a.channels, func(channel string, _ channelState) bool { return by[channel].Set == "" })
	var description *resourcesync.Change
	var errs []error
	for _, channel := range states {
		if !feed.IsFrameworkSet(channel.Set) || !a.opts.Owns(channel.Set) {
			continue
		}
		set, ok := by[feed.TrimFramework(channel.Set)]
		if ok && !set.Framework {
			continue
		}
		var now []resourcesync.Change
		if ok {
			if description == nil {
				d, err := a.documents.FrameworkDescription(a.opts.AsAnonymous(ctx), states)
				if err != nil {
					return err
				}
				description = &d
			}
			if now, err = a.documents.Framework(ctx, set); err != nil {
				errs = append(errs, fmt.Errorf("documents of set %q: %w", set.Set, err))
				continue
			}
			now = append(now, *description)
		}
		if err := a.announce(ctx, channel, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// announce announces the current documents of a set in its channel. If documents is empty, the set
// was deleted.
func (a *Announcer) announce(ctx context.Context, channel feed.State, now []resourcesync.Change) error {
	head := channel.Head.Position
	if last, ok := a.channels[channel.Set]; ok && last.begin == channel.Begin && last.head <= head && slices.EqualFunc(last.documents, now, sameContent) {
		return nil
	}
	known, err := a.lastAnnouncements(ctx, channel)
	if err != nil {
		return fmt.Errorf("announcements in set %q: %w", channel.Set, err)
	}
	var changes []resourcesync.Change
	for _, c := range now {
		last, ok := known[c.Loc]
		switch {
		case !ok || last.Change == resourcesync.Deleted:
			c.Change = resourcesync.Created
		case !sameContent(last, c):
			c.Change = resourcesync.Updated
		default:
			continue
		}
		changes = append(changes, c)
	}
	if len(now) == 0 {
		changes = deletionOf(known)
	}
	if len(changes) > 0 {
		// A channel that was deleted in the meantime must not be created again: it would be public.
		appended, err := a.hub.Publish(ctx, channel.Set, changelog.Publish{Changes: changes, MustExist: true})
		if err != nil {
			return err
		}
		head = appended.Cursor.Position
	}
	a.channels[channel.Set] = channelState{channel.Begin, head, now}
	return nil
}

// lastAnnouncements returns the newest announcement of each document by URL.
func (a *Announcer) lastAnnouncements(ctx context.Context, channel feed.State) (map[string]resourcesync.Change, error) {
	at := channel.Floor
	if channel.Len() > maxAnnouncements {
		var err error
		if at, err = a.memory.At(ctx, channel.Set, channel.Head.Position-maxAnnouncements); err != nil {
			return nil, err
		}
	}
	known := map[string]resourcesync.Change{}
	for {
		b, err := a.memory.Since(ctx, channel.Set, at, maxAnnouncements)
		if err != nil || len(b.Entries) == 0 {
			return known, err
		}
		for _, e := range b.Entries {
			known[e.Change.Loc] = e.Change
		}
		at = b.Cursor
	}
}

// sameContent reports whether two changes are about the same bytes of the same document.
func sameContent(a, b resourcesync.Change) bool {
	return a.Loc == b.Loc && a.Hash == b.Hash && a.Lastmod.Equal(b.Lastmod)
}

// deletionOf returns the announcement that the Capability List was deleted, if it had been
// announced. This implies the deletion of the other documents.
func deletionOf(known map[string]resourcesync.Change) []resourcesync.Change {
	for _, c := range known {
		if c.FrameworkCapability() == resourcesync.CapabilityList && c.Change != resourcesync.Deleted {
			return []resourcesync.Change{{Loc: c.Loc, Change: resourcesync.Deleted, Attrs: c.Attrs}}
		}
	}
	return nil
}
