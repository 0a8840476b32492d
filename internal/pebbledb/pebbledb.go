// Package pebbledb opens databases of Pebble for programs that have other things to do: with
// little memory, and idle when nobody uses them.
package pebbledb

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options of a database.
type Options struct {
	What   string // what is kept there, for errors: "the inventories"
	Format string // of keys and values; Open refuses a database that has another one
	FS     vfs.FS // default vfs.Default
	Bloom  bool   // most keys that are asked for are not there

	// Fatal ends the process because a write failed, and does not return: nobody knows then
	// what reached the disk. The database recovers when it is opened again. The default
	// writes a line to standard error, and exits with status 1.
	Fatal func(error)
}

// ErrInUse means that another process has the database open.
var ErrInUse = errors.New("it is in use by another process")

const formatKey = "format"

// Open opens the database in a directory, and makes both if they do not exist. The caller
// closes the database.
func Open(dir string, o Options) (*pebble.DB, error) {
	if o.Fatal == nil {
		o.Fatal = func(err error) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	db, err := pebble.Open(dir, o.pebble(dir))
	switch {
	case err == nil:
		if err = o.identify(db); err != nil {
			err = errors.Join(err, db.Close())
		}
	case strings.Contains(err.Error(), "temporarily unavailable"), strings.Contains(err.Error(), "lock held"):
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", o.What, dir, err)
	}
	return db, nil
}

func (o *Options) pebble(dir string) *pebble.Options {
	last := chatter{func(err error) { o.Fatal(fmt.Errorf("write %s in %s: %w", o.What, dir, err)) }}
	p := &pebble.Options{
		FS:                          o.FS,
		Logger:                      last,
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		CacheSize:                   8 << 20,
		MemTableSize:                8 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                100,
		EventListener: &pebble.EventListener{
			// Without this, Pebble would end the process. A read of the damaged file
			// returns an error.
			DataCorruption: func(pebble.DataCorruptionInfo) {},
			// Pebble writes what waits again and again while the disk is full, and its
			// Open does not return meanwhile.
			BackgroundError: func(err error) {
				if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
					last.fatal(err)
				}
			},
		},
	}
	// The default one looks ten times a second whether more compactions than before may run
	// at the same time. That keeps an idle program busy, and here it is always one.
	p.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range p.Levels {
		if o.Bloom {
			p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
	}
	return p
}

// chatter is what Pebble logs to. Its errors are returned besides.
type chatter struct{ fatal func(error) }

func (chatter) Infof(string, ...any)                {}
func (chatter) Errorf(string, ...any)               {}
func (c chatter) Fatalf(format string, args ...any) { c.fatal(fmt.Errorf(format, args...)) }

// identify checks the format. It writes it into a new database.
func (o *Options) identify(db *pebble.DB) error {
	format, err := Get(db, formatKey)
	switch {
	case err != nil:
		return fmt.Errorf("read the format: %w", err)
	case string(format) == o.Format:
		return nil
	case format != nil:
		return fmt.Errorf("it has format %.20q, and this version of rshub knows only format %s", format, o.Format)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	foreign := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if foreign {
		return errors.New("it is a Pebble store of another program")
	}
	return db.Set([]byte(formatKey), []byte(o.Format), pebble.Sync)
}

// Get returns a copy of the value of a key; nil when there is none.
func Get(from pebble.Reader, key string) ([]byte, error) {
	v, done, err := from.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, v...), done.Close()
}
