// Package pebbledb opens Pebble databases for programs in which the database is a minor part: with
// little memory, and without CPU use while idle.
//
// It stores the format's name, so that a database is not opened by a program that expects another
// format. Package disklog, whose database is the core of a hub, opens its own.
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

// Options configures a database.
type Options struct {
	What   string // description of the content for errors, such as "the inventories"
	Format string // format of keys and values; Open rejects a database with another format
	FS     vfs.FS // default: vfs.Default
	Bloom  bool   // use a Bloom filter, because most lookups are of missing keys

	// Fatal is called if a write failed. It must end the process and not return, because it is
	// unknown which data reached the disk. The database recovers when it is opened again. Default:
	// write a line to standard error and exit with status 1.
	Fatal func(error)
}

// ErrInUse means that another process has opened the database.
var ErrInUse = errors.New("database is in use by another process")

const formatKey = "format"

// Open opens the database in a directory, and creates both if they do not exist. The caller must
// close the database.
func Open(dir string, o Options) (*pebble.DB, error) {
	if o.Fatal == nil {
		o.Fatal = func(err error) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	db, err := pebble.Open(dir, o.pebbleOptions(dir))
	switch {
	case err == nil:
		if err = o.checkFormat(db); err != nil {
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

func (o *Options) pebbleOptions(dir string) *pebble.Options {
	last := pebbleLogger{func(err error) { o.Fatal(fmt.Errorf("write %s in %s: %w", o.What, dir, err)) }}
	p := &pebble.Options{
		FS:                          o.FS,
		Logger:                      last,
		FormatMajorVersion:          pebble.FormatWALSyncChunks,
		CacheSize:                   8 << 20,
		MemTableSize:                8 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                100,
		EventListener: &pebble.EventListener{
			// By default, Pebble ends the process. A read of the damaged file
			// returns an error.
			DataCorruption: func(pebble.DataCorruptionInfo) {},
			// While the disk is full, Pebble would retry writes endlessly, and
			// its Open would not return.
			BackgroundError: func(err error) {
				if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
					last.fatal(err)
				}
			},
		},
	}
	// The default scheduler checks ten times per second how many compactions may run. That
	// uses CPU in an idle program, and here the number is always one.
	p.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range p.Levels {
		if o.Bloom {
			p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		}
	}
	return p
}

// A pebbleLogger is Pebble's logger. It drops messages, because Pebble also returns its errors.
type pebbleLogger struct{ fatal func(error) }

func (pebbleLogger) Infof(string, ...any)                {}
func (pebbleLogger) Errorf(string, ...any)               {}
func (c pebbleLogger) Fatalf(format string, args ...any) { c.fatal(fmt.Errorf(format, args...)) }

// checkFormat checks the format of the database. It writes the format to a new database.
func (o *Options) checkFormat(db *pebble.DB) error {
	format, err := Get(db, formatKey)
	switch {
	case err != nil:
		return fmt.Errorf("read the format: %w", err)
	case string(format) == o.Format:
		return nil
	case format != nil:
		return fmt.Errorf("got format %.20q, want %s; another version of rshub created it", format, o.Format)
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
		return errors.New("foreign Pebble database")
	}
	return db.Set([]byte(formatKey), []byte(o.Format), pebble.Sync)
}

// Get returns a copy of the value of a key, or nil if there is none.
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
