// Package framework announces changes of the documents of sets (Framework Notification 1.0.1), such
// as a new Resource List.
//
// The announcements to a set's followers are changes in a set of their own, named by
// feed.FrameworkSet. So they are pushed, listed and stored like those of any set, and this package
// delivers nothing itself.
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

// A Memory is the part of changelog.Log that is read.
type Memory interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// A Publisher publishes to a set. It is a *hub.Hub.
type Publisher interface {
	Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error)
}

// Documents are those of sets. They are a *documents.Server.
type Documents interface {
	// Framework returns the documents of a set as they are now. The fields of each differ
	// from those of another time if its bytes do.
	Framework(ctx context.Context, s feed.State) ([]resourcesync.Change, error)
	// FrameworkDescription returns the Source Description that the caller in ctx sees.
	FrameworkDescription(ctx context.Context, states []feed.State) (resourcesync.Change, error)
}

// An Announcer announces what changes in the documents of the sets whose description asks for
// it. What was announced stands in the log of the announcements, so nothing is lost when a hub
// stops. Two hubs that look at once may announce a change twice, which does no harm.
type Announcer struct {
	memory    Memory
	hub       Publisher
	documents Documents
	opts      Options
	wake      backoff.Wakeup // wakes Run after Described

	announced map[string]announced // by channel; only the goroutine of Run uses it
}

// An announced is what the followers of a channel know.
type announced struct {
	begin     int64  // of the channel's log
	head      uint64 // position of the channel's newest entry then; a log that ends before has lost it
	documents []resourcesync.Change
}

// Options of an Announcer. Zero values are the defaults.
type Options struct {
	Mine   func(set string) bool                     // reports whether this hub announces in a set; default: it does
	Anyone func(ctx context.Context) context.Context // returns ctx with a caller without a token; default: ctx
	Logger *slog.Logger                              // default: discard
}

const (
	lookEvery = 5 * time.Second // the least time between two looks
	lookShare = 200             // looks take at most 1/lookShare of the time

	// newest is how many announcements of a channel are read to see what was announced. A
	// document that none of them is about is announced again.
	newest = 1_000
)

// New returns an Announcer. It does nothing until Run.
func New(memory Memory, h Publisher, d Documents, o Options) *Announcer {
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	if o.Anyone == nil {
		o.Anyone = func(ctx context.Context) context.Context { return ctx }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Announcer{memory: memory, hub: h, documents: d, opts: o, wake: backoff.NewWakeup(), announced: map[string]announced{}}
}

// Described says that a description was written, which may ask for announcements.
func (a *Announcer) Described() {
	a.wake.Wake()
}

// Run looks for changes until ctx is done.
func (a *Announcer) Run(ctx context.Context) {
	said := ""
	for pause := lookEvery; backoff.SleepOrWake(ctx, pause, a.wake) == nil; {
		begin, now := time.Now(), ""
		if err := a.look(ctx); err != nil {
			now = err.Error()
		}
		if now != "" && now != said && ctx.Err() == nil {
			a.opts.Logger.Warn("some changes of documents could not be announced; the hub tries again", "err", now)
		}
		said = now
		pause = max(lookEvery, lookShare*time.Since(begin))
	}
}

// look announces what has changed. An error about one set does not keep it from the others.
func (a *Announcer) look(ctx context.Context) error {
	states, err := a.memory.Sets(ctx)
	if err != nil {
		return err
	}
	by := map[string]feed.State{}
	for _, st := range states {
		by[st.Set] = st
	}
	maps.DeleteFunc(a.announced, func(channel string, _ announced) bool { return by[channel].Set == "" })
	var description *resourcesync.Change
	var errs []error
	for _, channel := range states {
		if !feed.IsFrameworkSet(channel.Set) || !a.opts.Mine(channel.Set) {
			continue
		}
		set, ok := by[feed.TrimFramework(channel.Set)]
		if ok && !set.Framework {
			continue
		}
		var now []resourcesync.Change
		if ok {
			if description == nil {
				d, err := a.documents.FrameworkDescription(a.opts.Anyone(ctx), states)
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

// announce announces in a channel what the documents of its set are now. A set without
// documents was deleted.
func (a *Announcer) announce(ctx context.Context, channel feed.State, now []resourcesync.Change) error {
	head := channel.Head.Position
	if last, ok := a.announced[channel.Set]; ok && last.begin == channel.Begin && last.head <= head && slices.EqualFunc(last.documents, now, same) {
		return nil
	}
	known, err := a.known(ctx, channel)
	if err != nil {
		return fmt.Errorf("announcements in set %q: %w", channel.Set, err)
	}
	var changes []resourcesync.Change
	for _, c := range now {
		last, ok := known[c.Loc]
		switch {
		case !ok || last.Change == resourcesync.Deleted:
			c.Change = resourcesync.Created
		case !same(last, c):
			c.Change = resourcesync.Updated
		default:
			continue
		}
		changes = append(changes, c)
	}
	if len(now) == 0 {
		changes = deleted(known)
	}
	if len(changes) > 0 {
		// A channel that was deleted meanwhile must not be made again, and for everybody to see.
		made, err := a.hub.Publish(ctx, channel.Set, changelog.Publish{Changes: changes, MustExist: true})
		if err != nil {
			return err
		}
		head = made.Cursor.Position
	}
	a.announced[channel.Set] = announced{channel.Begin, head, now}
	return nil
}

// known returns the newest announcement of each document, by its URL.
func (a *Announcer) known(ctx context.Context, channel feed.State) (map[string]resourcesync.Change, error) {
	at := channel.Floor
	if channel.Len() > newest {
		var err error
		if at, err = a.memory.At(ctx, channel.Set, channel.Head.Position-newest); err != nil {
			return nil, err
		}
	}
	known := map[string]resourcesync.Change{}
	for {
		b, err := a.memory.Since(ctx, channel.Set, at, newest)
		if err != nil || len(b.Entries) == 0 {
			return known, err
		}
		for _, e := range b.Entries {
			known[e.Change.Loc] = e.Change
		}
		at = b.Cursor
	}
}

// same reports whether two changes are about the same bytes.
func same(a, b resourcesync.Change) bool {
	return a.Loc == b.Loc && a.Hash == b.Hash && a.Lastmod.Equal(b.Lastmod)
}

// deleted returns the announcement that the Capability List is deleted, if one announced it.
// The other documents are deleted with it.
func deleted(known map[string]resourcesync.Change) []resourcesync.Change {
	for _, c := range known {
		if c.FrameworkCapability() == resourcesync.CapabilityList && c.Change != resourcesync.Deleted {
			return []resourcesync.Change{{Loc: c.Loc, Change: resourcesync.Deleted, Attrs: c.Attrs}}
		}
	}
	return nil
}
