package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// checkServers returns nil if every server can store the memory: its version is not too old, and it
// does not evict keys. Append obeys the result until the next call. If first is true, checkServers
// also logs warnings about servers that it accepts.
func (l *Log) checkServers(ctx context.Context, first bool) error {
	l.checkedAt.Store(l.opts.Now().UnixMicro())
	err := l.checkMasters(ctx, first)
	if errors.Is(err, errUnfit) {
		l.unfitErr.Store(&err)
	} else if err == nil {
		l.unfitErr.Store(nil)
	}
	return err
}

// recheckServers is like checkServers, but returns the last result if that is less than a minute
// old.
func (l *Log) recheckServers(ctx context.Context) error {
	if age := l.opts.Now().UnixMicro() - l.checkedAt.Load(); age < time.Minute.Microseconds() && age >= 0 {
		return l.unfitReason()
	}
	return l.checkServers(ctx, false)
}

// unfitReason returns the reason why nothing may be written, or nil, according to the last
// checkServers.
func (l *Log) unfitReason() error {
	if err := l.unfitErr.Load(); err != nil {
		return *err
	}
	return nil
}

// IsTemporary reports whether an error of Open means that Redis cannot be reached or is not ready
// yet, so that a retry makes sense. It is false if Redis refuses the credentials, if its
// certificate is not trusted, or if its settings do not permit a memory.
func IsTemporary(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) && !errors.Is(err, errUnfit) && !redisconn.Denied(err) && !redisconn.Untrusted(err)
}

// clusterSlots is the number of slots of a Redis Cluster.
const clusterSlots = 16384

var errUnfit = fmt.Errorf("%w: unsuitable Redis", feed.ErrUnavailable)

func (l *Log) checkMasters(ctx context.Context, first bool) error {
	return l.read(ctx, func(t *redisconn.Try) error {
		return t.EachMaster(func(t *redisconn.Try) error { return l.checkServer(t, first) })
	})
}

// checkServer checks one server. It uses INFO instead of CONFIG, because fewer servers forbid INFO.
func (l *Log) checkServer(t *redisconn.Try, first bool) error {
	text, err := t.Info()
	if redisconn.Forbidden(err) {
		if first {
			l.opts.Logger.Warn("cannot check whether Redis evicts keys, because its user may not run INFO; make sure that its maxmemory-policy is noeviction", "err", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	info := parseInfo(text)
	if v := info["redis_version"]; v != "" && olderThan62(v) {
		return refuse("%w: got version %s, want 6.2 or newer", errUnfit, v)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return refuse("%w: it may evict keys: maxmemory-policy is %q; set it to noeviction", errUnfit, policy)
	}
	if info["cluster_enabled"] == "1" && !l.conn.Cluster() {
		slots, err := t.Slots()
		switch {
		case redisconn.Forbidden(err):
			if first {
				l.opts.Logger.Warn("Redis has cluster mode enabled, but its user may not run CLUSTER NODES; if the cluster has other servers, add ?cluster=true to the URL", "err", err)
			}
		case err != nil:
			return err
		case slots != clusterSlots:
			return refuse("%w: it is one server of a Redis Cluster and serves %d of %d slots; add ?cluster=true to the URL", errUnfit, slots, clusterSlots)
		}
	}
	if first && info["aof_enabled"] == "0" {
		l.opts.Logger.Warn("Redis has no append-only file, so a crash of Redis loses accepted changes; set appendonly yes")
	}
	return nil
}

// Memory returns the number of bytes of memory that Redis uses, and its limit, which is 0 if there
// is none or Redis does not report it. In a cluster, these are the values of the server with the
// highest share in use.
func (l *Log) Memory(ctx context.Context) (used, most uint64, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		used, most = 0, 0
		return t.EachMaster(func(t *redisconn.Try) error {
			text, err := t.Info()
			if redisconn.Forbidden(err) {
				return nil
			}
			if err != nil {
				return err
			}
			info := parseInfo(text)
			u, _ := strconv.ParseUint(info["used_memory"], 10, 64)
			m, _ := strconv.ParseUint(info["maxmemory"], 10, 64)
			if m > 0 && (most == 0 || float64(u)/float64(m) > float64(used)/float64(most)) {
				used, most = u, m
			}
			return nil
		})
	})
	return used, most, err
}

// SetSize returns an estimate of the memory in bytes that a set uses in Redis, including its keys
// and the pages of its inventory. Redis measures samples and estimates the rest. SetSize returns 0
// if Redis does not permit it.
func (l *Log) SetSize(ctx context.Context, set string) (bytes int64, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		bytes, err = t.MemoryUsage(l.allKeys(set))
		if redisconn.Forbidden(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure set %q: %w", set, err)
	}
	return bytes, nil
}

// parseInfo parses the answer to INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func olderThan62(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	major, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 2 {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && (major < 6 || major == 6 && minor < 2)
}
